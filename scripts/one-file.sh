#!/bin/bash
# Shows that a new part is one file and one line: adds one in a copy of the tree, builds that, and tries it on a program.
#
#   scripts/one-file.sh [KIND]...   the folders of examples/one-file; all of them where none is named
#
# In each folder:
#   tree/      the new file, at its place in the tree
#   line       three lines: the file that gets the line, the line of it after which it comes, and the line itself
#   check.sh   what must hold then. It runs in this script's folder, with `outswap`, the new program, `work`, a folder for what
#              it writes, and the functions below
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
root=$PWD
here=$root/target/one-file
outswap=$here/build/release/outswap

fail() {
    echo "one-file: $*" >&2
    exit 1
}

say() {
    echo "one-file: $*"
}

# Prints what a Python expression makes of a JSON file, `d`; with a third word, fails where it is not that.
read_json() { # file expression [wanted]
    local value
    value=$(python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2")
    if (($# < 3)); then
        echo "$value"
    elif [[ $value != "$3" ]]; then
        fail "${1##*/}: $2 is $value instead of $3"
    fi
}

# Copies what git tracks, with its times, so that only what is new is built.
copy_tree() { # folder
    rm -rf "$1"
    mkdir -p "$1"
    git ls-files -z | xargs -0 cp -p --parents -t "$1"
}

# The two trees differ in one file and one line, and in nothing else.
one_file_one_line() {
    local files lines
    files=$(diff <(cd "$here/plain" && find . -type f | sort) <(cd "$here/tree" && find . -type f | sort) | grep '^[<>]' || true)
    lines=$(diff -r "$here/plain" "$here/tree" | grep '^[<>]' || true)
    if [[ $files != "> "* || $files == *$'\n'* || $lines != "> "* || $lines == *$'\n'* ]]; then
        diff -r "$here/plain" "$here/tree" >&2 || true
        fail "the trees differ by more than one file and one line"
    fi
    say "a new file ${files#> ./}; a new line in $list: ${lines#> }"
}

build() {
    # What other crates were built to already is the same here.
    if [[ ! -d $here/build && -d target/release/deps ]]; then
        mkdir -p "$here/build/release"
        cp -a --reflink=auto target/release/{.fingerprint,build,deps} "$here/build/release"
    fi
    (cd "$here/tree" && cargo build --release --locked --target-dir "$here/build" \
        -p outswap-cli -p outswap-preload -p outswap-malloc) || fail "the build failed; what is wrong stands above"
}

(($# > 0)) || set -- $(ls examples/one-file)
command -v python3 >/dev/null || fail "python3 is missing: run 'make setup', which installs it"
for kind; do
    example=examples/one-file/$kind
    [[ -d $example/tree ]] || fail "there is no $example"
    mapfile -t parts <"$example/line"
    ((${#parts[@]} == 3)) || fail "$example/line has three lines"
    list=${parts[0]}
    say "$kind"
    copy_tree "$here/plain"
    copy_tree "$here/tree"
    cp -r "$example/tree/." "$here/tree"
    awk -v after="${parts[1]}" -v line="${parts[2]}" '{ print } $0 == after { print line }' "$here/plain/$list" \
        >"$here/tree/$list"
    one_file_one_line
    build
    work=$here/scratch/$kind
    rm -rf "$work"
    mkdir -p "$work"
    # shellcheck source=/dev/null
    (. "$example/check.sh")
done
