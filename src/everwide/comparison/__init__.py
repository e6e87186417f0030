"""Networks of finite width beside their limit."""

from ._compare import compare as compare
from ._result import Comparison as Comparison
from ._result import Curves as Curves
