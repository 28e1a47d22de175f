#!/usr/bin/env bash
# Tamma in the browser, without a model: a small shop, a task, and a plan for you to approve. Ctrl-C
# stops it and removes everything. `just demo web` runs it.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/../.."
cargo build --quiet --locked --workspace --bins
built="$(cargo metadata --format-version 1 --no-deps --offline | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug"

folder="$(cd "$(mktemp -d)" && pwd -P)"
trap 'rm -rf "$folder"' EXIT
for name in $(compgen -e | grep '^TAMMA_' | grep -v '^TAMMA_LISTEN$' || true); do unset "$name"; done
export TAMMA_DATA="$folder/data" TAMMA_PERSON="${USER:-Grace}"
export GIT_CONFIG_GLOBAL="$folder/gitconfig" GIT_CONFIG_NOSYSTEM=1
git config --global user.name "Grace"
git config --global user.email "grace@example.org"
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
        printf '\nOpen %s/tasks/%s and approve its plan.\n\n' "$url" "$id"
        ;;
    esac
done
