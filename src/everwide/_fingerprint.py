"""What tells one network, or one set of rows, from another: the same number in every process, on every machine."""

import dataclasses
import enum
import functools
import hashlib
import pickle
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from ._checks import InputError

_PLAIN = str | bytes | int | float | complex | type(None) | types.EllipsisType


def fingerprint(*values: Any) -> str:
    """Of numbers, arrays, networks, and whatever else they are made of: what they hold, not where it lies in memory.

    Functions (of `Elementwise`, of a layer of somebody's own) count by their code, by what they close over, and by the
    numbers and functions of their module that they name.
    """
    total = hashlib.sha256()
    for part in _parts(values, set()):
        total.update(part)
    return total.hexdigest()


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """Bytes and buffers that say it all; what contains itself is told once."""
    if isinstance(value, enum.Enum):
        yield f"{_name(type(value))} {value.name};".encode()
    elif isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r};".encode()
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        yield from _array(np.asarray(value))
    elif isinstance(value, np.dtype | type | np.ufunc | types.ModuleType | types.BuiltinFunctionType):
        yield f"{_name(value)};".encode()
    elif id(value) in seen:
        yield b"again;"
    else:
        seen = seen | {id(value)}
        yield f"{_name(type(value))} (".encode()
        for part in _inside(value):
            yield from _parts(part, seen)
        yield b");"


def _array(array: np.ndarray) -> Iterator[Any]:
    yield f"array {array.shape} {array.dtype.str};".encode()
    if array.dtype.hasobject:
        yield repr(array.tolist()).encode()
    elif array.size:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _inside(value: Any) -> list[Any]:
    """What a value is made of."""
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, Mapping):
        return [part for item in value.items() for part in item]
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, types.FunctionType):
        return _of_function(value)
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_consts, value.co_names]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if callable(getattr(value, "__wrapped__", None)):  # what jax.jit and its like return
        return [value.__wrapped__]
    return [_pickled(value)]


def _of_function(function: types.FunctionType) -> list[Any]:
    """Functions of libraries go by their name: their version is looked at elsewhere."""
    if function.__module__.partition(".")[0] in ("jax", "numpy", "scipy", "everwide") and not function.__closure__:
        return [_name(function)]
    code, known = function.__code__, function.__globals__
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    named = [known[name] for name in code.co_names if name in known]
    return [code, function.__defaults__, function.__kwdefaults__, cells, named]


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=4)
    except Exception as fault:
        raise InputError(
            f"A {type(value).__name__} inside the network cannot be told from others ({fault}), so its kernel cannot "
            "be kept in a store. Make it a dataclass, or an equinox.Module."
        ) from None


def _name(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.str
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"
