# Run by scripts/one-file.sh: a program must do the same under the new readahead as plainly, with fewer faults than under none.
program=(python3 tests/programs/objects.py 120000)

"$outswap" run --help | grep -q 'readahead=rest: the rest of the 64 KiB around a page' || fail "the help does not name the policy"
"${program[@]}" >"$work/plain.txt"
for how in rest off; do
    "$outswap" run --mechanism readahead=$how --resident 96M --stats "$work/$how.json" -- "${program[@]}" >"$work/$how.txt"
    cmp "$work/plain.txt" "$work/$how.txt" || fail "the program's output differs with $how"
    read_json "$work/$how.json" 'd["counters"]["pages_taken"] >= 1000' True
done
faults='sum(d["counters"]["fault_" + kind] for kind in ("miss", "bypass", "first_touch"))'
rest=$(read_json "$work/rest.json" "$faults")
off=$(read_json "$work/off.json" "$faults")
((rest * 2 < off)) || fail "$rest faults with the new policy, $off with none"
say "$rest faults with the new policy, $off with none"
