"""Gaussian processes, and the evidence for an architecture."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from .._checks import InputError
from .._engine import as_rows, checked_kernel
from .._kernels import Infinite
from .._losses import real_targets
from ..kernel import Inputs
from ..layers import AbstractLayer
from ..spectral import AbstractFilter, Factor, Spectrum
from ..spectral import ridge as checked_ridge
from ._setup import cross_kernel, same_rows


class Gaussian(eqx.Module):
    """A Gaussian law of outputs: `mean` `(*times, m, k)`, `covariance` `(*times, m, m)`, the same for every output."""

    mean: Float[np.ndarray, "*times m k"]
    covariance: Float[np.ndarray, "*times m m"]

    @property
    def std(self) -> Float[np.ndarray, "*times m"]:
        """The standard deviation of every row."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=-2, axis2=-1), 0))

    def sample(self, key: jax.Array, draws: int = 1) -> Float[np.ndarray, "draws *times m k"]:
        """Independent draws."""
        with jax.enable_x64(True):
            noise = np.asarray(jr.normal(key, (draws, *self.mean.shape), jnp.float64))
        return self.mean + Spectrum.root(self.covariance) @ noise


class LeaveOneOut(eqx.Module):
    """What a process predicts for each row from all others: `residual` `(n, k)` is target minus mean.

    >>> import everwide.training as tr, numpy as np
    >>> tr.GaussianProcess(np.eye(2), [1.0, 2.0], noise=1.0).leave_one_out().residual.ravel()
    array([1., 2.])
    """

    residual: Float[np.ndarray, "n k"]
    variance: Float[np.ndarray, " n"]  # of the target: that of the function and the noise of its row


class GaussianProcess(eqx.Module):
    """A Gaussian process conditioned on `y`: with the NNGP kernel, a wide Bayesian network; with the NTK, the NTK-GP.

    - `kernel`: `(n, n)`. `y`: `(n,)` or `(n, k)`.
    - `noise`: the variance of the targets around the function: one number, or one for each row.

    >>> import everwide as ew, everwide.training as tr, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> process = tr.GaussianProcess(ew.nngp(net, x), x[:, 0], noise=0.01)
    >>> fit = process.predict(ew.nngp(net, x[:4], x), ew.nngp(net, x[:4]))
    >>> fit.mean.shape, fit.std.shape
    ((4, 1), (4,))
    """

    factor: Factor
    y: Float[np.ndarray, "n k"]
    weights: Float[np.ndarray, "n k"]

    def __init__(self, kernel: Any, y: Any, *, noise: Any = 0.0):
        targets = real_targets(y)[0].astype(np.float64)
        same_rows(len(np.atleast_1d(np.asarray(kernel))), len(targets))
        self.factor, self.y = Factor.of(kernel, noise), targets
        self.weights = np.asarray(self.factor.solve(targets))

    def predict(self, k_test_train: Any, k_test: Any) -> Gaussian:
        """The law of the function at other rows: their kernels with the training rows and with themselves."""
        cross, prior = cross_kernel(k_test_train, *self.y.shape, mixed=False), checked_kernel(k_test, "k_test")
        _same_test_rows(cross, prior)
        white = self.factor.whiten(cross.T)
        return Gaussian(cross @ self.weights, prior - white.T @ white)

    def log_marginal_likelihood(self) -> float:
        """Of the targets, all outputs together."""
        return float(self.factor.log_evidence(self.y))

    def leave_one_out(self) -> LeaveOneOut:
        """Every row from all others, without fitting again."""
        precision = self.factor.inverse_diagonal()
        return LeaveOneOut(self.weights / precision[:, None], 1 / precision)


