<?php
// Arrays and strings of PHP: made, sorted, looked up, changed. With one argument, how many.
ini_set('memory_limit', '-1');
$count = (int) $argv[1];
$items = [];
for ($i = 1; $i <= $count; $i++) {
    $items['key ' . ($i * 2654435761 % 4294967296)] = ['number' => $i, 'text' => "text $i", 'parts' => [$i, $i * 7 % 1001]];
}
ksort($items);
$sum = 0;
foreach ($items as $item) {
    $sum += $item['number'] * $item['parts'][1] % 13;
}
for ($i = 1; $i <= $count; $i += 3) {
    $key = 'key ' . ($i * 2654435761 % 4294967296);
    $items[$key]['parts'][] = $i;
    $sum += count($items[$key]['parts']);
}
echo "$count $sum\n";
