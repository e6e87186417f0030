"""Training on the squared loss, in closed form."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._checks import InputError
from ..spectral import AbstractFilter, Spectrum
from ..spectral._filters import GradientDescent
from ..spectral._momentum import Momentum
from ._data import cross_kernel, data_of, first_outputs
from ._losses import Mse
from ._units import warn_of_rate


class Regression(eqx.Module):
    """Training on the squared loss from one factorization: any time, any optimizer with a closed form, many rows.

    `filter` is one of `everwide.spectral`: `gradient_flow(time)`, `gradient_descent(rate, steps)`,
    `momentum(rate, momentum, steps)` or `ridge(ridge)`; with several times, results have a leading axis for them.

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
        matrix = np.atleast_1d(np.asarray(kernel))
        data = data_of(Mse(), y, f0, None, len(matrix), np.dtype(np.float64))
        self.f0, self.residual = data.f0, data.y - data.f0
        self.mixed = matrix.ndim == 4
        self.spectrum = Spectrum.of(_flat(matrix, self.residual.shape[1]) if self.mixed else matrix)
        self.modes = self.spectrum.modes(self.residual.reshape(-1, 1) if self.mixed else self.residual)

    @property
    def unlearnable(self) -> float:
        """The share of the residual (of its squared norm) that no training will remove: 0 for a regular kernel."""
        total = float(np.sum(self.modes**2))
        hidden = float(np.sum(self.modes[~self.spectrum.learnable] ** 2))
        return hidden / total if total else 0.0

    def coefficients(self, filter: AbstractFilter) -> Float[np.ndarray, "*times n k"]:
        """`a` in `f(x) = f0(x) + K(x, X) a`."""
        found = self.spectrum.rows(self._response(filter)[..., None] * self.modes)
        return found.reshape(*found.shape[:-2], *self.residual.shape)

    def train(self, filter: AbstractFilter) -> Float[np.ndarray, "*times n k"]:
        """Outputs at the training rows."""
        learned = self._response(filter) * np.maximum(self.spectrum.values, 0)
        moved = self.spectrum.rows(learned[..., None] * self.modes)
        return self.f0 + moved.reshape(*moved.shape[:-2], *self.residual.shape)

    def predict(self, k_test_train: Any, filter: AbstractFilter, f0: Any = None) -> Float[np.ndarray, "*times m k"]:
        """Outputs at other rows, from their kernel `(m, n)` with the training rows and their `f0`."""
        n, k = self.residual.shape
        cross = cross_kernel(k_test_train, n, k, mixed=self.mixed)
        m, cross = len(cross), _flat(cross, k) if self.mixed else cross.astype(np.float64, copy=False)
        first = first_outputs(f0, m, k, "test")
        weighted = self._response(filter)[..., None] * self.modes
        moved = self.spectrum.rows(weighted, cross)
        return first + moved.reshape(*moved.shape[:-2], m, k)

    def _response(self, filter: AbstractFilter) -> Float[np.ndarray, "*times n"]:
        """The filter, with a word about rates that are too large."""
        found = self.spectrum.response(filter, len(self.residual))
        if not isinstance(filter, GradientDescent | Momentum):
            return found
        kept = filter.momentum if isinstance(filter, Momentum) else 0.0
        largest = max(float(self.spectrum.values[-1]), np.finfo(np.float64).tiny)
        limit = 2 * (1 + kept) * len(self.residual) / largest
        if filter.rate <= limit * (1 + 1e-9):
            return found
        broken = ~np.isfinite(found * np.maximum(self.spectrum.values, 1)).all(-1)
        if broken.any():
            step = int(np.atleast_1d(filter.steps)[np.argmax(np.atleast_1d(broken))])
            raise InputError(
                f"Training diverged: after {step} steps outputs are no longer finite. The rate {filter.rate:.6g} is "
                f"above the largest stable one, {limit:.6g}."
            )
        warn_of_rate(filter.rate, limit)
        return found


def _flat(kernel: np.ndarray, k: int) -> np.ndarray:
    """`(m, n, k, k)` as a matrix whose rows are outputs within examples."""
    m, n = kernel.shape[:2]
    if kernel.shape[2:] != (k, k):
        raise InputError(f"The kernel has shape {kernel.shape}, expected (n, n, {k}, {k}): y has {k} outputs.")
    return kernel.transpose(0, 2, 1, 3).reshape(m * k, n * k)
