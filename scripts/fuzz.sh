#!/bin/bash
# Runs each fuzz target for OUTSWAP_FUZZ_S seconds (default 60), or the one that is named. Installs what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${OUTSWAP_FUZZ_S:-60}
command -v cargo-fuzz >/dev/null || cargo install --quiet --locked cargo-fuzz
cargo +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
for target in ${1:-sizes tiers elf pool segments}; do
  echo "== $target, $seconds s"
  log=$(mktemp)
  # The stores live as long as the process, so nothing is gained by looking for what they leak.
  if ! ASAN_OPTIONS=detect_leaks=0 cargo +nightly fuzz run "$target" -- \
    -max_total_time="$seconds" -rss_limit_mb=4096 -max_len=4096 -print_final_stats=1 >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "$target failed"
    exit 1
  fi
  grep -E "^stat::number_of_executed_units" "$log"
  rm -f "$log"
done
