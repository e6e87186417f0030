"""Linear regions of networks with piecewise linear activations: counted, bounded, expected."""

from ._bounds import max_regions as max_regions
from ._bounds import sawtooth as sawtooth
from ._expected import expected_regions as expected_regions
from ._lines import line_regions as line_regions
from ._points import activation_pattern as activation_pattern
from ._points import region_halfspaces as region_halfspaces
