"""Moments of an activation over one Gaussian of any variance, to ten digits, for smooth functions and for kinks."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ..activations import AbstractActivation
from ..signal import ArchitectureError
from ._host import Activation, HostFunction, Shell, host_function, shell, table

_REACH = 12.0  # standard deviations: the density is 1e-32 there
_WITHIN, _OUTSIDE = 10.0, 1e-9  # of the integrals, this part may come from beyond so many standard deviations
_NUMBERS = 1 << 20  # held at a time, when there are many variances
_KNOWN = 32
_PANEL = 0.25  # standard deviations: also polynomials of high degree are resolved


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
        self._shells: list[Shell] = []
        self._joined: dict[int, Shell] = {}
        self._largest_known = 0.0

    @property
    def name(self) -> str:
        """How the activation is called in messages."""
        return self.function.name

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
