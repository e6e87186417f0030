"""Estimators with scikit-learn's contract: infinitely wide networks that need no tuning."""

from .._presets import preset as preset
from ._classifiers import WideClassifier as WideClassifier
from ._classifiers import WideGPClassifier as WideGPClassifier
from ._regressors import WideGPRegressor as WideGPRegressor
from ._regressors import WideRegressor as WideRegressor
