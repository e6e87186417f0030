"""Moments and fluctuations of gradients and kernels at finite width."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from ..._checks import InputError, finite_array, not_negative, positive, whole
from ..._checks import layer_widths as all_widths
from ..._gram import ntk
from ...activations import Relu
from ...layers import Dense, Serial
from .._host import HostFunction, Response, response


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
    from scipy.stats import binom  # here: it takes a third of the time of all imports

    gates = np.arange(1, width + 1)
    weights = binom.pmf(gates, width, 0.5) / -math.expm1(width * math.log(0.5))
    mean_given = scipy.special.digamma(gates / 2) + math.log(4 / width)
    mean = float(weights @ mean_given)
    return mean, float(weights @ (scipy.special.polygamma(1, gates / 2) + (mean_given - mean) ** 2))


RELU = Relu()


class KernelFluctuation(NamedTuple):
    """Made by `kernel_fluctuation`."""

    relative_variance: float
    exact: bool
    growth: float


def expected_ntk(layer_widths: Sequence[int], x: Any) -> Float[np.ndarray, "n n"]:
    """The mean over random weights of a finite ReLU network's tangent kernel, for one output. In float64.

    The network has no biases, weights in He's initialization and the NTK parametrization:
    `z' = sqrt(2 / n) W relu(z)`, `W` standard normal. The diagonal, `2 (hidden layers + 1) |x|^2 / inputs`, is exact at
    every width. The rest is that of the infinite network: exact at every width with one hidden layer, since neurons are
    independent there; with more, each is off by `O(1 / width)`. How far one network is from it: `kernel_fluctuation`.

    Args:
        layer_widths: of all layers, from the inputs to the outputs.
        x: `(n, inputs)`.

    Returns:
        The matrix.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> finite_width.expected_ntk((2, 5, 1), np.eye(2)).round(4)
    array([[2.    , 0.3183],
           [0.3183, 2.    ]])

    Jacot, Gabriel and Hongler 2018, Neural tangent kernel; Cho and Saul 2009, Kernel methods for deep learning.
    """
    layers, rows = all_widths(layer_widths), finite_array(x, "x")
    if rows.ndim != 2 or rows.shape[1] != layers[0] or not len(rows):
        raise InputError(f"x has shape {rows.shape}, expected (n, {layers[0]}), as layer_widths={layers} says.")
    hidden = (Dense(w_std=2**0.5), Relu()) * (len(layers) - 2)
    return ntk(Serial(*hidden, Dense(1, w_std=2**0.5)), rows)


def kernel_fluctuation(
    layer_widths: Sequence[int],
    activation: Callable[[Any], Any] = RELU,
    *,
    which: str = "nngp",
    w_std: float = 2**0.5,
    b_std: float = 0.0,
    input_square: float = 1.0,
) -> KernelFluctuation:
    """The relative variance, over random weights, of a finite network's kernel at one input.

    At infinite width it does not vary. Variances of the layers accumulate: a network is close to its limit where the
    sum of `1 / width` over its layers is small.

    NNGP: an output's variance `b_std^2 + w_std^2 mean_i s(z_i)^2` over the hidden weights. Exact at every width for
    activations of two slopes (the ReLU family) without biases: `prod(1 + c / n) - 1`, with `c = 5` for ReLU and 2 for
    linear networks. Otherwise to the first order in `1 / n`: a layer adds `w_std^4 Var[s(z)^2] / n`, and passes on what
    came before times the squared derivative of its mean map.

    NTK: a diagonal entry `T(x, x)` for the ReLU network of `expected_ntk`, exact at every width and depth; `3 / n` for
    one hidden layer. The contributions of the layers follow a linear recursion with independent random coefficients
    (given the number of open gates `k`, chi-squared variables with `k` and with `k - 1` degrees of freedom, the
    direction of the signal itself being counted apart), and second moments of a linear recursion are a linear
    recursion. `T(x, x')` is only bounded: `T(x, x')^2 <= T(x, x) T(x', x')` always.

    Args:
        layer_widths: of all layers, from the inputs to the outputs.
        activation: elementwise, such as `Relu()`, or any function of numpy or JAX arrays. Its kinks are found.
        which: "nngp"; or "ntk", for ReLU without biases.
        w_std: as in `Dense`.
        b_std: as in `Dense`.
        input_square: the mean square of the inputs, `|x|^2 / inputs`.

    Returns:
        `relative_variance`: the variance over the squared mean; `exact`: at every width, or to the first order in
        `1 / width`; `growth`: `exp(5 sum(1 / n))`, after which second moments for ReLU are named in the literature:
        they grow like that up to constants only, and it is no approximation to `1 + relative_variance`.

    >>> import everwide as ew
    >>> from everwide.theory import finite_width
    >>> finite_width.kernel_fluctuation((3, 10, 10, 1)).relative_variance
    1.25
    >>> finite_width.kernel_fluctuation((3, 10, 10, 1), ew.Tanh(), w_std=1.0).exact
    False
    >>> finite_width.kernel_fluctuation((3, 12, 1), which="ntk").relative_variance
    0.25

    Hanin and Nica 2018 and 2020 for ReLU; Roberts, Yaida and Hanin 2022, The principles of deep learning theory,
    chapter 4.
    """
    hidden = all_widths(layer_widths)[1:-1]
    growth = math.exp(5 * sum(1 / n for n in hidden))
    if which == "ntk":
        if (activation, w_std, b_std) != (RELU, 2**0.5, 0.0):
            raise InputError('kernel_fluctuation(which="ntk") is about ReLU with w_std=sqrt(2) and no biases only.')
        return KernelFluctuation(ntk_relative_variance(hidden), True, growth)
    if which != "nngp":
        raise InputError(f'which={which!r}: expected "nngp" or "ntk".')
    weight, bias = positive(w_std, "w_std") ** 2, not_negative(b_std, "b_std") ** 2
    kernel = bias + weight * positive(input_square, "input_square")
    return KernelFluctuation(*_of_nngp(hidden, response(activation), weight, bias, kernel), growth)


def _of_nngp(hidden: tuple[int, ...], act: Response, weight: float, bias: float, kernel: float) -> tuple[float, bool]:
    variance, excess = 0.0, 1.0
    for n in hidden:
        square, spread, slope = _layer(act, kernel)
        if not square > 0:
            raise InputError(f"{act.name} is 0 for signals of variance {kernel:.3g}: there is no kernel to vary.")
        excess *= 1 + spread / square**2 / n
        variance = weight**2 * (spread / n + slope**2 * variance)
        kernel = bias + weight * square
    if bias == 0 and _is_two_slope(act.function):
        return excess - 1, True
    return variance / kernel**2, False


def _layer(act: Response, kernel: float) -> tuple[float, float, float]:
    """For `z ~ N(0, k)`: the mean `g(k)` and the variance of `s(z)^2`, and the slope `g'(k)`."""
    rule = act.rule(math.sqrt(kernel))
    squares, mass = rule.values**2, rule.mass
    mean = float(mass @ squares)
    slope = float(mass @ ((rule.places**2 - 1) * squares)) / (2 * kernel)  # no derivative: kinks are welcome
    return mean, float(mass @ (squares - mean) ** 2), slope


def _is_two_slope(function: HostFunction) -> bool:
    """`s(c z) = c s(z)` for `c > 0`: then only the norm of a layer matters to the next, and formulas close."""
    places = np.concatenate([-np.geomspace(1e-3, 30, 9), np.geomspace(1e-3, 30, 9)])
    base = function(places)
    return all(np.allclose(function(c * places), c * base, rtol=1e-12, atol=0) for c in (0.3, 7.0))


def ntk_relative_variance(hidden: tuple[int, ...]) -> float:
    """Of the tangent kernel of a ReLU network at one input."""
    # Of a vector (p, b, s), from the outputs down: p, the squared output over the squared norm of the layer; b, the
    # squared norm of the gradient by its preactivations; s, the kernel so far; all relative to their means.
    moments = np.array([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    for n in reversed(hidden):
        moments = np.einsum("aibj,ij->ab", _products(n), moments)
    return float(moments[2, 2]) / (len(hidden) + 1) ** 2 - 1


def _products(n: int) -> Float[np.ndarray, "3 3 3 3"]:
    """`E[A_ai A_bj]` of one layer's map `(p, b, s) -> 2/n (c p, open p + x b, open p + x b + c s)`.

    `open` is 1 unless all gates are closed; `c` and `x` are chi-squared with `k` and `k - 1` degrees of freedom.
    """
    closed = 0.5**n
    opened, c, x = 1 - closed, n / 2, n / 2 - 1 + closed
    cc, cx, xx = n * (n + 5) / 4, n * (n - 1) / 4, n * (n + 1) / 4 - 1 + closed
    pairs = np.array([[cc, c, cx], [c, opened, x], [cx, x, xx]])  # of (c, open, x)
    rows = np.zeros((3, 3, 3))  # which of the three multiplies which entry of (p, b, s)
    rows[0, 0, 0] = rows[1, 0, 1] = rows[1, 1, 2] = rows[2, 0, 1] = rows[2, 1, 2] = rows[2, 2, 0] = 1
    return np.einsum("aiu,uv,bjv->aibj", rows, pairs, rows) * (2 / n) ** 2
