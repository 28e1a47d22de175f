# shellcheck shell=bash
# Functions that the demo scripts share. Each script sources this file, which sets `here` to this folder
# and enters the root of the repository. A script calls `use_folder` before it uses the rest.

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$here/../.."

fail() {
    printf '\ndemo: %s\n' "$1" >&2
    exit 1
}

# Builds the programs and sets `built` to their folder.
build() {
    # All targets, as the tests build them, so that nothing is compiled again with other features.
    cargo build --quiet --locked --workspace --all-targets
    built="$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug"
}

# Sets `folder` to an existing folder of the demo, and `output` to the file with the output of `run`.
use_folder() {
    [ -d "$1" ] || fail "no folder for the demo: \`$1\`"
    folder="$(cd "$1" && pwd -P)"
    output="$folder/output"
    # Under root, PostgreSQL runs as another user, who needs access to its data.
    chmod 711 "$folder"
}

# Ignores the user's own name, servers, data and git configuration. The arguments name variables to keep.
isolate() {
    local name
    for name in $(compgen -e | grep '^TAMMA_' || true); do
        case " $* " in *" $name "*) ;; *) unset "$name" ;; esac
    done
    export TAMMA_DATA="$folder/data"
    export GIT_CONFIG_GLOBAL="$folder/gitconfig" GIT_CONFIG_NOSYSTEM=1
    git config --global user.name "Grace"
    git config --global user.email "grace@example.org"
    git config --global init.defaultBranch main
}

# Puts `tamma` on the PATH.
install_tamma() {
    mkdir "$folder/bin"
    ln -s "$built/tamma" "$folder/bin/tamma"
    export PATH="$folder/bin:$PATH"
}

# Puts an `opencode` on the PATH that follows agent.json.
install_scripted_agent() {
    # Program and script share a folder that the agent can read in its sandbox.
    cp "$here/agent.json" "$built/scripted-agent" "$folder/bin/"
    cat > "$folder/bin/opencode" << EOF
#!/bin/sh
TAMMA_SCRIPT='$folder/bin/agent.json' exec '$folder/bin/scripted-agent' "\$@"
EOF
    chmod +x "$folder/bin/opencode"
}

# Prints a command, runs it and prints its output, which stays in the file `output`. The second argument
# is the expected exit code.
run() {
    local code=0
    printf '$ %s\n' "$1"
    eval "$1" > "$output" 2>&1 || code=$?
    cat "$output"
    echo
    if [ "$code" -ne "${2:-0}" ]; then
        [ ! -f "$folder/up.log" ] || cat "$folder/up.log" >&2
        fail "\`$1\` exited with $code instead of ${2:-0}"
    fi
}

# Checks that the output of the last command contains a text.
expect() {
    grep -qF -- "$1" "$output" || fail "missing in the output: $1"
}

# Starts `tamma up` and waits until it is ready. Its process ID is `up_PID`.
start_up() {
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

# Stops processes and waits for their end. Empty IDs are skipped.
stop_processes() {
    local pid
    for pid in "$@"; do
        [ -z "$pid" ] || kill -TERM "$pid" 2> /dev/null || true
    done
    for pid in "$@"; do
        [ -z "$pid" ] || wait "$pid" 2> /dev/null || true
    done
}
