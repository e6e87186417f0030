"""Activations on the host: where they bend, and their moments over one Gaussian, to ten digits, kinks or not."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ..activations import AbstractActivation, Elementwise, PiecewiseLinear
from ..layers import Identity
from ..signal import ArchitectureError

Activation = AbstractActivation | Identity | Callable[[Any], Any]
_BATCH = 4096  # JAX compiles for every new shape: there is only one
_HALVINGS = 12
NODES = 20
_TAIL = 4  # coefficients that must have died out: also the squares are resolved then
_RELATIVE, _ABSOLUTE = 1e-12, 1e-14  # to the piece, to its shell
_ROUNDING = 1e-15  # of the argument
_NARROWEST = 1e-12
_MOST_PIECES = 20_000
_HUGE = 1e120  # squares, and their products with polynomials, are finite below
_JUMP = 1e-6
_FINEST = -20  # the first intervals end at 2^-20, 2^-19.5, ... 1, times
_UNEVEN = 1.0123  # so that kinks and jumps at round numbers are inside of a shell, where they are seen
_REACH = 12.0  # standard deviations: the density is 1e-32 there
_WITHIN, _OUTSIDE = 10.0, 1e-9  # of the integrals, this part may come from beyond so many standard deviations
_NUMBERS = 1 << 20  # held at a time, when there are many variances
_KNOWN = 32
_PANEL = 0.25  # standard deviations: also polynomials of high degree are resolved


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
    return _checked(HostFunction(getattr(activation, "__name__", repr(activation)), activation, ()))


def _checked(function: HostFunction) -> HostFunction:
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
    return function


def root_between(fn: Callable[[float], float], low: float, high: float) -> float:
    """Where a continuous function that changes its sign is zero."""
    return float(scipy.optimize.root_scalar(fn, bracket=(low, high), method="brentq", xtol=1e-15).root)


def falling_bracket(fn: Callable[[float], float], start: float, step: float = 1.0) -> tuple[float, float]:
    """Two numbers between which a falling function is zero, looked for from `start` on, in steps that double."""
    sign = 1.0 if fn(start) > 0 else -1.0
    near, far = start, start + sign * step
    while sign * fn(far) > 0:
        step *= 2
        near, far = far, far + sign * step
    return min(near, far), max(near, far)


def trapezoids(fn: Callable[[np.ndarray], np.ndarray], end: float, nodes: int, agreed: float, fault: str) -> float:
    """The integral from 0 to `end`, where the function has died out, by steps that are halved until two sums agree."""
    step = end / nodes
    total = step * (fn(np.zeros(1))[0] / 2 + np.sum(fn(step * np.arange(1, nodes + 1))))
    for _ in range(_HALVINGS):
        between = step * np.sum(fn(step * (np.arange(nodes) + 0.5)))
        before, total = total, (total + between) / 2
        if abs(total - before) <= agreed * abs(total):
            return float(total)
        step, nodes = step / 2, 2 * nodes
    raise ArithmeticError(fault)


class TooRoughError(ValueError):
    """The function cannot be resolved by pieces of polynomials."""


class Table(NamedTuple):
    """Legendre nodes on [-1, 1] and their weights; values to coefficients; values to derivatives."""

    nodes: np.ndarray
    weights: np.ndarray
    coefficients: np.ndarray
    derivative: np.ndarray


class Shell(NamedTuple):
    """Nodes `z` at both sides of zero, weights `dz`, values and slopes there.

    - `edges`: of the pieces, between which the function is smooth.
    - `jump`: where the function jumps, or infinite. `overflow`: from which `|z|` on it is too large, or infinite.
    """

    nodes: np.ndarray
    weights: np.ndarray
    values: np.ndarray
    slopes: np.ndarray
    edges: np.ndarray
    jump: float
    overflow: float


def shell(fn: HostFunction, order: int) -> Shell:
    """The pieces between about `2^(order - 1)` and `2^order`, at both sides; all below for order 0."""
    halves = np.arange(2 * order - 2, 2 * order + 1) if order else np.arange(2 * _FINEST, 1)
    outer = _UNEVEN * 2.0 ** (halves / 2)
    outer = outer if order else np.concatenate([[0.0], outer])
    inside = [k for k in fn.kinks if outer[0] < abs(k) < outer[-1]]
    right = np.unique([*outer, *(k for k in inside if k > 0)])
    left = -np.unique([*outer, *(-k for k in inside if k < 0)])[::-1]
    low, high = np.concatenate([left[:-1], right[:-1]]), np.concatenate([left[1:], right[1:]])
    return _refined(fn, low, high)


def _refined(fn: HostFunction, low: np.ndarray, high: np.ndarray) -> Shell:
    done, scale, pieces = [], 0.0, 0
    while len(low):
        values = fn(_places(low, high))
        size = np.max(np.abs(values), axis=1)
        beyond = ~(size < _HUGE)
        scale = scale or float(np.max(size, where=~beyond, initial=0.0))  # of the first, coarse look
        values = np.where(beyond[:, None], np.inf, values)
        finite = np.where(beyond[:, None], 0, values)
        coefficients = finite @ table().coefficients.T
        steepest = np.max(np.abs(finite @ table().derivative.T), axis=1) * 2 / (high - low)
        tail = np.max(np.abs(coefficients[:, -_TAIL:]), axis=1)
        narrow = high - low < _NARROWEST * np.maximum(1, np.abs(low))
        smooth = tail <= _RELATIVE * size + _ABSOLUTE * scale + _ROUNDING * np.abs(low) * steepest
        ready = beyond | smooth | narrow
        done.append((low[ready], high[ready], values[ready]))
        pieces += int(ready.sum())
        if pieces + 2 * int((~ready).sum()) > _MOST_PIECES:
            left, right = float(low[~ready][0]), float(high[~ready][0])
            raise TooRoughError(
                f"{fn.name} cannot be integrated to the accuracy that is needed: near {(left + right) / 2:.4g} it "
                f"changes on scales below {right - left:.1g}. It oscillates fast, or it is noisy because a part of it "
                "is computed in float32."
            )
        middle = (low[~ready] + high[~ready]) / 2
        low, high = np.concatenate([low[~ready], middle]), np.concatenate([middle, high[~ready]])
    low, high, values = (np.concatenate(column) for column in zip(*done, strict=True))
    return _assembled(low, high, values, scale)


def _assembled(low: np.ndarray, high: np.ndarray, values: np.ndarray, scale: float) -> Shell:
    beyond = np.isinf(values[:, 0])
    overflow = np.min(np.minimum(np.abs(low), np.abs(high)), where=beyond, initial=np.inf)
    order = np.argsort(low)
    low, high, values = (a[order][~beyond[order]] for a in (low, high, values))
    half = (high - low)[:, None] / 2
    columns = _places(low, high), half * table().weights, values, values @ table().derivative.T / half
    nodes, weights, flat, slopes = (column.ravel() for column in columns)
    jump = _first_jump(low, high, values, scale)
    return Shell(nodes, weights, flat, slopes, np.unique([low, high]), jump, float(overflow))


def _first_jump(low: np.ndarray, high: np.ndarray, values: np.ndarray, scale: float) -> float:
    """Where the ends of two neighbours do not meet, or a piece that cannot be halved further is not flat."""
    coefficients = values @ table().coefficients.T
    start, end = coefficients @ (-1.0) ** np.arange(NODES), coefficients.sum(1)
    met = np.abs(start[1:] - end[:-1]) <= _JUMP * scale
    apart = (high[:-1] == low[1:]) & ~met
    narrow = high - low < _NARROWEST * np.maximum(1, np.abs(low))
    steep = narrow & (np.ptp(values, axis=1) > _JUMP * scale)
    places = np.concatenate([high[:-1][apart], low[steep]])
    return float(places[np.argmin(np.abs(places))] + 0.0) if len(places) else np.inf


def _places(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return (low + high)[:, None] / 2 + (high - low)[:, None] / 2 * table().nodes


@functools.cache
def table() -> Table:
    """What is known about Legendre polynomials before any function is."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    polynomials = np.polynomial.legendre.legvander(x, NODES - 1)
    forward = (np.arange(NODES) + 0.5)[:, None] * (polynomials * w[:, None]).T
    slopes = np.polynomial.legendre.legval(x, np.polynomial.legendre.legder(np.eye(NODES))).T
    return Table(x, w, forward, slopes @ forward)


