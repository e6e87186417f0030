"""Any activation as a function of NumPy's float64 arrays, whatever precision JAX runs in."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..activations import AbstractActivation, Elementwise, PiecewiseLinear
from ..layers import Identity
from ..signal import ArchitectureError

Activation = AbstractActivation | Identity | Callable[[Any], Any]
_BATCH = 4096  # JAX compiles for every new shape: there is only one


class HostFunction(NamedTuple):
    """A function of float64 numbers, how it is called in messages, and the kinks that it is known to have."""

    name: str
    fn: Callable[[Any], Any]
    kinks: tuple[float, ...]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Values at an array of any shape, in float64. They may be infinite."""
        flat = np.resize(x.ravel(), (-(-x.size // _BATCH), _BATCH))  # repeats itself at the ragged end
        with jax.ensure_compile_time_eval(), jax.enable_x64(True), np.errstate(all="ignore"):
            values = np.concatenate([self._batch(row) for row in flat])
        return values[: x.size].reshape(x.shape)

    def _batch(self, x: np.ndarray) -> np.ndarray:
        try:
            y = self.fn(x)
        except Exception:  # a function may insist on arrays of JAX
            y = self._by_jax(x)
        if np.shape(y) != x.shape or np.asarray(y).dtype != np.float64:
            raise ArchitectureError(
                f"{self.name}: expected a function of arrays, element by element, that keeps float64, but an array of "
                f"shape {x.shape} became {np.asarray(y).dtype} of shape {np.shape(y)}. Take casts and reductions out."
            )
        return np.asarray(y)

    def _by_jax(self, x: np.ndarray) -> Any:
        try:
            return self.fn(jnp.asarray(x))
        except Exception as fault:
            raise ArchitectureError(
                f"{self.name}: the function failed on a float64 array of shape {x.shape} ({type(fault).__name__}: "
                f"{fault}). Write it with numpy or jax.numpy, element by element (np.where instead of if)."
            ) from fault


def host_function(activation: Any) -> HostFunction:
    """The function of an activation layer, or a plain function."""
    if isinstance(activation, Identity):
        return HostFunction("Identity()", lambda x: x, ())
    if isinstance(activation, AbstractActivation):
        kinks = activation.kinks if isinstance(activation, Elementwise) else ()
        kinks = activation.knots if isinstance(activation, PiecewiseLinear) else kinks
        return HostFunction(repr(activation), lambda x: activation(jnp.asarray(x)), kinks)
    if not callable(activation):
        raise ArchitectureError(
            f"Expected an activation such as everwide.Relu(), or a function of one number, got {activation!r}. "
            "Activations are named by value, not by a string."
        )
    function = HostFunction(getattr(activation, "__name__", repr(activation)), activation, ())
    _check(function)
    return function


def _check(function: HostFunction) -> None:
    """Raise unless a plain function is one of single, finite numbers."""
    x = np.linspace(-1.3, 1.7, 7)
    y, other = function(x), function(np.array([0.4, *x[1:]]))
    if not np.all(np.isfinite(y)):
        raise ArchitectureError(
            f"{function.name}: the function is not finite at {x.round(3).tolist()}, where it is {y.round(3).tolist()}. "
            "It must be defined for all numbers."
        )
    if not np.allclose(y[1:], other[1:], rtol=1e-9):
        raise ArchitectureError(
            f"{function.name}: expected a function of one number, but one element of its input changes other elements "
            "of its output (as in a softmax or a norm). Such functions have no limit as an activation."
        )
