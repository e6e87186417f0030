"""Certificates that training converges, and how fast."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, at_least_zero, not_negative, positive, probability
from ..._engine import checked_kernel, eigenvalue_noise
from ...spectral import KernelError, Spectrum


def definite_extremes(kernel: Any) -> tuple[float, float, int]:
    """The smallest and the largest eigenvalue, and `n`; a `KernelError` where the smallest cannot be told from 0."""
    matrix = checked_kernel(kernel)
    largest, smallest = Spectrum.largest(matrix), Spectrum.smallest(matrix)
    if not smallest > eigenvalue_noise(kernel):
        raise KernelError(
            f"The smallest eigenvalue of the kernel is {smallest:.3g}, the largest {largest:.3g}: it is singular up to "
            "rounding, and nothing can be proved from it. Drop duplicate rows, and rows that are multiples of others; "
            "compute the kernel in float64."
        )
    return smallest, largest, len(matrix)


class ConvergenceRate(NamedTuple):
    """Made by `convergence_rate`."""

    lambda_min: float
    lambda_max: float
    contraction: float
    exponent: float

    @property
    def converges(self) -> bool:
        """Gradient descent with this rate converges."""
        return self.contraction < 1

    def steps_to(self, fraction: float) -> int:
        """Steps of gradient descent after which the loss is below that fraction of the first one, for sure."""
        share = probability(fraction, "fraction")
        if not self.converges:
            raise InputError(
                f"Gradient descent with this rate multiplies the residual by {self.contraction:.4g} in some direction "
                "and never gets there. Take a rate below everwide.training.max_learning_rate."
            )
        if self.contraction == 0:
            return 1
        return max(1, math.ceil(math.log(share) / (2 * math.log(self.contraction))))

    def gronwall_bound(self, time: Any, *, kernel_change: Any, residual: float) -> Float[np.ndarray, "*times"]:
        """How far a network's outputs can be from those of its linearization in gradient flow, at most.

        The root mean square over the training rows, `residual (exp(z change) - 1) exp(-z lambda_min)` with
        `z = rate time / n`: what a kernel that has moved by at most `change` can do to a flow that contracts. It
        vanishes with time only while the kernel moves by less than its smallest eigenvalue.

        Args:
            time: one or several, in steps of the rate.
            kernel_change: the largest `|T_s - T_0|`, in operator norm, up to each time; or one number for all.
            residual: the root mean square of `f - y` at the start, `sqrt(2 loss)`.

        Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, appendix;
        they bound `exp(z) - 1` further, by `z exp(z)`.
        """
        at, change = at_least_zero(time, "time"), at_least_zero(kernel_change, "kernel_change")
        start = not_negative(residual, "residual")
        if change.ndim and change.shape != at.shape:
            raise InputError(f"kernel_change has shape {change.shape}: expected one number, or one for each time.")
        shrunk = self.exponent / 2 * at
        grown = shrunk * (change / self.lambda_min)
        grows = np.exp(np.minimum(grown - shrunk, 700.0))  # no overflow: 1e304 says enough
        return np.asarray(start * -np.expm1(-grown) * grows)


def convergence_rate(kernel: Any, rate: float) -> ConvergenceRate:
    """How fast training with a positive definite kernel must converge on the squared loss, from any residual.

    Of a linear model or an infinitely wide network, whose kernel is constant. Where a kernel moves, that of the path's
    smallest `lambda_min` holds for gradient flow.

    Args:
        kernel: `(n, n)`, the tangent kernel of the training rows.
        rate: the learning rate.

    Returns:
        `lambda_min`, `lambda_max` of the kernel; `contraction`, the factor of the residual in the slowest direction in
        each step (its square is the loss's); `exponent`, of the loss under gradient flow with this rate,
        `loss(t) <= exp(-exponent t) loss(0)`; gradient descent is at least as fast where `rate lambda_max <= n`.
        `converges`; `steps_to(fraction)`, of the loss; `gronwall_bound(time, kernel_change=, residual=)`, how far a
        network can be from its linearization.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> law = finite_width.convergence_rate(np.diag([1.0, 4.0]), 0.25)  # the mean over two rows
    >>> law.exponent, law.contraction, law.steps_to(0.01)
    (0.25, 0.875, 18)
    >>> law.gronwall_bound([0.0, 8.0, 80.0], kernel_change=0.1, residual=2.0).round(4)
    array([0.    , 0.0774, 0.0002])
    """
    smallest, largest, n = definite_extremes(kernel)
    per_row = positive(rate, "rate") / n
    contraction = max(abs(1 - per_row * smallest), abs(1 - per_row * largest))
    return ConvergenceRate(smallest, largest, contraction, 2 * per_row * smallest)


_NOT_ADVICE = (
    "A certificate is sufficient, not necessary, and no advice on widths: networks in practice converge at widths many "
    "orders of magnitude smaller."
)


class Certificate(NamedTuple):
    """A proof of convergence, or what is missing for one, as a sentence too. Made by `certificate`."""

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


def certificate(kernel: Any, *, initial_loss: float, width: int) -> Certificate:
    """Does gradient flow on a network with one hidden layer provably converge? A certificate, not advice.

    For `sum_j a_j s(w_j . x) / sqrt(width)` with `|a_j| <= 1` fixed, `|s'|, |s''| <= 1` (tanh, erf, sine) and
    `|x| <= 1`, trained in `w` on the mean over `m` rows of `1/2 (f - y)^2`. If no row of weights moves by more than
    `d`, the kernel moves by at most `2 m d` in operator norm; while its eigenvalues are above `lambda_min / 2`, no row
    moves by more than `2 sqrt(2) m sqrt(initial_loss) / (lambda_min sqrt(width))`. So width
    `128 m^4 initial_loss / lambda_min^4` closes the circle. Networks in practice converge at widths many orders of
    magnitude below: with `m = 12` rows, at 4000 where the proof asks for 7e12.

    Args:
        kernel: `(m, m)`, the tangent kernel at the start: `everwide.empirical_ntk(f, w, x)`.
        initial_loss: at the start, the mean of `1/2 (f - y)^2`.
        width: hidden units.

    Returns:
        `holds`: the width is above `sufficient_width`, so that `movement < radius`. Then
        `loss(t) <= exp(-rate t) loss(0)` in gradient flow with learning rate 1, no row of weights moves further than
        `movement`, and no eigenvalue of the kernel falls below `lambda_min / 2`, which takes a movement by `radius`.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> proof = finite_width.certificate(np.eye(10), initial_loss=0.5, width=4096)
    >>> proof.holds, proof.sufficient_width
    (False, 640000.0)
    >>> print(finite_width.certificate(np.eye(2), initial_loss=0.1, width=1000))
    Certified: width 1000 is above 204.8. The loss falls at least as exp(-0.5 t); no row of weights moves by more than
    0.05657. A certificate is sufficient, not necessary, and no advice on widths: networks in practice converge at
    widths many orders of magnitude smaller.

    Du, Zhai, Poczos and Singh 2019, Gradient descent provably optimizes over-parameterized neural networks, for the
    argument.
    """
    smallest, _, m = definite_extremes(kernel)
    start, units = not_negative(initial_loss, "initial_loss"), positive(width, "width")
    ratio = m / smallest
    movement = 2 * 2**0.5 * ratio * (start / units) ** 0.5
    needed = ratio * ratio * (ratio * ratio) * 128 * start if start else 0.0  # a power would overflow with an error
    return Certificate(smallest, smallest / (4 * m), movement, needed, units > needed, smallest / m, width)


class LeeCertificate(NamedTuple):
    """What is proved about training a wide network of any depth, as a sentence too. Made by `lee_certificate`."""

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
        """Bound on the root mean square of `f - y` after so many steps of gradient descent."""
        return np.asarray(self.residual * self.contraction ** at_least_zero(steps, "steps"))

    def residual_at(self, time: Any) -> Float[np.ndarray, "*times"]:
        """The same in gradient flow, whose time counts steps of this rate."""
        return np.asarray(self.residual * np.exp((self.contraction - 1) * at_least_zero(time, "time")))

    def taylor_gap_after(self, steps: Any) -> Float[np.ndarray, "*steps"]:
        """`taylor_gap` up to so many steps: each adds its share, and the shares fall with the residual."""
        return np.asarray(self.taylor_gap * (1 - self.contraction ** at_least_zero(steps, "steps")))

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

    Gradient descent with rate `rate / width` in the standard parametrization, on the mean over rows of
    `1/2 |f - y|^2`, and gradient flow. With `R = sqrt(n) residual` and the smallest eigenvalue `lam`: the residual
    falls by `1 - rate lam / (3 n)` in every step, parameters move by at most `3 K R / (lam sqrt(width))`, the kernel
    over the width by `6 K^3 R / (lam sqrt(width))`, from width `(18 K^3 R / lam^2)^2` on.

    Args:
        kernel: `(n, n)`, the tangent kernel of the training rows over the width: that of the NTK parametrization. At
            the start; or of the infinite network, and then it holds if the one at the start is within `lambda_min / 3`.
        width: of all hidden layers.
        rate: the learning rate, times the width; below `2 n / (lambda_min + lambda_max)`.
        lipschitz: `K` with `|J|_F <= K sqrt(width)` and `|J - J'|_F <= K sqrt(width) |theta - theta'|` within
            `movement` of the start: `estimate_jacobian_lipschitz` measures it.
        residual: a bound on the root mean square of `f - y` at the start: `initial_residual_quantile` has one.

    Returns:
        `lambda_min`, `lambda_max` of the kernel; `stable_rate`, `2 n / (lambda_min + lambda_max)`; `contraction` of the
        residual in each step, at least; `movement`, on the sum of the lengths of all steps; `kernel_change`, on
        `|T_t - T_0|_F`, `T` the tangent kernel over the width; `taylor_gap`, `9 K^3 R^2 / (lam^2 sqrt(n width))`, on
        the root mean square, at any step, of outputs on the training rows minus their first-order expansion, both at
        the parameters of that step (for the separately trained linear model see `convergence_rate`);
        `sufficient_width`; `holds`: the width is that large and the rate below `stable_rate`. `residual_after(steps)`,
        `residual_at(time)`, `taylor_gap_after(steps)`.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> kernel, residual = np.diag([0.5, 1.0]), 0.5**0.5  # of two rows: R = 1
    >>> proof = finite_width.lee_certificate(kernel, width=100, rate=1.0, lipschitz=1.0, residual=residual)
    >>> proof.holds, round(proof.sufficient_width)
    (False, 5184)
    >>> print(finite_width.lee_certificate(np.eye(2), width=10**4, rate=1.0, lipschitz=1.0, residual=residual))
    Certified: width 10000 is at least 324 and the rate 1 below 2. The residual falls by the factor 0.8333 in every
    step; the parameters move by at most 0.03, the kernel by 0.06. A certificate is sufficient, not necessary, and no
    advice on widths: networks in practice converge at widths many orders of magnitude smaller.

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, appendix on
    convergence in discrete time; there the loss is a sum, and its rate is ours over `n`.
    """
    smallest, largest, n = definite_extremes(kernel)
    step, start = positive(rate, "rate"), not_negative(residual, "residual")
    constant, units = positive(lipschitz, "lipschitz"), positive(width, "width")
    relative = n**0.5 * start / smallest
    movement = 3 * constant * relative / units**0.5
    cube, stable = constant * constant * constant, 2 * n / (smallest + largest)
    root = 18 * cube * relative / smallest
    return LeeCertificate(
        lambda_min=smallest,
        lambda_max=largest,
        stable_rate=stable,
        contraction=1 - step * smallest / (3 * n),
        movement=movement,
        kernel_change=2 * constant * constant * movement,
        taylor_gap=9 * cube * relative * relative / (n * units) ** 0.5,
        sufficient_width=root * root,
        holds=units >= root * root and step < stable,
        width=width,
        rate=step,
        residual=start,
    )
