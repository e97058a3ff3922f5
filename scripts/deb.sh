#!/bin/bash
# Makes target/deb/outswap_VERSION_amd64.deb of what is built. `make deb` calls it:
#
#   deb.sh BUILD_DIRECTORY
set -euo pipefail
# Others are to be able to read what is made.
umask 022
cd "$(dirname "$0")/.."

built=$1
for tool in dpkg-deb objdump gzip; do
    command -v "$tool" >/dev/null || { echo "deb: $tool is missing (packages dpkg, binutils, gzip)" >&2; exit 1; }
done
version=$("$built/outswap" version)
version=${version#outswap }
mkdir -p target/deb
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

scripts/install.sh install "$built" "$root" /usr >/dev/null
# Where Debian has them: zsh's own directory, compressed manual pages, one file with the licences.
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/_outswap" "$root/usr/share/zsh/vendor-completions/_outswap"
rmdir "$root/usr/share/zsh/site-functions"
gzip -9n "$root"/usr/share/man/man1/*.1
doc=$root/usr/share/doc/outswap
{
    printf 'Outswap is under the MIT licence or the Apache licence 2.0, as you like.\n\n'
    cat LICENSE-MIT
    printf '\n'
    cat LICENSE-APACHE
} >"$doc/copyright"
chmod 644 "$doc/copyright"
rm "$doc/LICENSE-MIT" "$doc/LICENSE-APACHE"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
chmod 644 "$doc/changelog.gz"

# The oldest C library that has all that is used.
libc=$(objdump -T "$root/usr/bin/outswap" "$root"/usr/lib/outswap/*.so | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
size_kib=$(du -sk "$root/usr" | cut -f1)
mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<EOF
Package: outswap
Version: $version
Architecture: amd64
Maintainer: The Outswap project <outswap@localhost>
Installed-Size: $size_kib
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1
Section: utils
Priority: optional
Homepage: https://github.com/outswap/outswap
Description: swap that belongs to one program
 Runs an unmodified program in less memory than it needs, as any user, without
 kernel swap: pages that are not in use are compressed in memory, then go to an
 encrypted file.
EOF
(cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
chmod 644 "$root/DEBIAN/control" "$root/DEBIAN/md5sums"
package=target/deb/outswap_${version}_amd64.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
