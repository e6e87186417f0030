"""Any function of one number: its kinks are found, its moments integrated."""

import functools
import math
from collections.abc import Callable
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..gaussian import safe_sqrt
from ..signal import ArchitectureError
from ._base import AbstractActivation, Dual, Entries, GaussianPair, Method, Moments, numeric_dual
from ._mehler import coefficients, is_smooth_at_zero, kink_at_zero, no_tail, project
from ._quadrature import FINE, REACH, ROUGH, Rule, both_rows, join, legendre, plane_moments, row_moments, trusted

_NODES = 64
_FINEST = 1e-5  # angles below this are one and the same to all knots
_GOAL = {True: 1e-8, False: 2e-6}  # in float64 and float32


class PiecewiseLinear(AbstractActivation):
    """A continuous function with a constant slope between knots, and the value `at_zero` at 0.

    There is one slope more than knots.

    >>> import everwide as ew
    >>> hard_sigmoid = ew.activations.PiecewiseLinear((-3.0, 3.0), (0.0, 1 / 6, 0.0), at_zero=0.5)
    >>> net = ew.Serial(ew.Dense(), hard_sigmoid, ew.Dense(1))

    The second derivative is a sum of spikes at the knots, so that the moments are integrals of the density of two
    Gaussians over their correlation. Plackett, "A reduction formula for normal multivariate integrals" (1954).
    """

    knots: tuple[float, ...] = eqx.field(static=True)
    slopes: tuple[float, ...] = eqx.field(static=True)
    at_zero: float = eqx.field(static=True)

    def __init__(self, knots: tuple[float, ...], slopes: tuple[float, ...], *, at_zero: float = 0.0):
        self.knots = tuple(float(k) for k in knots)
        self.slopes = tuple(float(s) for s in slopes)
        self.at_zero = float(at_zero)
        if len(slopes) != len(knots) + 1 or not knots or any(a >= b for a, b in pairwise(self.knots)):
            raise ArchitectureError(
                f"PiecewiseLinear needs increasing knots and one slope more than knots, got knots={knots!r} and "
                f"slopes={slopes!r}. A function without knots is the Identity layer."
            )

    def __call__(self, x: Array) -> Array:
        """The slope at zero, bent at every knot on the way out."""
        centre = self.slopes[sum(k < 0 for k in self.knots)]
        y = self.at_zero + centre * x
        for knot, bend in zip(self.knots, self._bends.tolist(), strict=True):
            y = y + bend * (jnp.maximum(knot - x, 0) if knot < 0 else jnp.maximum(x - knot, 0))
        return y

    def moments(self, var: Array) -> Moments:
        row = row_moments(self, self._points, var)
        return Moments(row.mean, row.moment, row.slope)

    def dual(self, pair: GaussianPair) -> Dual:
        rows = both_rows(self, self._points, pair.var1, pair.var2)
        straight = join(rows[0].mean_slope, rows[1].mean_slope)
        method = Method(
            coefficients=lambda terms, stds: self._coefficients(terms, stds, straight),
            tail=lambda terms, stds: no_tail(stds),
            exact=lambda entries: _moments(self, entries),
            chunk=1024,
            goal=_GOAL[pair.cov.dtype.itemsize > 4],
        )
        return Dual(*numeric_dual(method, rows, pair))

    def _coefficients(self, terms: int, std: Array, straight: Array) -> Array:
        """The derivative is a sum of steps, so its coefficients are Hermite polynomials at the knots."""
        places = self._places(std)
        bends = jnp.asarray(self._bends[:, None], std.dtype)
        density = jnp.exp(-0.5 * places**2) * (2 * math.pi) ** -0.5
        steps = project(Rule(places, bends * density), jnp.ones_like(places), terms - 1)
        order = jnp.sqrt(jnp.arange(1, terms, dtype=std.dtype))[:, None]
        return jnp.concatenate([straight[None], steps / order])

    def _places(self, std: Array) -> Array:
        """Where the knots are, in standard deviations; those that are too far away to matter are kept finite."""
        return jnp.stack([jnp.clip(k / std, -REACH, REACH) for k in self.knots])

    @property
    def _points(self) -> tuple[float, ...]:
        return tuple(sorted({0.0, *self.knots}))

    @property
    def _bends(self) -> np.ndarray:
        return np.diff(self.slopes)

    def density(self, places1: Array, places2: Array, squared: Array, aside: Array, sign: Array) -> Array:
        """`sum J_i J_j exp(-(x_i^2 - 2 r x_i y_j + y_j^2) / (2 (1 - r^2))) / 2 pi` over pairs of knots.

        `squared` is `1 - r^2`, `aside` is `2 (1 - r)`. Taken from `sum J_i J_j`, which is often zero, without
        cancellation: for wide Gaussians all exponents are small.
        """
        bends = self._bends.tolist()  # numbers of numpy would widen float32
        total = jnp.full_like(squared * places1[0] * places2[0], sum(bends) ** 2)
        for bend1, x in zip(bends, places1, strict=True):
            for bend2, y in zip(bends, places2, strict=True):
                distance = (x - sign * y) ** 2 + aside * (sign * x * y)
                total = total + bend1 * bend2 * jnp.expm1(-0.5 * distance / squared)
        return total / (2 * math.pi)


