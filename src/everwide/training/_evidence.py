"""The evidence for an architecture: how likely the targets are, and the scales that make them most likely."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from .._checks import InputError
from .._engine import as_rows
from .._losses import real_targets
from ..kernel import Inputs
from ..kernels import Infinite
from ..layers import AbstractLayer
from ..spectral import Factor


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

    >>> import everwide as ew, everwide.training as tr, numpy as np
    >>> x = np.linspace(-2, 2, 15)[:, None]
    >>> net = ew.Serial(ew.Dense(w_std=1.0, b_std=1.0), ew.Erf(), ew.Dense(1))
    >>> found = tr.fit_evidence(net, x, np.sin(2 * x), noise=0.5)
    >>> found.after > found.before
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
