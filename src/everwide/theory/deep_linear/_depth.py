"""What depth does to deep linear networks, and the variance that suits them best."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._checks import InputError, positive, whole
from ..._checks import hidden_widths as all_hidden
from ._contour import root
from ._evidence import Interpolation, interpolate
from ._law import ScaleLaw


def effective_depth(n: int, hidden_widths: Sequence[int]) -> float:
    """`P sum_l 1 / n_l`: how far the hidden layers of a linear network adapt to `P` examples.

    Near 0 the posterior is that of a wide, shallow network; far above 1 it forgets its prior scale.

    Args:
        n: examples, `P`.
        hidden_widths: one for each hidden layer.

    Returns:
        The depth.

    >>> from everwide.theory import deep_linear
    >>> deep_linear.effective_depth(1000, [4000] * 8)
    2.0

    Hanin and Zlokapa, "Bayesian interpolation with deep linear networks" (2023).
    """
    return whole(n, "n") * sum(1 / width for width in all_hidden(hidden_widths))


def posterior_scale(squared_norm: float, alpha: float, effective_depth: float) -> float:
    """The squared scale `s` that hidden layers take, where `P`, `n0` and all widths are large: a function of three.

    Solves `s (1 + log(s) / effective_depth) = squared_norm / alpha`: 1 without depth, `squared_norm / alpha` at
    infinite depth. `posterior` is exact.

    Args:
        squared_norm: of the interpolant of least norm; weights have variance `1 / fan_in`.
        alpha: `P / n0`.
        effective_depth: that function's value.

    Returns:
        The scale.

    >>> import math
    >>> from everwide.theory import deep_linear
    >>> [round(deep_linear.posterior_scale(0.6, 0.25, depth), 4) for depth in (0.0, 1.0, 40.0, math.inf)]
    [1.0, 1.6194, 2.3498, 2.4]
    """
    if not 0 < alpha <= 1:
        raise InputError(f"alpha={alpha!r}: expected P / n0, above 0 and at most 1.")
    if not effective_depth >= 0:
        raise InputError(f"effective_depth={effective_depth!r}: expected 0 or more.")
    target = positive(squared_norm, "squared_norm") / alpha
    if math.isinf(effective_depth):
        return target
    end = math.log(target)
    if end == 0:
        return 1.0
    # with y = log(1 + log(s) / depth) both sides are smooth and increasing, at any depth
    y = root(lambda y: effective_depth * math.expm1(y) + y - end, min(end, 0.0), max(end, 0.0))
    return target * math.exp(-y)


def evidence_optimal_variance(x: Any, y: Any, hidden_widths: Sequence[int]) -> float:
    """The variance of the weights, times their fan-in, that makes the data most likely.

    Without hidden layers it is `n0 |theta*|^2 / P`.

    Args:
        x: `(P, n0)`, independent rows.
        y: `(P,)`.
        hidden_widths: one for each hidden layer, narrower than `P` too; none is plain linear regression.

    Returns:
        The variance.

    >>> import numpy as np
    >>> from everwide.theory import deep_linear
    >>> x, y = np.eye(3, 10), np.ones(3)
    >>> [round(deep_linear.evidence_optimal_variance(x, y, widths), 4) for widths in ([], [20] * 4)]
    [10.0, 1.6863]
    """
    data, widths = interpolate(x, y), all_hidden(hidden_widths)
    if data.squared_norm == 0:
        raise InputError("All targets are 0: the smaller the variance, the more likely they are. No best one exists.")
    law = ScaleLaw(widths)
    begin = math.log(2 * data.rate(1.0) / data.count)
    low = high = begin
    # The evidence is log-concave in the logarithm of the total scale, so that one root is all there is.
    while _slope(data, law, low) < 0:
        low -= 1.0
    while _slope(data, law, high) > 0:
        high += 1.0
    total = low if low == high else root(lambda v: _slope(data, law, v), low, high)
    return math.exp(total / (len(widths) + 1))


def _slope(data: Interpolation, law: ScaleLaw, log_total: float) -> float:
    """The derivative of the log evidence in the logarithm of `variance^(L + 1)`."""
    power, rate = data.count / 2, data.rate(math.exp(log_total))
    return rate * math.exp(law.log_tilted(power + 1, rate) - law.log_tilted(power, rate)) - power


def evidence_by_depth(x: Any, y: Any, width: int, depths: Sequence[int], variance: float = 1.0) -> np.ndarray:
    """The log evidence of deep linear networks with these numbers of hidden layers, all of one width.

    Args:
        x: `(P, n0)`, independent rows.
        y: `(P,)`.
        width: of every hidden layer.
        depths: numbers of hidden layers.
        variance: of the weights, times their fan-in.

    Returns:
        One number for each depth.

    >>> import numpy as np
    >>> from everwide.theory import deep_linear
    >>> evidence = deep_linear.evidence_by_depth(np.eye(3, 10), np.ones(3), 20, [0, 1, 2, 4])
    >>> bool((np.diff(evidence) > 0).all())
    True
    """
    data, width = interpolate(x, y), whole(width, "width")
    layers = [whole(depth, f"depths[{i}]", 0) for i, depth in enumerate(depths)]
    return np.array([data.log_evidence(ScaleLaw((width,) * depth, float(variance))) for depth in layers])
