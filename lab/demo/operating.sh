#!/usr/bin/env bash
# Runs the commands of docs/operating.md: given servers, the roles apart, a token, a backup and its
# restore, and the end of a month of the log. Prints what it does; exits with 1 if anything is not as
# it should be. `just demo operating` runs it.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/../.."

fail() {
    printf '\ndemo: %s\n' "$1" >&2
    exit 1
}

cargo build --quiet --locked --workspace --bins
built="$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug"
folder="$(cd "$(mktemp -d)" && pwd -P)"
chmod 711 "$folder"
roles=()
clean() {
    code=$?
    for pid in "${roles[@]}"; do kill -TERM "$pid" 2> /dev/null || true; done
    for pid in "${roles[@]}"; do wait "$pid" 2> /dev/null || true; done
    rm -rf "$folder"
    [ "$code" -eq 0 ] || echo 'demo: not everything is as it should be; see above' >&2
    exit "$((code != 0))"
}
trap clean EXIT

for name in $(compgen -e | grep '^TAMMA_' || true); do unset "$name"; done
export NO_COLOR=1 TAMMA_PERSON=Grace
export GIT_CONFIG_GLOBAL="$folder/gitconfig" GIT_CONFIG_NOSYSTEM=1
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

said="$folder/said"

# Prints a command line, does it, and prints what it says. The second argument is the exit code it
# should have.
run() {
    local code=0
    printf '$ %s\n' "$1"
    eval "$1" > "$said" 2>&1 || code=$?
    cat "$said"
    echo
    [ "$code" -eq "${2:-0}" ] || fail "\`$1\` ended with $code and not with ${2:-0}"
}

heard() {
    grep -qF -- "$1" "$said" || fail "it was not said: $1"
}

# Starts a role, and waits until it says that it is ready. Its last line is in `line`.
role() {
    local pipe="$folder/pipe"
    printf '$ %s &\n' "$1"
    mkfifo "$pipe"
    eval "exec $1" > "$pipe" 2>> "$folder/roles.log" &
    roles+=($!)
    IFS= read -r -t 60 line < "$pipe" || fail "\`$1\` did not come up: $(cat "$folder/roles.log")"
    rm "$pipe"
    printf '%s\n\n' "$line"
}

free() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# A PostgreSQL and a Temporal that are there already, as far as Tamma is concerned. Both end with us.
exec {postgres}< <(bash crates/testkit/src/postgres.sh "$folder/postgres" $$)
IFS= read -r -t 60 server <&"$postgres" || fail 'no PostgreSQL'
exec {temporal}< <(bash crates/testkit/src/temporal.sh "$folder/temporal" $$ "$(free)")
IFS= read -r -t 60 TAMMA_TEMPORAL_ADDRESS <&"$temporal" || fail 'no Temporal'
export TAMMA_TEMPORAL_ADDRESS
database() { sed "s|/postgres?|/$1?|" <<< "$server"; }
psql --quiet --dbname "$server" --command 'CREATE DATABASE tamma' --command 'CREATE DATABASE restored'
TAMMA_DATABASE_URL="$(database tamma)"
export TAMMA_DATABASE_URL TAMMA_DATA="$folder/data"

cd "$folder/greeter"
git init --quiet --initial-branch main
tamma init > /dev/null

echo '# The roles apart.'
echo
run 'tamma migrate'
run 'tamma doctor'
heard 'configured database is reachable'
run 'tamma serve --listen 0.0.0.0:0' 1
heard 'there is no token'
TAMMA_TOKEN="$(openssl rand -hex 32)"
export TAMMA_TOKEN
role 'tamma serve --listen 127.0.0.1:0'
TAMMA_URL="${line##* }"
export TAMMA_URL
role 'tamma work --slots 2'
run 'curl --silent --fail --header "Authorization: Bearer $TAMMA_TOKEN" $TAMMA_URL/api/v1/health'
heard '"healthy":true'
run 'curl --silent $TAMMA_URL/api/v1/health'
heard 'This server needs a token'
run 'tamma task add "Greet the world"' 1
run 'curl --silent --fail --header "Authorization: Bearer $TAMMA_TOKEN" --header "Tamma-Person: $TAMMA_PERSON" --json "{\"name\": \"greeter\", \"repository\": \"$PWD\"}" $TAMMA_URL/api/v1/projects'
run 'tamma task add "Greet the world" --watch'
heard 'completed in'

echo '# Backup and restore. Nothing writes meanwhile.'
echo
for pid in "${roles[@]}"; do kill -TERM "$pid" && wait "$pid" || fail "a role ended with $?"; done
roles=()
run 'pg_dump --format custom --file ../tamma.dump "$TAMMA_DATABASE_URL"'
restored="$(database restored)"
run 'pg_restore --no-owner --dbname "$restored" ../tamma.dump'
run 'tamma migrate --database "$restored"'
role 'tamma serve --listen 127.0.0.1:0 --database "$restored"'
TAMMA_URL="${line##* }"
run 'tamma task list --all'
heard 'Greet the world'

echo '# A month of the log that is not wanted any more is taken out and kept as a file.'
echo
month="entries_$(date -u +%Y_%m)"
run "psql \"\$restored\" --command 'ALTER TABLE entries DETACH PARTITION $month'"
run "pg_dump --format custom --table $month --file ../$month.dump \"\$restored\""
run "psql \"\$restored\" --command 'DROP TABLE $month'"
run 'tamma task list --all'
heard 'Greet the world'

echo '# How long Temporal keeps what has ended.'
echo
run 'temporal operator namespace update --namespace default --retention 30d --address $TAMMA_TEMPORAL_ADDRESS'
run 'temporal operator namespace describe --namespace default --address $TAMMA_TEMPORAL_ADDRESS | grep -i retention'
heard '720h'
echo 'All is as it should be.'
