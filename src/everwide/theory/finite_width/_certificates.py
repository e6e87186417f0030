"""Proofs that one network will converge. Sufficient, and far from necessary."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..._checks import finite_array, not_negative, positive
from ...linearization import lee_bounds
from ._extremes import definite_extremes

_NOT_ADVICE = (
    "A certificate is sufficient, not necessary, and no advice on widths: networks in practice converge at widths many "
    "orders of magnitude smaller."
)


class Certificate(NamedTuple):
    """A proof of convergence, or what is missing for one. Made by `certificate`, which says for which networks.

    - `lambda_min`: the smallest eigenvalue of the kernel at the start.
    - `radius`: while no row of weights has moved further, the kernel's eigenvalues stay above `lambda_min / 2`.
    - `movement`: no row moves further than that while they do.
    - `sufficient_width`: from which `movement < radius`, so that neither ever ends. `holds`: the width is larger.
    - `rate`: then `loss(t) <= exp(-rate t) loss(0)`, in gradient flow with learning rate 1.

    >>> import numpy as np

    >>> from everwide.theory import finite_width
    >>> print(finite_width.certificate(np.eye(2), loss=0.1, width=1000))
    Certified: width 1000 is above 204.8. The loss falls at least as exp(-0.5 t); no row of weights moves by more than
    0.05657. A certificate is sufficient, not necessary, and no advice on widths: networks in practice converge at
    widths many orders of magnitude smaller.
    """

    lambda_min: float
    radius: float
    movement: float
    sufficient_width: float
    holds: bool
    rate: float
    width: int

    def __str__(self) -> str:
        if not self.holds:
            return (
                f"Not certified: width {self.width} is not above {self.sufficient_width:.4g}. This says nothing "
                f"against the network. {_NOT_ADVICE}"
            )
        return (
            f"Certified: width {self.width} is above {self.sufficient_width:.4g}. The loss falls at least as "
            f"exp(-{self.rate:.4g} t); no row of weights moves by more than {self.movement:.4g}. {_NOT_ADVICE}"
        )


def certificate(kernel: Any, *, loss: float, width: int) -> Certificate:
    """Does gradient flow on a network with one hidden layer provably converge? A certificate, not advice.

    For `sum_j a_j s(w_j . x) / sqrt(width)` with `|a_j| <= 1` fixed, `|s'|, |s''| <= 1` (tanh, erf, sine) and
    `|x| <= 1`, trained in `w` on the mean over `m` rows of `1/2 (f - y)^2`. If no row of weights moves by more than
    `d`, the kernel moves by at most `2 m d` in operator norm; while its eigenvalues are above `lambda_min / 2`, no row
    moves by more than `2 sqrt(2) m sqrt(loss) / (lambda_min sqrt(width))`. So width `128 m^4 loss / lambda_min^4`
    closes the circle. Networks in practice converge at widths many orders of magnitude below: with `m = 12` rows, at
    4000 where the proof asks for 7e12.

    - `kernel`: `(m, m)`, at the start: `everwide.linearization.two_layer_kernel(w, a, x, activation=s)`.
    - `loss`: at the start, the mean of `1/2 (f - y)^2`.

    >>> import numpy as np

    >>> from everwide.theory import finite_width
    >>> found = finite_width.certificate(np.eye(10), loss=0.5, width=4096)
    >>> found.holds, found.sufficient_width
    (False, 640000.0)

    Du, Zhai, Poczos and Singh 2019, Gradient descent provably optimizes over-parameterized neural networks, for the
    argument.
    """
    found, start, units = definite_extremes(kernel), not_negative(loss, "loss"), positive(width, "width")
    smallest, m = found.smallest, found.rows
    ratio = m / smallest
    movement = 2 * 2**0.5 * ratio * (start / units) ** 0.5
    needed = ratio * ratio * (ratio * ratio) * 128 * start if start else 0.0  # a power would overflow with an error
    return Certificate(smallest, smallest / (4 * m), movement, needed, units > needed, smallest / m, width)


class LeeCertificate(NamedTuple):
    """What is proved about training a wide network of any depth. Made by `lee_certificate`.

    - `lambda_min`, `lambda_max`: of the kernel. `stable_rate`: `2 / (lambda_min + lambda_max)`.
    - `contraction`: of the residual's norm in each step of gradient descent, at least.
    - `movement`: on the sum of the lengths of all steps. `kernel_change`: on `|T_t - T_0|_F`, `T` the tangent kernel
      over the width. `taylor_gap`: on the distance, at any step, between the outputs on the training rows and their
      first-order expansion around the start, both at the parameters of that step.
    - `sufficient_width`: from which the proof holds. `holds`: the width is that large and the rate below `stable_rate`.

    >>> import numpy as np

    >>> from everwide.theory import finite_width
    >>> print(finite_width.lee_certificate(np.eye(2), width=10**4, rate=0.5, lipschitz=1.0, residual=1.0))
    Certified: width 10000 is at least 324 and the rate 0.5 below 1. The residual falls by the factor 0.8333 in every
    step; the parameters move by at most 0.03, the kernel by 0.06. A certificate is sufficient, not necessary, and no
    advice on widths: networks in practice converge at widths many orders of magnitude smaller.
    """

    lambda_min: float
    lambda_max: float
    stable_rate: float
    contraction: float
    movement: float
    kernel_change: float
    taylor_gap: float
    sufficient_width: float
    holds: bool
    width: int
    rate: float
    residual: float

    def residual_after(self, steps: Any) -> Float[np.ndarray, "*steps"]:
        """Bound on `|f - y|` after so many steps of gradient descent."""
        return np.asarray(self.residual * self.contraction ** finite_array(steps, "steps"))

    def residual_at(self, time: Any) -> Float[np.ndarray, "*times"]:
        """Bound on `|f - y|` in gradient flow, whose time counts steps of this rate."""
        return np.asarray(self.residual * np.exp(-self.rate * self.lambda_min / 3 * finite_array(time, "time")))

    def taylor_gap_after(self, steps: Any) -> Float[np.ndarray, "*steps"]:
        """`taylor_gap` up to so many steps: each adds its share, and the shares fall with the residual."""
        return np.asarray(self.taylor_gap * (1 - self.contraction ** finite_array(steps, "steps")))

    def __str__(self) -> str:
        if self.holds:
            verdict = (
                f"Certified: width {self.width} is at least {self.sufficient_width:.4g} and the rate {self.rate:.4g} "
                f"below {self.stable_rate:.4g}. The residual falls by the factor {self.contraction:.4g} in every step; "
                f"the parameters move by at most {self.movement:.4g}, the kernel by {self.kernel_change:.4g}."
            )
        else:
            verdict = (
                f"Not certified: it takes width {self.sufficient_width:.4g} (here {self.width}) and a rate below "
                f"{self.stable_rate:.4g} (here {self.rate:.4g}). This says nothing against the network."
            )
        return f"{verdict} {_NOT_ADVICE}"


def lee_certificate(kernel: Any, *, width: int, rate: float, lipschitz: float, residual: float) -> LeeCertificate:
    """Does gradient descent on a wide network of any depth provably stay near its linearization? Not advice.

    The constants of `everwide.linearization.lee_bounds`, for a kernel: gradient descent with rate `rate / width` on the
    sum of `1/2 |f - y|^2` in the standard parametrization, and gradient flow.

    - `kernel`: `(n, n)`, the tangent kernel of the training rows over the width: that of the NTK parametrization. At
      the start; or of the infinite network, and then it holds if the one at the start is within `lambda_min / 3`.
    - `lipschitz`: `K` with `|J|_F <= K sqrt(width)` and `|J - J'|_F <= K sqrt(width) |theta - theta'|` within
      `movement` of the start: `estimate_jacobian_lipschitz` measures it.
    - `residual`: a bound on `|f - y|` at the start: `initial_residual_quantile` has one.

    `taylor_gap`, `9 K^3 R^2 / (lambda_min^2 sqrt(width))`, compares a network with its own expansion at the same
    parameters. The separately trained linear model is a third thing: for that one see `gronwall_bound`.

    >>> import numpy as np

    >>> from everwide.theory import finite_width
    >>> found = finite_width.lee_certificate(np.diag([0.5, 1.0]), width=100, rate=0.5, lipschitz=1.0, residual=1.0)
    >>> found.holds, found.sufficient_width
    (False, 5184.0)

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, appendix.
    """
    found, step, start = definite_extremes(kernel), positive(rate, "rate"), not_negative(residual, "residual")
    constant, units = positive(lipschitz, "lipschitz"), positive(width, "width")
    with jax.enable_x64(True):  # widths in certificates leave the range of float32
        bounds = lee_bounds(width=units, rate=step, eigenvalue=found.smallest, lipschitz=constant, residual=start)
        numbers = [float(value) for value in bounds[:4]]
    contraction, movement, change, needed = numbers
    relative = start / found.smallest
    gap = 9 * constant * constant * constant * relative * relative / units**0.5
    stable = 2 / (found.smallest + found.largest)
    return LeeCertificate(
        lambda_min=found.smallest,
        lambda_max=found.largest,
        stable_rate=stable,
        contraction=contraction,
        movement=movement,
        kernel_change=change,
        taylor_gap=gap,
        sufficient_width=needed,
        holds=units >= needed and step < stable,
        width=width,
        rate=step,
        residual=start,
    )
