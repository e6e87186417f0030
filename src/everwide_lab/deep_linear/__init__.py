"""Deep linear networks: how they begin, how they learn, and all of them that fit, beside what can be solved."""

from ._run import DeepLinear as DeepLinear
from ._run import reproduce as reproduce