class GaussianMoments(NamedTuple):
    """Moments of `s(z)` for `z ~ N(0, K)`, one for each `K`.

    - `second`: `E[s^2]`, the variance that weights of `C_w = 1` pass on; `growth`: its derivative in `K`, and `bend`
      the second one. Taken as `E[(z^2 - K) s^2] / 2 K^2` and `E[(z^4 - 6 K z^2 + 3 K^2) s^2] / 4 K^4`: no derivative
      of `s`, so kinks do no harm.
    - `slope`: `E[s'^2]`; `slope_growth`: its derivative in `K`.
    """

    second: Any
    growth: Any
    bend: Any
    slope: Any
    slope_growth: Any


class GaussianRule(NamedTuple):
    """Places `z`, in standard deviations, their weights `dz`, the density not included, and values of `s(std z)`."""

    places: np.ndarray
    weights: np.ndarray
    values: np.ndarray

    @property
    def mass(self) -> np.ndarray:
        """Weights that include the density: `mass @ f(places)` is a mean over a standard Gaussian."""
        return self.weights * np.exp(-(self.places**2) / 2) / math.sqrt(2 * math.pi)

    def hermite(self, terms: int) -> np.ndarray:
        """`E[s(std z) he_k(z)]`, k from 0 on, `he_k` the orthonormal Hermite polynomials."""
        z, half = self.places, np.exp(-(self.places**2) / 4)
        values = self.values * self.weights * half / math.sqrt(2 * math.pi)
        before, now, out = np.zeros_like(z), half, np.empty(terms)  # times a root of the density, or it overflows
        for k in range(terms):
            out[k] = values @ now
            before, now = now, (z * now - math.sqrt(k) * before) / math.sqrt(k + 1)
        return out


