#!/usr/bin/env bash
# Tour of Tamma: a new repository, a task that completes on its own, one that needs approval, and a
# restart of everything in between. Prints each command; exits with 1 if a check fails. `just demo`
# runs it.
#
# TAMMA_DEMO_FOLDER sets the folder, which must be new and is kept.
set -euo pipefail

source "$(dirname "$0")/common.sh"

for program in git cargo; do
    command -v "$program" > /dev/null || fail "$program is not installed"
done
build

keep="${TAMMA_DEMO_FOLDER:-}"
[ -z "$keep" ] || mkdir "$keep"
use_folder "${keep:-$(mktemp -d)}"

up_PID=
clean() {
    code=$?
    stop_processes "${up_PID:-}"
    [ -n "$keep" ] || rm -rf "$folder"
    if [ "$code" -ne 0 ]; then
        echo 'demo: failed; see above' >&2
        exit 1
    fi
}
trap clean EXIT

isolate
export TAMMA_LISTEN=127.0.0.1:0 NO_COLOR=1
install_tamma
install_scripted_agent
mkdir "$folder/greeter"
cd "$folder/greeter"

# Stops Tamma with SIGTERM and checks that no process is left.
stop() {
    local pid="$up_PID"
    printf '$ kill -TERM %%1\n'
    kill -TERM "$pid"
    wait "$pid" || fail "\`tamma up\` exited with $?"
    up_PID=
    if pgrep -f -- "$folder/data" > /dev/null; then
        fail "processes still running: $(pgrep -af -- "$folder/data")"
    fi
    echo "No processes left."
    echo
}

echo "# The agent is scripted: \`opencode\` on the PATH follows lab/demo/agent.json, without a model"
echo
run 'git init --quiet'
run 'tamma init'
expect 'tamma up'
start_up
run 'tamma task add "Greet the world" --watch'
expect 'completed in'
branch="$(git for-each-ref --format='%(refname:short)' refs/heads/tamma)"
run 'git log --oneline --all'
expect 'Greet the world'
run "git show --stat --format=%s $branch"
expect 'greet.sh'
tamma task export > "$folder/export.jsonl"
[ "$(git rev-list --count "main..$branch")" = 1 ] || fail 'the branch does not have exactly one commit'
[ "$(git show "$branch:greet.sh" | sh)" = 'Hello, world!' ] || fail 'the delivered script prints no greeting'

echo '# A plan with more than five files has medium risk and needs approval'
echo
run 'tamma task add "Greet every continent" --watch --until-asked' 3
expect 'medium-risk plan needs approval'
approve="$(grep -o 'tamma approve [0-9a-f]* --plan [0-9a-f]*' "$output")"
task="$(cut -d ' ' -f 3 <<< "$approve")"
run 'tamma inbox'
expect "$task"

echo '# After a restart, the task still awaits approval'
echo
stop
run 'tamma inbox' 1
expect 'tamma up'
start_up
run 'tamma inbox'
expect "$task"
run "tamma approve $task --plan 0123456789ab --as Ada" 1
expect 'has replaced plan'
run "$approve --as Ada"
run "tamma task watch $task"
expect 'completed in'
expect 'approval granted'
run 'tamma task list --all'
run 'git log --oneline --all'
expect 'Greet every continent'
[ "$(git show "$(git for-each-ref --format='%(refname:short)' --sort=-refname refs/heads/tamma | head -1)" --stat | grep -c 'greetings/')" = 6 ] \
    || fail 'the branch does not have all greetings'
stop
echo 'All checks passed.'
