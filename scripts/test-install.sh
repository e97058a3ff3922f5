#!/bin/bash
# Installs Outswap into scratch directories and tries it there: by `make install` and from the package, or (`bundled`) by
# `cargo install`. Nothing is left behind.
#
#   test-install.sh BUILD_DIRECTORY [bundled]
set -euo pipefail
# Others are to be able to read what is made.
umask 022
export LC_ALL=C
cd "$(dirname "$0")/.."

built=$1
work=$(mktemp -d)
# Directories that runs made for libraries; their names have no spaces.
places=
trap 'rm -rf "$work" $places' EXIT
# Programs run there as other users, too.
chmod 755 "$work"

fail() {
    echo "test-install: $*" >&2
    exit 1
}

files() { # all files below a directory, one a line
    (cd "$1" && find . ! -type d | sort)
}

# Runs a shell and another one in it, and looks at what the statistics say of them.
manages() { # executable
    local said place
    place=$("$1" run --ram 64M -- sh -c 'echo "${LD_PRELOAD%/*}"')
    if [[ $place == */outswap-$(id -u)-* ]]; then places+=" $place"; fi
    said=$("$1" run --ram 64M --stats "$work/stats.json" -- sh -c 'sh -c "echo managed; exit 5"; exit $?') && fail "$1: no exit status"
    [[ $said == managed ]] || fail "$1: the program printed '$said'"
    grep -q '"managed": true' "$work/stats.json" || fail "$1: it ran unmanaged: $(cat "$work/stats.json")"
    grep -q '"status": 5' "$work/stats.json" || fail "$1: another exit status: $(cat "$work/stats.json")"
    "$1" run --ram 64M --malloc mimalloc -- true || fail "$1: the allocator is missing"
}

# The parser's own options are in what was installed.
documented() { # top, command that prints a file
    local option page
    page=$("$2" "$1"/share/man/man1/outswap-run.1* | sed 's/\\-/-/g')
    for option in --ram --resident --swap-dir --allow-unmanaged; do
        grep -qe "$option" <<<"$page" || fail "the manual page has no $option"
        grep -qe "$option" "$1/share/bash-completion/completions/outswap" || fail "bash does not complete $option"
        grep -qe "$option" "$1"/share/zsh/*/_outswap || fail "zsh does not complete $option"
        grep -qe "-l ${option#--}" "$1/share/fish/vendor_completions.d/outswap.fish" || fail "fish does not complete $option"
    done
    bash -n "$1/share/bash-completion/completions/outswap" || fail "bash cannot read its completions"
}

# By Cargo: one executable, without libraries beside it.
if [[ ${2:-} == bundled ]]; then
    cargo install --quiet --locked --path crates/cli --features bundled --root "$work/cargo" --target-dir "$work/target"
    [[ $(files "$work/cargo" | grep -v '/\.crates') == ./bin/outswap ]] || fail "cargo install left: $(files "$work/cargo")"
    manages "$work/cargo/bin/outswap"
    [[ -n $places ]] || fail "the libraries came from elsewhere"
    echo "cargo install: works"
    exit 0
fi

# By make, into a directory with a space in its name, from which it runs as it is.
top="$work/a root/opt/outswap"
make --no-print-directory install BIN="$built" DESTDIR="$work/a root" PREFIX=/opt/outswap >/dev/null
manages "$top/bin/outswap"
documented "$top" cat
echo mine >"$top/lib/other"
make --no-print-directory uninstall BIN="$built" DESTDIR="$work/a root" PREFIX=/opt/outswap >/dev/null
left=$(files "$work/a root")
[[ $left == ./opt/outswap/lib/other ]] || fail "uninstall left: $left"
[[ ! -e $top/lib/outswap ]] || fail "uninstall left $top/lib/outswap"
echo "make install: works, and uninstalls"

# The package, unpacked and run from there.
if ! command -v dpkg-deb >/dev/null; then
    echo "deb: not tried, since there is no dpkg-deb"
    exit 0
fi
package=$(scripts/deb.sh "$built")
dpkg-deb -x "$package" "$work/unpacked"
manages "$work/unpacked/usr/bin/outswap"
documented "$work/unpacked/usr" zcat
dpkg-deb -f "$package" Depends | grep -q '^libc6 (>= 2\.' || fail "the package does not say which C library it needs"
echo "deb: unpacked, works"

# The same, installed and removed by dpkg, whose data base is a scratch one. Only root can.
if [[ $(id -u) == 0 ]]; then
    mkdir -p "$work/system/var/lib/dpkg"/{updates,info}
    touch "$work/system/var/lib/dpkg"/{status,available}
    # What it depends on is not in there.
    options=(--root="$work/system" --force-depends --force-script-chrootless --log="$work/dpkg.log")
    dpkg "${options[@]}" -i "$package" >"$work/dpkg.out" 2>&1 || fail "dpkg -i: $(cat "$work/dpkg.out")"
    manages "$work/system/usr/bin/outswap"
    dpkg "${options[@]}" -r outswap >"$work/dpkg.out" 2>&1 || fail "dpkg -r: $(cat "$work/dpkg.out")"
    left=$(files "$work/system" | grep -v '^./var/lib/dpkg' || true)
    [[ -z $left ]] || fail "removing left: $left"
    echo "deb: installed by dpkg, works, and is removed"
fi
