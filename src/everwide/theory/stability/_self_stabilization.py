"""The edge of stability, in two numbers: why the curvature hovers there, and in which cycle."""

import math
from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

from ..._checks import InputError, finite_number, positive, whole

_LOST = 1e100
_NODES = 512
_SMALL = 1e-8  # energy below which a cycle is a harmonic oscillation


class Cycle(NamedTuple):
    """Made by `self_stabilization`."""

    displacements: Float[np.ndarray, " looks"]
    excesses: Float[np.ndarray, " looks"]
    resting: float
    largest: float
    highest: float
    period: float


def self_stabilization(
    displacement: float, rate: float, *, sharpening: float, restoring: float, excess: float = 0.0, steps: int = 200
) -> Cycle:
    """Gradient descent at the edge of stability, followed in two numbers: how far it swings and how sharp it is.

    Training sharpens; above `2 / rate` parameters swing along the leading eigenvector of the Hessian, ever wider; that
    lowers the curvature by what is cubic in the loss, and the swing dies down. Each step, `x -> -(1 + rate y) x` and
    `y -> y + rate (sharpening - restoring x^2 / 2)`. Where steps are small beside it, that is a cycle, of predators and
    prey, around a swing that does not change, and `largest`, `highest` and `period` are its; steps widen it slowly.

    Args:
        displacement: how far parameters are from the middle of their swing, at first. The sign does not matter.
        rate: the learning rate.
        sharpening: how fast gradient flow raises the curvature, `-grad(loss) . grad(curvature)`; above 0.
        restoring: the squared length of the gradient of the curvature, across the eigenvector.
        excess: the curvature minus `2 / rate`, at first.
        steps: that are followed; fewer where numbers overflow.

    Returns:
        `displacements`, `excesses`: before the first step and after each; `resting`: the displacement at which the
        curvature would stay; of the cycle, `largest`: the largest displacement, `highest`: the highest excess,
        `period`: its steps.

    >>> from everwide.theory import stability
    >>> cycle = stability.self_stabilization(0.01, 1e-3, sharpening=1.0, restoring=2.0, steps=7000)
    >>> round(cycle.largest, 2), round(float(abs(cycle.displacements).max()), 2)
    (3.42, 3.42)

    Damian, Nichani and Lee 2022, Self-stabilization: the implicit bias of gradient descent at the edge of stability.
    """
    speed, up, back = positive(rate, "rate"), positive(sharpening, "sharpening"), positive(restoring, "restoring")
    x, y = positive(abs(finite_number(displacement, "displacement")), "displacement"), finite_number(excess, "excess")
    resting = math.sqrt(2 * up / back)
    orbit = _orbit(_energy(x / resting, y, up), up)
    course = [(x, y)]
    for _ in range(whole(steps, "steps")):
        x, y = -(1 + speed * y) * x, y + speed * (up - back * x**2 / 2)
        if not (abs(x) < _LOST and abs(y) < _LOST):
            break
        course.append((x, y))
    swings, excesses = (np.asarray(part) for part in zip(*course, strict=True))
    return Cycle(swings, excesses, resting, resting * orbit.widest, orbit.highest, orbit.time / speed)


def _energy(swing: float, excess: float, sharpening: float) -> float:
    """What stays as it is: `y^2 / sharpening + w - 1 - log(w)`, of `w`, the displacement over the resting, squared."""
    above = (swing - 1) * (swing + 1)
    energy = excess**2 / sharpening + above - 2 * math.log(swing) if 1 / _LOST < swing < _LOST else math.inf
    if not energy < _LOST:
        raise InputError(
            f"displacement is {swing:.3g} times the resting one, excess is {excess:.3g}: no small steps lead there. "
            "Are sharpening and restoring those of the same loss?"
        )
    return energy


class _Orbit(NamedTuple):
    """Of small steps: the largest displacement over the resting one, the highest excess, and the time."""

    widest: float
    highest: float
    time: float


def _orbit(energy: float, sharpening: float) -> _Orbit:
    highest = math.sqrt(sharpening * energy)
    if energy < _SMALL:
        return _Orbit(math.exp(math.sqrt(energy / 2)), highest, math.pi * math.sqrt(2 / sharpening))
    first, last = (
        float(scipy.optimize.root_scalar(lambda s: math.expm1(s) - s - energy, bracket=ends, xtol=1e-14).root)
        for ends in ((-1 - energy, 0.0), (0.0, math.log(2 + 2 * energy)))
    )
    angles = (np.arange(_NODES) + 0.5) * np.pi / _NODES  # roots at both ends of the path: Chebyshev's quadrature
    s = (first + last) / 2 + (last - first) / 2 * np.cos(angles)
    pace = np.sqrt(sharpening * (energy - np.expm1(s) + s))
    return _Orbit(math.exp(last / 2), highest, float(np.mean((last - first) / 2 * np.sin(angles) / pace) * np.pi))
