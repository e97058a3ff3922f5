"""pandas: frames are made, joined, grouped, sorted, pivoted, and go through CSV. Prints sums. Argument: scale."""
import hashlib
import io
import sys

import numpy as np
import pandas as pd

n = 300_000 * int(sys.argv[1])
i = np.arange(n)
a = pd.DataFrame({"id": i, "k": i * 7919 % 10_007, "x": np.sin(i), "name": ["name-%d" % (j % 5003) for j in range(n)]})
b = pd.DataFrame({"k": np.arange(10_007), "w": np.cos(np.arange(10_007)), "tag": ["t%d" % (j % 13) for j in range(10_007)]})
joined = a.merge(b, on="k")
print(len(joined), round(joined["x"].sum() * 1000), round((joined["x"] * joined["w"]).sum() * 1000))
print(joined.groupby("tag")["x"].agg(["count", "min", "max"]).round(6).to_csv())
ordered = joined.sort_values(["name", "id"], kind="stable")
print(hashlib.sha256(ordered["id"].to_numpy().tobytes()).hexdigest())
print(joined.pivot_table(index="tag", columns=joined["id"] % 5, values="w", aggfunc="count").to_csv())
text = a.head(100_000).to_csv(index=False)
again = pd.read_csv(io.StringIO(text))
print(hashlib.sha256(text.encode()).hexdigest(), again["name"].nunique(), int(again["k"].sum()))
print(a["x"].rolling(100).mean().round(9).dropna().tail(3).tolist())
