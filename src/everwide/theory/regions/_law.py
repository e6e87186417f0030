"""How activations bend, and how often random functions cross a kink."""

from dataclasses import dataclass

import numpy as np
from scipy.special import erf, ndtr

from ..._walk import Visit
from ...activations import Abs, AbstractActivation, LeakyRelu, PiecewiseLinear, Relu, TwoSlope


@dataclass(frozen=True)
class Bend:
    """A continuous function of one number: `slopes[i] x + offsets[i]` between `knots[i - 1]` and `knots[i]`."""

    knots: np.ndarray
    slopes: np.ndarray
    offsets: np.ndarray

    def piece(self, values: np.ndarray, weight: np.ndarray | float = 1.0) -> np.ndarray:
        """The number of the piece that each value lies on; a knot belongs to the piece below it.

        `weight` is the homogeneous coordinate of the values, 0 for a direction.
        """
        piece = np.zeros(np.shape(values), np.intp)
        for knot in self.knots:
            piece += values > knot * weight
        return piece

    def __call__(self, values: np.ndarray, weight: np.ndarray | float = 1.0) -> np.ndarray:
        """The function; of a direction, its change far out."""
        piece = self.piece(values, weight)
        return self.slopes[piece] * values + self.offsets[piece] * weight


def bend_of(at: Visit) -> Bend:
    """The knots and slopes of an activation at its place in a network; raises for all other layers."""
    layer = at.layer
    if isinstance(layer, Abs | LeakyRelu | Relu | TwoSlope):
        slopes = np.array([float(slope) for slope in layer.slopes()])
        return _anchored(np.zeros(1), slopes, 0.0)
    if isinstance(layer, PiecewiseLinear):
        return _anchored(np.array(layer.knots), np.array(layer.slopes), layer.at_zero)
    smooth = isinstance(layer, AbstractActivation)
    raise at.refusal(
        "cut into linear regions",
        (f"{layer!r} is not piecewise linear" if smooth else at.unknown)
        + ". Linear regions are those of affine layers (Dense, sums, and for finite networks Conv, pooling, ...) with "
        "Relu, LeakyRelu, Abs, TwoSlope or PiecewiseLinear activations",
    )


def _anchored(knots: np.ndarray, slopes: np.ndarray, at_zero: float) -> Bend:
    """Offsets that make the function continuous, with the given value at 0; knots at which it does not bend go."""
    bends = np.diff(slopes) != 0
    knots, slopes = knots[bends], slopes[np.append(True, bends)]
    offsets = np.append(0.0, -np.cumsum(np.diff(slopes) * knots))
    return Bend(knots, slopes, offsets - offsets[np.sum(knots < 0)] + at_zero)


