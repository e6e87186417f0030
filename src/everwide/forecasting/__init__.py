"""How much data a network needs, from a labelled pilot; and how any learning curve goes on."""

from ._extrapolate import extrapolate as extrapolate
from ._features import features_matter as features_matter
from ._forecast import ForecastWarning as ForecastWarning
from ._forecast import compare_forecasts as compare_forecasts
from ._learning_curve import learning_curve_of as learning_curve_of
from ._network import forecast as forecast
