#!/bin/bash
# The programs of tests/calls on another kernel than this machine's: that of a release of Debian (bullseye, bookworm, trixie, sid) or of Ubuntu
# (jammy, noble), in a machine that QEMU emulates, with this machine's files, which it cannot change. Each program runs under `outswap run`, and
# where that fails plainly as well. Prints a line for each, and ends with 1 where one failed under Outswap alone.
#
# Usage: scripts/kernel.sh RELEASE [OPTION OF outswap run...]
#   KERNEL_PARTS='rw fork*'   which programs
#   KERNEL_S=300              how long one may take
#   KERNEL_APPEND='WORDS'     what else that kernel is started with
#   KERNEL_RUN='COMMAND'      runs that there, in the project's directory, in place of the programs
#
# Needs the built executable, root for the file system's server, cc, qemu-system-x86 with virtiofsd, busybox-static, kmod, cpio, e2fsprogs,
# curl, xz, zstd and dpkg; installs nothing. Emulated, a program takes ten to twenty times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
release=${1:?the name of a release of Debian or Ubuntu}
shift
outswap=$PWD/target/release/outswap
[[ -x $outswap ]] || { echo "$outswap is not there: make installed" >&2; exit 2; }
server=
for path in /usr/libexec/virtiofsd /usr/lib/qemu/virtiofsd; do if [[ -x $path ]]; then server=$path; fi; done
for name in cc qemu-system-x86_64 modprobe depmod cpio mkfs.ext4 curl xz zstd dpkg-deb; do type "$name" >/dev/null; done
[[ $server ]] || { echo "there is no virtiofsd" >&2; exit 2; }
# A place that both have: directories for temporary files are empty there, on a disk of its own.
place=$(mktemp -d "$PWD/target/kernel.XXXXXX")
serving=
trap '[[ ! $serving ]] || kill "$serving" 2>/dev/null || :; rm -rf "$place"' EXIT
chmod 755 "$place"

. scripts/packages.sh
debian=${MIRROR:-http://deb.debian.org/debian} ubuntu=${MIRROR_UBUNTU:-http://archive.ubuntu.com/ubuntu}
case $release in
    jammy | noble)
        mirror=$ubuntu
        names=('linux-image-unsigned-[0-9.]*-[0-9]*-generic' 'linux-modules-[0-9.]*-[0-9]*-generic')
        ;;
    *)
        mirror=$debian
        names=('linux-image-[0-9][^ \n]*-cloud-amd64' 'linux-binary-[0-9][^ \n]*-cloud-amd64' 'linux-modules-[0-9][^ \n]*-cloud-amd64')
        ;;
esac
for name in "${names[@]}"; do
    file=$(package_file "$mirror" "$release" "$name")
    if [[ $file ]]; then
        curl -fsS -o "$place/package.deb" "$mirror/$file"
        dpkg-deb -x "$place/package.deb" "$place/kernel"
    fi
done
modules=$(dirname "$(find "$place/kernel" -type d -path '*/lib/modules/*/kernel' | head -1)")
version=$(basename "$modules")
mkdir -p "$place/modules/lib/modules" "$place/first/bin" "$place/first/modules" "$place/programs"
mv "$modules" "$place/modules/lib/modules/"
kernel=$(find "$place/kernel" "$place/modules" -name 'vmlinuz*' -type f | head -1)
find "$place/modules" -name '*.xz' -exec xz -dq {} +
find "$place/modules" -name '*.zst' -exec zstd -dq --rm {} +
depmod -b "$place/modules" "$version" 2>/dev/null

# The first file system: what mounts this machine's, read-only beneath one in memory, and runs the job there.
busybox=$(command -v busybox)
if ldd "$busybox" >/dev/null 2>&1; then
    (cd "$place" && apt-get -qq -o APT::Sandbox::User=root download busybox-static && dpkg-deb -x busybox-static_*.deb busybox)
    busybox=$(find "$place/busybox" -path '*bin/busybox' -type f | head -1)
fi
cp "$busybox" "$place/first/bin/busybox"
ln -s busybox "$place/first/bin/sh"
for module in virtio_pci virtio_blk ext4 virtiofs overlay; do
    # What is built in has no file.
    { modprobe -d "$place/modules" -S "$version" --show-depends "$module" 2>/dev/null || :; } | awk '$1 == "insmod" { print $2 }' |
        while read -r path; do
            grep -qx "${path##*/}" "$place/first/modules/list" 2>/dev/null && continue
            cp "$path" "$place/first/modules/"
            echo "${path##*/}" >>"$place/first/modules/list"
        done
