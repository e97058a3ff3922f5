"""polars, with its own threads: frames are made, joined, grouped and sorted. Prints sums. Argument: scale."""
import sys

import polars as pl

n = 1_500_000 * int(sys.argv[1])
a = pl.select(id=pl.int_range(n)).with_columns(k=pl.col("id") * 7919 % 100_003, s=pl.format("name-{}", pl.col("id") % 5003))
b = pl.select(k=pl.int_range(100_003)).with_columns(w=pl.col("k") * pl.col("k") % 977)
joined = a.join(b, on="k")
print(joined.select(pl.len(), pl.col("w").sum(), (pl.col("id") * pl.col("w") % 1009).sum()))
print(joined.group_by("s").agg(pl.len(), pl.col("w").sum(), pl.col("id").max()).sort("s").head(7).rows())
ordered = joined.sort(["s", "id"], descending=[True, False])
print(ordered["id"].gather_every(9973).to_list()[:30])
print(ordered.lazy().filter(pl.col("w") > 500).select(pl.col("id").sum(), pl.col("s").n_unique()).collect().rows())
