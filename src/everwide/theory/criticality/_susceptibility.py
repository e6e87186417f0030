"""How much of a small change of its input a layer passes on."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import InputError
from ...signal import ArchitectureError
from .._host import Activation
from .._response import Response, response
from ._origin import origin

SMALLEST = 1e-12  # variance: below, signals count as vanishing
Values = int | float | Sequence[int | float] | np.ndarray


class Susceptibilities(NamedTuple):
    """By how much a layer multiplies small changes: see `susceptibilities`."""

    parallel: Float[np.ndarray, "*shape"] | float
    perpendicular: Float[np.ndarray, "*shape"] | float


def susceptibilities(activation: Activation, K: Values, C_w: Values) -> Susceptibilities:  # noqa: N803
    """Both susceptibilities of a layer of weights of variance `C_w / fan_in`, where signals have the variance `K`.

    Below 1 changes die out with depth, above they grow.

    Args:
        activation: a layer such as `Gelu()`, or any function of numpy or JAX arrays, element by element.
        K: a variance, or an array of them. `K = 0` is the limit of small signals.
        C_w: variances of weights, times their fan-in.

    Returns:
        `parallel`: `dK' / dK = C_w E[(z^2 - K) s^2] / 2 K^2` over `z ~ N(0, K)` (no derivative: kinks do no harm);
        `perpendicular`: `C_w E[s'^2]`, the factor of the squared distance of two nearly equal inputs of equal length,
        and of squared gradients on their way back.

    >>> import everwide as ew
    >>> from everwide.theory.criticality import susceptibilities
    >>> [float(round(chi, 9)) for chi in susceptibilities(ew.Relu(), 3.0, 2.0)]
    [1.0, 1.0]
    >>> susceptibilities(ew.Erf(), [0.0, 0.1], 1.0).perpendicular.round(6).tolist()
    [1.27324, 1.076084]

    Poole et al., "Exponential expressivity in deep neural networks through transient chaos" (2016).

    """
    variance, weight = np.broadcast_arrays(at_least_zero("K", K), at_least_zero("C_w", C_w))
    moments = continuous(activation, float(variance.max(initial=1.0)))
    parallel, perpendicular = np.zeros(variance.shape), np.zeros(variance.shape)
    small = variance < SMALLEST
    if small.any():
        parallel[small], perpendicular[small] = at_zero(moments)
    at = moments.at(variance[~small])
    parallel[~small], perpendicular[~small] = at.growth, at.slope
    return Susceptibilities((weight * parallel)[()], (weight * perpendicular)[()])


def at_zero(moments: Response) -> tuple[float, float]:
    """Both, for `C_w = 1` and vanishing variance."""
    zero = origin(moments.function)
    if zero.first == math.inf or not (zero.smooth or zero.vanishes):
        raise ArchitectureError(
            f"{moments.name} has a kink at zero, so that its susceptibilities have no finite limit for vanishing "
            "variance. Pass K above 0."
        )
    return zero.first + zero.value * zero.curvature, zero.first


def continuous(activation: Activation, largest: float) -> Response:
    """The sampled activation; raises if it jumps where Gaussians up to this variance see it."""
    moments = response(activation)
    place = moments.jump(12 * math.sqrt(largest))
    if math.isfinite(place):
        raise ArchitectureError(
            f"{moments.name} jumps at {place:.4g}: E[s'^2] is infinite, and with it a susceptibility. Use a continuous "
            "function, such as erf(b x) with a large b."
        )
    return moments


def at_least_zero(name: str, value: Values) -> np.ndarray:
    """As a float64 array; raises on anything but finite numbers from zero on."""
    array = np.asarray(value, dtype=np.float64)
    if not np.all(np.isfinite(array) & (array >= 0)):
        raise InputError(f"{name}={value!r}: expected finite numbers that are at least 0. A variance is a square.")
    return array
