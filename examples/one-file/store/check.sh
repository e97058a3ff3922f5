# Run by scripts/one-file.sh: a program must do the same with its pages in the new kind of tier as plainly, and what the tier
# counts must be what went in and out.
program=(python3 tests/programs/objects.py 120000)

"$outswap" run --help | grep -q '^  counted\[:lz4|zstd\[:LEVEL\]\]\[:MAX\]' || fail "the help does not name the kind"
"${program[@]}" >"$work/plain.txt"
for spec in counted counted:zstd:1:1G,file; do
    "$outswap" run --swap "$spec" --resident 96M --stats "$work/stats.json" -- "${program[@]}" >"$work/managed.txt"
    cmp "$work/plain.txt" "$work/managed.txt" || fail "the program's output differs with $spec"
    read_json "$work/stats.json" 'd["config"]["swap"][0]["kind"]' counted
    read_json "$work/stats.json" 'd["counters"]["pages_out_ram"] >= 1000 and d["counters"]["pages_in_ram"] >= 1000' True
done
(cd "$here/tree" && cargo test -q --locked --target-dir "$here/build" -p outswap-store --lib every_unit_is_counted) |
    grep -q '1 passed' || fail "the tier's own counters are wrong"
say "$(wc -l <"$work/plain.txt") lines of output are the same;" \
    "$(read_json "$work/stats.json" 'd["counters"]["pages_out_ram"]') pages went out through the new tier"
