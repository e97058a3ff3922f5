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

# Built once, with all breakages in it; a variable says which is in force. Loom has a build of its own.
build() {
  local kind=$1 flags=$2
  RUSTFLAGS="--cfg outswap_broken $flags" cargo test --locked --no-run --message-format=json --target-dir "target/broken/$kind" "${@:3}" 2>/dev/null |
    grep -o '"executable":"[^"]*"' | cut -d'"' -f4
}
plain=$(build plain "" -p outswap-core -p outswap-store -p outswap-sim --lib --test simulation --test full --test reuse --test readahead --test taking --test probation --test huge --test filling --test properties)
loom=$(build loom "--cfg loom" -p outswap-core --test loom --release)

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

missed=0 count=0
run() {
  OUTSWAP_BROKEN=$1 OUTSWAP_SIM_SEEDS=300 timeout 300 "$2" "$3" >"target/broken/$1.log" 2>&1
}
while read -r variant crate where test; do
  [ -z "$wanted" ] || [ "$wanted" = "$variant" ] || continue
  binary=$(program "$crate" "$where")
  # What runs no test, or fails anyway, shows nothing.
  ran=$("$binary" "$test" --list 2>/dev/null | grep -c ': test$' || true)
  if [ "$ran" = 0 ]; then
    echo "MISSING  $variant: there is no test $test"
    missed=$((missed + 1))
  elif run "$variant" "$binary" "$test"; then
    echo "MISSED   $variant: $test passes"
    missed=$((missed + 1))
  else
    echo "noticed  $variant: $(grep -aoE "panicked at [^ ]*" "target/broken/$variant.log" | head -1)"
  fi
  count=$((count + 1))
done < <(grep -v '^#' $list | awk NF)

# Without a breakage the same programs pass.
for test in $(grep -v '^#' $list | awk 'NF { print $4 }' | sort -u); do
  for binary in $plain $loom; do
    if [ -z "$wanted" ] && "$binary" "$test" --list 2>/dev/null | grep -q ': test$'; then
      run "" "$binary" "$test" || { echo "FAILS    $test, though nothing is broken"; missed=$((missed + 1)); }
    fi
  done
done
echo "$count breakages, $missed not noticed"
[ "$missed" = 0 ]
