#!/bin/bash
# Shows Outswap at work: redis-server is filled and read back, first plainly, then in a quarter of the memory it took.
#
#   OUTSWAP_DEMO_KEYS=N   keys to load (default 200000), 1000 bytes each
#   SKIP_BUILD=1          use what is in target/release
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

keys=${OUTSWAP_DEMO_KEYS:-200000}
keys_a_command=100
outswap=target/release/outswap
work=
server=
sampler=

fail() {
    echo "demo: $*" >&2
    exit 1
}

# Ends what this script started, by process id, and removes its files.
cleanup() {
    local status=$?
    trap - EXIT
    for pid in $sampler $server; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [[ -n $work ]]; then rm -rf "$work"; fi
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

[[ $keys =~ ^[1-9][0-9]{3,6}$ ]] || fail "OUTSWAP_DEMO_KEYS must be a number from 1000 to 9999999, not '$keys'"
((keys >= 80000)) ||
    echo "demo: with fewer than 80000 keys a quarter of the memory is less than the 16 MiB that Outswap needs" >&2
for tool in redis-server redis-cli awk base64 sha256sum; do
    command -v "$tool" >/dev/null || fail "$tool is missing: run 'make demo', which installs it"
done

if [[ -z ${SKIP_BUILD:-} ]]; then
    command -v cargo >/dev/null || fail "cargo is missing: run 'make demo', which installs it"
    echo "[1/4] Building Outswap (a minute or two the first time) ..."
    cargo build --release --locked -p outswap-cli -p outswap-preload -p outswap-malloc ||
        fail "the build failed; what is wrong stands above"
else
    echo "[1/4] Using what is built already"
fi
[[ -x $outswap ]] || fail "$outswap is missing: run this without SKIP_BUILD"

work=$(mktemp -d "${TMPDIR:-/tmp}/outswap-demo.XXXXXX") || fail "no temporary directory can be made"
socket=$work/redis.sock
((${#socket} < 100)) || fail "the path $socket is too long for a socket: set TMPDIR to a shorter one"
cli=(redis-cli -s "$socket")

# The values: 500 characters of noise, then 500 of text that compresses. `what` says in which form they are printed.
values() { # what
    awk -v what="$1" '
        BEGIN {
            for (i = 0; i < 20; i++) text = text "the same few words over and over; "
            text = substr(text, 1, 500)
        }
        what == "lines" { print $0 text; next }
        {
            key = sprintf("key:%08d", NR)
            printf "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s%s\r\n", length(key), key, length($0 text), $0, text
        }' "$work/noise"
}

read_back() {
    awk -v n="$keys" -v step="$keys_a_command" 'BEGIN {
        for (i = 1; i <= n; i++) {
            line = (i % step == 1 ? "MGET" : line) sprintf(" key:%08d", i)
            if (i % step == 0 || i == n) print line
        }
    }' | "${cli[@]}" | sha256sum | cut -d' ' -f1
}

# Follows the anonymous memory of some processes from outside, about every 50 ms, and keeps the highest sum in a file.
sample() { # file pid...
    local file=$1 peak_kb=0 sum_kb key value rest
    shift
    while :; do
        sum_kb=0
        for pid in "$@"; do
            while read -r key value rest; do
                if [[ $key == Pss_Anon: ]]; then sum_kb=$((sum_kb + value)); fi
            done 2>/dev/null <"/proc/$pid/smaps_rollup" || true
        done
        if ((sum_kb > peak_kb)); then
            peak_kb=$sum_kb
            echo "$peak_kb" >"$file"
        fi
        sleep 0.05
    done
}

# Starts redis-server by the given words, fills it, reads it back and stops it.
# Sets peak_kb, load_ms, read_ms and sum.
measure() { # name command...
    local name=$1 redis started now
    shift
    "$@" redis-server --port 0 --unixsocket "$socket" --save "" --appendonly no --dir "$work" \
        --daemonize no --logfile "$work/$name.log" >"$work/$name.out" 2>&1 &
    server=$!
    for ((i = 0; ; i++)); do
        [[ $("${cli[@]}" PING 2>/dev/null || true) == PONG ]] && break
        if ! kill -0 "$server" 2>/dev/null || ((i > 200)); then
            cat "$work/$name.out" >&2
            if [[ -e $work/$name.log ]]; then tail -n 5 "$work/$name.log" >&2; fi
            fail "redis-server did not start ($name); its last words stand above"
        fi
        sleep 0.05
    done
    redis=$("${cli[@]}" INFO server | tr -d '\r' | sed -n 's/^process_id://p')
    local pids=("$server")
    [[ $redis == "$server" ]] || pids+=("$redis")
    echo 0 >"$work/$name.peak"
    sample "$work/$name.peak" "${pids[@]}" 2>/dev/null &
    sampler=$!

    started=${EPOCHREALTIME/./}
    values commands | "${cli[@]}" --pipe >"$work/$name.load" 2>&1 || {
        cat "$work/$name.load" "$work/$name.out" >&2
        fail "loading the keys failed ($name)"
    }
    now=${EPOCHREALTIME/./}
    load_ms=$(((now - started) / 1000))
    started=$now
    sum=$(read_back) || fail "reading the values back failed ($name)"
    read_ms=$(((${EPOCHREALTIME/./} - started) / 1000))

    kill "$sampler" && wait "$sampler" 2>/dev/null || true
    sampler=
    peak_kb=$(<"$work/$name.peak")
    "${cli[@]}" SHUTDOWN NOSAVE >/dev/null 2>&1 || true
    local status=0
    wait "$server" || status=$?
    server=
    if ((status != 0)); then
        cat "$work/$name.out" >&2
        fail "redis-server ended with status $status ($name)"
    fi
}

# A number from the statistics: the value of a key inside a section.
stat() { # section key
    awk -v section="\"$1\":" -v key="\"$2\":" '
        $1 == section { inside = 1 }
        inside && $1 == key { sub(/,$/, "", $2); print $2; exit }' "$work/stats.json"
}
mib() { awk -v kb="$1" 'BEGIN { printf "%.1f MiB", kb / 1024 }'; }
seconds() { awk -v ms="$1" 'BEGIN { printf "%.1f s", ms / 1000 }'; }

echo "[2/4] Running redis-server plainly: $keys keys of 1000 bytes in, all values read back ..."
head -c $((keys * 375)) /dev/urandom | base64 -w 500 >"$work/noise" || fail "no room for the data in $work"
expected=$(values lines | sha256sum | cut -d' ' -f1)
measure plain
plain_kb=$peak_kb plain_load_ms=$load_ms plain_read_ms=$read_ms
[[ $sum == "$expected" ]] ||
    fail "redis-server gave other values than were stored, without Outswap: something is wrong with this set-up"
((plain_kb > 0)) ||
    fail "the memory of redis-server could not be measured: /proc/PID/smaps_rollup is missing or not readable"

ram_kb=$((plain_kb / 4))
echo "[3/4] The same under 'outswap run --ram ${ram_kb}K': a quarter of the $(mib "$plain_kb") that it took ..."
measure outswap "$outswap" run --ram "${ram_kb}K" --stats "$work/stats.json" --
if [[ -s $work/outswap.out ]]; then cat "$work/outswap.out"; fi
[[ $sum == "$expected" ]] || fail "values read back under Outswap differ from those stored; please report this"
[[ -s $work/stats.json ]] || fail "outswap wrote no statistics"

echo "[4/4] What happened:"
echo
printf '  %-22s %14s %14s\n' "" plainly outswap
printf '  %-22s %14s %14s\n' "peak memory" "$(mib "$plain_kb")" "$(mib "$peak_kb")"
printf '  %-22s %14s %14s\n' "time to load" "$(seconds "$plain_load_ms")" "$(seconds "$load_ms")"
printf '  %-22s %14s %14s\n' "time to read back" "$(seconds "$plain_read_ms")" "$(seconds "$read_ms")"
echo
awk -v total="$(stat faults total)" -v first="$(stat faults first_touch)" -v ratio="$(stat compression ratio)" \
    -v file="$(stat peak file_bytes)" -v limit="$(mib "$ram_kb")" 'BEGIN {
        shown = ratio == "null" ? "-" : sprintf("%.2f", ratio)
        printf "  limit %s; %d faults (%d of them first touches), answered where they happened\n", limit, total, first
        printf "  compression ratio %s; at most %.1f MiB in the encrypted swap file\n", shown, file / 1048576
    }'
echo "  all $keys values read back equal"
echo
echo "Peak memory is the highest Pss_Anon seen from outside, about every 50 ms; under outswap, of redis-server and"
echo "outswap together. redis-server is the unmodified $(command -v redis-server)."
echo "Try your own program: $outswap run --ram 512M --summary -- PROGRAM"
