"""numpy: an array filled, sorted, searched, gathered by a random order and added up. Whole numbers. Argument: count."""
import sys
import zlib

import numpy as np

count = int(sys.argv[1])


def show(name, array):
    print(name, array.shape, zlib.crc32(np.ascontiguousarray(array)))


random = np.random.Generator(np.random.PCG64(11))
# As measurements are: their upper bytes say little.
values = random.integers(0, 1 << 30, count)
show("values", values)
order = np.argsort(values, kind="stable")
show("order", order)
ranked = values[order]
show("ranked", ranked)
found = np.searchsorted(ranked, values[: count // 8])
show("found", found)
del found
table = values[: count // 1024 * 1024].reshape(1024, -1)
show("by column", np.ascontiguousarray(table.T)[::7].sum(axis=1))
for step in range(3):
    values += np.roll(ranked, step)
    show("sums", np.cumsum(values)[:: count // 1000])
