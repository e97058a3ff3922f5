<?php
// A page that takes some tens of MiB to make, and says what it made.
ini_set('memory_limit', '-1');
$n = (int)$_GET['n'];
$rows = [];
for ($i = 0; $i < 30000; $i++) $rows[] = ['id' => $i, 'name' => md5("$n-$i"), 'tags' => [$i % 7, "tag-" . $i % 11]];
usort($rows, fn ($a, $b) => strcmp($a['name'], $b['name']));
echo $n, " ", count($rows), " ", hash('sha256', json_encode($rows)), "\n";
