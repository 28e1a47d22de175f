#!/usr/bin/env bash
# Runs the commands of docs/operating.md: existing servers, separate processes, a token, backup and
# restore, and archiving a month of history. Prints each command; exits with 1 if a check fails.
# `just demo operating` runs it.
set -euo pipefail

source "$(dirname "$0")/common.sh"

build
use_folder "$(mktemp -d)"
processes=()
clean() {
    code=$?
    stop_processes "${processes[@]}"
    rm -rf "$folder"
    [ "$code" -eq 0 ] || echo 'demo: failed; see above' >&2
    exit "$((code != 0))"
}
trap clean EXIT

isolate
export NO_COLOR=1 TAMMA_PERSON=Grace
install_tamma
install_scripted_agent

# Starts a process and waits until it is ready. Its first line of output is in `line`.
start() {
    local pipe="$folder/pipe"
    printf '$ %s &\n' "$1"
    mkfifo "$pipe"
    eval "exec $1" > "$pipe" 2>> "$folder/processes.log" &
    processes+=($!)
    IFS= read -r -t 60 line < "$pipe" || fail "\`$1\` did not start: $(cat "$folder/processes.log")"
    rm "$pipe"
    printf '%s\n\n' "$line"
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Existing PostgreSQL and Temporal servers. Both stop with this script.
exec {postgres}< <(bash crates/testkit/src/postgres.sh "$folder/postgres" $$)
IFS= read -r -t 60 server <&"$postgres" || fail 'PostgreSQL did not start'
exec {temporal}< <(bash crates/testkit/src/temporal.sh "$folder/temporal" $$ "$(free_port)")
IFS= read -r -t 60 TAMMA_TEMPORAL_ADDRESS <&"$temporal" || fail 'Temporal did not start'
export TAMMA_TEMPORAL_ADDRESS
database() { sed "s|/postgres?|/$1?|" <<< "$server"; }
psql --quiet --dbname "$server" --command 'CREATE DATABASE tamma' --command 'CREATE DATABASE restored'
TAMMA_DATABASE_URL="$(database tamma)"
export TAMMA_DATABASE_URL

mkdir "$folder/greeter"
cd "$folder/greeter"
git init --quiet --initial-branch main
tamma init > /dev/null

echo '# Separate server and worker'
echo
run 'tamma migrate'
run 'tamma serve --listen 127.0.0.1:0' 1
expect 'no encryption keys'
run 'tamma keys create'
run 'tamma doctor'
expect 'configured database is reachable'
expect 'is active'
run 'tamma serve --listen 127.0.0.1:0 --token short' 1
expect 'use at least 16'
TAMMA_TOKEN="$(openssl rand -hex 32)"
export TAMMA_TOKEN
start 'tamma serve --listen 127.0.0.1:0'
TAMMA_URL="${line##* }"
export TAMMA_URL
start 'tamma work --slots 2'
run 'curl --silent --fail --header "Authorization: Bearer $TAMMA_TOKEN" $TAMMA_URL/api/v1/health'
expect '"healthy":true'
run 'curl --silent $TAMMA_URL/api/v1/health'
expect 'The request has no token'
run 'tamma task add "Greet the world"' 1
run 'curl --silent --fail --header "Authorization: Bearer $TAMMA_TOKEN" --header "Tamma-Person: $TAMMA_PERSON" --json "{\"name\": \"greeter\", \"repository\": \"$PWD\"}" $TAMMA_URL/api/v1/projects'
run 'tamma task add "Greet the world" --watch'
expect 'completed in'

echo '# Backup and restore, with server and worker stopped'
echo
for pid in "${processes[@]}"; do kill -TERM "$pid" && wait "$pid" || fail "a process exited with $?"; done
processes=()
run 'pg_dump --format custom --file ../tamma.dump "$TAMMA_DATABASE_URL"'
restored="$(database restored)"
run 'pg_restore --no-owner --dbname "$restored" ../tamma.dump'
run 'tamma migrate --database "$restored"'
start 'tamma serve --listen 127.0.0.1:0 --database "$restored"'
TAMMA_URL="${line##* }"
run 'tamma task list --all'
expect 'Greet the world'
run 'tamma audit verify'
expect ' 0 broken'
run 'tamma audit export > ../audit.jsonl'
run 'tamma audit verify --file ../audit.jsonl'
expect ' 0 entries pending'

echo '# Archive a month of history as a file'
echo
month="entries_$(date -u +%Y_%m)"
run "psql \"\$restored\" --command 'ALTER TABLE entries DETACH PARTITION $month'"
run "pg_dump --format custom --table $month --file ../$month.dump \"\$restored\""
run "psql \"\$restored\" --command 'DROP TABLE $month'"
run 'tamma task list --all'
expect 'Greet the world'
run 'tamma audit verify' 1
expect 'is missing'
run "tamma audit verify --archived-before $(date -u -d "$(date -u +%Y-%m-01) +1 month" +%F)"
expect ' 0 broken'

echo '# Retention of closed workflows in Temporal'
echo
run 'temporal operator namespace update --namespace default --retention 30d --address $TAMMA_TEMPORAL_ADDRESS'
run 'temporal operator namespace describe --namespace default --address $TAMMA_TEMPORAL_ADDRESS | grep -i retention'
expect '720h'
echo 'All checks passed.'
