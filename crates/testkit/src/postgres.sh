#!/usr/bin/env bash
# Runs a private PostgreSQL server in a folder while a process lives.
#
#   postgres.sh FOLDER PROCESS [PORT [SETTING...]]
#
# Prints the server's URL once it responds, waits until the process has exited, then stops the server
# and removes the folder. Listens on a socket in the folder, and on 127.0.0.1 if a port is given.
# The data does not survive a crash of the machine, which makes it fast; settings such as `fsync=on`
# change that.
#
#   postgres.sh FOLDER killable PORT [SETTING...]
#
# Becomes the server itself, with the existing data of the folder. It uses the safest durability
# settings unless a setting changes them, so it can be killed at any time and restarted. Without data, it
# starts with a copy of the server at the URL in PRIMARY, as its standby.
#
#   postgres.sh FOLDER run COMMAND...
#
# Runs a command as the user who owns the data, with PostgreSQL's programs on its PATH.
set -euo pipefail

folder="$1" process="$2" port="${3:-}"
settings=""
for setting in "${@:4}"; do settings="$settings -c $setting"; done

# Newest installed version, or the one on the PATH.
bin="$(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin \
    /usr/local/opt/postgresql*/bin 2> /dev/null | sort -V | tail -n 1 || true)"
if [ ! -x "$bin/initdb" ] && command -v initdb > /dev/null; then
    bin="$(dirname "$(readlink -f "$(command -v initdb)")")"
fi
if [ ! -x "$bin/pg_ctl" ]; then
    echo "PostgreSQL is not installed: install the package \`postgresql\`, or set TAMMA_TEST_POSTGRES to the URL of a server" >&2
    exit 1
fi

# PostgreSQL refuses to run as root, so it runs as an unprivileged user.
as=()
mkdir -p "$folder/socket"
if [ "$(id -u)" = 0 ]; then
    owner=postgres
    id "$owner" > /dev/null 2>&1 || owner=nobody
    as=(setpriv "--reuid=$owner" "--regid=$(id -g "$owner")" --clear-groups --)
    chmod 755 "$folder"
    mkdir -p "$folder/server"
    chown "$owner" "$folder/server" "$folder/socket"
else
    mkdir -p "$folder/server"
fi

data="$folder/server/data" log="$folder/server/log"
listen=""
if [ -n "$port" ]; then listen=127.0.0.1; else port=5432; fi
cd /
if [ "$process" = run ]; then
    PATH="$bin:$PATH" exec "${as[@]}" "${@:3}"
fi
if [ "$process" = killable ]; then
    if [ ! -e "$data/PG_VERSION" ] && [ -n "${PRIMARY:-}" ]; then
        "${as[@]}" "$bin/pg_basebackup" -D "$data" -d "$PRIMARY" -X stream -c fast -R
    elif [ ! -e "$data/PG_VERSION" ]; then
        "${as[@]}" "$bin/initdb" -D "$data" -U postgres -A trust -E UTF8 --no-locale
    fi
    exec "${as[@]}" "$bin/postgres" -D "$data" -p "$port" -k "$folder/socket" \
        -c listen_addresses=127.0.0.1 -c fsync=on -c synchronous_commit=on -c full_page_writes=on \
        -c max_connections=200 -c shared_buffers=64MB -c timezone=UTC $settings
fi
stop() {
    "${as[@]}" "$bin/pg_ctl" -D "$data" -m immediate stop > /dev/null 2>&1 || true
    rm -rf "$folder"
}
trap stop EXIT

"${as[@]}" "$bin/initdb" -D "$data" -U postgres -A trust -E UTF8 --no-locale --no-sync > "$folder/initdb" 2>&1 ||
    { cat "$folder/initdb" >&2; exit 1; }
"${as[@]}" "$bin/pg_ctl" -D "$data" -l "$log" -w -t 60 start > /dev/null 2>&1 -o "-p $port -k $folder/socket \
    -c listen_addresses='$listen' -c fsync=off -c synchronous_commit=off -c full_page_writes=off \
    -c max_connections=400 -c shared_buffers=64MB -c max_wal_size=1GB -c timezone=UTC$settings" ||
    { cat "$log" >&2; exit 1; }

if [ -n "$listen" ]; then
    echo "postgres://postgres@127.0.0.1:$port/postgres"
else
    echo "postgres:///postgres?host=$folder/socket&user=postgres"
fi

# The caller reads one line. Open pipes would keep it waiting for more.
exec > /dev/null 2>&1
while kill -0 "$process" 2> /dev/null && [ -e "$data/postmaster.pid" ]; do sleep 1; done
