"""Products of chi-square variables: the sizes of deep linear networks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma, polygamma

from ..._checks import InputError, positive, whole
from ..._checks import hidden_widths as all_hidden
from ._contour import Gammas, log_mellin_barnes


@dataclass(frozen=True)
class ScaleLaw:
    """The law of `prod_l (variance / n_l) chi^2(n_l)`: the squared size of a product of random matrices."""

    widths: tuple[int, ...]
    variance: float = 1.0

    def __post_init__(self) -> None:
        all_hidden(self.widths)
        positive(self.variance, "variance")

    @property
    def mean(self) -> float:
        """The mean: the variance to the power of the number of layers."""
        return self.variance ** len(self.widths)

    @property
    def log_mean(self) -> float:
        """The mean of the logarithm."""
        n = np.array(self.widths, float)
        return float(np.sum(digamma(n / 2) - np.log(n / 2))) + len(n) * math.log(self.variance)

    @property
    def log_variance(self) -> float:
        """The variance of the logarithm, which is nearly Gaussian: about `2 sum 1 / n_l`."""
        return float(np.sum(polygamma(1, np.array(self.widths, float) / 2)))

    def log_moment(self, order: float) -> float:
        """`log E[S^order]`; infinite unless `order > -min(widths) / 2`."""
        if not self.widths:
            return 0.0
        gammas = self.gammas(0.0)
        right = order - gammas.rightmost_pole
        if right <= 0:
            return math.inf
        return gammas.log_at(right) + order * len(self.widths) * math.log(self.variance)

    def logpdf(self, value: Any) -> np.ndarray:
        """The log density at positive numbers."""
        values = np.asarray(value, np.float64)
        if not self.widths:
            raise InputError("A product of no factors is the constant 1, and has no density.")
        if not (np.isfinite(values) & (values > 0)).all():
            raise InputError(f"ScaleLaw.logpdf({value!r}): expected finite numbers above 0.")
        scale = len(self.widths) * math.log(self.variance)
        gammas = self.gammas(0.0)
        logs = np.log(values)
        density = [log_mellin_barnes(gammas, log - scale) - log for log in logs.ravel().tolist()]
        return np.array(density).reshape(values.shape)

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Independent draws."""
        rng, logs = np.random.default_rng(seed), np.zeros(n)
        for width in self.widths:
            logs += np.log(rng.chisquare(width, n) * (self.variance / width))
        return np.exp(logs)

    def log_tilted(self, power: float, rate: float) -> float:
        """`log E[S^-power exp(-rate / S)]`, for `rate` 0 or more."""
        if rate == 0:
            return self.log_moment(-power)
        if not self.widths:
            return -rate
        inner = self.gammas(power)
        gammas = Gammas(np.append(1.0, inner.x), np.append(1.0, inner.shift), np.append(1.0, inner.count))
        scale = len(self.widths) * math.log(self.variance)
        return log_mellin_barnes(gammas, math.log(rate) - scale) - power * scale

    def gammas(self, shift: float) -> Gammas:
        """The Mellin transform `E[S^(s - shift)]` as a function of `s`, for variance 1."""
        widths, count = np.unique(np.array(self.widths, float), return_counts=True)
        return Gammas(widths / 2, np.full(len(widths), float(shift)), count.astype(float))


def prior_norm(inputs: int, hidden_widths: Sequence[int], variance: float = 1.0) -> ScaleLaw:
    """The law of `|theta|^2` of a random deep linear network `f(x) = theta . x`, exact at every width.

    The logarithm of `|theta|` has a mean near `-L / (2 n)` and a variance near `L / (2 n)` for `L` layers of width `n`:
    depth and width do not commute.

    Args:
        inputs: the dimension of `x`.
        hidden_widths: one for each hidden layer.
        variance: weights have variance `variance / fan_in`.

    Returns:
        The law of a product of chi-squared variables: `mean`, `log_mean`, `log_variance`, `log_moment(order)`,
        `logpdf(value)`, `sample(n, seed)`.

    >>> from everwide.theory import deep_linear
    >>> shallow, deep = (deep_linear.prior_norm(100, [100] * hidden) for hidden in (1, 99))
    >>> round(shallow.log_variance / 4, 4), round(deep.log_variance / 4, 4)
    (0.0101, 0.505)

    Hanin and Nica, "Products of many large random matrices and gradients in deep neural networks" (2020).
    """
    return ScaleLaw((whole(inputs, "inputs"), *all_hidden(hidden_widths)), float(variance))
