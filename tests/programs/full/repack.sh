#!/bin/bash
# git: a repository of many versions of some files, repacked with a large window by two threads, checked and cloned. Argument: scale.
set -eu
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
rm -rf r c
git init -q -b main r
awk -v versions=$((60 * $1)) 'BEGIN {
    srand(1)
    for (v = 1; v <= versions; v++) {
        printf "commit refs/heads/main\nmark :%d\ncommitter A <a@b> %d +0000\ndata <<END\nversion %d\nEND\n", v, 1000000000 + v, v
        if (v > 1) printf "from :%d\n", v - 1
        for (f = 0; f < 6; f++) {
            printf "M 100644 inline file%d\ndata <<END_OF_FILE\n", f
            for (l = 0; l < 6000; l++) printf "%d %d line of a file %d\n", l, (l % 97 == v % 97) ? v : l * 31 + f, (l * 2654435761) % 1000003
            printf "END_OF_FILE\n"
        }
        printf "\n"
    }
}' | git -C r fast-import --quiet
git -C r -c pack.threads=2 -c core.compression=1 repack -a -d -f -q --window=60 --depth=50 --window-memory=0
git -C r fsck --full --strict 2>&1
git verify-pack -v r/.git/objects/pack/*.idx | grep -c -E '^[0-9a-f]{40} (blob|tree|commit)'
git clone -q --no-local r c
git -C c log --stat --oneline | sha256sum
git -C c blame file3 | sha256sum
