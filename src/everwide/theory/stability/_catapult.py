"""The catapult, in the model that can be solved: one example, one hidden layer without an activation."""

import enum
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import finite_number, not_negative, positive, whole

_LOST = 1e100  # a residual that will not come back


class Phase(enum.StrEnum):
    """What a run did."""

    LAZY = "lazy"  # the loss never rose above the first
    CATAPULT = "catapult"  # it rose, and came back below it
    DIVERGENT = "divergent"
    UNDECIDED = "undecided"  # it rose, and had not come back when the steps were used up


class Catapult(NamedTuple):
    """Made by `catapult`."""

    residuals: Float[np.ndarray, " looks"]
    curvatures: Float[np.ndarray, " looks"]
    phase: Phase
    onset: int


def catapult(
    residual: float, curvature: float, rate: float, *, scale: float, target: float = 0.0, steps: int = 200
) -> Catapult:
    """Gradient descent on half the squared residual of `v . (u x) / sqrt(width)`, in two numbers, without any weights.

    They are followed exactly, at every width: `r -> r (1 - rate k + scale rate^2 z r)` and
    `k -> k + scale rate r (rate k r - 4 z)`, of the output `z = r + target`. Wide networks have three phases. Below
    `rate * curvature = 2` the loss falls and the curvature stays. Up to 4 the loss first rises, to the order of the
    width, within about `log(width)` steps; that lowers the curvature below `2 / rate`, where the loss falls. Above 4
    training diverges. Networks with activations and many examples have the same phases, and bear rates beyond 4: up to
    what was seen in `theory.rates.stable_rates(...).diverges`.

    Args:
        residual: output minus target, before the first step.
        curvature: the tangent kernel of the example, `scale` times the squared lengths of `v` and of `u x / |x|`. With
            one example it is the largest eigenvalue of the Gauss-Newton matrix.
        rate: the learning rate.
        scale: the squared length of `x` over the width: by how much a step can move the curvature. At infinite width 0.
        target: of the example.
        steps: that are followed; fewer where numbers overflow.

    Returns:
        `residuals`, `curvatures`: before the first step and after each; `phase`: `"lazy"` (the loss never rose above
        the first), `"catapult"` (it rose and came back below it), `"divergent"`, or `"undecided"` where the steps did
        not suffice to tell; `onset`: steps from the start to the highest loss, 0 where it is the first.

    >>> from everwide.theory import stability
    >>> run = stability.catapult(1.0, 2.0, 1.5, scale=1e-3)
    >>> run.phase.value, run.onset, bool(run.curvatures[-1] < 2 / 1.5)
    ('catapult', 5, True)

    Lewkowycz et al. 2020, The large learning rate phase of deep learning: the catapult mechanism; with a target.
    """
    goal, size, speed = finite_number(target, "target"), not_negative(scale, "scale"), positive(rate, "rate")
    z, k = finite_number(residual, "residual") + goal, not_negative(curvature, "curvature")
    course, overflows = [(z - goal, k)], False
    for _ in range(whole(steps, "steps")):
        step = speed * (z - goal)
        z, k = z - step * k + size * step**2 * z, k + size * step * (step * k - 4 * z)
        overflows = not (math.isfinite(k) and abs(z) < _LOST)
        if overflows:
            break
        course.append((z - goal, k))
    residuals, curvatures = (np.asarray(part) for part in zip(*course, strict=True))
    return Catapult(residuals, curvatures, _phase(np.abs(residuals), overflows), int(np.argmax(np.abs(residuals))))


def _phase(sizes: Float[np.ndarray, " looks"], overflows: bool) -> Phase:
    if overflows:
        return Phase.DIVERGENT
    if sizes.max() <= sizes[0]:
        return Phase.LAZY
    return Phase.CATAPULT if sizes[-1] < sizes[0] else Phase.UNDECIDED
