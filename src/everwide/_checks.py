"""Arguments that many formulas share, checked in one place, as host numbers; and warnings about them."""

import enum
import math
import operator
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

_OURS = ("everwide", "equinox", "jaxtyping", "jax", "beartype", "sklearn")
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class InputError(ValueError):
    """An argument that cannot be used as given: the message says what was expected, what came, and the way out.

    >>> import everwide as ew, numpy as np
    >>> ew.gram(ew.Dense(), np.array([[1.0, np.nan]]))
    Traceback (most recent call last):
        ...
    everwide._checks.InputError: x has 1 values that are not finite; the first is nan in row 0, column 1. Drop \
or impute them (sklearn.impute.SimpleImputer), or mask the sites that do not exist.
    """


class Choice(enum.StrEnum):
    """The words that an argument may be; any other is refused with a sentence that lists them."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        words = ", ".join(repr(str(word)) for word in cls)
        raise InputError(f"{value!r} is not a valid {cls.__name__}: expected one of {words}.")


def layer_widths(widths: Any) -> tuple[int, ...]:
    """Widths from the inputs to the outputs, as whole numbers."""
    message = (
        f"layer_widths={widths!r}: expected whole numbers above 0, from the inputs to the outputs, such as "
        "(784, 512, 512, 10)."
    )
    try:
        sizes = tuple(operator.index(width) for width in widths)
    except TypeError as fault:
        raise InputError(message) from fault
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(message)
    return sizes


def hidden_widths(widths: Any) -> tuple[int, ...]:
    """Widths of hidden layers, of which there may be none."""
    if isinstance(widths, str) or not np.iterable(widths):
        raise InputError(f"hidden_widths={widths!r}: expected one for each hidden layer, as in [{widths}] * depth.")
    return tuple(whole(n, f"hidden_widths[{i}]") for i, n in enumerate(widths))


def example_shape(shape: Any) -> tuple[int, ...]:
    """The shape of one example; its sizes are looked at where they become a `Signal`."""
    if not np.iterable(shape):
        raise InputError(f"input_shape={shape!r}: expected the shape of one example, (*sites, channels), such as (3,).")
    return tuple(shape)


def whole(value: Any, label: str, least: int = 1) -> int:
    """A whole number, at least that large."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{label}={value!r}: expected a whole number, {least} or more.")
    return int(value)


def bytes_of(value: Any, label: str = "memory") -> int | None:
    """A number of bytes, also in words such as "4GB" or "512 MB"; None stays None.

    >>> bytes_of("1.5 GB"), bytes_of(1000), bytes_of(None)
    (1500000000, 1000, None)
    """
    if value is None:
        return None
    number, factor = value, 1
    if isinstance(value, str) and (words := re.fullmatch(r"\s*([\d.]+)\s*([kMGT]?)B\s*", value)):
        number, factor = words[1], _BYTES[words[2]]
    try:
        size = math.nan if isinstance(value, bool) else float(number) * factor
    except (TypeError, ValueError):
        size = math.nan
    if not 1 <= size < math.inf:
        raise InputError(f'{label}={value!r}: expected None, a number of bytes, or a text such as "4GB".')
    return int(size)


def positive(value: Any, label: str) -> float:
    """A finite number above 0."""
    return _number(value, label, lambda x: 0 < x < math.inf, "a finite number above 0")


def not_negative(value: Any, label: str) -> float:
    """A finite number, at least 0."""
    return _number(value, label, lambda x: 0 <= x < math.inf, "a finite number, at least 0")


def finite_number(value: Any, label: str) -> float:
    """A finite number of any sign."""
    return _number(value, label, math.isfinite, "a finite number")


def probability(value: Any, label: str) -> float:
    """A number strictly between 0 and 1."""
    return _number(value, label, lambda x: 0 < x < 1, "a probability, above 0 and below 1")


def share(value: Any, label: str) -> float:
    """A number from 0 to below 1."""
    return _number(value, label, lambda x: 0 <= x < 1, "a number from 0 to below 1")


