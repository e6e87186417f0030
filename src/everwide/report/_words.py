"""Numbers as people read them."""

import math

import numpy as np

Real = float | np.floating | np.integer


def number(value: Real, digits: int = 3) -> str:
    """A few digits, without an exponent where there is no need for one.

    >>> number(1234.5), number(0.01234), number(2.5e-7), number(float("inf"))
    ('1\u202f230', '0.0123', '2.5e-07', 'infinite')
    """
    if not math.isfinite(value):
        return "infinite"
    if value == 0 or 1e-4 <= abs(value) < 1e7:
        rounded = float(f"{value:.{digits}g}")
        return f"{rounded:,.10g}".replace(",", "\u202f")  # a thin space that does not break
    return f"{value:.{digits}g}"


def count(value: Real) -> str:
    """A whole number.

    >>> count(1797)
    '1\u202f797'
    """
    return f"{round(value):,}".replace(",", "\u202f") if math.isfinite(value) else "infinite"


def percent(share: Real, digits: int = 1) -> str:
    """A share of 1.

    >>> percent(0.9734)
    '97.3\u202f%'
    """
    return f"{100 * share:.{digits}f}\u202f%"


def several(amount: int, one: str, many: str = "") -> str:
    """An amount of things.

    >>> several(1, "row"), several(2, "class", "classes")
    ('1 row', '2 classes')
    """
    return f"{count(amount)} {one if amount == 1 else many or one + 's'}"


def listed(names: list[str] | tuple[str, ...], most: int = 5) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown, rest = ", ".join(names[:most]), len(names) - most
    return shown if rest <= 0 else f"{shown} and {rest} more"
