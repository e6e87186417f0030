"""Whom estimators for tables are compared with, as they come: nobody's options are tuned, unless a name says so.

Boosters and xRFM live in an environment of their own (tables_incumbent.txt) and are imported when they are made.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

_THREADS = 2
_LEAF = 10_000  # rows of one kernel matrix of xRFM, as in its README; 60 000, its default, take 14 GB


def tuned_svc(y: np.ndarray) -> Any:
    """An RBF SVM whose C and width are chosen on the training rows."""
    grid = {"svc__C": [0.1, 1, 10, 100, 1000], "svc__gamma": ["scale", 0.01, 0.1]}
    folds = max(2, min(4, int(np.bincount(y)[np.bincount(y) > 0].min())))
    cv = StratifiedKFold(folds, shuffle=True, random_state=0)
    return GridSearchCV(make_pipeline(StandardScaler(), SVC(cache_size=1000)), grid, cv=cv)


class Coded:
    """A classifier that wants its classes to be 0, 1, 2, ..."""

    def __init__(self, model: Any):
        self.model = model

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Coded":
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.model.fit(x, codes)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(x).argmax(1)]

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(x)


class RecursiveFeatures:
    """xRFM as its README shows it: scaled columns, and a fifth of the training rows to choose by.

    Numbers are scaled too: its kernel machines have no constant. Classes, which are integers, are left as they are.
    """

    def __init__(self):
        from xrfm import xRFM

        self.model = xRFM(device="cpu", max_leaf_size=_LEAF, n_threads=_THREADS, random_state=0, verbose=False)

    def fit(self, x: np.ndarray, y: np.ndarray) -> "RecursiveFeatures":
        learn, choose = train_test_split(np.arange(len(x)), test_size=0.2, random_state=0)
        self.scale = StandardScaler().fit(x[learn])
        x, number = self._scaled(x), np.issubdtype(y.dtype, np.floating)
        self.mean, self.size = (y[learn].mean(), y[learn].std()) if number else (0, 1)
        y = ((y - self.mean) / self.size).astype(np.float32) if number else y
        self.model.fit(x[learn], y[learn], x[choose], y[choose])
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.mean + self.size * self.model.predict(self._scaled(x))[:, 0].astype(np.float64)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(self._scaled(x)).astype(np.float64)

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        return self.scale.transform(x).astype(np.float32)


class GaussianProcess:
    """A GP with an RBF kernel and one length for each input.

    Its numbers have the largest marginal likelihood on at most 1000 rows; it then learns from at most 5000.
    """

    def fit(self, x: np.ndarray, y: np.ndarray) -> "GaussianProcess":
        self.scale, order = StandardScaler().fit(x), np.random.default_rng(0).permutation(len(x))
        x = self.scale.transform(x)
        kernel = ConstantKernel(1.0) * RBF(np.ones(x.shape[1])) + WhiteKernel(0.1)
        some, more = order[:1000], order[:5000]
        found = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(x[some], y[some])
        self.model = GaussianProcessRegressor(found.kernel_, optimizer=None, normalize_y=True).fit(x[more], y[more])
        return self

    def predict(self, x: np.ndarray, return_std: bool = False) -> Any:
        return self.model.predict(self.scale.transform(x), return_std=return_std)


def catboost(kind: str) -> Any:
    import catboost

    make = getattr(catboost, f"CatBoost{kind}")
    return make(random_seed=0, thread_count=_THREADS, verbose=0, allow_writing_files=False)


def lightgbm(kind: str) -> Any:
    import lightgbm

    return getattr(lightgbm, f"LGBM{kind}")(random_state=0, n_jobs=_THREADS, verbose=-1)


def xgboost(kind: str) -> Any:
    import xgboost

    return getattr(xgboost, f"XGB{kind}")(random_state=0, n_jobs=_THREADS)


CLASSIFIERS: dict[str, Callable[[np.ndarray], Any]] = {
    "CatBoost": lambda y: Coded(catboost("Classifier")),
    "LightGBM": lambda y: lightgbm("Classifier"),
    "XGBoost": lambda y: Coded(xgboost("Classifier")),
    "xRFM": lambda y: Coded(RecursiveFeatures()),
    "random forest": lambda y: RandomForestClassifier(500, random_state=0),
    "SVC": lambda y: make_pipeline(StandardScaler(), SVC(cache_size=1000)),
    "SVC, tuned": tuned_svc,
}
REGRESSORS: dict[str, Callable[[], Any]] = {
    "CatBoost": lambda: catboost("Regressor"),
    "LightGBM": lambda: lightgbm("Regressor"),
    "XGBoost": lambda: xgboost("Regressor"),
    "xRFM": RecursiveFeatures,
    "random forest": lambda: RandomForestRegressor(300, oob_score=True, random_state=0),
    "GP, RBF": GaussianProcess,
}
