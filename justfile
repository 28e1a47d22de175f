# The verbs of this repository. `just ci` runs what CI runs, in the same order.
#
# A target directory outside the clone is used when CARGO_TARGET_DIR names one.

set shell := ["bash", "-euo", "pipefail", "-c"]

# What CI runs, in order. `.ci/run` reads this list.
ci_verbs := "lint doc test gen-check"

# Files written by `just gen`, and never by hand.
generated := "docs/machine.md docs/reference/tamma.schema.json docs/reference/configuration.md"

nextest_profile := if env("CI", "") == "" { "default" } else { "ci" }

# List the verbs.
default:
    @just --list --unsorted

# Install the tools that the verbs use, with cargo and pip.
[group("setup")]
setup:
    TAMMA_TOOLS=all bash .ci/tools

# Format the code.
[group("check")]
fmt:
    cargo fmt --all

# Check everything that needs no test: format, size, clippy, spelling, bans, dependencies, migrations.
[group("check")]
lint: fmt-check size clippy spell deny machete migrations

# Check the format and change nothing.
[group("check")]
fmt-check:
    cargo fmt --all -- --check

# Fail for a source file of more than 800 lines: it is perhaps two rooms in one.
[group("check")]
size:
    @git ls-files --cached --others --exclude-standard '*.rs' | xargs awk 'FNR == 801 { print FILENAME " has more than 800 lines: which two nouns are in it?"; bad = 1 } END { exit bad }'

# Run clippy on every target; a warning is an error.
[group("check")]
clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Check the spelling of code and documents.
[group("check")]
spell:
    typos

# Check bans, licences and sources of what we depend on.
[group("check")]
deny:
    cargo deny --locked check bans licenses sources

# Look for dependencies that nothing uses.
[group("check")]
machete:
    cargo machete

# Check that migrations do not lock or break what runs.
[group("check")]
migrations:
    squawk crates/store/migrations/*.sql

# Check our dependencies against the advisory database, which is fetched; not part of ci.
[group("check")]
advisories:
    cargo deny --locked check advisories

# Build the documentation, private items too; a broken link is an error.
[group("check")]
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

# Run the tests: documentation examples, then everything else. Arguments go to nextest.
[group("check")]
test *args:
    cargo test --doc --workspace --locked --quiet
    cargo nextest run --workspace --locked --profile {{ nextest_profile }} {{ args }}

# Write the generated documents: the picture of the machine, the schema, the configuration reference.
[group("generate")]
gen:
    #!/usr/bin/env bash
    set -euo pipefail
    # Through a temporary file, so that a failure leaves the old document as it was.
    scratch="$(mktemp -d)"
    trap 'rm -rf "$scratch"' EXIT
    write() {
        local to="$1"; shift
        "$@" > "$scratch/out"
        mkdir -p "$(dirname "$to")"
        cat "$scratch/out" > "$to"
        echo "wrote $to"
    }
    write docs/machine.md cargo run --quiet --locked -p tamma-core --example picture
    write docs/reference/tamma.schema.json cargo run --quiet --locked -p tamma-cli -- config schema
    write docs/reference/configuration.md cargo run --quiet --locked -p tamma-cli -- config reference

# Check the store's queries against a PostgreSQL of their own, and write down what they are (.sqlx).
[group("generate")]
gen-sql:
    #!/usr/bin/env bash
    set -euo pipefail
    folder="$(mktemp -d)"
    coproc server { bash crates/testkit/src/postgres.sh "$folder" $$; }
    read -r url <&"${server[0]}"
    for migration in crates/store/migrations/*.sql; do
        psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --dbname "$url" --file "$migration" > /dev/null
    done
    # The macros write what they find to this folder, and only when they are expanded anew.
    rm -rf crates/store/.sqlx
    mkdir crates/store/.sqlx
    touch crates/store/src/lib.rs
    DATABASE_URL="$url" SQLX_OFFLINE=false SQLX_OFFLINE_DIR="$PWD/crates/store/.sqlx" \
        cargo check --quiet --locked -p tamma-store
    touch crates/store/src/lib.rs
    echo "wrote crates/store/.sqlx: $(ls crates/store/.sqlx | wc -l) queries"

# Fail if a generated document is not what the code says.
[group("generate")]
gen-check: gen
    #!/usr/bin/env bash
    set -euo pipefail
    if ! git ls-files --error-unmatch -- {{ generated }} > /dev/null; then
        echo "A generated document is not in git. Add it: git add {{ generated }}" >&2
        exit 1
    fi
    if ! git diff --exit-code -- {{ generated }}; then
        echo >&2
        echo "The documents above are generated, and the code now says something else." >&2
        echo "Read the difference. If you meant it, commit the files as \`just gen\` has written them;" >&2
        echo "if not, the change in the code is wrong." >&2
        exit 1
    fi
    echo "generated documents are in step with the code"

# Run the invariants over 100,000 random sequences, optimised (TAMMA_SEQUENCES to change).
[group("deep")]
soak-core:
    TAMMA_SEQUENCES="${TAMMA_SEQUENCES:-100000}" cargo nextest run --release --locked --profile soak -p tamma-core --test invariants --no-capture

# Mutate the core and count how many mutants the tests catch; fails under 90 %. Arguments go to cargo-mutants.
[group("deep")]
mutants-core *args:
    #!/usr/bin/env bash
    set -euo pipefail
    # Each job builds in a copy of the tree; a shared target directory would mix them up.
    unset CARGO_TARGET_DIR
    # The rules are tested one by one; a few random cases are enough beside them.
    export TAMMA_SEQUENCES=60 PROPTEST_CASES=24
    code=0
    cargo mutants --package tamma-core --jobs 2 {{ args }} || code=$?
    # 2: some survived, 3: some timed out. Both are judged below; anything else is a failed run.
    case "$code" in 0 | 2 | 3) ;; *) exit "$code" ;; esac
    python3 - <<'PY'
    import json, sys

    run = json.load(open("mutants.out/outcomes.json"))
    survivors = [
        o["scenario"]["Mutant"]["name"]
        for o in run["outcomes"]
        if o["summary"] == "MissedMutant"
    ]
    # A mutant that hangs is stopped by the test runner's own limit, so it is a caught one.
    caught = run["caught"] + run["timeout"]
    viable = run["total_mutants"] - run["unviable"]
    if survivors:
        print("survivors:")
        print("\n".join(f"  {name}" for name in survivors))
    if not viable:
        sys.exit("mutants: none viable, so nothing was shown")
    share = 100 * caught / viable
    print(
        f"mutants: {caught} of {viable} viable caught = {share:.1f} % "
        f"({run['timeout']} by timeout, {len(survivors)} survived, {run['unviable']} did not build)"
    )
    if share < 90:
        sys.exit("mutants: under 90 %")
    PY

# Measure `step` on one core, optimised.
[group("deep")]
bench-core:
    cargo run --release --quiet --locked -p tamma-core --example bench

# Run everything that CI runs, in the same order.
[group("check")]
ci:
    #!/usr/bin/env bash
    set -euo pipefail
    for verb in {{ ci_verbs }}; do
        echo "── $verb"
        just "$verb"
    done
