"""Bounds on the largest eigenvalue of a kernel, and on how far a finite kernel is from its mean. Really bounds."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, finite_array, positive, probability
from ..._checks import layer_widths as all_widths
from ..._engine import checked_kernel
from ...spectral import KernelError, Spectrum
from ._fluctuations import ntk_relative_variance

_ROUNDING = 1e-12  # relative, of sums over a matrix in float64


class LambdaMaxBounds(NamedTuple):
    """Made by `lambda_max_bounds`."""

    gershgorin: float
    frobenius: float
    trace: float
    moments: float

    @property
    def tightest(self) -> float:
        """The smallest of them."""
        return min(self)


def lambda_max_bounds(kernel: Any) -> LambdaMaxBounds:
    """Upper bounds on the largest eigenvalue of a kernel matrix, from its entries alone.

    With one of them for `lam_max`, gradient descent on the mean over `n` rows of `1/2 |f - y|^2` is stable at every
    rate below `2 n / lam_max`. For the value itself: `everwide.training.max_learning_rate`.

    Args:
        kernel: `(n, n)`.

    Returns:
        `gershgorin`: the largest sum of a row's absolute values; `frobenius`: the root of the sum of squares; `trace`:
        the sum of the diagonal, the only one that needs no other entry; `moments`: the best that trace and Frobenius
        norm say together, never above them; `tightest` of all.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> bounds = finite_width.lambda_max_bounds(np.array([[2.0, 0.5], [0.5, 1.0]]))
    >>> bounds.gershgorin, bounds.trace, round(bounds.moments, 4)  # two rows: `moments` is the eigenvalue
    (2.5, 3.0, 2.2071)

    Wolkowicz and Styan 1980, Bounds for eigenvalues using traces, for `moments`.
    """
    matrix = checked_kernel(kernel)
    n, trace, frobenius = len(matrix), float(np.trace(matrix)), float(np.linalg.norm(matrix))
    if np.diagonal(matrix).min() < 0 or frobenius > trace * (1 + _ROUNDING):
        raise KernelError(
            f"The kernel is not positive semidefinite: its trace is {trace:.6g}, its Frobenius norm {frobenius:.6g}, "
            f"its smallest diagonal entry {np.diagonal(matrix).min():.6g}. A norm above the trace, or a negative "
            "diagonal, needs negative eigenvalues. Is it a difference of kernels?"
        )
    spread = math.sqrt(max(frobenius**2 - trace**2 / n, 0.0) * (n - 1) / n)
    moments = min(trace / n + spread, frobenius, trace)  # rounding must not put it above them
    return LambdaMaxBounds(float(np.abs(matrix).sum(0).max()), frobenius, trace, moments)


def lambda_max_tail(
    expected: Any,
    threshold: Any,
    *,
    width: int | None = None,
    neuron: float | None = None,
    layer_widths: Sequence[int] | None = None,
) -> Float[np.ndarray, "*thresholds"]:
    """A bound on the probability that the largest eigenvalue of a finite kernel reaches `threshold`.

    With `width`, for kernels that are means over so many independent neurons, each a positive semidefinite matrix whose
    eigenvalues are bounded for sure: matrix Chernoff, `n (e^d / (1 + d)^(1 + d))^(mu / R)` with `mu` the largest
    eigenvalue of the mean, `R = neuron / width` and `threshold = (1 + d) mu`.

    With `layer_widths`, for the tangent kernel of the ReLU network of `expected_ntk`, of any depth, at every width: the
    largest eigenvalue is at most the trace, whose mean is exact and whose standard deviation is at most the sum of the
    exact ones on the diagonal (`kernel_fluctuation`). The smaller of Markov's and of Cantelli's bound.

    Args:
        expected: `(n, n)`, the mean kernel.
        threshold: one or several.
        width: of the one hidden layer.
        neuron: with `width`, a bound on the largest eigenvalue of one neuron's matrix. By default `n`, right for
            `s(w . x) s(w . x')` with `|s| <= 1`, and for `s'(w . x) s'(w . x') x . x'` with `|s'|, |x| <= 1`.
        layer_widths: of all layers, from the inputs to the outputs, with `expected=expected_ntk(layer_widths, x)`.

    Returns:
        A probability for each threshold.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> finite_width.lambda_max_tail(np.diag([1.0, 0.5]), [1.0, 1.5, 2.0], width=100).round(4)
    array([1.    , 0.0089, 0.    ])
    >>> layers = (2, 100, 100, 1)
    >>> mean = finite_width.expected_ntk(layers, np.eye(2))
    >>> finite_width.lambda_max_tail(mean, [6.0, 12.0, 24.0], layer_widths=layers).round(4)
    array([1.    , 0.0616, 0.0072])

    Tropp 2012, User-friendly tail bounds for sums of random matrices, theorem 1.1.
    """
    matrix, levels = checked_kernel(expected), finite_array(threshold, "threshold")
    mean = _positive_largest(matrix)
    if (width is None) == (layer_widths is None):
        raise InputError(
            "lambda_max_tail: expected width= (one hidden layer) or layer_widths= (any depth), one of both."
        )
    if layer_widths is not None:
        return _trace_tail(float(np.trace(matrix)), ntk_relative_variance(all_widths(layer_widths)[1:-1]), levels)
    share = _neuron(neuron, len(matrix), mean) / positive(width, "width")
    excess = np.maximum(levels / mean - 1, 0)
    exponent = mean / share * (excess - (1 + excess) * np.log1p(excess))
    return np.asarray(np.minimum(1.0, len(matrix) * np.exp(exponent)))


def _trace_tail(mean: float, relative_variance: float, levels: np.ndarray) -> np.ndarray:
    variance, above = relative_variance * mean**2, np.maximum(levels - mean, 0)
    cantelli = np.where(above > 0, variance / (variance + np.where(above > 0, above, 1) ** 2), 1.0)
    return np.asarray(np.minimum(cantelli, mean / np.maximum(levels, mean)))


def kernel_concentration_bound(expected: Any, *, width: int, delta: float, neuron: float | None = None) -> float:
    """A distance, in operator norm, that a one-hidden-layer kernel keeps to its mean with probability `1 - delta`.

    By the matrix Bernstein inequality `P(|K - E K| >= t) <= 2 n exp(-t^2 / 2 / (V + R t / 3))` with
    `R = neuron / width` and `V = R |E K|`, solved for `t`. It falls with `1 / sqrt(width)`. The factor `2 n` cannot be
    left out.

    Args:
        expected: `(n, n)`, the mean kernel.
        width: of the hidden layer, as in `lambda_max_tail`.
        delta: the risk.
        neuron: as in `lambda_max_tail`.

    Returns:
        The distance.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> round(finite_width.kernel_concentration_bound(np.eye(2), width=10_000, delta=0.05), 4)
    0.0423

    Tropp 2012, User-friendly tail bounds for sums of random matrices, theorem 1.4.
    """
    matrix = checked_kernel(expected)
    mean, risk = _positive_largest(matrix), probability(delta, "delta")
    share = _neuron(neuron, len(matrix), mean) / positive(width, "width")
    log = math.log(2 * len(matrix) / risk)
    return share * log / 3 + math.sqrt((share * log / 3) ** 2 + 2 * share * mean * log)


def _positive_largest(matrix: np.ndarray) -> float:
    mean = Spectrum.largest(matrix)
    if mean <= 0:
        raise KernelError("The expected kernel is zero or negative: expected the mean of positive kernels.")
    return mean


def _neuron(neuron: float | None, n: int, mean: float) -> float:
    largest = float(n) if neuron is None else positive(neuron, "neuron")
    if largest < mean * (1 - _ROUNDING):
        raise InputError(
            f"neuron={largest:.6g}, but the mean over neurons has an eigenvalue {mean:.6g}, and no bound on each of "
            "them can be below that. Pass the largest eigenvalue that one neuron's matrix can have: with |s| <= B, the "
            "number of rows times B^2."
        )
    return largest
