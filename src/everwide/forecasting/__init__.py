"""How much data a network needs, from a labelled pilot."""

from ._compare import Ranked as Ranked
from ._compare import compare_forecasts as compare_forecasts
from ._forecast import Forecast as Forecast
from ._forecast import ForecastWarning as ForecastWarning
from ._forecast import forecast as forecast