class Ensemble(eqx.Module):
    """The law of networks that start from random weights and are trained by gradient descent: nngp draws, ntk learns.

    Mean and covariance after any time, on the squared loss; `filter` as in `Regression`. With `ntk=nngp` only the last
    layer is trained, and the end of training is the posterior of the `GaussianProcess`.

    >>> import everwide as ew, everwide.training as tr, numpy as np
    >>> from everwide.spectral import gradient_flow
    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> k, test, own = ew.gram(net, x), ew.gram(net, x[:4], x), ew.gram(net, x[:4])
    >>> ensemble = tr.Ensemble(k.nngp, k.ntk, x[:, 0])
    >>> ensemble.predict(test.nngp, test.ntk, own.nngp, gradient_flow([1.0, np.inf])).covariance.shape
    (2, 4, 4)
    """

    nngp: Float[np.ndarray, "n n"]
    spectrum: Spectrum
    y: Float[np.ndarray, "n k"]

    def __init__(self, nngp: Any, ntk: Any, y: Any, *, ridge: float = 0.0):
        self.nngp = checked_kernel(nngp, "nngp")
        learning = checked_kernel(ntk, "ntk")
        self.y = real_targets(y)[0].astype(np.float64)
        if not len(self.nngp) == len(learning) == len(self.y):
            raise InputError(
                f"nngp has {len(self.nngp)} rows, ntk {len(learning)} and y {len(self.y)}: they must agree."
            )
        learning[np.diag_indices_from(learning)] += checked_ridge(ridge).ridge
        self.spectrum = Spectrum.of(learning, what="ntk")

    def train(self, filter: AbstractFilter) -> Gaussian:
        """At the training rows."""
        learned = self.spectrum.response(filter) * np.maximum(self.spectrum.values, 0)
        vectors = self.spectrum.vectors
        left = (1 - learned)[..., None] * self.spectrum.modes(self.nngp) @ vectors * (1 - learned)[..., None, :]
        mean = vectors @ (learned[..., None] * self.spectrum.modes(self.y))
        return Gaussian(mean, _symmetric(vectors @ left @ vectors.T))

    def predict(self, nngp_test_train: Any, ntk_test_train: Any, nngp_test: Any, filter: AbstractFilter) -> Gaussian:
        """At other rows."""
        drawn, learning = (cross_kernel(k, *self.y.shape, mixed=False) for k in (nngp_test_train, ntk_test_train))
        prior = checked_kernel(nngp_test, "nngp_test")
        _same_test_rows(drawn, learning, prior)
        vectors = self.spectrum.vectors
        moved = (learning @ vectors * self.spectrum.response(filter)[..., None, :]) @ vectors.T
        mixed = moved @ drawn.T
        covariance = prior + moved @ self.nngp @ np.swapaxes(moved, -1, -2) - mixed - np.swapaxes(mixed, -1, -2)
        return Gaussian(moved @ self.y, _symmetric(covariance))


def _same_test_rows(*kernels: np.ndarray) -> None:
    if len({len(kernel) for kernel in kernels}) > 1:
        raise InputError(f"Kernels of {' and '.join(str(len(k)) for k in kernels)} test rows: they must agree.")


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + np.swapaxes(matrix, -1, -2)) / 2


def log_marginal_likelihood(
    net: AbstractLayer,
    x: Float[Array, "n ..."],
    y: Float[Array, "n k"],
    noise: float | Float[Array, ""] | Float[Array, " n"],
    *,
    which: str = "nngp",
) -> Float[Array, ""]:
    """The log likelihood of targets under the process of an infinitely wide network, as a pure JAX function.

    `jax.grad` applies in every number of the network (`w_std`, `b_std`, ...), in `noise`, and in the data. Float64 is
    advised: `jax.enable_x64(True)`. `fit_evidence` maximizes it.

    Args:
        net: a network.
        x: examples.
        y: targets, `(n,)` or `(n, k)`; outputs are independent.
        noise: a variance, one for all rows or one for each.
        which: "nngp", or "ntk".

    Returns:
        A number, the sum over the outputs.

    >>> import everwide as ew, everwide.training as tr, jax, jax.numpy as jnp
    >>> x = jnp.linspace(-1.0, 1.0, 5)[:, None]
    >>> evidence = lambda w: tr.log_marginal_likelihood(
    ...     ew.Serial(ew.Dense(w_std=w, b_std=1.0), ew.Erf(), ew.Dense(1)), x, x, 0.1)
    >>> bool(jnp.isfinite(jax.jit(jax.grad(evidence))(1.5)))
    True
    """
    if which not in ("nngp", "ntk"):
        raise InputError(f"which={which!r}: expected 'nngp' or 'ntk'.")
    inputs = Inputs(x)
    matrix = getattr(Infinite(net, x.shape[1:]).block(inputs, inputs), which)
    targets = y[:, None] if y.ndim == 1 else y
    return Factor.traced(matrix, noise).log_evidence(targets.astype(matrix.dtype))


