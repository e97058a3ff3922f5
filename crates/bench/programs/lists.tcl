# Arrays and lists of Tcl: filled with keys in no order, looked up, sorted. With one argument, how many.
set n [lindex $argv 0]
set state 12345
proc some {m} {
    global state
    set state [expr {$state * 16807 % 2147483647}]
    return [expr {$state % $m}]
}
for {set i 0} {$i < $n} {incr i} {
    lappend table(key-[some $n]) $i
}
set sum 0
for {set i 0} {$i < $n} {incr i} {
    set key key-[some [expr {2 * $n}]]
    if {[info exists table($key)]} {
        incr sum [llength $table($key)]
    }
}
set keys [lsort [array names table]]
puts "$sum [llength $keys] [lindex $keys 0]"
