#!/bin/bash
# Runs docs/recipes/redis-outswap.service under a systemd of its own, in namespaces, as root: is the program the service's main
# process, do its messages count, is it started again when it is killed, and does nothing stay when it is stopped? Needs systemd and
# redis-server, and control groups that can be written to. Not part of CI.
#
# Usage: scripts/test-systemd.sh DIRECTORY   where outswap and its libraries are
set -euo pipefail

cd "$(dirname "$0")/.."
binaries=$(realpath "${1:?where outswap and its libraries are}")
for need in /lib/systemd/systemd /usr/bin/redis-server; do
    [[ -x $need ]] || { echo "$need is missing: install systemd and redis-server" >&2; exit 1; }
done
# Not where services have directories of their own (/tmp, /var/tmp), nor in somebody's home.
work=$(mktemp -d /opt/outswap-systemd-XXXXXX)
systemd=
groups() { find /sys/fs/cgroup -mindepth 2 -type d | sort; }
before=$(groups)
finish() {
    if [[ -n $systemd ]]; then
        { kill -9 "$systemd" && wait "$systemd"; } 2>/dev/null || true
    fi
    # What it has made of control groups, the inner ones first.
    comm -23 <(groups) <(echo "$before") | sort -r | xargs -r rmdir 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/bin" "$work/units"
cp "$binaries"/outswap "$binaries"/liboutswap_{preload,malloc}.so "$work/bin"
chmod -R a+rX "$work"
sed "s#/usr/local/bin/outswap#$work/bin/outswap#; s/^\[Unit\]/&\nDefaultDependencies=no/" docs/recipes/redis-outswap.service \
    >"$work/units/redis-outswap.service"
cat >"$work/units/probe.target" <<END
[Unit]
DefaultDependencies=no
Wants=redis-outswap.service probe.service
END
cat >"$work/units/probe.service" <<END
[Unit]
DefaultDependencies=no
After=redis-outswap.service
[Service]
Type=oneshot
ExecStart=/bin/bash $work/probe.sh
StandardOutput=file:$work/out
StandardError=file:$work/out
END
cat >"$work/probe.sh" <<'END'
show() { timeout 30 systemctl --no-pager show redis-outswap.service --value -p "$1"; }
say() { echo "$1=$2"; }
main=$(show MainPID)
say main "$(cat "/proc/$main/comm")"
say told "$(show StatusText)"
for other in /proc/[0-9]*; do
    # Beside it, in the service's control group.
    if [[ $other != "/proc/$main" ]] && cmp -s "$other/cgroup" "/proc/$main/cgroup"; then say supervisor "$(cat "$other/comm")"; fi
done
say children "$(cat "/proc/$main/task/$main/children")"
say answer "$(redis-cli -p 6380 set key value)"
[[ $main -gt 1 ]] && kill -9 "$main"
for _ in $(seq 100); do
    [[ $(show SubState) == running && $(show MainPID) != "$main" ]] && break
    sleep 0.1
done
say restarts "$(show NRestarts)"
say again "$(cat "/proc/$(show MainPID)/comm")"
timeout 30 systemctl --no-pager stop redis-outswap.service
say result "$(show Result)"
say left "$(cat /proc/[0-9]*/comm | grep -c -e '^outswap$' -e '^redis-server$')"
say done 1
END
cat >"$work/start.sh" <<END
mount --make-rprivate /
mount -t proc proc /proc
# Settings of the whole machine stay as they are.
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount --bind "$work/units" /etc/systemd/system
exec env container=other /lib/systemd/systemd --system --unit=probe.target --log-target=console --show-status=0
END
# The first process of the namespaces is not ours to end by a signal; it ends with the one that made it.
setsid unshare --pid --fork --kill-child --mount --uts --ipc --cgroup bash "$work/start.sh" >"$work/log" 2>&1 &
systemd=$!
for _ in $(seq 600); do
    if grep -q '^done=' "$work/out" 2>/dev/null || ! kill -0 "$systemd" 2>/dev/null; then break; fi
    sleep 0.1
done
expected="main=redis-server
told=Ready to accept connections
supervisor=outswap
children=
answer=OK
restarts=1
again=redis-server
result=success
left=0
done=1"
if ! diff <(echo "$expected") "$work/out"; then
    tail -n 20 "$work/log" >&2
    echo "the service is not as the recipe says" >&2
    exit 1
fi
echo "systemd: $(/lib/systemd/systemd --version | head -n 1), all as the recipe says"
