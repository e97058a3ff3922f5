# Arrays of gawk: filled with keys in no order, looked up, sorted. With one argument, how many.
function some(n) {
    state = state * 16807 % 2147483647
    return state % n
}
BEGIN {
    n = ARGV[1]
    state = 12345
    for (i = 0; i < n; i++) {
        word = "word " some(n)
        seen[word] = seen[word] "," i
    }
    for (i = 0; i < n; i++) {
        word = "word " some(2 * n)
        if (word in seen) {
            sum += length(seen[word])
        }
    }
    count = asorti(seen, words)
    print sum, count, words[1], words[count]
}