def _moments(f: PiecewiseLinear, e: Entries) -> tuple[Array, Array]:
    """From the moments at correlation zero. A negative correlation is a positive one with `v` turned around."""
    sign = jnp.where(e.correlation < 0, -1, 1).astype(e.correlation.dtype)
    end = safe_sqrt(e.complement / (2 - e.complement))  # the tangent of half the angle
    moment, slope = _integrals(f, f._places(e.std1), f._places(e.std2), jnp.abs(e.correlation), end, sign)
    straight = e.mean_slope1 * e.mean_slope2
    return e.mean1 * e.mean2 + e.std1 * e.std2 * (e.correlation * straight + moment), straight + slope * sign


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _integrals(f: PiecewiseLinear, *entry: Array) -> tuple[Array, Array]:
    return _integrate(f, *entry)


@_integrals.defjvp
def _(f: PiecewiseLinear, primals: tuple, tangents: tuple) -> tuple:
    """The first integral changes with `c` at the rate of the second; through `end` that would be 0 times infinity."""
    d1, d2, dc, dend, dsign = tangents
    run = functools.partial(_integrate, f)
    (moment, slope), (by_places, _) = jax.jvp(run, primals, (d1, d2, *map(jnp.zeros_like, (dc, dend, dsign))))
    turned = jax.jvp(lambda *entry: run(*entry)[1], primals, tangents)[1]
    return (moment, slope), (by_places + slope * dc, turned)


def _integrate(
    f: PiecewiseLinear, places1: Array, places2: Array, c: Array, end: Array, sign: Array
) -> tuple[Array, Array]:
    """`int_0^c (c - r) p(r) dr` and `int_0^c p(r) dr`, where `p` is the density, summed over all pairs of knots.

    Over the tangent `t` of half the angle, `r = (1 - t^2) / (1 + t^2)`: the density is smooth in the logarithm of `t`.
    """
    low, high = jnp.arcsinh(end / _FINEST), math.asinh(1 / _FINEST)

    @jax.checkpoint
    def body(sums: tuple[Array, Array], node: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        up = jnp.exp(low + node[0] * (high - low))
        t = (up - 1 / up) * (_FINEST / 2)
        over = 1 / (1 + t * t)
        measure = node[1] * (high - low) * (up + 1 / up) * (_FINEST * over)
        value = measure * f.density(places1, places2, (2 * t * over) ** 2, 4 * t * t * over, sign)
        ahead = 2 * (t - end) * (t + end) * over / (1 + end * end)  # c - r, without cancellation
        return (sums[0] + value * ahead, sums[1] + value), None

    zero = jnp.zeros(jnp.broadcast_shapes(c.shape, places1.shape[1:], places2.shape[1:]), c.dtype)
    nodes = tuple(jnp.asarray(a, c.dtype) for a in legendre(_NODES, 0.0, 1.0))
    return jax.lax.scan(body, (zero, zero), nodes)[0]


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
        _check_hashable(fn, self.name)
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
        kinked = points == (0.0,) and not is_smooth_at_zero(fn)
        return Method(
            coefficients=lambda terms, stds: coefficients(fn, points, terms, stds),
            tail=lambda terms, stds: kink_at_zero(fn, terms, stds) if kinked else no_tail(stds),
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


def _check_hashable(fn: Callable[[Array], Array], name: str) -> None:
    """Raise where two networks could not be told to have the same function, as a module that holds arrays."""
    try:
        hash(fn)
    except TypeError as fault:
        raise ArchitectureError(
            f"{name}: the function must be hashable, since a kernel is compiled for it, but {fault}. Write it as a "
            "plain function whose numbers are Python's: lambda x: jnp.tanh(2.0 * x)."
        ) from None


@functools.lru_cache(256)
def check_elementwise(fn: Callable[[Array], Array], name: str) -> None:
    """Raise unless `fn` maps floats to floats, one by one, and has a derivative."""

    def look(x: Array, moved: Array) -> tuple[Array, Array, Array]:
        return *jax.jvp(fn, (x,), (jnp.ones_like(x),)), fn(moved)

    x = np.linspace(-1.3, 1.7, 6, dtype=jax.dtypes.canonicalize_dtype(float)).reshape(2, 3)
    moved = x.copy()
    moved[0, 0] = 0.4
    try:  # one short program, run at once even while another is traced
        y, slope, other = map(np.asarray, jax.jit(look).lower(x, moved).compile()(x, moved))
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
    if not np.allclose(other.ravel()[1:], y.ravel()[1:], rtol=1e-4, equal_nan=True):
        raise ArchitectureError(
            f"{name}: expected an elementwise function, but one element of its input changes other elements of "
            "its output (as in a softmax or a norm). Such functions have no limit as an activation."
        )
    if not np.all(np.isfinite(y)) or not np.all(np.isfinite(slope)):
        raise ArchitectureError(
            f"{name}: the function or its derivative is not finite at {x.ravel().tolist()}. "
            "It must be defined for all numbers."
        )
