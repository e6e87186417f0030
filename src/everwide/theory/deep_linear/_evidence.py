"""The exact evidence of deep linear networks, at every width and depth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from ..._checks import InputError
from ..._checks import hidden_widths as all_hidden
from ..._engine import as_rows
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
        raise InputError("The squares of y / x are out of the range of float64. Rescale y, and the variance with it.")
    return fit


def _targets(y: Any, count: int) -> np.ndarray:
    """One finite number for each row."""
    targets = np.asarray(y, np.float64)
    if targets.shape not in ((count,), (count, 1)):
        raise InputError(
            f"y has shape {targets.shape}, expected ({count},): one number for each row of x. Networks with several "
            "outputs are not covered by these formulas."
        )
    if not np.isfinite(targets).all():
        raise InputError("y holds numbers that are not finite. Drop these examples.")
    return targets.reshape(count)


def log_evidence(x: Any, y: Any, hidden_widths: Sequence[int], variance: float = 1.0) -> float:
    """`log p(y | x)` of a deep linear network with Gaussian weights and no noise: exact at every width and depth.

    Args:
        x: `(P, n0)`, independent rows.
        y: `(P,)`.
        hidden_widths: one for each hidden layer, narrower than `P` too; none is plain linear regression.
        variance: of the weights, times their fan-in.

    Returns:
        The number.

    >>> import numpy as np
    >>> from everwide.theory import deep_linear
    >>> x, y = np.eye(3, 10), np.ones(3)
    >>> deeper = [deep_linear.log_evidence(x, y, [20] * depth) for depth in (0, 1, 4)]
    >>> np.round(deeper, 3)
    array([-14.303, -11.103,  -8.668])

    The Meijer G-function of Hanin and Zlokapa, "Bayesian interpolation with deep linear networks" (2023), as an
    integral on its contour of steepest descent.
    """
    return interpolate(x, y).log_evidence(ScaleLaw(all_hidden(hidden_widths), float(variance)))
