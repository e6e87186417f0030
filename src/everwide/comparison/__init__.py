"""Networks of finite width beside their limit."""

from ._compare import compare as compare
