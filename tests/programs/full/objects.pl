# Hashes, arrays and strings: built, changed, dropped, looked up in another order. Prints sums. Argument: scale.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
my $count = 60_000 * $ARGV[0];
my %points;
$points{$_} = { n => $_, name => "point-" . ($_ * 7919 % $count), more => [$_, $_ * 2, "text-$_"] } for 0 .. $count - 1;
my $sum = 0;
$sum += $_->{more}[1] for values %points;
print "$sum\n";
my %index;
push @{ $index{ $points{$_}{name} } }, $_ for 0 .. $count - 1;
print scalar(keys %index), "\n";
for (my $i = 0; $i < $count; $i += 3) { delete $points{$i} }
for (my $i = 0; $i < $count; $i += 3) { $points{$i} = { n => $i + 1, name => "again-$i", more => [$i, 1] } }
my ($x, $total) = (12_345, 0);
for (1 .. 200_000) {
    $x = ($x * 1_103_515 + 12_345) % 2_147_483_648;
    my $p = $points{ $x % $count };
    $total += length($p->{name}) + $p->{n} + $p->{more}[1];
}
print "$total\n";
my $digest = Digest::SHA->new(256);
$digest->add("$points{$_}{name}@{$points{$_}{more}}") for 0 .. $count - 1;
print $digest->hexdigest, "\n";
print sha256_hex(join ',', sort keys %index), "\n";
my $text = join ' ', map { "word$_" } 1 .. 600_000;
(my $changed = $text) =~ s/word(\d)(\d*)/$2-$1/g;
print sha256_hex($changed), "\n";
