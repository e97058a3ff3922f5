# Run by scripts/one-file.sh: a program must do the same under the new policy as plainly, and other pages must go.
program=(python3 tests/programs/objects.py 120000)

"$outswap" run --help | grep -q 'reclaim=newest: the block that came in last goes first' || fail "the help does not name the policy"
"${program[@]}" >"$work/plain.txt"
for how in newest fifo; do
    "$outswap" run --mechanism reclaim=$how --resident 96M --stats "$work/$how.json" -- "${program[@]}" >"$work/$how.txt"
    cmp "$work/plain.txt" "$work/$how.txt" || fail "the program's output differs with $how"
    read_json "$work/$how.json" 'd["counters"]["pages_taken"] >= 1000' True
done
hits='d["counters"]["fault_hit"]'
newest=$(read_json "$work/newest.json" "$hits")
fifo=$(read_json "$work/fifo.json" "$hits")
# What came in last is in use: it is touched again at once.
((newest > fifo)) || fail "$newest pages touched again while isolated with the new policy, $fifo with fifo"
say "$newest pages touched again while isolated with the new policy, $fifo with fifo"
