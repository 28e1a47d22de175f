# Recipes of this repository. `just ci` runs the steps of CI.
#
# Set CARGO_TARGET_DIR to build outside the clone.

set shell := ["bash", "-euo", "pipefail", "-c"]

# The steps of CI, in order; `.ci/run` reads this list. `lab:chaos` is `just lab chaos --quick`.
ci_verbs := "lint advisories doc test lab:first-minute lab:docs lab:chaos lab:crash-recovery lab:cluster lab:pipeline lab:forge lab:merge-queue lab:reconcile lab:upgrade lab:restore lab:sandbox-escape lab:hostile-repositories lab:agents lab:review lab:false-claims lab:escalation lab:eval lab:learning-loop lab:knowledge lab:chat lab:alerts lab:audit lab:canary lab:objects lab:observe lab:identity lab:acme lab:tenancy lab:mcp lab:browser lab:top lab:task-cost lab:endurance gen-check"

# Where `cargo deny` gets the advisory database.
advisory_database := "https://github.com/RustSec/advisory-db"

# The experiments that measure an optimised build.
optimised := '^bench-(agents|core|gateway|loop|replay|store|waiting|workers)$'

# Files written by `just gen`, and never by hand.
generated := "docs/machine.md docs/pictures/machine.svg docs/reference/tamma.schema.json docs/reference/configuration.md docs/reference/commands.md docs/reference/openapi.json"

nextest_profile := if env("CI", "") == "" { "default" } else { "ci" }

# List the recipes.
default:
    @just --list --unsorted

# Install the tools that the recipes use.
[group("setup")]
setup:
    TAMMA_TOOLS=all bash .ci/tools

# Type-check every target.
[group("check")]
check:
    cargo check --workspace --all-targets --locked

# Format the code.
[group("check")]
fmt:
    cargo fmt --all

# Check format, clippy, conventions, spelling, bans, dependencies and migrations.
[group("check")]
lint: fmt-check conventions clippy spell deny machete migrations

# Check the format and change nothing.
[private]
fmt-check:
    cargo fmt --all -- --check

# Check the conventions of CONTRIBUTING.md that no other tool checks.
[private]
conventions:
    python3 .ci/conventions.py check

# Run clippy on every target; a warning is an error.
[private]
clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Check the spelling of code and documents.
[private]
spell:
    typos

# Check bans, licences and sources of what we depend on.
[private]
deny:
    cargo deny --locked check --hide-inclusion-graph bans licenses sources

# Check dependencies against the advisory database, if it can be reached.
[group("check")]
advisories:
    #!/usr/bin/env bash
    set -euo pipefail
    if ! timeout 20 git ls-remote --quiet {{ advisory_database }} HEAD > /dev/null 2>&1; then
        echo "advisories: NOT CHECKED, {{ advisory_database }} cannot be reached"
        exit 0
    fi
    cargo deny --locked check advisories

# Look for dependencies that nothing uses.
[private]
machete:
    cargo machete

