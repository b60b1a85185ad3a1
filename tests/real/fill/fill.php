<?php
// Fills PHP's heap, prints "ready" and waits.
ini_set('memory_limit', '-1');
$kept = [];
for ($at = 0; $at < 1200000; $at++) {
    $kept[] = [$at];
}
echo "ready\n";
sleep(600);
