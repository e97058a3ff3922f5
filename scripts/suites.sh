#!/bin/bash
# Test suites that others wrote, each part plainly and under `outswap run` with eviction forced, and a table of every difference
# in target/suites.md. Installs what it needs on a Debian-like machine. What differs is run a second time, both ways, and then in four
# times as much memory: what only takes too long in a few MiB ends as plainly there.
#
# Usage: scripts/suites.sh [OUTSWAP]
#   SUITES="stress-ng cpython ltp posix redis"
#                                which suites: these, unless said otherwise. ltp and posix (Open POSIX) are built first. Also perl, php,
#                                postgresql, ruby, sqlite and tcl, whose sources come from Debian
#   SUITES_PARTS='sig*'          which parts of them
#   SUITES_LTP="syscalls mm"     which lists of ltp (its directory runtest)
#   LTP_SOURCE=DIRECTORY         the source of ltp and posix, where it is not to be fetched
#   REDIS_SOURCE=DIRECTORY       that of redis, of the version that is installed
#   SUITES_S=2                   how long a stressor runs
#   SUITES_RESIDENT=8M           managed pages that may be resident
set -euo pipefail

cd "$(dirname "$0")/.."
outswap=$(realpath "${1:-target/release/outswap}")
seconds=${SUITES_S:-2}
resident=${SUITES_RESIDENT:-8M}
[[ $resident =~ ^([0-9]+)([A-Za-z]*)$ ]] || { echo "SUITES_RESIDENT is a whole number and a unit, as 8M" >&2; exit 2; }
more=$((BASH_REMATCH[1] * 4))${BASH_REMATCH[2]}
report=$PWD/target/suites.md
work=$(mktemp -d "${TMPDIR:-/tmp}/outswap-suites-XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 777 "$work"
# A copy that anybody may read: parts run as nobody where we are root, since some would change the machine.
mkdir "$work/bin"
cp "$outswap" "$(dirname "$outswap")"/liboutswap_{preload,malloc}.so "$work/bin"
chmod -R a+rX "$work/bin"
as_nobody=()
if [[ $(id -u) == 0 ]]; then as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs); fi

# Stressors by class. Left out: what fills the machine's memory or its tables of processes whatever the limit (bigheap, brk,
# stack, oom-pipe, resources, forkheavy, vforkmany), and what tries to stop it (softlockup, watchdog).
classes=(vm memory interrupt scheduler os pipe)
skipped=" bigheap brk stack oom-pipe resources forkheavy vforkmany softlockup watchdog "

need=()
wanted=" ${SUITES:-stress-ng cpython ltp posix redis} "
if [[ $wanted == *" stress-ng "* ]]; then command -v stress-ng >/dev/null || need+=(stress-ng); fi
if [[ $wanted == *" cpython "* ]]; then
    version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    /usr/bin/python3 -c 'import test.test_dict' 2>/dev/null || need+=("libpython$version-testsuite")
fi
ltp_lists=(${SUITES_LTP:-mm syscalls sched syscalls-ipc})
ltp_version=20260529
ltp=$PWD/target/ltp
if [[ $wanted == *" ltp "* && ! -e $ltp/built ]]; then need+=(git gcc make autoconf automake pkgconf libc6-dev); fi
if [[ $wanted == *" posix "* ]]; then type git gcc make autoconf >/dev/null 2>&1 || need+=(git gcc make autoconf libc6-dev); fi
if [[ $wanted == *" redis "* ]]; then
    type git redis-server redis-cli tclsh >/dev/null 2>&1 || need+=(git redis-server redis-tools tcl)
fi
if [[ $wanted == *" perl "* ]]; then type prove >/dev/null 2>&1 || need+=(perl); fi
if [[ $wanted == *" php "* ]]; then command -v php >/dev/null || need+=(php-cli); fi
if [[ $wanted == *" postgresql "* ]]; then
    postgresql=$(find /usr/lib/postgresql -path '*/bin/postgres' 2>/dev/null | sort -V | tail -1)
    [[ $postgresql ]] && type gcc make flex bison >/dev/null 2>&1 || need+=(postgresql gcc make libc6-dev flex bison)
