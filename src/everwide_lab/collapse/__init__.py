"""Papyan, Han, Donoho 2020: neural collapse, long after the last error; and Papyan 2020: outliers of spectra."""

from ._run import Collapse as Collapse
from ._run import reproduce as reproduce