def _number(value: Any, label: str, good: Callable[[float], bool], expected: str) -> float:
    """One `good` number: no text, no list, and nothing else that only looks like one."""
    try:
        number = math.nan if isinstance(value, str | bytes) or np.ndim(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan  # which is never good
    if not good(number):
        raise InputError(f"{label}={value!r}: expected {expected}.")
    return number


def complex_fault(label: str, dtype: Any) -> str:
    """The one sentence that refuses complex numbers."""
    return f"{label} is complex ({dtype}). Complex data not supported: pass real and imaginary parts as channels."


def refuse_complex(array: Any, label: str) -> None:
    """Raise where an array holds complex numbers; what is no array is left to others."""
    dtype = getattr(array, "dtype", None)
    if getattr(dtype, "kind", "") == "c":
        raise InputError(complex_fault(label, dtype))


def single_of_half(array: Any) -> Any:
    """Numbers of half precision, of which NumPy's own functions know only some, as float32; all else as it is."""
    dtype = getattr(array, "dtype", None)
    half = str(dtype) in ("bfloat16", "float16")
    return np.asarray(array).astype(np.float32) if half else array


def finite_array(value: Any, label: str) -> Float[np.ndarray, "..."]:
    """A float64 copy, without NaN and infinity, of one number at least."""
    array = _floats(value, label)
    if not array.size:
        raise InputError(f"{label} is empty: its shape is {array.shape}. Expected finite numbers.")
    if not np.isfinite(array).all():
        raise InputError(f"{label} holds {array[~np.isfinite(array)][0]}: expected finite numbers.")
    return array


def float_dtype(value: Any) -> np.dtype:
    """Single or double precision."""
    if value not in (np.float32, np.float64, "float32", "float64"):
        raise InputError(f"dtype={value!r}: expected np.float32 or np.float64.")
    return np.dtype(value)


def at_least_zero(value: Any, label: str) -> Float[np.ndarray, "..."]:
    """As a float64 array; raises unless it holds finite numbers from zero on, and one at least."""
    array = _floats(value, label)
    if not array.size or not np.all(np.isfinite(array) & (array >= 0)):
        raise InputError(f"{label}={value!r}: expected finite numbers from 0 on, at least one.")
    return array


def _floats(value: Any, label: str) -> Float[np.ndarray, "..."]:
    try:
        given = np.asarray(value)
        refuse_complex(given, label)
        if given.dtype.kind in "SUTMm":
            raise TypeError(f"it holds {given.dtype}")
        return np.array(given, np.float64)
    except InputError:
        raise
    except (TypeError, ValueError) as fault:
        raise InputError(f"{label} is no array of real numbers: {fault}.") from None


def row_weights(value: Any, n: int, label: str = "weights") -> Float[np.ndarray, " n"]:
    """One for each of `n` rows, above 0; 1 where there are none."""
    weights = np.ones(n) if value is None else finite_array(value, label)
    if weights.shape != (n,) or not (weights > 0).all():
        raise InputError(f"{label} of shape {weights.shape}: expected ({n},), all above 0. Leave out rows without.")
    return weights


def row_variances(value: Any, n: int, label: str = "noise") -> Float[np.ndarray, " n"]:
    """One for each of `n` rows, at least 0; or one for all."""
    variances = finite_array(value, label)
    if variances.shape not in ((), (n,)):
        raise InputError(f"{label} has shape {variances.shape}, expected one variance or ({n},), one for each row.")
    if (variances < 0).any():
        raise InputError(f"{label}={value!r}: expected variances, at least 0.")
    return np.broadcast_to(variances, (n,))


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the first frame that is not of this library, nor of what it is built on."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def is_missing(value: Any) -> bool:
    """None, NaN, and what pandas has in their place: none but the first equals itself, or says so."""
    equal = value == value
    return value is None or not isinstance(equal, bool | np.bool_) or not equal
