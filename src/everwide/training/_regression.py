"""Training on the squared loss, in closed form."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float

from .._checks import InputError, float_dtype, whole
from .._losses import Mse, real_targets
from ..spectral import AbstractFilter, Spectrum
from ._kernels import FeatureKernel, flat
from ._setup import cross_kernel, data_of, first_outputs, warn_of_rate


class Regression(eqx.Module):
    """Training on the squared loss from one factorization: any time, any optimizer with a closed form, many rows.

    `filter` is one of `everwide.spectral`: `gradient_flow(time)`, `gradient_descent(rate, steps)`,
    `momentum(rate, momentum, steps)` or `ridge(ridge)`; with several times, results have a leading axis for them.

    - `kernel`: `(n, n)`; `(n, n, k, k)` of an empirical kernel whose outputs share parameters; or a `FeatureKernel`,
      whose features are decomposed themselves (primal): less work where there are fewer of them than rows.
    - `y`: `(n,)` or `(n, k)`. `f0`: outputs before training.
    - `dtype`: `np.float32` halves time and memory. Directions whose eigenvalues are below its rounding are not learned,
      however long the training: it is for early stopping, ridges and noise, not for interpolation.

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

    def __init__(self, kernel: Any, y: Any, *, f0: Any = None, dtype: Any = np.float64):
        primal = isinstance(kernel, FeatureKernel)
        matrix = np.atleast_1d(np.asarray(kernel.features if primal else kernel))
        data = data_of(Mse(), y, f0, None, len(matrix), float_dtype(dtype))
        self.f0, self.residual = data.f0, data.y - data.f0
        self.mixed = matrix.ndim == 4
        given = _flat(matrix, self.residual.shape[1])
        self.spectrum = Spectrum.of_features(given, dtype=dtype) if primal else Spectrum.of(given, dtype=dtype)
        self.modes = self.spectrum.modes(self.residual.reshape(-1, 1) if self.mixed else self.residual)

    @property
    def unlearnable(self) -> float:
        """The share of the residual (of its squared norm) that no training will remove: 0 for a regular kernel."""
        total, seen = float(np.sum(self.residual**2)), float(np.sum(self.modes**2))
        hidden = float(np.sum(self.modes[~self.spectrum.learnable] ** 2))
        if len(self.modes) < self.residual.size // self.modes.shape[1]:  # of features: fewer modes than rows
            hidden += max(total - seen, 0.0)
        return hidden / total if total else 0.0

    def coefficients(self, filter: AbstractFilter) -> Float[np.ndarray, "*times n k"]:
        """`a` in `f(x) = f0(x) + K(x, X) a`."""
        moved = self.spectrum.rows(self._response(filter)[..., None] * self.modes)
        return moved.reshape(*moved.shape[:-2], *self.residual.shape)

    def train(self, filter: AbstractFilter) -> Float[np.ndarray, "*times n k"]:
        """Outputs at the training rows."""
        learned = self._response(filter) * np.maximum(self.spectrum.values, 0)
        moved = self.spectrum.rows(learned[..., None] * self.modes)
        return self.f0 + moved.reshape(*moved.shape[:-2], *self.residual.shape)

    def predict(self, k_test_train: Any, filter: AbstractFilter, f0: Any = None) -> Float[np.ndarray, "*times m k"]:
        """Outputs at other rows, from their kernel `(m, n)` with the training rows and their `f0`."""
        n, k = self.residual.shape
        cross = cross_kernel(k_test_train, n, k, mixed=self.mixed)
        first = first_outputs(f0, len(cross), k, "test").astype(self.f0.dtype)
        weighted = self._response(filter)[..., None] * self.modes
        moved = self.spectrum.rows(weighted, _flat(cross, k))
        return first + moved.reshape(*moved.shape[:-2], len(cross), k)

    def _response(self, filter: AbstractFilter) -> Float[np.ndarray, "*times n"]:
        """The filter, with a word about rates that are too large."""
        response = self.spectrum.response(filter, len(self.residual))
        largest = max(float(self.spectrum.values[-1]), np.finfo(np.float64).tiny)
        rate, limit, steps = filter.stability(largest, len(self.residual))
        if rate <= limit * (1 + 1e-9):
            return response
        broken = ~np.isfinite(response * np.maximum(self.spectrum.values, 1)).all(-1)
        if broken.any():
            step = int(np.atleast_1d(steps)[np.argmax(np.atleast_1d(broken))])
            raise InputError(
                f"Training diverged: after {step} steps outputs are no longer finite. The rate {rate:.6g} is "
                f"above the largest stable one, {limit:.6g}."
            )
        warn_of_rate(rate, limit)
        return response


