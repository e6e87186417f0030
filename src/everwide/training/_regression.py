"""Training on the squared loss, in closed form."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..spectral import AbstractFilter, GradientDescent, Momentum, Spectrum
from ..spectral._spectrum import at_once
from ._losses import real_targets
from ._units import warn_of_rate


class Regression(eqx.Module):
    """Training on the squared loss from one factorization: any time, any optimizer with a closed form, many rows.

    `filter` is one of `everwide.spectral`: `gradient_flow(time)`, `gradient_descent(rate, steps)`,
    `momentum(rate, beta, steps)` or `ridge(ridge)`; with several times, results have a leading axis for them.

    - `kernel`: `(n, n)`; or `(n, n, k, k)` of an empirical kernel whose outputs share parameters.
    - `y`: `(n,)` or `(n, k)`. `f0`: outputs before training.

    What lies in directions that the kernel does not see stays at `f0`: `unlearnable` is its share.

    >>> import everwide as ew, everwide.training as tr, numpy as np
    >>> from everwide.spectral import gradient_flow
    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> fit = tr.Regression(ew.ntk(net, x), x[:, 0])
    >>> fit.train(gradient_flow([0.0, 10.0, np.inf])).shape
    (3, 20, 1)
    >>> fit.predict(ew.ntk(net, x[:4], x), gradient_flow(np.inf)).shape
    (4, 1)

    Lee et al., "Wide neural networks of any depth evolve as linear models under gradient descent" (2019).
    """

    spectrum: Spectrum
    f0: Float[np.ndarray, "n k"]
    residual: Float[np.ndarray, "n k"]
    modes: Float[np.ndarray, "modes columns"]  # the residual in the basis of the eigenvectors
    mixed: bool = eqx.field(static=True)

    def __init__(self, kernel: Any, y: Any, *, f0: Any = None):
        targets, k = real_targets(y)
        self.f0 = initial(f0, len(targets), k, "training")
        self.residual = targets.astype(np.float64) - self.f0
        matrix = np.asarray(kernel)
        self.mixed = matrix.ndim == 4
        if matrix.shape[0] != len(targets):
            raise ValueError(f"The kernel has {matrix.shape[0]} rows and y {len(targets)}: they must agree.")
        self.spectrum = Spectrum.of(_flat(matrix, k) if self.mixed else matrix)
        self.modes = self.spectrum.modes(self.residual.reshape(-1, 1) if self.mixed else self.residual)

    @property
    def unlearnable(self) -> float:
        """The share of the residual (of its squared norm) that no training will remove: 0 for a regular kernel."""
        total = float(np.sum(self.modes**2))
        hidden = float(np.sum(self.modes[~self.spectrum.learnable] ** 2))
        return hidden / total if total else 0.0

    def coefficients(self, filter: AbstractFilter) -> Float[np.ndarray, "*times n k"]:
        """`a` in `f(x) = f0(x) + K(x, X) a`."""
        self._check(filter)
        response = self.spectrum.response(filter, len(self.residual))
        found = at_once(self.spectrum.vectors, response[..., None] * self.modes)
        return found.reshape(*found.shape[:-2], *self.residual.shape)

    def train(self, filter: AbstractFilter) -> Float[np.ndarray, "*times n k"]:
        """Outputs at the training rows."""
        self._check(filter)
        learned = self.spectrum.response(filter, len(self.residual)) * np.maximum(self.spectrum.values, 0)
        moved = at_once(self.spectrum.vectors, learned[..., None] * self.modes)
        return self.f0 + moved.reshape(*moved.shape[:-2], *self.residual.shape)

    def predict(self, k_test_train: Any, filter: AbstractFilter, f0: Any = None) -> Float[np.ndarray, "*times m k"]:
        """Outputs at other rows, from their kernel `(m, n)` with the training rows and their `f0`."""
        cross = cross_kernel(k_test_train, len(self.residual), self.residual.shape[1], mixed=self.mixed)
        m = len(cross) // (self.residual.shape[1] if self.mixed else 1)
        first = initial(f0, m, self.residual.shape[1], "test")
        self._check(filter)
        weighted = self.spectrum.response(filter, len(self.residual))[..., None] * self.modes
        columns = weighted.size // len(self.modes)
        vectors = self.spectrum.vectors
        first_cross = m < columns  # what costs less
        moved = at_once(cross @ vectors, weighted) if first_cross else at_once(cross, at_once(vectors, weighted))
        return first + moved.reshape(*moved.shape[:-2], m, self.residual.shape[1])

    def _check(self, filter: AbstractFilter) -> None:
        if not isinstance(filter, GradientDescent | Momentum):
            return
        beta = filter.beta if isinstance(filter, Momentum) else 0.0
        largest = max(float(self.spectrum.values[-1]), np.finfo(np.float64).tiny)
        limit = 2 * (1 + beta) * filter.normalization.divisor(len(self.residual)) / largest
        if filter.rate > limit * (1 + 1e-9):
            warn_of_rate(filter.rate, limit)


def initial(f0: Any, n: int, k: int, which: str) -> Float[np.ndarray, "n k"]:
    """Outputs before training, 0 if not given."""
    if f0 is None:
        return np.zeros((n, k))
    found = np.asarray(f0, np.float64)
    found = found[:, None] if found.ndim == 1 and k == 1 else found
    if found.shape != (n, k):
        raise ValueError(f"f0 of the {which} rows has shape {found.shape}, expected {(n, k)}.")
    if not np.isfinite(found).all():
        raise ValueError(f"f0 of the {which} rows holds values that are not finite.")
    return found


def cross_kernel(kernel: Any, n: int, k: int, *, mixed: bool) -> Float[np.ndarray, "rows columns"]:
    """Test rows with training rows, in float64."""
    found = np.asarray(kernel, np.float64)
    shape = (n, k, k) if mixed else (n,)
    if found.shape[1:] != shape:
        expected = f"(m, {', '.join(map(str, shape))})"
        raise ValueError(f"k_test_train has shape {found.shape}, expected {expected}: test rows with training rows.")
    return _flat(found, k) if mixed else found


def _flat(kernel: np.ndarray, k: int) -> np.ndarray:
    """`(m, n, k, k)` as a matrix whose rows are outputs within examples."""
    m, n = kernel.shape[:2]
    if kernel.shape[2:] != (k, k):
        raise ValueError(f"The kernel has shape {kernel.shape}, expected (n, n, {k}, {k}): y has {k} outputs.")
    return kernel.transpose(0, 2, 1, 3).reshape(m * k, n * k)
