#!/bin/bash
# A PostgreSQL server with a data directory of its own, on a Unix socket: parallel joins, sorts, pgbench, an end and a new start.
# Argument: scale.
set -eu
bins=(/usr/lib/postgresql/*/bin)
bin=${bins[-1]} scale=$1 here=$PWD
"$bin/initdb" -D data -U me -A trust --no-sync --locale=C -E UTF8 >install.log 2>&1 || { cat install.log; exit 1; }
start() {
    "$bin/postgres" -D data -k "$here" -c listen_addresses= -c work_mem=48MB -c shared_buffers=64MB -c fsync=off \
        -c max_parallel_workers_per_gather=2 -c min_parallel_table_scan_size=0 -c parallel_setup_cost=0 -c parallel_tuple_cost=0 \
        -c autovacuum=off -c maintenance_work_mem=64MB >>server.log 2>&1 &
    pid=$!
    trap 'kill -QUIT $pid 2>/dev/null || true' EXIT
    for ((i = 0; i < 1200; i++)); do
        "$bin/pg_isready" -q -h "$here" -U me -d postgres && return
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
    done
    cat server.log
    exit 1
}
run() { "$bin/psql" -X -q -t -A -v ON_ERROR_STOP=1 -h "$here" -U me -d postgres -c "$1"; }
stop() {
    kill -INT $pid
    wait $pid && echo "ended"
    trap - EXIT
}
start
run "CREATE TABLE a AS SELECT i AS id, (i::bigint * 7919) % 100003 AS k, md5(i::text) || md5((i + 1)::text) AS v
     FROM generate_series(1, $((200000 * scale))) i"
run "CREATE TABLE b AS SELECT i AS id, (i::bigint * 104729) % 100003 AS k, md5((-i)::text) AS w FROM generate_series(1, $((130000 * scale))) i"
run "ANALYZE"
run "SELECT count(*), sum(a.id), sum(length(a.v || b.w)) FROM a JOIN b USING (k)"
run "SET enable_hashjoin = off; SELECT count(*), sum(a.id), max(a.v), min(b.w) FROM a JOIN b USING (k)"
run "SELECT md5(string_agg(v, '' ORDER BY v)) FROM a"
run "SELECT k % 100 AS g, count(DISTINCT v), max(v) FROM a GROUP BY g ORDER BY 1 LIMIT 5"
run "CREATE INDEX ON a (v); CREATE INDEX ON b (k)"
run "UPDATE a SET v = v || 'x' WHERE id % 7 = 0; DELETE FROM a WHERE id % 11 = 0"
run "SELECT count(*), sum(id), md5(string_agg(right(v, 3), '' ORDER BY id)) FROM a"
"$bin/pgbench" -h "$here" -U me -i -s 1 -q postgres >bench.log 2>&1 || { cat bench.log; exit 1; }
"$bin/pgbench" -h "$here" -U me -c 4 -j 2 -t 100 -n postgres >bench.log 2>&1 || { cat bench.log; exit 1; }
grep 'number of transactions actually' bench.log
run "SELECT count(*) FROM pgbench_history; SELECT count(*) FROM pgbench_accounts"
run "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)"
stop
start
run "SELECT count(*), sum(id), md5(string_agg(right(v, 3), '' ORDER BY id)) FROM a"
stop
grep -E 'PANIC|terminated by signal' server.log || true
