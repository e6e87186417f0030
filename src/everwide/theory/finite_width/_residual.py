"""How large the residual of a network is before training."""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats

from ..._checks import InputError, finite_array, probability
from ...spectral import Spectrum
from ._quadratic_form import QuadraticForm


class InitialResidual(NamedTuple):
    """Sizes that `|f - y|` at initialization exceeds with probability `delta`. Made by `initial_residual_quantile`.

    - `quantile`: exactly that probability. `bound`: at most that, and simple.

    >>> import numpy as np

    >>> from everwide.theory import finite_width
    >>> found = finite_width.initial_residual_quantile(np.diag([1.0, 0.1]), np.ones(2), 0.05)
    >>> found.quantile < found.bound
    True
    """

    quantile: float
    bound: float


def initial_residual_quantile(kernel: Any, y: Any, delta: float) -> InitialResidual:
    """The size `R` with `P(|f - y| > R) = delta` over random infinitely wide networks `f`, on the training rows.

    Outputs at initialization are Gaussian with the NNGP kernel `K` as their covariance, so `|f - y|^2` is a weighted
    sum of noncentral chi-squared variables. Its quantile is computed to ten digits, by integration along a path through
    the saddle point. The simple bound is `|y| + sqrt(lam_max(K)) chi`, with `chi` the quantile of the norm of as many
    standard normal variables.

    - `kernel`: `(n, n)`, the NNGP kernel. `y`: `(n,)` or `(n, outputs)`, targets; outputs are independent.
    - `delta`: between 0 and 1; small ones are as accurate as large ones.

    >>> import numpy as np

    >>> from everwide.theory import finite_width
    >>> finite_width.initial_residual_quantile(np.eye(2), np.zeros(2), 0.05)  # sqrt(-2 log 0.05)
    InitialResidual(quantile=2.4477..., bound=2.4477...)

    Lee et al. 2019 need such an `R`; Imhof 1961, Computing the distribution of quadratic forms in normal variables,
    for the integral; Rice 1980, Distribution of quadratic forms in normal random variables, for its path.
    """
    targets, risk = finite_array(y, "y"), probability(delta, "delta")
    spectrum = Spectrum.of(kernel)
    if targets.ndim not in (1, 2) or len(targets) != len(spectrum.values) or not targets.size:
        raise InputError(
            f"y has shape {targets.shape} and the kernel {len(spectrum.values)} rows: expected one target, or one for "
            "each output, for each of them."
        )
    columns = targets.reshape(len(targets), -1)
    weights = np.where(spectrum.learnable, spectrum.values, 0.0)
    shifts = np.sum(spectrum.modes(columns) ** 2, 1)
    largest, size = float(weights.max()), float(np.linalg.norm(columns))
    if largest == 0:
        return InitialResidual(size, size)
    chi = math.sqrt(scipy.stats.chi2.isf(risk, columns.size))
    bound = size + math.sqrt(largest) * chi
    form = QuadraticForm(weights / largest, shifts / largest, columns.shape[1])
    quantile = math.sqrt(largest * _upper_quantile(form, math.log(risk)))
    return InitialResidual(min(quantile, bound), bound)  # they agree, up to rounding, where the bound is attained


def _upper_quantile(form: QuadraticForm, log_risk: float) -> float:
    """`q` with `log P(Q > q) = log_risk`, looked for from the mean on: evaluations far out cost more."""
    excess = lambda q: form.log_survival(q) - log_risk
    low, step = form.derivative(0.0, 1), math.sqrt(form.derivative(0.0, 2))
    high = low
    if excess(low) < 0:
        while low > form.least and excess(low) < 0:
            low, high, step = max(low - step, form.least), low, 2 * step
    else:
        while excess(high) >= 0:
            low, high, step = high, high + step, 2 * step
    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-300, rtol=1e-11))  # pyright: ignore[reportArgumentType]