@dataclass(frozen=True)
class LineLaw:
    """Second moments of one channel `z(t)` at given times, means over the channels included.

    `var` is `E[z^2]`, `cov` is `E[z z']`; `free` is what is left of `E[z'^2]` once `z` is known, and is carried because
    the difference would cancel near the origin. `mean`, `mean_slope` are `E[z]` and `E[z']`.
    """

    var: np.ndarray
    cov: np.ndarray
    free: np.ndarray
    mean: np.ndarray
    mean_slope: np.ndarray

    @property
    def pull(self) -> np.ndarray:
        """The derivative that is expected for each unit of `z`."""
        return _ratio(self.cov, self.var)

    @property
    def slope_var(self) -> np.ndarray:
        """`E[z'^2]`."""
        return self.free + self.pull * self.cov

    def scaled(self, factor: float) -> "LineLaw":
        """Of `factor * z`."""
        square = factor**2
        second = self.var * square, self.cov * square, self.free * square
        return LineLaw(*second, self.mean * factor, self.mean_slope * factor)

    def affine(self, w_std: float, b_std: float) -> "LineLaw":
        """After random weights and biases: they loosen the derivative from the value."""
        weighted = self.scaled(w_std)
        var = weighted.var + b_std**2
        free = weighted.free + weighted.pull * weighted.cov * _ratio(np.full_like(var, b_std**2), var)
        zero = np.zeros_like(var)
        return LineLaw(var, weighted.cov, free, zero, zero)

    def plus(self, other: "LineLaw") -> "LineLaw":
        """Of the sum of two independent signals: they meet in their means."""
        both = self.beside(1.0, other)
        var = both.var + 2 * self.mean * other.mean
        cov = both.cov + self.mean_slope * other.mean + self.mean * other.mean_slope
        slope_var = self.slope_var + other.slope_var + 2 * self.mean_slope * other.mean_slope
        return _joint(var, cov, slope_var, both.mean, both.mean_slope)

    def beside(self, share: float, other: "LineLaw") -> "LineLaw":
        """Of a mixture of channels, with that share of the other signal added."""
        one, two = ((law.var, law.cov, law.slope_var, law.mean, law.mean_slope) for law in (self, other))
        return _joint(*(a + share * b for a, b in zip(one, two, strict=True)))

    def bent(self, bend: Bend) -> "LineLaw":
        """After an activation `f` of a Gaussian signal: `f(z)' = f'(z) z'`, and `z'` is `pull z` plus free noise."""
        zeroth, first, second = _moments(bend, self.var)
        slope, offset = bend.slopes[:, None], bend.offsets[:, None]
        var = np.sum(slope**2 * second + 2 * slope * offset * first + offset**2 * zeroth, 0)
        product = np.sum(slope * (slope * second + offset * first), 0)
        share = _ratio(product, var)
        line, level = slope * (1 - share), offset * share  # f'(z) z without its part along f(z)
        aside = np.sum(line**2 * second - 2 * line * level * first + level**2 * zeroth, 0)
        free = self.free * np.sum(slope**2 * zeroth, 0) + self.pull**2 * np.maximum(aside, 0.0)
        mean, mean_slope = np.sum(slope * first + offset * zeroth, 0), self.pull * np.sum(slope * first, 0)
        return LineLaw(var, self.pull * product, free, mean, mean_slope)

    def crossings(self, bend: Bend) -> np.ndarray:
        """Expected knots that a Gaussian channel passes in a unit of time (Kac and Rice)."""
        std, noise = np.sqrt(self.var), np.sqrt(self.free)
        knots = bend.knots[:, None]
        drift = self.pull * knots
        ratio = _ratio(drift, noise)
        speed = noise * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2)
        speed += np.where(noise > 0, drift * erf(ratio / np.sqrt(2)), np.abs(drift))
        return np.sum(_ratio(speed * _density(_ratio(knots, std)), std), 0)


def input_law(foot: np.ndarray, step: np.ndarray, times: np.ndarray) -> LineLaw:
    """Of the points `foot + t step` themselves, over their channels; `foot` is at right angles to `step`."""
    points = foot + times[:, None] * step
    var = np.mean(points**2, -1)
    free = _ratio(np.full_like(var, np.mean(step**2) * np.mean(foot**2)), var)
    flat = np.full_like(var, np.mean(step))
    return LineLaw(var, times * np.mean(step**2), free, np.mean(points, -1), flat)


def _joint(
    var: np.ndarray, cov: np.ndarray, slope_var: np.ndarray, mean: np.ndarray, mean_slope: np.ndarray
) -> LineLaw:
    free = np.maximum(slope_var - _ratio(cov, var) * cov, 0.0)
    return LineLaw(var, cov, free, mean, mean_slope)


def _moments(bend: Bend, var: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`E[u^k; u on piece i]` for a Gaussian `u` and `k` = 0, 1, 2, each `(pieces, times)`."""
    std = np.sqrt(var)
    far = np.where(bend.knots < 0, -np.inf, np.inf)[:, None]
    knots = np.where(std > 0, bend.knots[:, None] / np.where(std > 0, std, 1.0), far)
    below, density, moment = ndtr(knots), _density(knots), np.where(np.isfinite(knots), knots, 0.0) * _density(knots)

    def rows(a, low, high):
        return np.diff(a, axis=0, prepend=np.full((1, len(std)), low), append=np.full((1, len(std)), high))

    zeroth = rows(below, 0.0, 1.0)
    return zeroth, -std * rows(density, 0.0, 0.0), var * (zeroth - rows(moment, 0.0, 0.0))


def _density(x: np.ndarray) -> np.ndarray:
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`a / b`, and 0 where `b` is 0."""
    return np.where(b > 0, a, 0.0) / np.where(b > 0, b, 1.0)
