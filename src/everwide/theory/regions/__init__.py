"""Linear regions of networks with piecewise linear activations: counted, bounded, expected."""

from ._expected import expected_regions as expected_regions
from ._lines import line_regions as line_regions
from ._points import activation_pattern as activation_pattern
from ._points import max_regions as max_regions
from ._points import region_halfspaces as region_halfspaces
from ._points import sawtooth as sawtooth
