#!/usr/bin/env bash
# Shows Tamma from nothing: a repository, a task that goes through by itself, one that waits for a
# person, and a stop of everything in between. Prints what it does; exits with 1 if anything is not
# as it should be. `just demo` runs it.
#
# TAMMA_DEMO_FOLDER names the folder to use, which is then kept; it must be new.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/../.."

fail() {
    printf '\ndemo: %s\n' "$1" >&2
    exit 1
}

for program in git cargo; do
    command -v "$program" > /dev/null || fail "it needs $program"
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
# For root, PostgreSQL runs as somebody else, who must get through to its data.
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
        echo 'demo: not everything is as it should be; see above' >&2
        exit 1
    fi
}
trap clean EXIT

# Nothing of whoever runs this: not their name, their servers or their data.
for name in $(compgen -e | grep '^TAMMA_' || true); do unset "$name"; done
export TAMMA_DATA="$folder/data" TAMMA_LISTEN=127.0.0.1:0 NO_COLOR=1
export GIT_CONFIG_GLOBAL="$folder/gitconfig" GIT_CONFIG_NOSYSTEM=1
git config --global user.name "Grace"
git config --global user.email "grace@example.org"
git config --global init.defaultBranch main

mkdir "$folder/bin" "$folder/greeter"
# Beside each other in a folder of the PATH, because that is what the agent sees in its sandbox.
cp "$here/agent.json" "$built/scripted-agent" "$folder/bin/"
cat > "$folder/bin/opencode" << EOF
#!/bin/sh
TAMMA_SCRIPT='$folder/bin/agent.json' exec '$folder/bin/scripted-agent' "\$@"
EOF
chmod +x "$folder/bin/opencode"
ln -s "$built/tamma" "$folder/bin/tamma"
export PATH="$folder/bin:$PATH"
cd "$folder/greeter"

said="$folder/said"

# Prints a command line, does it, and prints what it says, which is kept in the file `said`. The second
# argument is the exit code it should have.
run() {
    local code=0
    printf '$ %s\n' "$1"
    eval "$1" > "$said" 2>&1 || code=$?
    cat "$said"
    echo
    [ "$code" -eq "${2:-0}" ] || fail "\`$1\` ended with $code and not with ${2:-0}"
}

# Whether the last command said something.
heard() {
    grep -qF -- "$1" "$said" || fail "it was not said: $1"
}

# Starts everything, and waits until it says that it is up.
start() {
    printf '$ tamma up &\n'
    coproc up { exec tamma up 2>&1; }
    local line
    while true; do
        IFS= read -r -t 180 line <&"${up[0]}" || fail '`tamma up` did not come up'
        printf '%s\n' "$line"
        case "$line" in "Ctrl-C stops it"*) break ;; esac
    done
    echo
    exec {ears}<&"${up[0]}"
    cat <&"$ears" > "$folder/up.log" &
}

# Stops everything politely, and looks that nothing is left.
stop() {
    local pid="$up_PID"
    printf '$ kill -TERM %%1\n'
    kill -TERM "$pid"
    wait "$pid" || fail "\`tamma up\` ended with $?"
    up_PID=
    if pgrep -f -- "$folder/data" > /dev/null; then
        fail "something is left running: $(pgrep -af -- "$folder/data")"
    fi
    echo "Nothing of it is left running."
    echo
}

echo "# The agent here is a stand-in: \`opencode\` on the PATH plays lab/demo/agent.json, and no model is asked."
echo
run 'git init --quiet'
run 'tamma init'
heard 'tamma up'
start
run 'tamma task add "Greet the world" --watch'
heard 'completed in'
branch="$(git for-each-ref --format='%(refname:short)' refs/heads/tamma)"
run 'git log --oneline --all'
heard 'Greet the world'
run "git show --stat --format=%s $branch"
heard 'greet.sh'
tamma task export > "$folder/export.jsonl"
[ "$(git rev-list --count "main..$branch")" = 1 ] || fail 'the branch has not exactly one commit'
[ "$(git show "$branch:greet.sh" | sh)" = 'Hello, world!' ] || fail 'the script does not greet'

echo '# A plan of more than five files is of medium risk, and waits for a person.'
echo
run 'tamma task add "Greet every continent" --watch --until-asked' 3
heard 'medium-risk plan needs approval'
approve="$(grep -o 'tamma approve [0-9a-f]* --plan [0-9a-f]*' "$said")"
task="$(cut -d ' ' -f 3 <<< "$approve")"
run 'tamma inbox'
heard "$task"

echo '# Everything is stopped and started again. The task still waits.'
echo
stop
run 'tamma inbox' 1
heard 'tamma up'
start
run 'tamma inbox'
heard "$task"
run "tamma approve $task --plan 0123456789ab --as Ada" 1
heard 'has replaced plan'
run "$approve --as Ada"
run "tamma task watch $task"
heard 'completed in'
heard 'approval granted'
run 'tamma task list --all'
run 'git log --oneline --all'
heard 'Greet every continent'
[ "$(git show "$(git for-each-ref --format='%(refname:short)' --sort=-refname refs/heads/tamma | head -1)" --stat | grep -c 'greetings/')" = 6 ] \
    || fail 'the branch has not all greetings'
stop
echo 'All is as it should be.'
