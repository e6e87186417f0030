"""Results as people read them, in words and in pictures, and as JSON takes them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Real = float | np.floating | np.integer


def number(value: Real, digits: int = 3) -> str:
    """A few digits, without an exponent where there is no need for one.

    >>> number(1234.5), number(0.01234), number(2.5e-7), number(float("inf"))
    ('1\u202f230', '0.0123', '2.5e-07', 'infinite')
    """
    if not math.isfinite(value):
        return "infinite" if value > 0 else str(float(value))
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


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    first, rest = ", ".join(names[:most]), len(names) - most
    return first if rest <= 0 else f"{first} and {rest} more"


def plain(value: Any) -> Any:
    """What JSON knows: results become mappings, numpy's types Python's, and infinite numbers and NaN `None`.

    >>> plain({"rate": np.float64(2), "depth": math.inf, "kind": (1, "a")})
    {'rate': 2.0, 'depth': None, 'kind': [1, 'a']}
    """
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        return str(value)  # a string enumeration is a string
    raise TypeError(f"Expected numbers, text, lists and mappings of them, got {type(value).__name__}.")


def axes(ax: Any, numbers: str) -> Any:
    """Matplotlib's: those given, or of a new figure; `numbers`: where they are, for people without matplotlib."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as fault:
        raise ImportError(f"Drawing needs matplotlib: pip install matplotlib. The numbers are in {numbers}.") from fault
    return plt.subplots()[1]
