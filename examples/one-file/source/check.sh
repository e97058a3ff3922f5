# Run by scripts/one-file.sh: a program must do the same under the new source as plainly, with pages taken by that source alone.
program=(python3 tests/programs/objects.py 120000)

"$outswap" run --help | grep -q 'sip (as copy, a few pages at a time)' || fail "the help does not name the source"
"$outswap" doctor --json >"$work/doctor.json"
read_json "$work/doctor.json" '[s["works"] for s in d["sources"] if s["source"] == "sip"]' '[True]'
"${program[@]}" >"$work/plain.txt"
"$outswap" run --fault-source sip --resident 96M --stats "$work/stats.json" -- "${program[@]}" \
    >"$work/managed.txt" 2>"$work/messages.txt"
cmp "$work/plain.txt" "$work/managed.txt" || fail "the program's output differs"
read_json "$work/stats.json" 'd["fault_sources"], d["config"]["fault_source"]' "(['sip'], 'sip')"
read_json "$work/stats.json" 'd["counters"]["pages_taken"] >= 1000' True
grep -q 'outswap: the fault source sip has taken 1000 pages' "$work/messages.txt" ||
    fail "the source does not tell of what it took: $(cat "$work/messages.txt")"
say "$(wc -l <"$work/plain.txt") lines of output are the same;" \
    "sip took $(read_json "$work/stats.json" 'd["counters"]["pages_taken"]') pages"
