"""The largest margin between two classes."""

from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float, Int

from ..._checks import InputError, finite_array
from ..._losses import Hinge
from ...spectral import Spectrum

_THINNEST = 1e-6  # margin over the longest row, below which data are not told from inseparable ones
_STIFF, _ROUNDS, _BALANCED = 30.0, 20, 1e-14  # of both classes' weights, which are the same where there is a bias
_SUPPORT = 1e-9  # of the largest multiplier


class Features(NamedTuple):
    """Rows whose products are a kernel, and labels -1 and 1. `combinations` turns weights into coefficients of rows."""

    rows: Float[np.ndarray, "n r"]
    labels: Float[np.ndarray, " n"]
    combinations: Float[np.ndarray, "n r"]

    @classmethod
    def of(cls, kernel: Any, y: Any) -> "Features":
        """Checked."""
        spectrum, labels = Spectrum.of(kernel), np.asarray(Hinge().targets(y, 1)[0], np.float64)[:, 0]
        if len(labels) != len(spectrum.vectors):
            raise InputError(f"y has {len(labels)} rows and the kernel {len(spectrum.vectors)}: they must agree.")
        roots, vectors = np.sqrt(spectrum.values[spectrum.learnable]), spectrum.vectors[:, spectrum.learnable]
        return cls(vectors * roots, labels, vectors / roots)

    @property
    def signed(self) -> Float[np.ndarray, "n r"]:
        """Rows times their labels: a margin is a product with one."""
        return self.labels[:, None] * self.rows


class MaxMargin(NamedTuple):
    """Made by `max_margin`."""

    multipliers: Float[np.ndarray, " n"]
    coefficients: Float[np.ndarray, " n"]
    bias: float
    margin: float
    support: Int[np.ndarray, " s"]

    def decision(self, cross: Any) -> Float[np.ndarray, " m"]:
        """Outputs at new rows, from their kernel `(m, n)` with the training rows: 1 at the nearest of each class."""
        products = finite_array(cross, "cross")
        if products.ndim != 2 or products.shape[1] != len(self.coefficients):
            raise InputError(f"cross has shape {products.shape}, expected (m, {len(self.coefficients)}).")
        return products @ self.coefficients + self.bias


def max_margin(kernel: Any, y: Any, *, bias: bool = False) -> MaxMargin:
    """The function that parts two classes by the largest margin: where gradient descent goes on separable data.

    It is the shortest `w` with `y (w . x) >= 1` for all rows, `w` and `x` in the feature space of the kernel. Linear
    functions have the kernel `x @ x.T`, and `w = x.T @ coefficients`.

    Args:
        kernel: `(n, n)`, of the training rows.
        y: `(n,)`, -1 or 1.
        bias: whether a constant, whose size does not count, is added. Descent has none: a bias that is trained is a
            column of ones.

    Returns:
        `multipliers` `(n,)`: above 0 for support vectors, else 0; `coefficients`: the same times the labels; `bias`: 0
        without one; `margin`: the distance of the nearest rows from the boundary, `1 / |w|`; `support`: the rows
        that hold it up; `decision(cross)`: outputs at new rows.

    >>> import numpy as np
    >>> from everwide.theory import implicit_bias
    >>> x = np.array([[2.0, 0.0], [3.0, 5.0], [-2.0, 1.0]])
    >>> best = implicit_bias.max_margin(x @ x.T, [1, 1, -1])
    >>> x.T @ best.coefficients, best.support, best.margin
    (array([0.5, 0. ]), array([0]), 2.0)

    Lawson and Hanson 1974, Solving least squares problems, chapter 23; Cortes and Vapnik 1995, Support-vector networks.
    """
    features = Features.of(kernel, y)
    if bias and len(np.unique(features.labels)) < 2:
        raise InputError("y has one class, and a bias parts nothing from it. Pass both classes, or bias=False.")
    multipliers = _multipliers(features, bias)
    coefficients = multipliers * features.labels
    weights, support = features.rows.T @ coefficients, np.flatnonzero(multipliers)
    offset = float(np.mean(features.labels[support] - features.rows[support] @ weights)) if bias else 0.0
    return MaxMargin(multipliers, coefficients, offset, 1 / float(np.linalg.norm(weights)), support)


def _multipliers(features: Features, bias: bool) -> Float[np.ndarray, " n"]:
    """By non-negative least squares: `w` points to what is nearest to the origin in the hull of rows times labels.

    With a bias, of which the size does not count, only hulls where both classes have the same weight: a constraint,
    which is met to rounding after a few rounds of the method of multipliers.
    """
    centre = features.rows.mean(0) if bias else 0.0
    signed = features.labels[:, None] * (features.rows - centre)
    longest = max(float(np.linalg.norm(signed, axis=1).max(initial=0.0)), np.finfo(np.float64).tiny)
    balance = _STIFF * features.labels if bias else 0 * features.labels
    tall, pulled = np.vstack([signed.T / longest, balance, np.ones(len(signed))]), 0.0
    for _ in range(_ROUNDS):
        goal = np.append(np.zeros(signed.shape[1]), [-_STIFF * pulled, 1.0])
        shares, _ = scipy.optimize.nnls(tall, goal, maxiter=30 * len(signed))
        off = float(features.labels @ shares) if bias else 0.0
        pulled += off
        if abs(off) <= _BALANCED * shares.sum():
            break
    shares = np.where(shares > _SUPPORT * shares.max(), shares, 0.0)
    nearest = float(np.linalg.norm(shares @ signed)) / max(float(shares.sum()), np.finfo(np.float64).tiny)
    if not nearest > _THINNEST * longest:
        raise InputError(
            f"The classes cannot be parted: there is no margin above {_THINNEST:g} of the longest row. Look for equal "
            "rows with different labels, allow a bias, or use a kernel that separates, such as that of a network."
        )
    return shares / shares.sum() / nearest**2
