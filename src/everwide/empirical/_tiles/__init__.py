"""Kernels from tangents within a budget of memory: blocks of examples and outputs, on top of the engine's tiles."""

from ._kernels import centre as centre
from ._kernels import kernels as kernels
from ._programs import Size as Size
from ._programs import estimated as estimated
