"""What "equal" means in a check, in a few classes with a stated meaning each, and how a check fails."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Values = Any  # whatever numpy makes an array of


@dataclass(frozen=True)
class Exact:
    """Two computations of one array that differ by rounding only.

    No entry may differ by more than `relative` times the largest entry (or 1, if `floor`, where values near zero are
    differences of numbers of order one).

    >>> from everwide.testing._tolerances import EXACT64
    >>> EXACT64.excess([1.0, 2.0], [1.0, 2.0 + 1e-14]) < 1
    True
    """

    relative: float
    floor: bool = False

    def excess(self, got: Values, expected: Values) -> float:
        """The largest difference in units of what is allowed: at most 1 is equal. Not finite is never equal."""
        a, b = (np.asarray(v, np.float64) for v in (got, expected))
        if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
            return float("inf")
        if a.size == 0:
            return 0.0
        size = max(float(np.abs(b).max()), 1.0 if self.floor else np.finfo(np.float64).tiny)
        return float(np.abs(a - b).max()) / (self.relative * size)


@dataclass(frozen=True)
class Sampled:
    """A sample mean against its expectation: no entry may be more than `max_z` standard errors away.

    With fewer than a million comparisons of nearly normal means, 5 standard errors do not happen by chance.

    >>> import numpy as np
    >>> from everwide.testing._tolerances import SAMPLED
    >>> SAMPLED.excess(np.random.default_rng(0).normal(size=(1000, 3)), np.zeros(3)) < 1
    True
    """

    max_z: float

    def excess(self, draws: Values, expected: Values) -> float:
        """The largest z-score in units of what is allowed; draws lie along the first axis."""
        a, b = np.asarray(draws, np.float64), np.asarray(expected, np.float64)
        error = a.std(0, ddof=1) / np.sqrt(len(a))
        return self.excess_of(a.mean(0), error, b)

    def excess_of(self, mean: Values, error: Values, expected: Values) -> float:
        """The same, for a mean whose standard error is known. Rounding is no deviation."""
        mean, error, expected = (np.asarray(v, np.float64) for v in (mean, error, expected))
        if mean.shape != expected.shape or not np.isfinite(mean).all():
            return float("inf")
        rounding = EXACT32.relative * max(float(np.abs(expected).max(initial=0.0)), 1e-30)
        return float(((np.abs(mean - expected) - rounding).clip(0) / np.maximum(error, 1e-300)).max()) / self.max_z


@dataclass(frozen=True)
class Slope:
    """A power law: the exponent, measured as the slope between logarithms, is `exponent` up to `deviation`.

    >>> from everwide.testing._tolerances import Slope
    >>> Slope(-1.0, 0.1).excess([10, 100], [3.0, 0.3]) < 1
    True
    """

    exponent: float
    deviation: float

    def measured(self, sizes: Values, values: Values) -> float:
        """Least squares through the logarithms."""
        return float(np.polyfit(np.log(np.asarray(sizes, float)), np.log(np.asarray(values, float)), 1)[0])

    def excess(self, sizes: Values, values: Values) -> float:
        """Deviation of the measured exponent in units of what is allowed."""
        return abs(self.measured(sizes, values) - self.exponent) / self.deviation


EXACT64 = Exact(1e-10)
"""Float64, well-conditioned: a few thousand roundings of 2.2e-16, with three digits to spare."""

EXACT32 = Exact(2e-5)
"""Float32, well-conditioned: a few hundred roundings of 1.2e-7."""

CANCELLING64 = Exact(1e-6)
"""Float64 where nearly parallel examples meet a square root: half of the digits are lost, two more are allowed."""

CANCELLING32 = Exact(5e-3)
"""Float32 where nearly parallel examples meet a square root."""

DERIVATIVE64 = Exact(1e-6)
"""A float64 derivative against a central difference quotient with steps of 1e-5."""

DERIVATIVE32 = Exact(2e-2)
"""A float32 derivative against a central difference quotient with steps of 1e-2."""

SAMPLED = Sampled(5.0)
"""A Monte Carlo mean over independent draws."""

MEAN_SQUARE = Slope(-1.0, 0.7)
"""The mean squared deviation of a network of finite width from its limit falls like 1 / width."""


def exact_for(dtype: Any) -> Exact:
    """The class of well-conditioned results in a dtype.

    >>> import numpy as np
    >>> from everwide.testing._tolerances import EXACT32, exact_for
    >>> exact_for(np.float32) == EXACT32
    True
    """
    return EXACT32 if np.dtype(dtype).itemsize <= 4 else EXACT64


def cancelling_for(dtype: Any) -> Exact:
    """The class of results near a square root of zero in a dtype.

    >>> import numpy as np
    >>> from everwide.testing._tolerances import CANCELLING64, cancelling_for
    >>> cancelling_for(np.float64) == CANCELLING64
    True
    """
    return CANCELLING32 if np.dtype(dtype).itemsize <= 4 else CANCELLING64


def derivative_for(dtype: Any) -> tuple[Exact, float]:
    """The class of derivatives against difference quotients in a dtype, and the step to take.

    >>> import numpy as np
    >>> from everwide.testing._tolerances import DERIVATIVE64, derivative_for
    >>> derivative_for(np.float64)[0] == DERIVATIVE64
    True
    """
    return (DERIVATIVE32, 1e-2) if np.dtype(dtype).itemsize <= 4 else (DERIVATIVE64, 1e-5)


class ConformanceError(AssertionError):
    """A layer or an activation contradicts itself; the message names the object, the property and the sizes.

    >>> from everwide.testing import ConformanceError
    >>> issubclass(ConformanceError, AssertionError)
    True
    """


def require(who: object, claim: str, excess: float) -> float:
    """Raise unless a deviation, in units of what is allowed, is at most 1. Returns it."""
    if not excess <= 1:
        raise ConformanceError(f"{type(who).__name__}: {claim}, but it is off by {excess:.3g} times what is allowed.")
    return excess


def require_equal(who: object, claim: str, got, expected, tolerance: Exact) -> float:
    """Raise unless two arrays are equal in the sense of `tolerance`."""
    return require(who, claim, tolerance.excess(got, expected))