class Response:
    """An activation, sampled once: every integral over a Gaussian is then a sum over the same nodes."""

    def __init__(self, function: HostFunction):
        self.function = function
        self.name = function.name  # in messages
        self._shells: list[Shell] = []
        self._joined: dict[int, Shell] = {}
        self._largest_known = 0.0

    def pieces(self, reach: float) -> Shell:
        """Shells that cover `|z| <= reach`, joined to one."""
        count = 1 + max(0, math.ceil(math.log2(reach)))
        while len(self._shells) < count:
            self._shells.append(shell(self.function, len(self._shells)))
        if count not in self._joined:
            *arrays, jumps, overflows = zip(*self._shells[:count], strict=True)
            arrays = (np.concatenate(column) for column in arrays)
            self._joined[count] = Shell(*arrays, min(jumps, key=abs), min(overflows))
        return self._joined[count]

    def jump(self, reach: float) -> float:
        """Where the function jumps, the place nearest to zero; infinite if it is continuous."""
        inner = 1.0
        while math.isinf(place := self.pieces(min(inner, reach)).jump) and inner < reach:
            inner *= 2  # outwards: behind the first jump nothing has to be resolved
        return place

    def largest_variance(self, wanted: float) -> float:
        """`wanted`, or the largest of its fourths, sixteenths ... at which the moments are finite."""
        while not self._contained(wanted):
            wanted /= 4
        return wanted

    def nodes(self, largest: float) -> Shell:
        """What is needed for variances up to `largest`."""
        if not self._contained(largest):
            raise ArchitectureError(
                f"{self.name}: its moments over a Gaussian of variance {largest:.4g} cannot be had in float64, because "
                "the function grows too fast. Lower the variances."
            )
        return self.pieces(_REACH * math.sqrt(largest))

    def _contained(self, variance: float) -> bool:
        """Whether the Gaussian has ended before the function became too large."""
        if variance <= self._largest_known:
            return True
        reach = _REACH * math.sqrt(variance)
        at = self.pieces(reach)
        if at.overflow < reach:
            return False
        unit = at.nodes**2 / variance
        parts = at.weights * np.exp(-unit / 2) * at.values**2 * (1 + unit**2)
        contained = bool(np.sum(parts, where=unit > _WITHIN**2) <= _OUTSIDE * np.sum(parts))
        self._largest_known = variance if contained else self._largest_known
        return contained

    def at(self, variance: np.ndarray) -> GaussianMoments:
        """The moments at positive variances, an array of them."""
        flat, out = variance.ravel(), np.empty((len(GaussianMoments._fields), variance.size))
        octaves = np.frexp(flat)[1]
        for octave in np.unique(octaves):  # narrow Gaussians need fewer nodes
            places = np.flatnonzero(octaves == octave)
            at = self.nodes(float(flat[places].max()))
            for part in np.array_split(places, -(-places.size * at.nodes.size // _NUMBERS)):
                out[:, part] = _moments(flat[part], at)
        return GaussianMoments(*out.reshape(len(out), *variance.shape))

    def rule(self, std: float, reach: float = _REACH) -> GaussianRule:
        """For means of products of `s(std z)`, of its powers, and of functions of `z` that bend on a scale of 1."""
        edges = self.pieces(reach * std).edges / std
        panels = np.arange(-math.ceil(reach / _PANEL), math.ceil(reach / _PANEL) + 1) * _PANEL
        edges = np.unique(np.concatenate([edges[np.abs(edges) < panels[-1]], panels]))
        half = np.diff(edges)[:, None] / 2
        places = (edges[:-1, None] + half * (table().nodes + 1)).ravel()
        values = self.function(std * places)
        if not np.isfinite(values).all():
            place = int(np.argmax(~np.isfinite(values)))
            raise ArchitectureError(
                f"{self.name} is {values[place]} at {std * places[place]:.6g}, expected finite numbers. Lower the "
                "variances, or use a function that grows less."
            )
        return GaussianRule(places, (half * table().weights).ravel(), values)

    def at_one(self, variance: float) -> GaussianMoments:
        """The moments at one positive variance, as numbers."""
        return GaussianMoments(*(float(m[0]) for m in self.at(np.array([variance]))))


def _moments(k: np.ndarray, at: Shell) -> GaussianMoments:
    unit = at.nodes**2 / k[:, None]
    density = at.weights * np.exp(-unit / 2) / np.sqrt(2 * np.pi * k)[:, None]
    first, second = (unit - 1) * density, (unit * unit - 6 * unit + 3) * density
    squares, slopes = at.values**2, at.slopes**2
    return GaussianMoments(
        density @ squares,
        first @ squares / (2 * k),
        second @ squares / (4 * k * k),
        density @ slopes,
        first @ slopes / (2 * k),
    )


def response(activation: Activation) -> Response:
    """The sampled activation; remembered for layers, which never change, if they hold no arrays."""
    if not isinstance(activation, AbstractActivation):
        return Response(host_function(activation))
    try:
        return _remembered(activation)
    except TypeError:  # arrays have no hash
        return Response(host_function(activation))


@functools.lru_cache(maxsize=_KNOWN)
def _remembered(activation: AbstractActivation) -> Response:
    return Response(host_function(activation))
