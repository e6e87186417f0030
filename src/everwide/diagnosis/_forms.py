"""What a log may hold: the form of each field that rules read. Other fields are left alone, and most may be missing."""

import sys
from collections.abc import Callable
from typing import Any

from .._checks import InputError

Form = tuple[str, Callable[[Any], bool]]  # of one value: what is expected, and whether it is that


def _is_number(value: Any, least: float = -sys.float_info.max) -> bool:
    """Not NaN, nor a whole number that is too large for a float."""
    return isinstance(value, int | float) and type(value) is not bool and least <= value <= sys.float_info.max


def _row(size: int) -> Form:
    good = f"a list of {size} finite numbers or nulls"
    return good, lambda v: isinstance(v, list) and len(v) == size and all(map(_NUMBER[1], v))


_FINITE: Form = ("a finite number", _is_number)
_NUMBER: Form = ("a finite number or null", lambda v: v is None or _is_number(v))
_SIZE: Form = ("a finite number from 0 on, or null", lambda v: v is None or _is_number(v, 0))
_WHOLE: Form = ("a whole number from 0 on", lambda v: isinstance(v, int) and _is_number(v, 0))
_ABOVE: Form = ("a whole number above 0", lambda v: isinstance(v, int) and _is_number(v, 1))
_TEXT: Form = ("a text", lambda v: isinstance(v, str))

# Of an object by the names of its fields (`...`: of all others), of a list by what it holds.
_OPTIONAL = ("told", "classes", "batch_size", "targets", "inputs", "broken")  # which may be null
_TOLD = {...: _NUMBER, "peak": _WHOLE, "course": [_row(2)], "broken": [_WHOLE]}
_LOOK = {"step": _WHOLE, "told": _TOLD, "quantiles": _row(5), "surprising": [_WHOLE]}
_LOOK |= dict.fromkeys(("value", "accuracy", "near", "descent", "start", "far", "chances", "rate"), _NUMBER)
_SIZES = dict.fromkeys(("gradient", "update", "weights", "seconds", "cost", "rms", "gain", "biases", "dead"), _SIZE)
_DATA = {"classes": [_WHOLE], "targets": {...: _FINITE}, "inputs": {...: _FINITE}}
_FACTS = dict.fromkeys(("rows", "outputs", "batch_size"), _ABOVE) | {"loss": _TEXT, "optimizer": _TEXT}
_FORMS: dict[str, Any] = {
    "run": _DATA | _FACTS | {"evaluation": [_TEXT], "groups": {...: _ABOVE}},
    "vitals": _LOOK | _SIZES | {"groups": {...: _SIZES}},
    "told": _LOOK,
    "curvature": {"step": _WHOLE, "ratio": _NUMBER, "groups": {...: _NUMBER}},
    "noise": {"step": _WHOLE, "scale": _NUMBER},
    "event": {"step": _WHOLE, "name": _TEXT, "figures": {...: _NUMBER}},
}


def refuse(record: dict[str, Any], label: str) -> None:
    """Raise where a record has a field that is not as a doctor writes it, or no step."""
    _refuse({"step": None} | record, _FORMS.get(str(record["record"]), {"step": _WHOLE}), label, "")


def _refuse(value: Any, form: Any, label: str, field: str) -> None:
    kind: Any = type(form)
    expected, good = form if kind is tuple else (f"a {kind.__name__}", lambda v: isinstance(v, kind))
    if not good(value):
        raise InputError(
            f"{label}: {field} is {str(value)[:40]!r}, expected {expected}. Take the log as Doctor(log=...) wrote it."
        )
    for name, one in [] if kind is tuple else enumerate(value) if kind is list else value.items():
        inner = form[0] if kind is list else form.get(name, form.get(...))
        if inner is not None and not (one is None and name in _OPTIONAL):
            _refuse(one, inner, label, f"{field}.{name}" if field else str(name))
