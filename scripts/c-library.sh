#!/bin/bash
# The programs of tests/calls with another C library than this machine's: that of a release of Debian, by its name (trixie, sid). Programs are
# built here, and linked to it. Needs the built executable, curl, xz, dpkg and the network; installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
release=${1:?the name of a release of Debian}
mirror=${MIRROR:-http://deb.debian.org/debian}
place=$(mktemp -d /tmp/outswap-c-library.XXXXXX)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"

. scripts/packages.sh
package=$(package_file "$mirror" "$release" libc6)
curl -fsS -o "$place/libc6.deb" "$mirror/$package"
dpkg-deb -x "$place/libc6.deb" "$place/root"
libraries=$(dirname "$(find "$place/root" -name libc.so.6 | head -1)")
echo "$(basename "$package"): $libraries"

# Compilers that link to it; static programs and those without a library stay as they are.
mkdir "$place/bin"
for compiler in cc c++; do
  cat >"$place/bin/$compiler" <<END
#!/bin/sh
for option in "\$@"; do
  case \$option in -static | -static-pie | -nostdlib) exec $(command -v $compiler) "\$@" ;; esac
done
exec $(command -v $compiler) "\$@" -Wl,--dynamic-linker=$libraries/ld-linux-x86-64.so.2 -Wl,-rpath,$libraries -Wl,--disable-new-dtags
END
  chmod 755 "$place/bin/$compiler"
done
cargo test --locked -p outswap-e2e --test calls --no-run
OUTSWAP_BIN=$PWD/target/release/outswap PATH="$place/bin:$PATH" cargo test --locked -p outswap-e2e --test calls -- "${@:2}"
