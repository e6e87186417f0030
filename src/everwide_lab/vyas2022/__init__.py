"""Vyas, Bansal, Nakkiran 2022: exponents in the amount of data, of networks and of their tangent kernels."""

from ._run import Vyas2022 as Vyas2022
from ._run import reproduce as reproduce
