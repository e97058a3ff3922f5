-- A data base in memory: filled, indexed, asked, changed. COUNT is put in when it is run.
CREATE TABLE items(id INTEGER PRIMARY KEY, key TEXT, size INTEGER, body TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < COUNT)
    INSERT INTO items SELECT i, printf('%08x', (i * 2654435769) % 4294967296), i * 7919 % 10007,
        printf('%d bottles of number %d, %d in a case; ', i, i * 31, i % 12) || hex(i * 69069 % 1000003)
        || printf(' %0160d', i * 104729) FROM n;
CREATE INDEX by_key ON items(key);
CREATE INDEX by_size ON items(size, id);
SELECT count(*), sum(size), sum(length(body)) FROM items;
SELECT size, count(*), max(length(body)) FROM items WHERE size BETWEEN 100 AND 400 GROUP BY size % 10 ORDER BY 1;
SELECT count(*), sum(b.size) FROM items a JOIN items b ON b.key = printf('%08x', ((a.id * 5 + 1) * 2654435769) % 4294967296)
    WHERE a.id % 4 = 0;
UPDATE items SET body = body || key WHERE id % 9 = 0;
DELETE FROM items WHERE size < 700;
SELECT count(*), sum(length(body)), max(body), min(key) FROM items;
SELECT key, substr(body, 1, 20) FROM items ORDER BY key DESC LIMIT 20;
PRAGMA integrity_check;