fi
if [[ $wanted == *" ruby "* ]]; then command -v ruby >/dev/null || need+=(ruby); fi
if [[ $wanted == *" sqlite "* ]]; then type gcc make >/dev/null 2>&1 && [[ -e /usr/lib/tcl8.6/tclConfig.sh ]] || need+=(gcc make libc6-dev tcl8.6-dev); fi
if [[ $wanted == *" tcl "* ]]; then command -v tclsh8.6 >/dev/null || need+=(tcl8.6); fi
if ((${#need[@]})); then
    sudo=()
    if [[ $(id -u) != 0 ]]; then sudo=(sudo); fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null
fi

# Runs a command in a directory of its own, within a time; sets `end` to how it ended: its exit status, and how many names it wrote
# to the file `failed` in that directory, with a sum of them. Output goes to a file.
once() { # log, seconds, command...
    local log=$1 limit=$2 here
    shift 2
    here=$(mktemp -d "$work/run-XXXXXX")
    chmod 777 "$here"
    end=0
    # The shell's own word on a killed child is left out.
    {
        (cd "$here" && exec env HOME="$here" TMPDIR="$here" LC_ALL=C timeout -k 5 "$limit" "${as_nobody[@]}" "$@") \
            >"$log" 2>&1 </dev/null || end=$?
    } 2>/dev/null
    if [[ -s $here/failed ]]; then end+=": $(wc -l <"$here/failed") failed ($(sort "$here/failed" | cksum | cut -d ' ' -f 1))"; fi
    rm -rf "$here"
}

parts=0
failing=()
differences=0
untold=()
rows=()
part() { # suite, name, seconds, command...
    local suite=$1 name=$2 limit=$3 plain managed again note
    shift 3
    # shellcheck disable=SC2053
    if [[ $name != ${SUITES_PARTS:-*} ]]; then return; fi
    parts=$((parts + 1))
    once "$work/plain.log" "$limit" "$@"
    plain=$end
    if [[ $plain == 124 || $plain == 137 ]]; then
        untold+=("$name")
        return
    fi
    [[ $plain == 0 ]] || failing+=("$name")
    once "$work/managed.log" $((limit * 4)) "$work/bin/outswap" run --resident "$resident" --quiet -- "$@"
    managed=$end
    [[ $plain == "$managed" ]] && return
    cp "$work/managed.log" "$logs/$suite-${name//\//_}.log"
    once "$work/plain.log" "$limit" "$@"
    again=$end
    once "$work/managed.log" $((limit * 4)) "$work/bin/outswap" run --resident "$resident" --quiet -- "$@"
    note="plainly $plain and $again, under Outswap $managed and $end"
    rows+=("| $suite | $name | $plain, $again | $managed, $end |")
    cp "$work/plain.log" "$logs/$suite-${name//\//_}.plain.log"
    cp "$work/managed.log" "$logs/$suite-${name//\//_}.again.log"
    once "$work/managed.log" $((limit * 4)) "$work/bin/outswap" run --resident "$more" --quiet -- "$@"
    note+=", in $more $end"
    rows[-1]+=" $end |"
    differences=$((differences + 1))
    echo "$suite $name: $note"
}

logs=$PWD/target/suites
mkdir -p "$logs"
if [[ $wanted == *" stress-ng "* ]]; then
    for stressor in $(for class in "${classes[@]}"; do stress-ng --class "$class?" | sed 's/.*stressors: //'; done | tr ' ' '\n' | sort -u); do
        if [[ $skipped == *" $stressor "* ]]; then continue; fi
        part stress-ng "$stressor" $((seconds * 10 + 20)) stress-ng --verify --oomable -q --"$stressor" 1 -t "${seconds}s"
    done
fi
if [[ $wanted == *" cpython "* ]]; then
    for file in /usr/lib/python"$version"/test/test_*; do
        name=$(basename "$file" .py)
        if [[ -e $file/__init__.py || $file == *.py ]]; then
            part cpython "$name" 120 /usr/bin/python3 -m test -q "$name"
        fi
    done
fi
ltp_source=${LTP_SOURCE:-$PWD/target/ltp-source}
fetch_ltp() {
    if [[ ! -d $ltp_source ]]; then
        git clone -q --depth 1 --branch "$ltp_version" https://github.com/linux-test-project/ltp "$ltp_source"
    fi
}
# Builds what the lists need. Tests that want a library that is not here are left out by the suite itself.
build_ltp() {
    local directory
    fetch_ltp
    (
        cd "$ltp_source"
        [[ -e configure ]] || make -s autotools
        [[ -e include/config.h ]] || ./configure --prefix="$ltp"
        make -s -j2 -C lib
        make -s -j2 -C libs
        for directory in testcases/lib testcases/kernel/{mem,syscalls,sched,ipc} runtest; do
            make -s -k -j2 -C "$directory" || true
            make -s -k -C "$directory" prefix="$ltp" install || true
        done
    ) >"$logs/ltp-build.log" 2>&1
    chmod -R a+rX "$ltp"
    touch "$ltp/built"
}
if [[ $wanted == *" ltp "* ]]; then
    [[ -e $ltp/built ]] || build_ltp
    for list in "${ltp_lists[@]}"; do
        while read -r name command; do
            if [[ -z $command || $name == "#"* ]]; then continue; fi
            # A list may have shell in it.
            part ltp "$name" 40 env LTPROOT="$ltp" PATH="$ltp/testcases/bin:$PATH" KCONFIG_SKIP_CHECK=1 \
                LTP_COLORIZE_OUTPUT=n sh -c "$command"
        done <"$ltp/runtest/$list"
    done
fi
if [[ $wanted == *" posix "* ]]; then
    fetch_ltp
    posix=$ltp_source/testcases/open_posix_testsuite
    if [[ ! -e $posix/built ]]; then
        (cd "$posix" && { [[ -e configure ]] || make -s autotools; } && { [[ -e config.log ]] || ./configure; } && make -s -k -j2 conformance-all || true) >"$logs/posix-build.log" 2>&1
        touch "$posix/built"
    fi
    mkdir "$work/posix"
    while read -r test; do
        cp "$test" "$work/posix"
        part posix "$(basename "$test" .run-test)" 40 "$work/posix/$(basename "$test")"
    done < <(find "$posix/conformance" -name '*.run-test' | sort)
fi
if [[ $wanted == *" redis "* ]]; then
    redis_version=$(redis-server --version | sed 's/.* v=\([0-9.]*\) .*/\1/')
    redis_source=${REDIS_SOURCE:-$PWD/target/redis-source}
    if [[ ! -d $redis_source ]]; then
        git clone -q --depth 1 --branch "$redis_version" https://github.com/redis/redis "$redis_source"
    fi
    mkdir -p "$work/redis/src"
    cp -r "$redis_source"/{runtest,tests,utils,redis.conf,sentinel.conf} "$work/redis"
    for program in server cli benchmark check-aof check-rdb; do
        ln -s "$(command -v "redis-$program")" "$work/redis/src/redis-$program"
    done
    chmod -R a+rX "$work/redis"
    # The suite's own list. What starts the servers is managed with them, since it knows them by their process ids.
    for unit in $(sed -n '/^set ::all_tests {/,/^}/p' "$redis_source/tests/test_helper.tcl" | grep '/\|^ '); do
        part redis "$unit" 600 sh -c "cp -r '$work/redis/.' . && exec ./runtest --clients 1 --single '$unit'"
    done
fi
# The source of a Debian package, of the version that the distribution has now, as a copy that parts may write to: sets `tree`.
debian_source() { # package
    local kept=$PWD/target/sources/$1 lists=$PWD/target/sources/apt options
    if [[ ! -e $kept/.complete ]]; then
        mkdir -p "$kept/download" "$lists"/{lists,cache/archives}/partial
        # Lists of their own: a machine's have no sources, as a rule, and are not changed for this.
        (. /etc/os-release && echo "deb-src http://deb.debian.org/debian $VERSION_CODENAME main") >"$lists/sources.list"
        options=(-qq -o Dir::Etc::SourceList="$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$lists/lists"
            -o Dir::Cache="$lists/cache" -o APT::Sandbox::User="$(id -un)")
        apt-get "${options[@]}" update
        (cd "$kept/download" && apt-get "${options[@]}" source --download-only "$1")
        tar -x --strip-components=1 -C "$kept" -f "$(find "$kept/download" -name '*.orig.tar.*' ! -name '*.asc' ! -name '*-www.*' ! -name '*-regen-*')"
        touch "$kept/.complete"
    fi
    tree=$work/$1
    cp -r "$kept" "$tree"
    rm -rf "$tree/download"
    chmod -R a+rwX "$tree"
}
if [[ $wanted == *" perl "* ]]; then
    debian_source perl
    # The tests look for the modules beside themselves.
    for modules in $(perl -MConfig -e 'print "@Config{qw(privlib archlib)}"') /usr/lib/*/perl-base; do cp -rn "$modules/." "$tree/lib" || true; done
    ln -s "$(command -v perl)" "$tree/perl"
    ln -s "$(command -v perl)" "$tree/t/perl"
    chmod -R a+rwX "$tree/lib"
    for file in "$tree"/t/{base,cmd,comp,io,mro,op,opbasic,re,run,uni}/*.t; do
        name=${file#"$tree/t/"}
        part perl "$name" 100 sh -c "cd '$tree/t' && exec prove -q --norc -I../lib -e ./perl '$name'"
    done
fi
if [[ $wanted == *" tcl "* ]]; then
    debian_source tcl8.6
    for file in "$tree"/tests/*.test; do
        name=$(basename "$file" .test)
        # The exit status is 0 in any case. HTTP needs a network.
        if [[ $name != http* ]]; then
            part tcl "$name" 60 sh -c "cd '$tree/tests' && tclsh8.6 '$file' >told 2>&1; cat told; grep '^==.* FAILED' told >\"\$HOME/failed\""
        fi
    done
fi
if [[ $wanted == *" ruby "* ]]; then
    debian_source "$(basename "$(readlink -f "$(command -v ruby)")")"
    for file in "$tree"/test/ruby/test_*.rb; do
        part ruby "$(basename "$file" .rb)" 120 sh -c "cd '$tree' && exec ruby -Itool/lib -Itest/lib tool/test/runner.rb --ruby='$(command -v ruby)' '$file'"
    done
fi
if [[ $wanted == *" php "* ]]; then
    debian_source "$(basename "$(readlink -f "$(command -v php)")")"
    for directory in "$tree"/{Zend/tests,tests/*,ext/{standard/tests/*,spl,pcre,reflection,json,phar}}; do
        [[ -d $directory ]] || continue
        part php "${directory#"$tree/"}" 600 sh -c "cd '$tree' && exec env NO_INTERACTION=1 SKIP_ONLINE_TESTS=1 SKIP_IO_CAPTURE_TESTS=1 \
            REPORT_EXIT_STATUS=1 TEST_PHP_EXECUTABLE='$(command -v php)' php run-tests.php -q --set-timeout 100 -w \"\$HOME/failed\" '$directory'"
    done
fi
if [[ $wanted == *" sqlite "* ]]; then
    debian_source sqlite3
    (cd "$tree" && ./configure --with-tcl=/usr/lib/tcl8.6 && make -s -j2 testfixture) >"$logs/sqlite-build.log" 2>&1
    chmod -R a+rwX "$tree"
    part sqlite veryquick 1200 "$tree/testfixture" "$tree/test/veryquick.test"
fi
if [[ $wanted == *" postgresql "* ]]; then
    postgresql=$(dirname "$(find /usr/lib/postgresql -path '*/bin/postgres' | sort -V | tail -1)")
    debian_source "postgresql-$(basename "$(dirname "$postgresql")")"
    (
        cd "$tree"
        ./configure --without-icu --without-readline --without-zlib
        make -s -C src/backend generated-headers
        make -s -j2 -C src/test/regress
        make -s -j2 -C src/test/isolation
    ) >"$logs/postgresql-build.log" 2>&1
    chmod -R a+rwX "$tree"
    for tests in regress:pg_regress:parallel isolation:pg_isolation_regress:isolation; do
        IFS=: read -r name program schedule <<<"$tests"
        part postgresql "$name" 600 sh -c "cd '$tree/src/test/$name' && exec ./$program --inputdir=. --dlpath=. --bindir='$postgresql' \
            --temp-instance=\"\$HOME/instance\" --outputdir=\"\$HOME\" --schedule=${schedule}_schedule"
    done
fi
{
    echo "| suite | part | exit status plainly, twice | under Outswap in $resident, twice | in $more |"
    echo "| --- | --- | --- | --- | --- |"
    printf '%s\n' "${rows[@]}"
} >"$report"
cat "$report"
echo "$parts parts, $differences differ; output of those: target/suites/"
if ((${#failing[@]})); then echo "that fail plainly: ${failing[*]}"; fi
if ((${#untold[@]})); then echo "not told, since they did not end in time plainly: ${untold[*]}"; fi
