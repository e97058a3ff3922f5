<?php
// Arrays of strings and objects: built, changed, dropped, looked up in another order. Prints sums. Argument: scale.
ini_set('memory_limit', '-1');
$scale = (int)($argv[1] ?? 1);
class Point
{
    public array $more;
    public function __construct(public int $n, public string $name) { $this->more = [$n, $n * 2, "text-$n"]; }
}
$count = 150000 * $scale;
$points = [];
for ($i = 0; $i < $count; $i++) $points[$i] = new Point($i, "point-" . ($i * 7919 % $count));
$sum = 0;
foreach ($points as $p) $sum += $p->more[1];
echo $sum, "\n";
$index = [];
foreach ($points as $i => $p) $index[$p->name][] = $i;
echo count($index), "\n";
for ($i = 0; $i < $count; $i += 3) unset($points[$i]);
gc_collect_cycles();
for ($i = 0; $i < $count; $i += 3) $points[$i] = new Point($i + 1, "again-$i");
$x = 12345;
$total = 0;
for ($i = 0; $i < 200000; $i++) {
    $x = ($x * 1103515245 + 12345) % 2147483648;
    $total += strlen($points[$x % $count]->name) + $points[$x % $count]->more[1];
}
echo $total, "\n";
ksort($points);
$digest = hash_init('sha256');
foreach ($points as $p) hash_update($digest, json_encode($p));
echo hash_final($digest), "\n";
$names = array_keys($index);
sort($names, SORT_STRING);
echo hash('sha256', implode(',', $names)), "\n";
$text = str_repeat("The quick brown fox, no. 12345; ", 200000 * $scale);
echo strlen(preg_replace('/fox, no\. (\d+)/', 'dog $1$1', $text)), " ", md5(strrev($text)), "\n";
$serialized = serialize(array_slice($points, 0, 50000));
echo strlen($serialized), " ", count(unserialize($serialized)), "\n";
