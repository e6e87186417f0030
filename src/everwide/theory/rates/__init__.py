"""How fast a network may learn, and how long it takes."""

from ._fit_times import FitTimes as FitTimes
from ._fit_times import Part as Part
from ._fit_times import fit_times as fit_times
from ._stable import StableRates as StableRates
from ._stable import stable_rates as stable_rates
from ._tables import DepthRate as DepthRate
from ._tables import LayerRate as LayerRate
from ._tables import rate_table as rate_table
from ._tables import rates_by_depth as rates_by_depth
