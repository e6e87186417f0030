"""How a check fails."""

from ._tolerances import Exact


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
