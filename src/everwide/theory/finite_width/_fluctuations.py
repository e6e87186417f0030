"""How much the kernels of finite networks vary from one draw of the weights to another."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, layer_widths, not_negative, positive
from ...activations import Relu
from .._host import HostFunction
from .._response import Response, response

RELU = Relu()


class KernelFluctuation(NamedTuple):
    """Made by `kernel_fluctuation`, which says of what.

    - `relative_variance`: the variance over the squared mean.
    - `exact`: at every width; otherwise to the first order in `1 / width`.

    >>> from everwide.theory import finite_width
    >>> round(finite_width.kernel_fluctuation((3, 500, 500, 1)).relative_variance, 4)
    0.0201
    """

    relative_variance: float
    exact: bool


def kernel_fluctuation(
    widths: Sequence[int],
    activation: Callable[[Any], Any] = RELU,
    *,
    w_std: float = 2**0.5,
    b_std: float = 0.0,
    input_square: float = 1.0,
) -> KernelFluctuation:
    """The relative variance, over the hidden weights, of an output's variance `b_std^2 + w_std^2 mean_i s(z_i)^2`.

    This is the NNGP kernel of a finite network at one input; at infinite width it does not vary. Variances of the
    layers accumulate: a network is close to its limit where the sum of `1 / width` over its layers is small.

    - `widths`: of all layers, from the inputs to the outputs.
    - `activation`: elementwise, such as `Relu()`, or any function of numpy or JAX arrays. Its kinks are found.
    - `w_std`, `b_std`: as in `Dense`. `input_square`: the mean square of the inputs, `|x|^2 / inputs`.

    Exact at every width for activations of two slopes (the ReLU family) without biases: `prod(1 + c / n) - 1`, with
    `c = 5` for ReLU and 2 for linear networks. Otherwise to the first order in `1 / n`: a layer adds
    `w_std^4 Var[s(z)^2] / n`, and passes on what came before times the squared derivative of its mean map.

    >>> import everwide as ew

    >>> from everwide.theory import finite_width
    >>> finite_width.kernel_fluctuation((3, 10, 10, 1))
    KernelFluctuation(relative_variance=1.25, exact=True)
    >>> finite_width.kernel_fluctuation((3, 10, 10, 1), ew.Tanh(), w_std=1.0).exact
    False

    Hanin and Nica 2018 for ReLU; Roberts, Yaida and Hanin 2022, The principles of deep learning theory, chapter 4.
    """
    hidden = layer_widths(widths)[1:-1]
    weight, bias = positive(w_std, "w_std") ** 2, not_negative(b_std, "b_std") ** 2
    found = response(activation)
    kernel, variance, excess = bias + weight * positive(input_square, "input_square"), 0.0, 1.0
    for n in hidden:
        layer = _layer(found, kernel)
        if not layer.square > 0:
            raise InputError(f"{found.name} is 0 for signals of variance {kernel:.3g}: there is no kernel to vary.")
        excess *= 1 + layer.variance / layer.square**2 / n
        variance = weight**2 * (layer.variance / n + layer.slope**2 * variance)
        kernel = bias + weight * layer.square
    if bias == 0 and _is_two_slope(found.function):
        return KernelFluctuation(excess - 1, True)
    return KernelFluctuation(variance / kernel**2, False)


class _Layer(NamedTuple):
    """For `z ~ N(0, k)`: the mean `g(k)` and the variance of `s(z)^2`, and the slope `g'(k)`."""

    square: float
    variance: float
    slope: float


def _layer(found: Response, kernel: float) -> _Layer:
    rule = found.rule(math.sqrt(kernel))
    squares, mass = rule.values**2, rule.mass
    mean = float(mass @ squares)
    slope = float(mass @ ((rule.places**2 - 1) * squares)) / (2 * kernel)  # no derivative: kinks are welcome
    return _Layer(mean, float(mass @ (squares - mean) ** 2), slope)


def _is_two_slope(function: HostFunction) -> bool:
    """`s(c z) = c s(z)` for `c > 0`: then only the norm of a layer matters to the next, and formulas close."""
    places = np.concatenate([-np.geomspace(1e-3, 30, 9), np.geomspace(1e-3, 30, 9)])
    base = function(places)
    return all(np.allclose(function(c * places), c * base, rtol=1e-12, atol=0) for c in (0.3, 7.0))


class NtkFluctuation(NamedTuple):
    """Made by `ntk_fluctuation`, which says of what.

    - `relative_variance`: of a diagonal entry of the tangent kernel, exact: its variance over its squared mean.
    - `growth`: `exp(5 sum(1 / n))`, after which the second moment is named in the literature: it grows like that up to
      constants only, and is no approximation to `1 + relative_variance`.

    >>> from everwide.theory import finite_width
    >>> finite_width.ntk_fluctuation((3, 12, 1)).relative_variance
    0.25
    """

    relative_variance: float
    growth: float


def ntk_fluctuation(widths: Sequence[int]) -> NtkFluctuation:
    """How much the tangent kernel of a ReLU network at one input, `T(x, x)`, varies over random weights.

    For the network of `expected_ntk`, with Gaussian weights. What is exact and what is not:

    - `T(x, x)`: the relative variance is exact at every width and depth; `3 / n` for one hidden layer.
    - `T(x, x')`: only bounded. `T(x, x')^2 <= T(x, x) T(x', x')` always, so that its second moment is at most
      `1 + relative_variance` times the product of both means on the diagonal.
    - The law `exp(5 sum(1 / n))` for the growth with depth holds up to constants.

    The contributions of the layers to `T(x, x)` follow a linear recursion with independent random coefficients: given
    the number of open gates `k`, chi-squared variables with `k` and with `k - 1` degrees of freedom, the direction of
    the signal itself being counted apart. Second moments of a linear recursion are a linear recursion.

    >>> from everwide.theory import finite_width
    >>> spread = finite_width.ntk_fluctuation((4, 20, 20, 1))
    >>> round(1 + spread.relative_variance, 4), round(spread.growth, 4)
    (1.3536, 1.6487)

    Hanin and Nica 2020, Finite depth and width corrections to the neural tangent kernel, for the growth.
    """
    hidden = layer_widths(widths)[1:-1]
    # Of a vector (p, b, s), from the outputs down: p, the squared output over the squared norm of the layer; b, the
    # squared norm of the gradient by its preactivations; s, the kernel so far; all relative to their means.
    moments = np.array([[3.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    for n in reversed(hidden):
        moments = np.einsum("aibj,ij->ab", _products(n), moments)
    second = float(moments[2, 2]) / (len(hidden) + 1) ** 2
    return NtkFluctuation(second - 1, math.exp(5 * sum(1 / n for n in hidden)))


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
