"""Estimators with scikit-learn's contract: infinitely wide networks that need no tuning."""

from ._choice import Choice as Choice
from ._classifier import WideClassifier as WideClassifier
from ._gp_classifier import WideGPClassifier as WideGPClassifier
from ._gp_regressor import WideGPRegressor as WideGPRegressor
from ._presets import preset as preset
from ._regressor import WideRegressor as WideRegressor
