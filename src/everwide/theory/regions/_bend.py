"""Piecewise linear activations as knots and slopes."""

from dataclasses import dataclass

import numpy as np

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
