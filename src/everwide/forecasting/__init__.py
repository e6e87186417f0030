"""How much data a network needs, from a labelled pilot."""

from ._forecast import ForecastWarning as ForecastWarning
from ._forecast import compare_forecasts as compare_forecasts
from ._forecast import forecast as forecast
