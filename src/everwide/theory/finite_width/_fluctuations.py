"""The mean of the kernels of finite networks, and how much they vary from one draw of the weights to another."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, finite_array, not_negative, positive
from ..._checks import layer_widths as all_widths
from ..._gram import ntk
from ...activations import Relu
from ...layers import Dense, Serial
from .._host import HostFunction
from .._response import Response, response

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
    dense = Dense(w_std=2**0.5)
    hidden = [layer for _ in layers[1:-1] for layer in (dense, Relu())]
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
    return KernelFluctuation(*_of_nngp(hidden, response(activation), weight, bias, input_square), growth)


def _of_nngp(
    hidden: tuple[int, ...], act: Response, weight: float, bias: float, input_square: float
) -> tuple[float, bool]:
    kernel, variance, excess = bias + weight * positive(input_square, "input_square"), 0.0, 1.0
    for n in hidden:
        layer = _layer(act, kernel)
        if not layer.square > 0:
            raise InputError(f"{act.name} is 0 for signals of variance {kernel:.3g}: there is no kernel to vary.")
        excess *= 1 + layer.variance / layer.square**2 / n
        variance = weight**2 * (layer.variance / n + layer.slope**2 * variance)
        kernel = bias + weight * layer.square
    if bias == 0 and _is_two_slope(act.function):
        return excess - 1, True
    return variance / kernel**2, False


class _Layer(NamedTuple):
    """For `z ~ N(0, k)`: the mean `g(k)` and the variance of `s(z)^2`, and the slope `g'(k)`."""

    square: float
    variance: float
    slope: float


def _layer(act: Response, kernel: float) -> _Layer:
    rule = act.rule(math.sqrt(kernel))
    squares, mass = rule.values**2, rule.mass
    mean = float(mass @ squares)
    slope = float(mass @ ((rule.places**2 - 1) * squares)) / (2 * kernel)  # no derivative: kinks are welcome
    return _Layer(mean, float(mass @ (squares - mean) ** 2), slope)


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
