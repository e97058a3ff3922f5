#!/bin/bash
# Installs what is built, or removes what was installed. `make install` and `make uninstall` call it:
#
#   install.sh install|uninstall BUILD_DIRECTORY DESTDIR PREFIX
set -euo pipefail
cd "$(dirname "$0")/.."

what=$1
built=$2
destdir=$3
prefix=$4
libraries=(liboutswap_preload.so liboutswap_malloc.so)

fail() {
    echo "install: $*" >&2
    exit 1
}

if [[ $prefix != /* ]]; then fail "PREFIX must begin with /, and is '$prefix'"; fi
top=$destdir$prefix
# Directories that are Outswap's alone.
lib=$top/lib/outswap
doc=$top/share/doc/outswap

install_file() { # mode, file, where to
    install -D -m "$1" "$2" "$3"
}

install_all() {
    local name
    generated=$(mktemp -d)
    trap 'rm -rf "$generated"' EXIT
    "$built/outswap" generate "$generated"
    install_file 755 "$built/outswap" "$top/bin/outswap"
    for name in "${libraries[@]}"; do
        install_file 644 "$built/$name" "$lib/$name"
    done
    # Without what only a debugger reads they are a fifth as large.
    if command -v strip >/dev/null; then
        strip --strip-unneeded "$top/bin/outswap" "${libraries[@]/#/$lib/}"
    fi
    for name in "$generated"/*.1; do
        install_file 644 "$name" "$top/share/man/man1/${name##*/}"
    done
    install_file 644 "$generated/outswap.bash" "$top/share/bash-completion/completions/outswap"
    install_file 644 "$generated/_outswap" "$top/share/zsh/site-functions/_outswap"
    install_file 644 "$generated/outswap.fish" "$top/share/fish/vendor_completions.d/outswap.fish"
    for name in LICENSE-MIT LICENSE-APACHE; do
        install_file 644 "$name" "$doc/$name"
    done
    echo "installed in $top"
}

uninstall_all() {
    rm -f "$top/bin/outswap" "$top"/share/man/man1/outswap{,-run,-record,-doctor}.1 \
        "$top/share/bash-completion/completions/outswap" "$top/share/zsh/site-functions/_outswap" \
        "$top/share/fish/vendor_completions.d/outswap.fish" "${libraries[@]/#/$lib/}" \
        "$doc/LICENSE-MIT" "$doc/LICENSE-APACHE"
    for directory in "$lib" "$doc"; do
        if [[ -d $directory ]]; then rmdir --ignore-fail-on-non-empty "$directory"; fi
    done
    echo "removed from $top"
}

case $what in
install) install_all ;;
uninstall) uninstall_all ;;
*) fail "'$what' is neither install nor uninstall" ;;
esac
