"""scikit-learn: models are fitted to made-up data, with processes and with threads of OpenMP and BLAS. Prints scores. Argument: scale."""
import sys

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score

n = 12_000 * int(sys.argv[1])
x, y = make_classification(n, 60, n_informative=20, random_state=1)
print(x.sum().round(3), int(y.sum()))
print(RandomForestClassifier(40, random_state=2, n_jobs=2).fit(x, y).score(x, y))
print(HistGradientBoostingClassifier(max_iter=20, random_state=3).fit(x, y).score(x, y))
print(np.abs(PCA(5, random_state=4).fit_transform(x)).sum().round(2))
print(MiniBatchKMeans(4, n_init=2, random_state=5).fit(x).cluster_centers_.sum().round(2))
print(cross_val_score(Ridge(), x, y, cv=4, n_jobs=2).round(5).tolist())
