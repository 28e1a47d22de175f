# The verbs of this repository. `just ci` runs what CI runs, in the same order.
#
# A target directory outside the clone is used when CARGO_TARGET_DIR names one.

set shell := ["bash", "-euo", "pipefail", "-c"]

# What CI runs, in order. `.ci/run` reads this list.
ci_verbs := "lint doc test chaos-ci salvage-ci escape agents-ci review-ci lies ladder-ci circle-ci eval-knowledge eval-chat alerts mcp-ci e2e-ci gen-check"

# Files written by `just gen`, and never by hand.
generated := "docs/machine.md docs/reference/tamma.schema.json docs/reference/configuration.md docs/reference/commands.md docs/reference/openapi.json"

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

# Show it from nothing: a repository, tasks, an approval, a restart. Prints what it does.
[group("try")]
demo:
    bash demo/demo.sh

# Tamma in your browser: a small shop, a task, and its plan for you to approve. Ctrl-C ends it.
[group("try")]
demo-web:
    bash demo/web.sh

# Take a task through with a real agent, with everything real but the model: claude-code, codex, gemini or opencode.
[group("try")]
demo-real agent="claude-code":
    bash demo/real.sh {{ agent }}

# Run the commands of docs/operating.md: given servers, the roles apart, backup, restore, retention.
[group("try")]
demo-operating:
    bash demo/operating.sh

# Kill parts of Tamma at eight points of a task's way, and look what is lost.
[group("check")]
chaos-ci: (chaos "--few")

# Kill an agent, its worker and both at random moments, and look what is missing elsewhere.
[group("check")]
salvage-ci: (salvage "--few")

# Write the generated documents: the picture of the machine, the schema, and the references.
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
    # The whole workspace, as the tests build it: a single package would be built with other
    # features, and everything below it once more.
    cargo build --quiet --locked --workspace --all-targets
    built="${CARGO_TARGET_DIR:-target}/debug"
    write docs/machine.md "$built/examples/picture"
    write docs/reference/tamma.schema.json "$built/tamma" config schema
    write docs/reference/configuration.md "$built/tamma" config reference
    write docs/reference/commands.md "$built/tamma" help-reference
    write docs/reference/openapi.json "$built/examples/openapi"

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

# Keep the histories that this version's workflows leave behind, for later versions to replay.
[group("generate")]
gen-histories:
    TAMMA_KEEP_HISTORIES=1 cargo nextest run --workspace --locked -E 'package(tamma-worker) & (test(histories_to_keep) | test(followed_by_another))'

# Go through a person's day in a real browser (docs/people.md). Pictures of every page are written to a folder.
[group("try")]
e2e *args:
    #!/usr/bin/env bash
    set -euo pipefail
    [ -d e2e/web/node_modules ] || npm install --no-save --prefix e2e/web --no-audit --no-fund
    # As above: the whole workspace, so that nothing is compiled twice for other features.
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec node e2e/web/day.mjs "$target/debug" "$target/pictures" {{ args }}

# The same day, with fewer pictures.
[group("check")]
e2e-ci: (e2e "--few")

# Measure a board of ten thousand tasks, how soon a change is in two hundred open browsers, and what they miss while the server restarts.
[group("deep")]
bench-board:
    #!/usr/bin/env bash
    set -euo pipefail
    # A development build: the goals hold there already.
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/bench-board"

# Send alerts to real receivers: a webhook that is away at first, Slack's form, and a real mail server.
[group("check")]
alerts:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    [ -d "$target/alerts-python" ] || { python3 -m venv "$target/alerts-python" && "$target/alerts-python/bin/pip" install --quiet -r e2e/alerts/requirements.txt; }
    exec "$target/alerts-python/bin/python" e2e/alerts/run.py "$target/debug"

# Steer Tamma from real MCP clients, the protocol's inspector and a real agent, with rights that hold (docs/people.md).
[group("check")]
mcp *args:
    #!/usr/bin/env bash
    set -euo pipefail
    [ -d e2e/mcp/node_modules ] || npm install --no-save --prefix e2e/mcp --no-audit --no-fund
    case "{{ args }}" in
    *--few*) ;;
    *) [ -d e2e/agents/claude-code/node_modules ] || npm install --no-save --prefix e2e/agents/claude-code --no-audit --no-fund ;;
    esac
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/mcp" {{ args }}

# The same without the agent.
[group("check")]
mcp-ci: (mcp "--few")

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

# Kill each part of Tamma at each point of a task's way, and look what is lost (docs/chaos.md).
[group("deep")]
chaos *args:
    #!/usr/bin/env bash
    set -euo pipefail
    # The whole workspace, so that nothing is compiled twice for other features. The programs lie
    # beside each other, where the target directory says.
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/chaos" {{ args }}

# Let a hostile agent try every way out of its sandbox that we know of (docs/confinement.md). `--control` has no sandbox.
[group("check")]
escape *args:
    #!/usr/bin/env bash
    set -euo pipefail
    # As above: the whole workspace, so that nothing is compiled twice for other features.
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/escape" {{ args }}
# Kill an agent, its worker or both at 20 random moments; a second worker with an empty disk goes on.
[group("deep")]
salvage *args:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/salvage" {{ args }}

# Play every way in which an agent says that it is done and is not, and look whether one is believed.
[group("try")]
lies *args:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/lies" {{ args }}

