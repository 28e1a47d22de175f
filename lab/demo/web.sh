#!/usr/bin/env bash
# Tamma in the browser, without a model: a small shop, a task, and a plan for you to approve. Ctrl-C
# stops it and removes everything. `just demo web` runs it.
set -euo pipefail

source "$(dirname "$0")/common.sh"

build
use_folder "$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
isolate TAMMA_LISTEN
export TAMMA_PERSON="${USER:-Grace}"
bash "$here/shop.sh" "$folder" "$built"
cd "$folder/shop"

# Add the task as soon as Tamma is up.
"$built/tamma" up 2>&1 | while IFS= read -r line; do
    printf '%s\n' "$line"
    case "$line" in
    *"Tamma is up at "*) url="${line##* }" ;;
    "Ctrl-C stops it"*)
        "$built/tamma" task add "Round totals half to even" --json > "$folder/added"
        id="$(sed -n 's/.*"id": *"\([0-9a-f-]*\)".*/\1/p' "$folder/added" | head -n 1)"
        printf '\nSign in with the link above, then open %s/tasks/%s and approve its plan.\n\n' "$url" "$id"
        ;;
    esac
done
