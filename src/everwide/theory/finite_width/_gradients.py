"""Gradients of random ReLU networks of any width, exactly: their moments, their law, and draws from it.

All of it is about networks without biases, in He's initialization (weights of variance 2 / fan-in, the outputs
included), at one input. There every gate is open with probability 1/2, independently of all functions that are even in
each row of weights (Hanin and Nica 2018), so that one layer of width `n` multiplies squared norms by `2/n` times a
chi-squared variable with Binomial(n, 1/2) degrees of freedom.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from ..._checks import InputError, layer_widths


class GradientMoments(NamedTuple):
    """Moments of one derivative `d output / d input` over random weights. Made by `gradient_moments`.

    - `second`: the mean of its square, `2 / inputs` whatever the widths. `fourth`: of its fourth power.

    >>> from everwide.theory import finite_width
    >>> finite_width.gradient_moments((4, 6, 1)).kurtosis
    5.5
    """

    second: float
    fourth: float

    @property
    def kurtosis(self) -> float:
        """`fourth / second**2`: 3 for a network so wide that derivatives are Gaussian, and more for narrow ones."""
        return self.fourth / self.second**2


def gradient_moments(widths: Sequence[int], kurtosis: float = 3.0) -> GradientMoments:
    """The second and the fourth moment of an output's derivative by an input, in a random ReLU network.

    Exact at every width, for independent symmetric weights, no biases and He's initialization, at any input where no
    preactivation vanishes.

    - `widths`: of all layers, from the inputs to the outputs. How many outputs there are does not matter.
    - `kurtosis`: of the weights' law, the fourth moment over the squared variance: 3 for a Gaussian, 9/5 for a uniform
      law, 1 for random signs.

    For Gaussian weights the fourth moment is `12 / inputs**2 * prod(1 + 5 / n)` over the hidden layers: gradients
    explode and vanish with `sum(1 / n)`, the depth over the width, and not with the depth alone.

    >>> from everwide.theory import finite_width
    >>> moments = finite_width.gradient_moments((4, 6, 5, 7, 1))
    >>> moments.second, round(moments.fourth, 4)
    (0.5, 4.7143)

    Hanin 2018, Which neural net architectures give rise to exploding and vanishing gradients?, theorem 1.
    """
    layers = layer_widths(widths)
    if not 1 <= kurtosis < math.inf:
        raise InputError(f"kurtosis={kurtosis!r}: expected a finite number, at least 1; a Gaussian has 3.")
    # Of a layer's derivatives h: E|h|_2^4 and E|h|_4^4, which laws other than the Gaussian tell apart.
    square_of_norm = sum_of_fourths = 1.0
    for before, width in itertools.pairwise(layers[:-1]):
        one = _one_output(square_of_norm, sum_of_fourths, before, kurtosis)
        sum_of_fourths = width * one / 2
        square_of_norm = sum_of_fourths + width * (width - 1) * square_of_norm / before**2
    return GradientMoments(2 / layers[0], _one_output(square_of_norm, sum_of_fourths, layers[-2], kurtosis))


def _one_output(square_of_norm: float, sum_of_fourths: float, fan_in: int, kurtosis: float) -> float:
    """`E (w . h)^4` for weights of variance `2 / fan_in`."""
    return 4 / fan_in**2 * (3 * square_of_norm + (kurtosis - 3) * sum_of_fourths)


class LogNormalLaw(NamedTuple):
    """The law of `log R`, nearly Gaussian. Made by `lognormal_law`, which says what `R` is.

    - `mean`, `variance`: `-b/2` and `b`, with `b = 5 sum(1 / n)`; what they become for wide layers.
    - `exact_mean`, `exact_variance`: at these widths, among networks that are alive.
    - `alive`: the probability that no hidden layer has all its gates closed; otherwise `R = 0`.

    >>> from everwide.theory import finite_width
    >>> round(finite_width.lognormal_law((3, 100, 100, 1)).variance, 3)
    0.1
    """

    mean: float
    variance: float
    exact_mean: float
    exact_variance: float
    alive: float


def lognormal_law(widths: Sequence[int]) -> LogNormalLaw:
    """How sizes of signals and gradients spread over random ReLU networks: `log R ~ N(-b/2, b)`, `b = 5 sum(1 / n)`.

    `R`, of mean 1, is a product of one independent factor for each hidden layer. For Gaussian weights in He's
    initialization without biases it is, in law,

    - `|h|^2 / |x|^2 * inputs / n` of the last hidden layer `h`, of width `n`,
    - the random factor in `(d output / d input)^2 = (2 / inputs) chi^2_1 R`, and in
      `|gradient|^2 = (2 / inputs) chi^2_inputs R`.

    So a typical network of depth `L` and width `n` has `R = exp(-5 L / (2 n))`, and a few have enormous ones.

    >>> from everwide.theory import finite_width
    >>> law = finite_width.lognormal_law((10, *[60] * 40, 1))
    >>> round(law.mean, 2), round(law.exact_mean, 2), round(law.exact_variance, 2)
    (-1.67, -1.71, 3.56)

    Hanin and Nica 2018, Products of many large random matrices and gradients in deep neural networks.
    """
    hidden = layer_widths(widths)[1:-1]
    spread = 5 * sum(1 / n for n in hidden)
    counts = {n: hidden.count(n) for n in set(hidden)}
    factors = {n: _log_factor(n) for n in counts}
    means, variances = (sum(counts[n] * factors[n][i] for n in counts) for i in range(2))
    alive = math.exp(sum(count * math.log1p(-(0.5**n)) for n, count in counts.items()))
    return LogNormalLaw(-spread / 2, spread, float(means), float(variances), alive)


def _log_factor(width: int) -> tuple[float, float]:
    """Mean and variance of `log(2/n chi^2_k)`, `k` binomial and not 0."""
    gates = np.arange(1, width + 1)
    weights = scipy.stats.binom.pmf(gates, width, 0.5) / -math.expm1(width * math.log(0.5))
    mean_given = scipy.special.digamma(gates / 2) + math.log(4 / width)
    mean = float(weights @ mean_given)
    return mean, float(weights @ (scipy.special.polygamma(1, gates / 2) + (mean_given - mean) ** 2))


def sample_gradient_norm(widths: Sequence[int], draws: int, seed: int = 0) -> Float[np.ndarray, " draws"]:
    """Norms of the gradient of one output by the inputs, for `draws` independent random ReLU networks; exact.

    No network is built: the law is that of a product of one chi-squared variable for each layer (see `lognormal_law`),
    for Gaussian weights in He's initialization without biases. The mean of the squares is 2 at every width and depth. A
    0 is a network with all gates of some layer closed.

    >>> from everwide.theory import finite_width
    >>> norms = finite_width.sample_gradient_norm((784, 20, 20, 20, 1), draws=1000)
    >>> norms.shape, bool(abs((norms**2).mean() - 2) < 0.5)
    ((1000,), True)

    Hanin and Nica 2018, Products of many large random matrices and gradients in deep neural networks.
    """
    layers = layer_widths(widths)
    if draws < 1:
        raise InputError(f"draws={draws!r}: expected at least 1.")
    rng = np.random.default_rng(seed)
    squares = rng.chisquare(layers[0], draws) * (2 / layers[0])
    for width in layers[1:-1]:
        gates = rng.binomial(width, 0.5, draws)
        squares *= 2 * rng.standard_gamma(gates / 2) * (2 / width)  # a gamma of shape 0 is 0, a chi-squared refuses it
    return np.sqrt(squares)