# Go the four ways that follow a failed review, with a real agent and a scripted model (docs/after-a-failed-review.md).
[group("check")]
ladder *args:
    #!/usr/bin/env bash
    set -euo pipefail
    [ -d e2e/agents/claude-code/node_modules ] || npm install --no-save --prefix e2e/agents/claude-code --no-audit --no-fund
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/ladder" {{ args }}

# Two of the ways, with an agent that follows a script.
[group("check")]
ladder-ci: (ladder "--few")

# Go round the circle of learning with a real agent and a scripted model, and tell it as a story (docs/learning.md).
[group("try")]
circle *args:
    #!/usr/bin/env bash
    set -euo pipefail
    [ -d e2e/agents/claude-code/node_modules ] || npm install --no-save --prefix e2e/agents/claude-code --no-audit --no-fund
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/circle" {{ args }}

# The same with an agent that follows a script.
[group("check")]
circle-ci: (circle "--few")

# Play sixty tasks of all outcomes and look what they leave to learn from; merge sixty lessons.
[group("try")]
learning *args:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/learning" {{ args }}

# Run every built-in agent, as a real program, through one contract against a scripted model (docs/agents.md).
[group("check")]
agents *args:
    #!/usr/bin/env bash
    set -euo pipefail
    # Not `npm ci`: it refuses a lock file without the parts for other systems, which not every
    # registry has. The versions are those of the lock file either way.
    for folder in e2e/agents/*/; do
        [ -d "$folder/node_modules" ] || npm install --no-save --prefix "$folder" --no-audit --no-fund
    done
    # As above: the whole workspace, so that nothing is compiled twice for other features.
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/agents" {{ args }}

# Two of the agents and a handful of scenarios.
[group("check")]
agents-ci:
    #!/usr/bin/env bash
    set -euo pipefail
    for name in claude-code codex; do
        [ -d "e2e/agents/$name/node_modules" ] || npm install --no-save --prefix "e2e/agents/$name" --no-audit --no-fund
    done
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    exec "$target/debug/agents" --few

# Review changes in Rust, Python and TypeScript with the real tools: is each judged as it should be (docs/gates.md)? `--few` tries each once.
[group("check")]
review *args:
    #!/usr/bin/env bash
    set -euo pipefail
    [ -d e2e/review/node_modules ] || npm install --no-save --prefix e2e/review --no-audit --no-fund
    # As above: the whole workspace, so that nothing is compiled twice for other features.
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    python="$target/review-python"
    if ! [ -x "$python/bin/mypy" ]; then
        python3 -m venv --clear "$python"
        "$python/bin/pip" install --quiet --disable-pip-version-check --requirement e2e/review/requirements.txt
    fi
    exec "$target/debug/review" --python "$python" --modules e2e/review/node_modules {{ args }}

# Every case of a review once.
[group("check")]
review-ci: (review "--few")

# Hold 271 labelled plans against 364 entries: is each stopped or shown what it should be, and how fast? `--embeddings` also with a local model of words (docs/decisions/0009).
[group("check")]
eval-knowledge *args:
    #!/usr/bin/env bash
    set -euo pipefail
    # As above: the whole workspace, so that nothing is compiled twice for other features.
    cargo build --workspace --all-targets --locked --quiet
    target="$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
    case "{{ args }}" in
    "") exec "$target/debug/eval-knowledge" ;;
    "--embeddings") ;;
    *) echo "usage: just eval-knowledge [--embeddings]" >&2; exit 2 ;;
    esac
    folder=eval/knowledge/embeddings
    [ -d "$folder/node_modules" ] || npm install --no-save --prefix "$folder" --no-audit --no-fund
    # It ends with its input, which is this script.
    coproc model { exec node "$folder/server.mjs"; }
    read -r url <&"${model[0]}"
    "$target/debug/eval-knowledge" --embeddings "$url"

# Read 765 labelled messages with the grammar of the chat alone: how many intents are right, by intent and by part? Fails under 0.9.
[group("check")]
eval-chat:
    cargo nextest run --workspace --locked --no-capture -E 'package(tamma-core) and binary(chat) and test(accuracy)'

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

# Measure what the gateway adds to the first byte of a model's answer, optimised. An argument is another number of calls.
[group("deep")]
bench-gateway *args:
    cargo build --profile measure --quiet --locked --workspace --bins
    "${CARGO_TARGET_DIR:-target}/measure/bench-gateway" {{ args }}

# Measure the loop beside the bare engine, optimised; about eight minutes. `--fast-database` does not wait for the disk.
[group("deep")]
bench-loop *args:
    cargo build --profile measure --quiet --locked --workspace --bins
    "${CARGO_TARGET_DIR:-target}/measure/bench-loop" {{ args }}

# Measure 5,000 tasks that wait for approval, optimised. An argument is another number of tasks.
[group("deep")]
bench-waiting *args:
    cargo build --profile measure --quiet --locked --workspace --bins
    "${CARGO_TARGET_DIR:-target}/measure/bench-waiting" {{ args }}

# Measure 50 agents at once on one worker, optimised: memory of a slot, and transitions beside them.
[group("deep")]
bench-engines *args:
    cargo build --profile measure --quiet --locked --workspace --bins
    "${CARGO_TARGET_DIR:-target}/measure/bench-engines" {{ args }}

# Run everything that CI runs, in the same order.
[group("check")]
ci:
    #!/usr/bin/env bash
    set -euo pipefail
    for verb in {{ ci_verbs }}; do
        echo "── $verb"
        just "$verb"
    done
