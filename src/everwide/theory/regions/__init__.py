"""Linear regions of networks with piecewise linear activations: counted, bounded, expected."""

from ._bounds import max_regions as max_regions
from ._bounds import reachable_regions as reachable_regions
from ._expected import ExpectedRegions as ExpectedRegions
from ._expected import expected_regions as expected_regions
from ._lines import LineRegions as LineRegions
from ._lines import breakpoints_1d as breakpoints_1d
from ._lines import count_regions_line as count_regions_line
from ._lines import line_regions as line_regions
from ._points import Region as Region
from ._points import activation_pattern as activation_pattern
from ._points import region_halfspaces as region_halfspaces
from ._sawtooth import sawtooth as sawtooth
