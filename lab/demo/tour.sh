#!/usr/bin/env bash
# Tour of Tamma: a new repository, a task that completes on its own, one that needs approval, and a
# restart of everything in between. Prints each command; exits with 1 if a check fails. `just demo`
# runs it.
#
# TAMMA_DEMO_FOLDER sets the folder, which must be new and is kept.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/../.."

fail() {
    printf '\ndemo: %s\n' "$1" >&2
    exit 1
}

for program in git cargo; do
    command -v "$program" > /dev/null || fail "$program is not installed"
done
cargo build --quiet --locked --workspace --bins
built="$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug"

if [ -n "${TAMMA_DEMO_FOLDER:-}" ]; then
    mkdir "$TAMMA_DEMO_FOLDER"
    folder="$(cd "$TAMMA_DEMO_FOLDER" && pwd -P)"
    keep=1
else
    folder="$(cd "$(mktemp -d)" && pwd -P)"
    keep=
fi
# Under root, PostgreSQL runs as another user, who needs access to its data.
chmod 711 "$folder"

up_PID=
clean() {
    code=$?
    if [ -n "${up_PID:-}" ]; then
        kill -TERM "$up_PID" 2> /dev/null || true
        wait "$up_PID" 2> /dev/null || true
    fi
    [ -n "$keep" ] || rm -rf "$folder"
    if [ "$code" -ne 0 ]; then
        echo 'demo: failed; see above' >&2
        exit 1
    fi
}
trap clean EXIT

# Ignore the user's own name, servers and data.
for name in $(compgen -e | grep '^TAMMA_' || true); do unset "$name"; done
export TAMMA_DATA="$folder/data" TAMMA_LISTEN=127.0.0.1:0 NO_COLOR=1
export GIT_CONFIG_GLOBAL="$folder/gitconfig" GIT_CONFIG_NOSYSTEM=1
git config --global user.name "Grace"
git config --global user.email "grace@example.org"
git config --global init.defaultBranch main

mkdir "$folder/bin" "$folder/greeter"
# Program and script share a folder on the PATH, which the agent can read in its sandbox.
cp "$here/agent.json" "$built/scripted-agent" "$folder/bin/"
cat > "$folder/bin/opencode" << EOF
#!/bin/sh
TAMMA_SCRIPT='$folder/bin/agent.json' exec '$folder/bin/scripted-agent' "\$@"
EOF
chmod +x "$folder/bin/opencode"
ln -s "$built/tamma" "$folder/bin/tamma"
export PATH="$folder/bin:$PATH"
cd "$folder/greeter"

output="$folder/output"

# Prints a command, runs it and prints its output, which stays in the file `output`. The second argument
# is the expected exit code.
run() {
    local code=0
    printf '$ %s\n' "$1"
    eval "$1" > "$output" 2>&1 || code=$?
    cat "$output"
    echo
    [ "$code" -eq "${2:-0}" ] || fail "\`$1\` exited with $code instead of ${2:-0}"
}

# Checks that the output of the last command contains a text.
expect() {
    grep -qF -- "$1" "$output" || fail "missing in the output: $1"
}

# Starts Tamma and waits until it is up.
start() {
    printf '$ tamma up &\n'
    coproc up { exec tamma up 2>&1; }
    local line
    while true; do
        IFS= read -r -t 180 line <&"${up[0]}" || fail '`tamma up` did not start'
        printf '%s\n' "$line"
        case "$line" in "Ctrl-C stops it"*) break ;; esac
    done
    echo
    exec {up_output}<&"${up[0]}"
    cat <&"$up_output" > "$folder/up.log" &
}

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
start
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
start
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
