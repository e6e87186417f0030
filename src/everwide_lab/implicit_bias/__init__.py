"""Woodworth et al. 2020 and Soudry et al. 2018: which of many solutions gradient descent finds."""

from ._run import ImplicitBias as ImplicitBias
from ._run import reproduce as reproduce
