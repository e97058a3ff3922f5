#!/bin/bash
# Runs, for each deliberate breakage of tests/broken.txt, the test that must notice it. With a name: that one alone.
set -euo pipefail
cd "$(dirname "$0")/.."
list=tests/broken.txt
wanted=${1:-}

# A name that nobody knows breaks nothing.
if [ -n "$wanted" ] && ! awk -v name="$wanted" '$1 == name { found = 1 } END { exit !found }' $list; then
  echo "$list has no breakage $wanted"
  exit 1
fi

# Built once, with all breakages in it; a variable says which is in force. Loom has a build of its own. Only our own crates are built
# anew for this.
build() {
  RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/broken-rustc.sh cargo test --locked --no-run --message-format=json "$@" 2>/dev/null |
    grep -o '"executable":"[^"]*"' | cut -d'"' -f4
}
plain=$(build -p outswap-core -p outswap-store -p outswap-sim --lib --test simulation)
loom=$(RUSTFLAGS="--cfg loom" build -p outswap-core --test loom --profile loom --target-dir target/loom)

program() {
  case "$1 $2" in
    *--lib) echo "$plain" | grep "/outswap_$1-" ;;
    *loom) echo "$loom" | grep '/loom-' ;;
    *) echo "$plain" | grep "/${2#--test=}-" ;;
  esac
}

# The list names every breakage that there is.
lists="crates/core/src/broken.rs crates/store/src/broken.rs"
defined=$(sed -n 's/^ *[A-Z][A-Za-z]* = "\([a-z-]*\)",$/\1/p' $lists | sort)
listed=$(grep -v '^#' $list | awk 'NF { print $1 }' | sort -u)
if [ "$defined" != "$listed" ]; then
  echo "$lists and $list name different breakages:"
  diff <(echo "$defined") <(echo "$listed") || true
  exit 1
fi

results=target/broken/results
rm -rf $results
mkdir -p $results
run() { # log, variant, program, test
  OUTSWAP_BROKEN=$2 OUTSWAP_SIM_SEEDS=300 timeout 300 "$3" "$4" >"$1" 2>&1
}
breakage() { # number, variant, crate, program, test
  local number=$1 variant=$2 binary ran log
  binary=$(program "$3" "$4" || true)
  log=target/broken/$number-$variant.log
  # What runs no test, or fails anyway, shows nothing.
  ran=$("$binary" "$5" --list 2>/dev/null | grep -c ': test$' || true)
  if [ "$ran" = 0 ]; then
    echo "MISSING  $variant: there is no test $5"
  elif run "$log" "$variant" "$binary" "$5"; then
    echo "MISSED   $variant: $5 passes"
  elif grep -aqE "panicked at" "$log"; then
    echo "noticed  $variant: $(grep -aoE "panicked at [^ ]*" "$log" | head -1)"
  else
    echo "UNCLEAR  $variant: $5 was ended, see $log"
  fi >"$results/$number"
  cat "$results/$number"
}
whole() { # number, program, test
  if run "target/broken/whole-$1.log" "" "$2" "$3"; then
    echo "passes" >"$results/whole-$1"
  else
    echo "FAILS    $3, though nothing is broken"
  fi
}

# As many at a time as there are processors: most tests have one thread.
at_once=$(nproc) running=0
start() {
  "$@" &
  running=$((running + 1))
  if ((running >= at_once)); then
    wait -n || true
    running=$((running - 1))
  fi
}
count=0
while read -r variant crate where test; do
  [ -z "$wanted" ] || [ "$wanted" = "$variant" ] || continue
  count=$((count + 1))
  start breakage "$count" "$variant" "$crate" "$where" "$test"
done < <(grep -v '^#' $list | awk NF)

# Without a breakage the same programs pass.
programs=0
for test in $(grep -v '^#' $list | awk 'NF { print $4 }' | sort -u); do
  for binary in $plain $loom; do
    if [ -z "$wanted" ] && [ "$("$binary" "$test" --list 2>/dev/null | grep -c ': test$')" != 0 ]; then
      programs=$((programs + 1))
      start whole "$programs" "$binary" "$test"
    fi
  done
done
wait
noticed=$(cat $results/* 2>/dev/null | grep -c '^noticed ' || true)
passes=$(cat $results/* 2>/dev/null | grep -c '^passes$' || true)
echo "$count breakages, $((count - noticed)) not noticed, $((programs - passes)) fail anyway"
[ "$noticed" = "$count" ] && [ "$passes" = "$programs" ]