def _learned(
    spectrum: Spectrum, y: Float[np.ndarray, "n k"], filter: AbstractFilter
) -> Float[np.ndarray, "*times n k"]:
    """Outputs at the training rows, from 0."""
    return spectrum.rows((spectrum.response(filter) * np.maximum(spectrum.values, 0))[..., None] * spectrum.modes(y))


def _flat(kernel: np.ndarray, k: int) -> np.ndarray:
    """As a matrix, whose rows are outputs within examples where the kernel mixes `k` outputs."""
    if kernel.ndim == 4 and kernel.shape[2:] != (k, k):
        raise InputError(f"The kernel has shape {kernel.shape}, expected (n, n, {k}, {k}): y has {k} outputs.")
    return flat(kernel) if kernel.ndim == 4 else kernel


class FiniteBias(NamedTuple):
    """Mean over draws of what finite networks predict less the infinite one, and the standard error of that mean."""

    bias: Float[np.ndarray, "*times n k"]
    error: Float[np.ndarray, "*times n k"]


def finite_bias_estimate(
    features: Callable[[jax.Array, int], Any],
    kernel: Any,
    y: Any,
    filter: AbstractFilter,
    *,
    width: int,
    key: jax.Array,
    draws: int = 100,
) -> FiniteBias:
    """How far trained networks with `width` random features are, on average, from the infinitely wide one.

    A network with a linear read-out is an average over its features, and in the limit an expectation of them. Before
    training, and for any fixed read-out, the mean over draws of finite networks is the infinite one; after training it
    is off by `O(1 / width)`, because their kernels move around the limit and what is learned is curved in the kernel.

    Args:
        features: of a key and a width, the features `(n, width)` of the training rows, for `f = g . M / sqrt(width)`.
        kernel: `(n, n)`, the mean of `g g^T` over the features.
        y: targets.
        filter: how they are trained, as in `Regression`.
        width: the number of features.
        key: a JAX key.
        draws: how many networks.

    Returns:
        `bias` at the training rows, as `Regression.train` has them, and its standard `error`.

    >>> import everwide.training as tr, jax, numpy as np
    >>> from everwide.spectral import gradient_descent
    >>> draw = lambda key, width: jax.random.normal(key, (1, width))
    >>> steps = gradient_descent(0.5, 2)  # on one row they leave 1/4 K^2 of K: 2 / 64 of it, in the mean
    >>> estimate = tr.finite_bias_estimate(draw, np.eye(1), [1.0], steps, width=16, key=jax.random.key(0), draws=400)
    >>> bool(abs(estimate.bias + 0.25 * 2 / 16) < 4 * estimate.error)
    True

    Sernau, "Infinite width models that work" (2024), section 2.2, where it is exact: for fixed read-outs only.
    """
    targets = real_targets(y)[0].astype(np.float64)
    limit, scale = _learned(Spectrum.of(kernel), targets, filter), whole(width, "width") ** -0.5
    keys = jr.split(key, whole(draws, "draws", 2))
    drawn = (Spectrum.of_features(scale * np.asarray(features(one, width))) for one in keys)
    gaps = [_learned(spectrum, targets, filter) - limit for spectrum in drawn]
    return FiniteBias(np.mean(gaps, 0), np.std(gaps, 0, ddof=1) / draws**0.5)
