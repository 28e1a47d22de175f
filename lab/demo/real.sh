#!/usr/bin/env bash
# Runs one task with a real agent that plans, implements and validates. Only the model is scripted
# (lab/demo/model.json). Exits with 1 if a check fails. `just demo real [agent]` runs it with claude-code,
# codex, gemini or opencode.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
agent="${1:-claude-code}"
cd "$here/../.."

fail() {
    printf '\ndemo: %s\n' "$1" >&2
    exit 1
}

case "$agent" in
    claude-code) key=ANTHROPIC_API_KEY base='' ;;
    codex | opencode) key=OPENAI_API_KEY base='' ;;
    gemini) key=GEMINI_API_KEY base='' ;;
    *) fail "unknown agent \`$agent\`; use claude-code, codex, gemini or opencode" ;;
esac
installed="$PWD/lab/inputs/agents/$agent"
[ -d "$installed/node_modules" ] || npm install --no-save --prefix "$installed" --no-audit --no-fund

[ -n "${TAMMA_BUILT:-}" ] || cargo build --quiet --locked --workspace --all-targets
built="${TAMMA_BUILT:-$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug}"

# Not below /tmp, because each sandbox has its own.
folder="$(mktemp -d /var/tmp/tamma-demo.XXXXXX)"
chmod 711 "$folder"

up_PID= model_PID=
clean() {
    code=$?
    for pid in "${up_PID:-}" "${model_PID:-}"; do
        [ -z "$pid" ] || { kill -TERM "$pid" && wait "$pid"; } 2> /dev/null || true
    done
    if [ "$code" -ne 0 ]; then
        echo "demo: failed; see above, and $folder" >&2
        exit 1
    fi
    rm -rf "$folder"
}
trap clean EXIT

for name in $(compgen -e | grep '^TAMMA_' || true); do unset "$name"; done
export TAMMA_DATA="$folder/data" TAMMA_LISTEN=127.0.0.1:0 NO_COLOR=1
export GIT_CONFIG_GLOBAL="$folder/gitconfig" GIT_CONFIG_NOSYSTEM=1
git config --global user.name "Grace"
git config --global user.email "grace@example.org"
git config --global init.defaultBranch main
# The provider's key stays with the worker; the agent never sees it.
export "$key=a-key-that-only-the-gateway-knows"
mkdir "$folder/bin" "$folder/greeter"
ln -s "$built/tamma" "$folder/bin/tamma"
export PATH="$folder/bin:$installed/node_modules/.bin:$PATH"

mkfifo "$folder/address"
"$built/scripted-model" "$here/model.json" --log "$folder/requests.jsonl" > "$folder/address" &
model_PID=$!
read -r -t 30 address < "$folder/address" || fail 'the scripted model did not start'

cd "$folder/greeter"
git init --quiet
git commit --quiet --allow-empty -m 'Initial commit'
cat > tamma.yaml << EOF
tiers:
  simple: { agent: $agent, model: default }
  moderate: { agent: $agent, model: default }
  complex: { agent: $agent, model: default }
agents:
  $agent:
    upstream: http://$address$base
gates:
  greets:
    kind: tests
    command: test "\$(./greet.sh)" = "Hello, world!"
EOF
git add tamma.yaml && git commit --quiet -m 'Tamma'

coproc up { exec tamma up 2>&1; }
while true; do
    IFS= read -r -t 180 line <&"${up[0]}" || fail '`tamma up` did not start'
    case "$line" in "Ctrl-C stops it"*) break ;; esac
done
exec {up_output}<&"${up[0]}"
cat <&"$up_output" > "$folder/up.log" &

run() {
    printf '$ %s\n' "$1"
    eval "$1" > "$folder/output" 2>&1 || { cat "$folder/output"; cat "$folder/up.log"; fail "\`$1\` failed"; }
    cat "$folder/output"
    echo
}
expect() {
    grep -qF -- "$1" "$folder/output" || fail "missing in the output: $1"
}

echo "# Real $agent with a scripted model"
echo
run 'tamma task add "Greet the world" --criterion "It says hello to the world." --watch'
expect 'completed in'
task="$(sed -n 's/^Added \(by [^:]*: \)\{0,1\}\([0-9a-f]\{8,\}\)[: ].*/\2/p' "$folder/output" | head -n 1)"
[ -n "$task" ] || fail "no task ID in the output"
run "tamma task log $task"
expect 'greet.sh is written'
run "tamma task show $task"
run "tamma task report $task"
expect 'greets'
branch="$(git for-each-ref --format='%(refname:short)' refs/heads/tamma)"
[ "$(git show "$branch:greet.sh" | sh)" = 'Hello, world!' ] || fail 'the delivered script prints no greeting'
if grep -rqF 'a-key-that-only-the-gateway-knows' "$folder/data" --include='*' 2> /dev/null; then
    fail "the data folder contains the provider's key"
fi
echo "demo: $agent planned, implemented and validated"
