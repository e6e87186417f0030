"""The evidence for deep linear networks, and the depth that it prefers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from ..._checks import InputError, finite_array, positive
from ..._checks import hidden_widths as all_hidden
from ..._engine import as_rows
from .._host import falling_bracket, root_between
from ._law import ScaleLaw


@dataclass(frozen=True)
class Interpolation:
    """All that the evidence reads of the data.

    - `theta`: the vector of least norm with `x theta = y`. `rows`: an orthonormal basis `(P, n0)` of the rows of `x`.
    - `logdet`: of `x x^T`.
    """

    theta: np.ndarray
    rows: np.ndarray
    logdet: float

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(self.rows)

    @property
    def inputs(self) -> int:
        """The dimension of an example."""
        return self.rows.shape[1]

    @property
    def squared_norm(self) -> float:
        """Of `theta`."""
        with np.errstate(over="ignore"):  # `interpolate` looks
            return float(np.sum(np.square(self.theta)))

    def rate(self, variance: float) -> float:
        """`theta` has the density `exp(-rate / S)`, up to a factor, given the scale `S` of the layers above it."""
        return self.inputs * self.squared_norm / (2 * variance)

    def log_evidence(self, law: ScaleLaw) -> float:
        """`log p(y | x)` for weights of this law, the input layer included."""
        tilted = law.log_tilted(self.count / 2, self.rate(law.variance))
        if math.isinf(tilted):
            raise InputError(
                f"All targets are 0, and a layer of width {min(law.widths)} is not wider than the {self.count} "
                "examples: the density of the outputs is infinite there. Use wider layers, or targets that differ "
                "from 0."
            )
        return tilted - self.count / 2 * math.log(2 * math.pi * law.variance / self.inputs) - self.logdet / 2


def interpolate(x: Any, y: Any) -> Interpolation:
    """The interpolant of least norm, of checked data."""
    rows = as_rows(x)
    if rows.x.ndim != 2 or rows.mask is not None or rows.graph is not None:
        raise InputError(
            f"x has shape {rows.x.shape}: deep linear networks take plain rows (P, n0). Flatten the sites."
        )
    inputs = rows.x.astype(np.float64)
    count, dimension = inputs.shape
    targets = _targets(y, count)
    if count > dimension:
        raise InputError(
            f"x has {count} rows of dimension {dimension}: a linear network interpolates at most as many examples as "
            "it has inputs. Use fewer rows, or more features."
        )
    basis, triangle = np.linalg.qr(inputs.T)
    sizes = scipy.linalg.svdvals(triangle, check_finite=False)
    rank = int(np.sum(sizes > sizes[0] * dimension * np.finfo(np.float64).eps))
    if rank < count:
        raise InputError(
            f"x has {count} rows, but only {rank} of them are linearly independent up to rounding, so that the outputs "
            "have no density. Drop duplicate and dependent rows."
        )
    theta = basis @ scipy.linalg.solve_triangular(triangle.T, targets, lower=True, check_finite=False)
    fit = Interpolation(theta, basis.T, float(2 * np.sum(np.log(sizes))))
    if not math.isfinite(fit.squared_norm) or (fit.squared_norm == 0) != (not targets.any()):
        raise InputError("The squares of y / x are out of the range of float64. Rescale y, and w_std with it.")
    return fit


def _targets(y: Any, count: int) -> np.ndarray:
    """One finite number for each row."""
    targets = finite_array(y, "y")
    if targets.shape not in ((count,), (count, 1)):
        raise InputError(
            f"y has shape {targets.shape}, expected ({count},): one number for each row of x. Networks with several "
            "outputs are not covered by these formulas."
        )
    return targets.reshape(count)


def posterior_scale(squared_norm: float, alpha: float, effective_depth: float) -> float:
    """The squared scale `s` that hidden layers take, where `P`, `n0` and all widths are large: a function of three.

    Solves `s (1 + log(s) / effective_depth) = squared_norm / alpha`: 1 without depth, `squared_norm / alpha` at
    infinite depth. `posterior` is exact.

    Args:
        squared_norm: of the interpolant of least norm; weights have variance `1 / fan_in`.
        alpha: `P / n0`.
        effective_depth: `P sum_l 1 / n_l`, as `posterior(...).effective_depth`.

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
    y = root_between(lambda y: effective_depth * math.expm1(y) + y - end, min(end, 0.0), max(end, 0.0))
    return target * math.exp(-y)


def evidence_optimal_w_std(x: Any, y: Any, hidden_widths: Sequence[int]) -> float:
    """The standard deviation of the weights that makes the data most likely.

    Without hidden layers its square is `n0 |theta*|^2 / P`.

    Args:
        x: `(P, n0)`, independent rows.
        y: `(P,)`.
        hidden_widths: one for each hidden layer, narrower than `P` too; none is plain linear regression.

    Returns:
        The `w_std` of every layer: weights have variance `w_std^2 / fan_in`.

    >>> import numpy as np
    >>> from everwide.theory import deep_linear
    >>> x, y = np.eye(3, 10), np.ones(3)
    >>> [round(deep_linear.evidence_optimal_w_std(x, y, widths) ** 2, 4) for widths in ([], [20] * 4)]
    [10.0, 1.6863]
    """
    data, widths = interpolate(x, y), all_hidden(hidden_widths)
    if data.squared_norm == 0:
        raise InputError("All targets are 0: the smaller w_std, the more likely they are. No best one exists.")
    law = ScaleLaw(widths)
    power = data.count / 2

    def slope(log_total: float) -> float:
        """The derivative of the log evidence in the logarithm of `variance^(L + 1)`, in which it is concave."""
        rate = data.rate(math.exp(log_total))
        return rate * math.exp(law.log_tilted(power + 1, rate) - law.log_tilted(power, rate)) - power

    total = root_between(slope, *falling_bracket(slope, math.log(data.rate(1.0) / power)))
    return math.exp(total / (len(widths) + 1) / 2)
