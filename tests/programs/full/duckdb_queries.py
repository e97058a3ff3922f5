"""duckdb in memory, with two threads: tables, joins, sorts, windows. Prints sums. Argument: scale."""
import sys

import duckdb

n = 1_000_000 * int(sys.argv[1])
db = duckdb.connect(":memory:", config={"threads": 2})
db.execute(f"CREATE TABLE a AS SELECT i AS id, i * 7919 % 100003 AS k, md5(i::VARCHAR) AS v FROM range({n}) r(i)")
db.execute("CREATE TABLE b AS SELECT i AS k, i * i % 977 AS w FROM range(100003) r(i)")
for query in (
    "SELECT count(*), sum(id), sum(w) FROM a JOIN b USING (k)",
    "SELECT w, count(*), min(v), max(v) FROM a JOIN b USING (k) GROUP BY w ORDER BY w LIMIT 10",
    "SELECT count(DISTINCT v), min(v), max(v) FROM a",
    "SELECT id, v FROM a ORDER BY v DESC LIMIT 5 OFFSET 1000",
    "SELECT sum(r * id % 1009) FROM (SELECT id, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM a)",
):
    print(db.execute(query).fetchall())
db.execute("UPDATE a SET v = v || 'x' WHERE id % 7 = 0")
db.execute("DELETE FROM a WHERE id % 11 = 0")
print(db.execute("SELECT count(*), sum(length(v)), max(v) FROM a").fetchall())
