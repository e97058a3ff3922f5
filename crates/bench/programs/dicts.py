"""Dicts of dicts, lists and strings: built, changed where a few are changed often, replaced, read in order. Argument: count."""
import sys
import zlib

count = int(sys.argv[1])
state = 2463534242


def below(bound):
    global state
    state ^= (state << 13) & 0xFFFFFFFF
    state ^= state >> 17
    state ^= (state << 5) & 0xFFFFFFFF
    return state % bound


def record(n):
    text = "customer %d of the northern district" % n
    return {"name": text, "orders": [n * 7 + k for k in range(6)], "town": "town-%d" % (n % 997), "total": n * 1001}


records = {n: record(n) for n in range(count)}
by_name = {r["name"]: r for r in records.values()}
print(len(records), sum(r["total"] for r in records.values()))
# Nine of ten changes fall on the newest tenth of the records.
for _ in range(2 * count):
    n = count - 1 - below(count // 10) if below(10) else below(count)
    r = records[n]
    r["orders"].append(r["total"] % 100003)
    r["total"] += 17
# A tenth goes, and new ones take its place.
for n in range(0, count, 10):
    del by_name[records.pop(n + 3)["name"]]
for n in range(count, count + count // 10):
    records[n] = record(n)
towns = {}
for r in records.values():
    towns.setdefault(r["town"], []).append(r["total"])
print(len(towns), sum(max(t) for t in towns.values()))
check = 0
for r in by_name.values():
    check = zlib.crc32(repr(r).encode(), check)
print(len(by_name), check)
