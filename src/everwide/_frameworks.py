"""Whose a module is. Nobody's framework is imported: whoever hands over a module has loaded it."""

import sys
from typing import Any

import equinox as eqx

from .layers import AbstractLayer


def framework_of(value: Any) -> str:
    """The framework of a module that can be called; nothing, where it is none.

    >>> import equinox as eqx, everwide as ew, jax
    >>> framework_of(eqx.nn.Linear(3, 2, key=jax.random.key(0))), framework_of(ew.Dense())
    ('Equinox', '')
    """
    if is_of(value, "torch.nn", "Module"):
        return "PyTorch"
    if is_of(value, "flax.nnx", "Module"):
        return "Flax NNX" if callable(value) else ""
    ours = isinstance(value, AbstractLayer)
    return "Equinox" if isinstance(value, eqx.Module) and callable(value) and not ours else ""


def is_of(value: Any, library: str, name: str) -> bool:
    """Whether a value is an instance of a class of a library, which need not be installed."""
    loaded = sys.modules.get(library)
    return loaded is not None and isinstance(value, getattr(loaded, name))
