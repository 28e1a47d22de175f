#!/bin/sh
# Installs Tamma from a release archive, after comparing its SHA-256.
#
#   install.sh --from PLACE [--version VERSION] [--prefix FOLDER] [--sha256 HASH]
#   install.sh --uninstall [--prefix FOLDER]
#
# PLACE is the folder or the URL that has the archives and their SHA256SUMS. With --sha256, the hash comes
# from you instead. FOLDER is ~/.local, or /usr/local for root: the files go to FOLDER/lib/tamma-VERSION,
# with a link in FOLDER/bin. Nothing else changes, and nothing is started. The data folder is never
# touched.
set -eu

version="@VERSION@"
from="@PLACE@"
hash=""
uninstall=""
if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix="${HOME:?}/.local"; fi

fail() {
    printf 'error: %s\n  help: %s\n' "$1" "$2" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case "$1" in
        --from | --version | --prefix | --sha256)
            [ $# -ge 2 ] || fail "$1 needs a value" "see the first lines of this script"
            case "$1" in
                --from) from="$2" ;;
                --version) version="$2" ;;
                --prefix) prefix="$2" ;;
                --sha256) hash="$2" ;;
            esac
            shift 2
            ;;
        --uninstall)
            uninstall=yes
            shift
            ;;
        *) fail "unknown argument \"$1\"" "see the first lines of this script" ;;
    esac
done

link="$prefix/bin/tamma"
if [ -n "$uninstall" ]; then
    if [ -x "$link" ]; then
        # Servers of a data folder elsewhere are stopped with `tamma down --data FOLDER`.
        "$link" down || true
    fi
    case "$(readlink "$link" 2> /dev/null || true)" in
        ../lib/tamma-*/bin/tamma) rm -f "$link" ;;
        "") ;;
        *) fail "$link is not a link of this script" "remove it by hand" ;;
    esac
    rm -rf "$prefix"/lib/tamma-[0-9]*
    echo "Tamma is removed from $prefix. Your data stays: remove ~/.local/share/tamma (root: /var/lib/tamma) to delete it."
    exit 0
fi

case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) target=x86_64-unknown-linux-gnu ;;
    Linux-aarch64 | Linux-arm64) target=aarch64-unknown-linux-gnu ;;
    Darwin-x86_64) target=x86_64-apple-darwin ;;
    Darwin-arm64) target=aarch64-apple-darwin ;;
    *) fail "Tamma has no archive for $(uname -s) on $(uname -m)" "build it with cargo install --path crates/cli" ;;
esac
[ -n "$from" ] || fail "no place to install from" "name the folder or the URL with --from"

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
name="tamma-$version-$target"

fetch() {
    case "$from" in
        http://* | https://*)
            if command -v curl > /dev/null; then
                curl --fail --silent --show-error --location --output "$scratch/$1" "$from/$1"
            else
                wget --quiet --output-document "$scratch/$1" "$from/$1"
            fi
            ;;
        *) cp "$from/$1" "$scratch/$1" ;;
    esac || fail "cannot get $1 from $from" "check --from and --version"
}

fetch "$name.tar.gz"
if [ -z "$hash" ]; then
    fetch SHA256SUMS
    hash="$(sed -n "s/^\([0-9a-f]*\) [ *]$name.tar.gz\$/\1/p" "$scratch/SHA256SUMS")"
    [ -n "$hash" ] || fail "SHA256SUMS has no line for $name.tar.gz" "check --from and --version"
fi
if command -v sha256sum > /dev/null; then
    found="$(sha256sum "$scratch/$name.tar.gz" | cut -d ' ' -f 1)"
else
    found="$(shasum -a 256 "$scratch/$name.tar.gz" | cut -d ' ' -f 1)"
fi
[ "$found" = "$hash" ] || fail "the SHA-256 of $name.tar.gz is $found, expected $hash" "download it again; do not use this file"

mkdir -p "$prefix/bin" "$prefix/lib"
tar -xzf "$scratch/$name.tar.gz" -C "$scratch"
folder="$prefix/lib/tamma-$version"
rm -rf "$folder.new"
# A copy, because the temporary folder can be on another file system.
cp -R "$scratch/$name" "$folder.new"
rm -rf "$folder"
mv "$folder.new" "$folder"
ln -sfn "../lib/tamma-$version/bin/tamma" "$link"
# Earlier versions. Running servers use their own copies in the data folder.
for other in "$prefix"/lib/tamma-[0-9]*; do
    if [ "$other" != "$folder" ]; then rm -rf "$other"; fi
done
echo "Installed tamma $version to $link."
case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "Add $prefix/bin to your PATH." ;;
esac
