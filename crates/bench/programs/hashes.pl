# Hashes and arrays of Perl: made, sorted, looked up, changed. With one argument, how many.
use strict;
use warnings;
my $n = shift;
my (%words, @order, $sum);
for my $i (1 .. $n) {
    my $key = sprintf('%x word', $i * 2654435761 % 4294967296);
    $words{$key} = { number => $i, list => [$i, $i * 3 % 1001] };
    push @order, $key;
}
$sum += $words{$_}{number} * $words{$_}{list}[1] % 7 for sort @order;
for my $i (1 .. $n) {
    my $word = $words{$order[$i * 7919 % $n]};
    push @{$word->{list}}, $i if $i % 4 == 0;
    $sum += @{$word->{list}};
}
print "$n $sum\n";
