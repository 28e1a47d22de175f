#!/usr/bin/env bash
# Runs one task with a real agent that plans, implements and validates. Only the model is scripted
# (lab/demo/model.json). Exits with 1 if a check fails. `just demo real [agent]` runs it with claude-code,
# codex, gemini or opencode.
set -euo pipefail

source "$(dirname "$0")/common.sh"

agent="${1:-claude-code}"

case "$agent" in
    claude-code) key=ANTHROPIC_API_KEY ;;
    codex | opencode) key=OPENAI_API_KEY ;;
    gemini) key=GEMINI_API_KEY ;;
    *) fail "unknown agent \`$agent\`; use claude-code, codex, gemini or opencode" ;;
esac
installed="$PWD/lab/inputs/agents/$agent"
[ -d "$installed/node_modules" ] || npm install --no-save --prefix "$installed" --no-audit --no-fund

built="${TAMMA_BUILT:-}"
[ -n "$built" ] || build

# Not below /tmp, because each sandbox has its own.
use_folder "$(mktemp -d /var/tmp/tamma-demo.XXXXXX)"

up_PID= model_pid=
clean() {
    code=$?
    stop_processes "${up_PID:-}" "$model_pid"
    if [ "$code" -ne 0 ]; then
        echo "demo: failed; see above, and $folder" >&2
        exit 1
    fi
    rm -rf "$folder"
}
trap clean EXIT

isolate
export TAMMA_LISTEN=127.0.0.1:0 NO_COLOR=1
# The provider's key stays with the worker; the agent never sees it.
export "$key=a-key-that-only-the-gateway-knows"
export PATH="$installed/node_modules/.bin:$PATH"
install_tamma

mkfifo "$folder/address"
"$built/scripted-model" "$here/model.json" --log "$folder/requests.jsonl" > "$folder/address" &
model_pid=$!
read -r -t 30 address < "$folder/address" || fail 'the scripted model did not start'

# The scripted model is on this machine; its operator lets the key be sent there.
mkdir "$TAMMA_DATA"
echo "upstreams: { $key: [http://$address] }" > "$TAMMA_DATA/operator.yaml"
mkdir "$folder/greeter"
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
    upstream: http://$address
gates:
  greets:
    kind: tests
    command: test "\$(./greet.sh)" = "Hello, world!"
EOF
git add tamma.yaml && git commit --quiet -m 'Tamma'

echo "# Real $agent with a scripted model"
echo
start_up
run 'tamma task add "Greet the world" --criterion "It says hello to the world." --watch'
expect 'completed in'
task="$(sed -n 's/^Added \([0-9a-f]*\):.*/\1/p' "$output" | head -1)"
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
