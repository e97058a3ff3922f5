"""Dicts and lists of objects: built, changed, dropped, looked up in another order. Prints sums. Argument: how many."""
import gc
import hashlib
import sys

count = int(sys.argv[1])


class Point:
    def __init__(self, n):
        self.name = "point-%d" % n
        self.xs = [n, n * 2, n * 3]
        self.more = {"square": n * n, "text": "abc" * (n % 5)}


points = {i: Point(i) for i in range(count)}
words = ["word-%d" % (i * 7919 % count) for i in range(count)]
print(sum(p.xs[2] + p.more["square"] for p in points.values()))
index = {}
for i, w in enumerate(words):
    index.setdefault(w, []).append(i)
print(len(index), sum(len(v) for v in index.values()))
for i in range(0, count, 3):
    del points[i]
gc.collect()
for i in range(0, count, 3):
    points[i] = Point(i + 1)
x = 12345
total = 0
for _ in range(200_000):
    x = (x * 1103515245 + 12345) % (1 << 31)
    p = points[x % count]
    total += len(p.name) + p.xs[1] + len(p.more["text"])
print(total)
digest = hashlib.sha256()
for i in range(count):
    p = points[i]
    digest.update(("%s%r%r" % (p.name, p.xs, p.more)).encode())
print(digest.hexdigest())
words.sort()
print(hashlib.sha256("".join(words).encode()).hexdigest())