done
touch "$place/first/modules/list"
cat >"$place/first/init" <<END
#!/bin/sh
b=/bin/busybox
\$b mkdir -p /proc /lower /upper /new
\$b mount -t proc proc /proc
for module in \$(\$b cat /modules/list); do \$b insmod /modules/\$module; done
\$b mount -t virtiofs -o ro root /lower
\$b mount -t tmpfs -o size=80% upper /upper
\$b mkdir /upper/files /upper/work
\$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /new
\$b mount -t proc proc /new/proc
\$b mount -t sysfs sysfs /new/sys
\$b mount -t devtmpfs devtmpfs /new/dev
\$b mkdir -p /new/dev/pts /new/dev/shm
\$b mount -t devpts devpts /new/dev/pts
\$b mount -t tmpfs -o mode=1777 shm /new/dev/shm
\$b mount -t ext4 /new/dev/vda /new/tmp
\$b chmod 1777 /new/tmp
\$b mount -o bind /new/tmp /new/var/tmp
\$b ifconfig lo 127.0.0.1 up
\$b chroot /new /bin/bash $place/job
\$b poweroff -f
END
chmod +x "$place/first/init"
(cd "$place/first" && find . | cpio -o -H newc --quiet | gzip -1) >"$place/first.gz"

# Programs are built here.
read -ra parts <<<"${KERNEL_PARTS:-*}"
for source in tests/calls/*.c tests/calls/*.cc; do
    name=$(basename "${source%.*}")
    for part in "${parts[@]}"; do
        # shellcheck disable=SC2053
        if [[ $name == $part ]]; then echo "$source"; fi
    done
done | xargs -P "$(nproc)" -I{} sh -c '
    case $1 in *.cc) set -- "$1" "$2" c++ -fnon-call-exceptions -rdynamic ;; *) set -- "$1" "$2" cc ;; esac
    source=$1 to=$2/$(basename "${1%.*}"); shift 2
    exec "$@" -O1 -pthread -o "$to" "$source" -ldl' - {} "$place/programs"

cat >"$place/one" <<END
#!/bin/bash
# A program under Outswap, and where that fails plainly.
program=\$1
shift
here=\$(mktemp -d)
chmod 777 "\$here"
cd "\$here"
export TMPDIR=\$here LC_ALL=C
managed=0
OUTSWAP_E2E_MANAGED=1 timeout -k 5 ${KERNEL_S:-300} $outswap run --ram 32M "\$@" -- "\$program" >out 2>err </dev/null || managed=\$?
if [[ \$managed == 0 ]]; then
    echo "ok: \$(basename "\$program")"
else
    mkdir plainly
    plain=0
    (cd plainly && TMPDIR=\$here/plainly timeout -k 5 ${KERNEL_S:-300} "\$program" >../plain_out 2>../plain_err </dev/null) || plain=\$?
    if [[ \$plain == 0 ]]; then
        echo "FAILED: \$(basename "\$program"): \$managed: \$(tail -c 300 out | tail -2) \$(tail -c 700 err | tail -4)"
    else
        echo "fails plainly: \$(basename "\$program"): \$plain, under Outswap \$managed: \$(tail -c 300 plain_err | tail -2)"
    fi
fi
cd /
rm -rf "\$here"
END
chmod +x "$place/one"
options=
if (($#)); then options=$(printf '%q ' "$@"); fi
cat >"$place/job" <<END
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root
ulimit -n 20000
uname -sr
if [[ -n \$(cat $place/command) ]]; then
    cd $PWD
    . $place/command
else
    ls -d $place/programs/* | xargs -P 3 -I{} $place/one {} $options
fi
echo "ended: \$?"
END
printf "%s" "${KERNEL_RUN:-}" >"$place/command"

truncate -s 4G "$place/disk"
mkfs.ext4 -q -F "$place/disk"
"$server" --socket-path="$place/socket" -o source=/ -o cache=always -o sandbox=chroot >"$place/server.log" 2>&1 &
serving=$!
for _ in $(seq 100); do [[ -S $place/socket ]] || sleep 0.05; done
qemu-system-x86_64 -accel tcg,thread=multi -cpu max,la57=off -M q35 -smp 2 -m 6G -nographic -no-reboot \
    -object memory-backend-memfd,id=memory,size=6G,share=on -numa node,memdev=memory \
    -chardev "socket,id=files,path=$place/socket" -device vhost-user-fs-pci,chardev=files,tag=root \
    -drive "file=$place/disk,if=virtio,format=raw,cache=unsafe" -kernel "$kernel" -initrd "$place/first.gz" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off ${KERNEL_APPEND:-}" </dev/null |
    sed -u 's/\r//' | tee "$place/log"
grep -q '^ended: 0$' "$place/log" && ! grep -q '^FAILED' "$place/log"
