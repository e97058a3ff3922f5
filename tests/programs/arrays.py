"""numpy: sorting and a matrix product. Integers where the order of additions would show. Argument: scale."""
import hashlib
import sys

import numpy as np

scale = int(sys.argv[1])


def show(name, a):
    print(name, a.shape, hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest())


rng = np.random.default_rng(7)
a = rng.integers(0, 1 << 62, 2_500_000 * scale)
show("unsorted", a)
b = np.sort(a)
show("sorted", b)
order = np.argsort(a[: len(a) // 2], kind="stable")
show("order", a[order])
print((b[1:] >= b[:-1]).all(), int(np.searchsorted(b, a[12345])) < len(b))
n = 900
# Whole numbers so small that a product of doubles is exact in any order.
x = rng.integers(-1000, 1000, (n, n)).astype(np.float64)
y = rng.integers(-1000, 1000, (n, n)).astype(np.float64)
z = x @ y
show("product", z)
print(int(z.sum()), int(np.trace(z)))
show("transposed", np.vstack([z.T, z]).cumsum(axis=0))