# Check that migrations do not lock or break what runs.
[private]
migrations:
    squawk crates/store/migrations/*.sql

# Build the documentation site with mdBook in the target directory; a broken link is an error.
[group("check")]
docs:
    @python3 .ci/book.py "$(just target)"

# Build the site and the API documentation, including private items; a broken link is an error.
[group("check")]
doc: docs
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

# Most tests wait for a server or a process, so more of them run at once than there are cores.

# Run doc tests, then all other tests. Arguments go to nextest.
[group("check")]
test *args:
    cargo test --doc --workspace --locked --quiet
    NEXTEST_TEST_THREADS="${NEXTEST_TEST_THREADS:-$((2 * $(getconf _NPROCESSORS_ONLN)))}" \
        cargo nextest run --workspace --locked --profile {{ nextest_profile }} {{ args }}

# Print the language and build metrics, at an older commit and now.
[group("check")]
metrics base="cce4d8f":
    @python3 .ci/conventions.py metrics {{ base }}

# Run the steps of CI one after another.
[group("check")]
ci:
    #!/usr/bin/env bash
    set -euo pipefail
    for verb in {{ ci_verbs }}; do
        echo "── $verb"
        just step "$verb"
    done

# Run one step of CI: a verb, or `lab:` and the name of an experiment.
[private]
step verb:
    just {{ if verb =~ '^lab:' { replace_regex(verb, '^lab:', "lab ") + " --quick" } else { verb } }}

# Show Tamma with a scripted agent: the tour, `web` (in your browser), `real [agent]` or `operating`.
[group("try")]
demo what="tour" *args:
    bash lab/demo/{{ what }}.sh {{ args }}

# Run one experiment of the lab (lab/README.md); `--quick` runs the slice that CI runs.
[group("try")]
lab experiment *args: (build if experiment =~ optimised { "measure" } else { "dev" }) (lab-tools experiment + " " + args)
    @"$(just target)/{{ if experiment =~ optimised { "measure" } else { "debug" } }}/lab" {{ experiment }} {{ args }}

# Build the tools that only one experiment needs: Gitea and its runner for `lab forge` in full, and its
# pages for `--write`; the Temporal server for `lab cluster` and `lab restore`, and for `bench-loop`, `bench-workers`, `endurance` and
# `fairness` with `--server real` or `three-nodes`, if Go is installed; Prometheus for `lab observe`, and Jaeger for it in full, if Go is installed; Pebble
# for `lab acme`, if Go is installed; Helm for `lab chart`; runc and mmdebstrap for `lab image`.
[private]
lab-tools call:
    @{{ if call =~ '^forge( |$)' { if call =~ '--quick' { "true" } else if call =~ '--write' { "TAMMA_TOOLS=forge-pages bash .ci/tools" } else { "TAMMA_TOOLS=forge bash .ci/tools" } } else if call =~ '^((cluster|restore)( |$)|(bench-(loop|workers)|endurance|fairness) .*--server[ =](real|three-nodes))' { "TAMMA_TOOLS=temporal bash .ci/tools" } else if call =~ '^observe( |$)' { "TAMMA_TOOLS=monitoring bash .ci/tools" + if call =~ '--quick' { "" } else { "; TAMMA_TOOLS=traces bash .ci/tools" } } else if call =~ '^acme( |$)' { "TAMMA_TOOLS=acme bash .ci/tools" } else if call =~ '^chart( |$)' { "TAMMA_TOOLS=helm bash .ci/tools" } else if call =~ '^image( |$)' { "TAMMA_TOOLS=image bash .ci/tools" } else { "true" } }}

# Build the container image from an optimised program, without a container engine (docs/kubernetes.md).
[group("try")]
image *args:
    #!/usr/bin/env bash
    set -euo pipefail
    TAMMA_TOOLS=image bash .ci/tools
    cargo build --quiet --locked --release -p tamma-cli
    target="$(just target)"
    mkdir -p "$target/packages"
    strip -o "$target/packages/tamma" "$target/release/tamma"
    packaging/container/build "$target/packages/tamma" --out "$target/packages" {{ args }}

# Run every experiment in full and print a table of results (takes hours).
[group("deep")]
nightly: (build "dev") (build "measure")
    #!/usr/bin/env bash
    set -euo pipefail
    logs="$(mktemp -d)"
    rows=() code=0
    for experiment in $("$(just target)/debug/lab" list); do
        printf '\n── %s\n' "$experiment"
        began=$SECONDS outcome=passed
        just lab "$experiment" | tee "$logs/$experiment" || { outcome=FAILED code=1; }
        result="$(tail -n 1 "$logs/$experiment")"
        rows+=("$(printf '%-16s %-7s %8d  %s' "$experiment" "$outcome" "$((SECONDS - began))" "${result#"$experiment: "}")")
    done
    printf '\n%-16s %-7s %8s  %s\n' experiment outcome seconds result
    printf '%s\n' "${rows[@]}"
    rm -rf "$logs"
    exit "$code"

# Fuzz a parser of foreign bytes for some seconds, or `all` of them (fuzz/README.md).
[group("deep")]
fuzz target seconds="60":
    #!/usr/bin/env bash
    set -euo pipefail
    folder="$(just target)/fuzz"
    flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
    flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares"
    # With a target, the flags do not apply to build scripts and macros.
    host="$(rustc -vV | sed -n 's/^host: //p')"
    RUSTFLAGS="$flags" cargo build --quiet --locked --release --target "$host" \
        --manifest-path fuzz/Cargo.toml --target-dir "$folder"
    bash fuzz/run.sh "$folder/$host/release/tamma-fuzz" "$folder/runs" {{ target }} {{ seconds }}

# Build everything at once, so that nothing is compiled twice for other features.
[private]
build profile="dev":
    cargo build --quiet --locked --workspace --profile {{ profile }} {{ if profile == "dev" { "--all-targets" } else { "--bins" } }}

# Print the target directory.
[private]
target:
    @cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])'

# Write the generated documents: state diagram, schema, and references.
[group("generate")]
gen: build
    #!/usr/bin/env bash
    set -euo pipefail
    # Through a temporary file, so that a failure leaves the old document as it was.
    scratch="$(mktemp -d)"
    trap 'rm -rf "$scratch"' EXIT
    write() {
        local to="$1"; shift
        "$@" > "$scratch/out"
        # Tests include some of these files, and an unchanged one must not make them compile again.
        if cmp -s "$scratch/out" "$to"; then return; fi
        mkdir -p "$(dirname "$to")"
        cat "$scratch/out" > "$to"
        echo "wrote $to"
    }
    built="${CARGO_TARGET_DIR:-target}/debug"
    write docs/machine.md "$built/examples/state_diagram"
    write docs/pictures/machine.svg "$built/examples/state_picture"
    write docs/reference/tamma.schema.json "$built/tamma" config schema
    write docs/reference/configuration.md "$built/tamma" config reference
    write docs/reference/commands.md "$built/tamma" help-reference
    write docs/reference/openapi.json "$built/examples/openapi"

# Check the store's queries against a private PostgreSQL server and write crates/store/.sqlx.
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

# Record workflow histories of this version, for later versions to replay.
[group("generate")]
gen-histories:
    TAMMA_KEEP_HISTORIES=1 cargo nextest run --workspace --locked -E 'package(tamma-worker) & (test(histories_to_keep) | test(another_worker_continues))'

# Fail if a generated document is out of date.
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
        echo "The generated documents above are out of date. Read the difference: if it is intended," >&2
        echo "commit the files as \`just gen\` wrote them; otherwise fix the code." >&2
        exit 1
    fi
    echo "generated documents are up to date"

# Check the invariants over 100,000 random sequences, optimised (TAMMA_SEQUENCES changes the number).
[group("deep")]
soak:
    TAMMA_SEQUENCES="${TAMMA_SEQUENCES:-100000}" cargo nextest run --release --locked --profile soak -p tamma-core -E 'test(/^invariants::/)' --no-capture

# Mutate `core` and count the mutants that tests catch; fails below 90%. Arguments go to cargo-mutants.
[group("deep")]
mutants *args:
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
        sys.exit("mutants: no viable mutants")
    share = 100 * caught / viable
    print(
        f"mutants: {caught} of {viable} viable caught = {share:.1f} % "
        f"({run['timeout']} by timeout, {len(survivors)} survived, {run['unviable']} did not build)"
    )
    if share < 90:
        sys.exit("mutants: under 90 %")
    PY

