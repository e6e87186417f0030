"""Yaida 2018: when training in batches has settled, fluctuation and dissipation are equal."""

from ._run import SgdNoise as SgdNoise
from ._run import reproduce as reproduce
