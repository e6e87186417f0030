"""Any elementwise function, by accurate numeric means."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..signal import ArchitectureError
from ._base import AbstractActivation, Dual, GaussianPair, Moments
from ._dual import Method, numeric_dual
from ._mehler import coefficients
from ._plane import FINE, ROUGH, plane_moments
from ._rows import both_rows, join, row_moments, trusted
from ._tail import kink_at_zero, no_tail

_SMOOTH, _KINKED, _SINGLE = 1e-8, 1e-6, 1e-5  # tolerances: smooth, with kinks, in float32
_MARGIN = 4.0  # the error estimate aims lower


class Elementwise(AbstractActivation):
    """Any function of one number, given as a JAX function that works on arrays element by element.

    - `kinks`: the points where `fn` or one of its derivatives jumps; `fn` itself must be continuous. A point around
      which `fn` changes quickly may be named too. Zero is always treated as such a point.
    - `name`: how the activation is called in messages.

    Moments are accurate to 1e-8 (smooth functions), 1e-6 (named kinks), 1e-5 (float32), relative to the moments of
    the two single Gaussians; where that cannot be had, an error is raised at run time. Memory is a small multiple of
    the tile. Smooth functions, and kinks at zero, cost a polynomial an entry; other kinks cost much more for nearly
    parallel inputs (`PiecewiseLinear` does not).

    >>> import everwide as ew, jax.numpy as jnp
    >>> bump = ew.activations.Elementwise(lambda x: jnp.exp(-x * x))
    >>> net = ew.Serial(ew.Dense(), bump, ew.Dense(1))
    >>> folded = ew.activations.Elementwise(lambda x: jnp.abs(jnp.tanh(x)), kinks=(0.0,))
    """

    fn: Callable[[Array], Array] = eqx.field(static=True)
    kinks: tuple[float, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(self, fn: Callable[[Array], Array], kinks: tuple[float, ...] = (), *, name: str | None = None):
        self.fn = fn
        self.kinks = tuple(sorted({float(k) for k in kinks}))
        self.name = name or f"Elementwise({getattr(fn, '__name__', repr(fn))})"
        if not all(math.isfinite(k) for k in self.kinks):
            raise ArchitectureError(f"{self.name}: kinks={kinks!r} must be finite numbers. Leave the others out.")
        check_elementwise(fn, self.name)

    def __repr__(self) -> str:
        return self.name

    def __call__(self, x: Array) -> Array:
        return self.fn(x)

    def moments(self, var: Array) -> Moments:
        row = row_moments(self.fn, self._points, var)
        return Moments(trusted(row.mean, row.error, self._tolerance(var), self.name), row.moment, row.slope)

    def dual(self, pair: GaussianPair) -> Dual:
        tolerance = self._tolerance(pair.cov)
        rows = both_rows(self.fn, self._points, pair.var1, pair.var2)
        error = join(rows[0].error, rows[1].error)
        pair = eqx.tree_at(lambda p: p.cov, pair, trusted(pair.cov, error, tolerance, self.name))
        return Dual(*numeric_dual(self._method(tolerance), rows, pair))

    def _method(self, tolerance: float) -> Method:
        fn, points = self.fn, self._points
        precision = FINE if tolerance < _KINKED else ROUGH
        return Method(
            coefficients=lambda terms, stds: coefficients(fn, points, terms, stds),
            tail=lambda terms, stds: kink_at_zero(fn, terms, stds) if points == (0.0,) else no_tail(stds),
            exact=lambda e: plane_moments(fn, self.kinks or (0.0,), precision, *e[:4]),
            chunk=128,
            goal=tolerance / _MARGIN,
        )

    @property
    def _points(self) -> tuple[float, ...]:
        return tuple(sorted({0.0, *self.kinks}))

    def _tolerance(self, like: Array) -> float:
        exact = _KINKED if self.kinks else _SMOOTH
        return exact if jnp.finfo(like.dtype).bits > 32 else _SINGLE


def check_elementwise(fn: Callable[[Array], Array], name: str) -> None:
    """Raise unless `fn` maps floats to floats, one by one, and has a derivative."""
    with jax.ensure_compile_time_eval():
        x = jnp.linspace(-1.3, 1.7, 6).reshape(2, 3)
        try:
            y, slope = jax.jvp(fn, (x,), (jnp.ones_like(x),))
        except Exception as fault:
            raise ArchitectureError(
                f"{name}: the function failed on a float array of shape {x.shape} ({type(fault).__name__}: {fault}). "
                "It must be written with jax.numpy and have a derivative (jax.jvp)."
            ) from fault
        if y.shape != x.shape or y.dtype != x.dtype:
            raise ArchitectureError(
                f"{name}: expected an elementwise function, but an array of shape {x.shape} and dtype {x.dtype} became "
                f"one of shape {y.shape} and dtype {y.dtype}. Reductions and casts belong into other layers."
            )
        other = fn(x.at[0, 0].set(0.4))
        if not np.allclose(np.asarray(other).ravel()[1:], np.asarray(y).ravel()[1:], rtol=1e-4, equal_nan=True):
            raise ArchitectureError(
                f"{name}: expected an elementwise function, but one element of its input changes other elements of "
                "its output (as in a softmax or a norm). Such functions have no limit as an activation."
            )
        if not np.all(np.isfinite(np.asarray(y))) or not np.all(np.isfinite(np.asarray(slope))):
            raise ArchitectureError(
                f"{name}: the function or its derivative is not finite at {np.asarray(x).ravel().tolist()}. "
                "It must be defined for all numbers."
            )