class Evidence(NamedTuple):
    """Fitted scales: the network, the noise, the log marginal likelihood before and after, and how the search ended."""

    net: AbstractLayer
    noise: float
    before: float
    after: float
    message: str


def fit_evidence(
    net: AbstractLayer, x: Any, y: Any, *, noise: float = 0.1, which: str = "nngp", steps: int = 100
) -> Evidence:
    """Choose every scale of a network (`w_std`, `b_std`, ...) and the noise so that the targets become most likely.

    Scales stay positive, those that are 0 stay 0. A local search (L-BFGS on logarithms, float64) of at most `steps`
    steps from the given values; memory and time are those of kernels of all rows at once, so use a few thousand rows.

    Args:
        net: a network; its numbers are where the search begins.
        x: examples.
        y: targets.
        noise: the variance to begin with.
        which: "nngp", or "ntk".
        steps: at most.

    Returns:
        `net` and `noise`, fitted; the log marginal likelihood `before` and `after`; `message`: how the search ended.

    >>> import everwide as ew, everwide.training as tr, numpy as np
    >>> x = np.linspace(-2, 2, 15)[:, None]
    >>> net = ew.Serial(ew.Dense(w_std=1.0, b_std=1.0), ew.Erf(), ew.Dense(1))
    >>> fit = tr.fit_evidence(net, x, np.sin(2 * x), noise=0.5)
    >>> fit.after > fit.before
    True
    """
    rows, targets = as_rows(x), real_targets(y)[0].astype(np.float64)
    if len(rows) != len(targets):
        raise InputError(f"x has {len(rows)} rows and y {len(targets)}: they must agree.")
    if rows.mask is not None or rows.graph is not None:
        raise InputError("fit_evidence takes plain arrays: no masks, no graphs.")
    if not 0 < noise < math.inf:
        raise InputError(f"noise={noise!r}: expected a variance above 0 to begin with.")
    scales, rest = eqx.partition(net, _is_scale)
    leaves, structure = jax.tree.flatten(scales)
    begin = np.log(np.array([*map(float, leaves), noise]))
    with jax.enable_x64(True):
        data = jnp.asarray(rows.x, jnp.float64), jnp.asarray(targets)

        def negative(logs: Array) -> Array:
            numbers = jnp.exp(logs)
            built = eqx.combine(jax.tree.unflatten(structure, list(numbers[:-1])), rest)
            return -log_marginal_likelihood(built, *data, numbers[-1], which=which)

        fun = jax.jit(jax.value_and_grad(negative))
        best = scipy.optimize.minimize(
            lambda v: tuple(np.asarray(a, np.float64) for a in fun(jnp.asarray(v))),
            begin,
            jac=True,
            method="L-BFGS-B",
            bounds=[(b - 12, b + 12) for b in begin],
            options={"maxiter": steps},
        )
        before = -float(fun(jnp.asarray(begin))[0])
    if not np.isfinite(best.fun):
        raise InputError("The likelihood is not finite. Begin with more noise, and with moderate scales.")
    numbers = np.exp(best.x)
    fitted = eqx.combine(jax.tree.unflatten(structure, [float(v) for v in numbers[:-1]]), rest)
    return Evidence(fitted, float(numbers[-1]), before, -float(best.fun), str(best.message))


def _is_scale(leaf: Any) -> bool:
    """A positive number: something that may be scaled."""
    if isinstance(leaf, bool | int) or not isinstance(leaf, float | np.floating | np.ndarray | Array):
        return False
    return np.ndim(leaf) == 0 and float(leaf) > 0
