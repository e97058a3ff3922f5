#!/bin/bash
# A MariaDB server with a data directory of its own, on a Unix socket: rows, indexes, sorts, joins, transactions by several clients,
# an end and a new start. Arguments: the server, the program that makes a data directory, the client, the scale.
set -eu
server=$1 install=$2 client=$3 scale=$4 here=$PWD
data=$here/data
"$install" --no-defaults --datadir="$data" --auth-root-authentication-method=normal --skip-test-db >install.log 2>&1 ||
    { cat install.log; exit 1; }
start() {
    "$server" --no-defaults --datadir="$data" --socket="$here/db.sock" --pid-file="$here/db.pid" --skip-networking \
        --innodb-buffer-pool-size=96M --tmp-table-size=64M --max-heap-table-size=64M --sort-buffer-size=16M \
        --join-buffer-size=8M --tmpdir="$here" >>server.log 2>&1 &
    pid=$!
    trap 'kill $pid 2>/dev/null || true' EXIT
    for ((i = 0; i < 1200; i++)); do
        run -e 'SELECT 1' >/dev/null 2>&1 && return
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
    done
    cat server.log
    exit 1
}
run() { "$client" --no-defaults --socket="$here/db.sock" -u root -N -B "$@"; }
stop() {
    run -e SHUTDOWN
    wait $pid && echo "ended"
    trap - EXIT
}
start
run -e "CREATE DATABASE t"
run t -e "
    CREATE TABLE a (id INT PRIMARY KEY, k INT, v VARCHAR(200), KEY (k)) ENGINE=InnoDB;
    INSERT INTO a SELECT seq, (seq * 7919) % 10007, RPAD(MD5(seq), 150, SHA1(seq)) FROM seq_1_to_$((200000 * scale));
    SELECT COUNT(*), SUM(id), SUM(k), MD5(GROUP_CONCAT(LEFT(v, 2) ORDER BY id SEPARATOR '')) FROM a WHERE id <= 400;
    SELECT COUNT(*), SUM(LENGTH(v)) FROM a;
    CREATE TABLE b ENGINE=MEMORY AS SELECT id, k FROM a WHERE id % 5 = 0;
    SELECT COUNT(*), SUM(a.k + b.id) FROM a JOIN b ON a.k = b.k WHERE b.id < 20000;
    SELECT SQL_BUFFER_RESULT k, COUNT(*), MIN(v) FROM a GROUP BY k ORDER BY COUNT(*) DESC, k LIMIT 10;
    SELECT v FROM a ORDER BY v LIMIT 5 OFFSET 100000;
    UPDATE a SET v = CONCAT('changed-', v) WHERE id % 11 = 0;
    DELETE FROM a WHERE id % 13 = 0;"
clients=()
for c in 1 2 3 4; do
    {
        for ((i = 0; i < 30; i++)); do
            echo "START TRANSACTION; UPDATE a SET k = k + $c WHERE id = $((c * 1000 + i * 14 + 1)); INSERT INTO a VALUES ($((90000000 + c * 1000 + i)), $i, 'new'); COMMIT;"
            echo "SELECT SUM(k) FROM a WHERE id BETWEEN $((i * 1000 + 10000)) AND $((i * 1000 + 11000));"
        done
    } | run t >"out.$c" &
    clients+=($!)
done
for c in "${clients[@]}"; do wait "$c"; done
md5sum out.* | cut -d' ' -f1
run t -e "SELECT COUNT(*), SUM(id), SUM(k), SUM(CRC32(v)) FROM a; CHECK TABLE a;"
stop
start
run t -e "SELECT COUNT(*), SUM(id), SUM(k), SUM(CRC32(v)) FROM a; CHECK TABLE a;"
stop
