"""Gradients of random ReLU networks of any width, exactly: their moments, their law, and draws from it.

All of it is about networks without biases, in He's initialization (weights of variance 2 / fan-in, the outputs
included), at one input. There every gate is open with probability 1/2, independently of all functions that are even in
each row of weights (Hanin and Nica 2018), so that one layer of width `n` multiplies squared norms by `2/n` times a
chi-squared variable with Binomial(n, 1/2) degrees of freedom.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from ..._checks import InputError, whole
from ..._checks import layer_widths as all_widths


class GradientLaw(NamedTuple):
    """Made by `gradient_law`."""

    second: float
    fourth: float
    log_mean: float
    log_variance: float
    exact_log_mean: float
    exact_log_variance: float
    alive: float
    layer_widths: tuple[int, ...]

    @property
    def kurtosis(self) -> float:
        """`fourth / second**2`: 3 for a network so wide that derivatives are Gaussian, and more for narrow ones."""
        return self.fourth / self.second**2

    def sample_norm(self, n: int, seed: int = 0) -> Float[np.ndarray, " n"]:
        """Norms of the gradient of one output by the inputs, for `n` independent random networks; exact.

        No network is built: their law is that of a product of one chi-squared variable for each layer. The mean of the
        squares is 2 at every width and depth. A 0 is a network with all gates of some layer closed.
        """
        draws, rng = whole(n, "n"), np.random.default_rng(seed)
        squares = rng.chisquare(self.layer_widths[0], draws) * (2 / self.layer_widths[0])
        for width in self.layer_widths[1:-1]:
            gates = rng.binomial(width, 0.5, draws)
            squares *= 2 * rng.standard_gamma(gates / 2) * (2 / width)  # of shape 0 it is 0; a chi-squared refuses it
        return np.sqrt(squares)


def gradient_law(layer_widths: Sequence[int], *, kurtosis: float = 3.0) -> GradientLaw:
    """The law of the derivatives of a random ReLU network's outputs by its inputs, at every width.

    For independent symmetric weights, no biases and He's initialization, at any input where no preactivation vanishes.
    For Gaussian weights the fourth moment is `12 / inputs**2 * prod(1 + 5 / n)` over the hidden layers: gradients
    explode and vanish with `sum(1 / n)`, the depth over the width, and not with the depth alone.

    Also for Gaussian weights, signals and gradients share a random factor `R` of mean 1, a product of one independent
    factor for each hidden layer: in law it is `|h|^2 / |x|^2 * inputs / n` of the last hidden layer `h`, of width `n`,
    and the factor in `(d output / d input)^2 = (2 / inputs) chi^2_1 R` and in
    `|gradient|^2 = (2 / inputs) chi^2_inputs R`. `log R` is nearly `N(-b/2, b)` with `b = 5 sum(1 / n)`, so that a
    typical network of depth `L` and width `n` has `R = exp(-5 L / (2 n))`, and a few have enormous ones.

    Args:
        layer_widths: of all layers, from the inputs to the outputs. How many outputs there are does not matter.
        kurtosis: of the weights' law, the fourth moment over the squared variance: 3 for a Gaussian, 9/5 for a uniform
            law, 1 for random signs. Only `fourth` depends on it; the rest but `second` is about Gaussian weights.

    Returns:
        `second`, `fourth`: moments of one derivative, the second is `2 / inputs` whatever the widths; `kurtosis`,
        `fourth / second^2`; `log_mean`, `log_variance`: `-b/2` and `b`; `exact_log_mean`, `exact_log_variance`: of
        `log R` at these widths, among networks that are alive; `alive`: the probability that no hidden layer has all
        its gates closed, otherwise `R = 0`; `sample_norm(n, seed)`: norms of the gradient for `n` random networks.

    >>> from everwide.theory import finite_width
    >>> law = finite_width.gradient_law((4, 6, 5, 7, 1))
    >>> law.second, round(law.fourth, 4), law.sample_norm(1000).shape
    (0.5, 4.7143, (1000,))
    >>> law = finite_width.gradient_law((10, *[60] * 40, 1))
    >>> round(law.log_mean, 2), round(law.exact_log_mean, 2), round(law.exact_log_variance, 2)
    (-1.67, -1.71, 3.56)

    Hanin 2018, Which neural net architectures give rise to exploding and vanishing gradients?, theorem 1; Hanin and
    Nica 2018, Products of many large random matrices and gradients in deep neural networks.
    """
    layers = all_widths(layer_widths)
    if not 1 <= kurtosis < math.inf:
        raise InputError(f"kurtosis={kurtosis!r}: expected a finite number, at least 1; a Gaussian has 3.")
    hidden = layers[1:-1]
    spread, counts = 5 * sum(1 / n for n in hidden), Counter(hidden)
    factors = {n: _log_factor(n) for n in counts}
    mean, variance = (float(sum(counts[n] * factors[n][i] for n in counts)) for i in range(2))
    alive = math.exp(sum(count * math.log1p(-(0.5**n)) for n, count in counts.items()))
    return GradientLaw(2 / layers[0], _fourth(layers, kurtosis), -spread / 2, spread, mean, variance, alive, layers)


def _fourth(layers: tuple[int, ...], kurtosis: float) -> float:
    # Of a layer's derivatives h: E|h|_2^4 and E|h|_4^4, which laws other than the Gaussian tell apart.
    square_of_norm = sum_of_fourths = 1.0
    for before, width in itertools.pairwise(layers[:-1]):
        one = _one_output(square_of_norm, sum_of_fourths, before, kurtosis)
        sum_of_fourths = width * one / 2
        square_of_norm = sum_of_fourths + width * (width - 1) * square_of_norm / before**2
    return _one_output(square_of_norm, sum_of_fourths, layers[-2], kurtosis)


def _one_output(square_of_norm: float, sum_of_fourths: float, fan_in: int, kurtosis: float) -> float:
    """`E (w . h)^4` for weights of variance `2 / fan_in`."""
    return 4 / fan_in**2 * (3 * square_of_norm + (kurtosis - 3) * sum_of_fourths)


def _log_factor(width: int) -> tuple[float, float]:
    """Mean and variance of `log(2/n chi^2_k)`, `k` binomial and not 0."""
    gates = np.arange(1, width + 1)
    weights = scipy.stats.binom.pmf(gates, width, 0.5) / -math.expm1(width * math.log(0.5))
    mean_given = scipy.special.digamma(gates / 2) + math.log(4 / width)
    mean = float(weights @ mean_given)
    return mean, float(weights @ (scipy.special.polygamma(1, gates / 2) + (mean_given - mean) ** 2))
