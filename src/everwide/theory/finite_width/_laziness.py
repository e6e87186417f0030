"""How lazy training is, before it begins."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..._checks import InputError, at_least_zero, finite_array, not_negative, positive, probability, whole
from ..._trees import Function, Outputs, Params, Products, Vector, as_vector, outputs, parameters, products, targets
from ...spectral import lanczos


def linearization_bound(
    radius: Any, *, width: float, curvature: float | None = None, delta: float | None = None
) -> Float[np.ndarray, "*radii"]:
    """The most by which `sum_j a_j s(w_j . x) / sqrt(width)` can differ from its linearization in `w`.

    For `|a_j| <= 1` and `|x| <= 1`. With a bound on `|s''|`: `curvature radius^2 / (2 sqrt(width))`. For ReLU,
    `|x| = 1` and Gaussian initial weights, over all weights within `radius` with probability `1 - delta`:
    `(2 radius^(4/3) + radius log(1 / delta)^(1/4)) / width^(1/6)`.

    Args:
        radius: Frobenius distances of the weights `w` from where the network was linearized.
        width: hidden units.
        curvature: a bound on `|s''|`; for tanh `4 / (3 sqrt 3)`.
        delta: instead of `curvature`, for ReLU: the risk that the bound is wrong.

    Returns:
        A bound for each radius.

    >>> from everwide.theory import finite_width
    >>> float(finite_width.linearization_bound(2.0, width=100, curvature=0.5))
    0.1
    >>> round(float(finite_width.linearization_bound(1.0, width=10**6, delta=0.05)), 3)
    0.332
    """
    distance, units = at_least_zero(radius, "radius"), positive(width, "width")
    if (curvature is None) == (delta is None):
        raise InputError("linearization_bound: expected curvature= (smooth activations) or delta= (ReLU), one of both.")
    if delta is None:
        return np.asarray(not_negative(curvature, "curvature") * distance**2 / (2 * units**0.5))
    risk = np.log(1 / probability(delta, "delta")) ** 0.25
    return np.asarray((2 * distance ** (4 / 3) + distance * risk) / units ** (1 / 6))


def relu_linearization_sup(z: Any, a: Any, radius: float) -> float:
    """The largest difference between a ReLU network and its linearization, exactly, over all weights within `radius`.

    The network is `sum_j a_j relu(w_j . x) / sqrt(m)` with `|x| = 1`. A neuron gains `|u| - |z|` by moving past its
    kink. So the worst movement takes the `k` neurons of one sign that are nearest to theirs, and gives each the same
    share: `(radius sqrt(k) - sum of the k smallest |z|) / sqrt(m)`. For Gaussian weights it approaches
    `0.438 radius^(4/3) m^(-1/6)`.

    Args:
        z: `(m,)`, the preactivations `w_j . x` where it was linearized.
        a: `(m,)`, output weights, each 1 or -1.
        radius: Frobenius distance of the weights.

    Returns:
        The difference.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> finite_width.relu_linearization_sup([0.0, 3.0, 1.0, 9.0], [1, 1, -1, -1], 2.0)
    1.0
    """
    near, signs, reach = np.abs(finite_array(z, "z")), finite_array(a, "a"), not_negative(radius, "radius")
    if near.ndim != 1 or near.shape != signs.shape or not near.size:
        raise InputError(f"z has shape {near.shape} and a {signs.shape}: both must be (m,), one number for a neuron.")
    if not (np.abs(signs) == 1).all():
        raise InputError("a must hold 1 and -1 only: the formula does not cover other output weights.")
    best = 0.0
    for sign in (1, -1):
        costs = np.cumsum(np.sort(near[signs == sign]))
        best = max(best, *(reach * np.sqrt(np.arange(1, len(costs) + 1)) - costs), 0.0)
    return float(best) / len(near) ** 0.5


_CYCLE = 24  # products between restarts, and vectors that are kept


class Laziness(NamedTuple):
    """Made by `lazy_kappa`."""

    kappa: Float[Array, ""]
    residual: Float[Array, ""]
    slope: Float[Array, ""]
    curvature: Float[Array, ""]
    converged: Bool[Array, ""]
    cycles: Int[Array, ""]


def lazy_kappa(
    f: Function, params: Params, x: Any, y: Any, *, tolerance: float = 1e-3, max_cycles: int = 200, seed: int = 0
) -> Laziness:
    """The laziness `|y - f| |D^2 f| / |Df|^2` of a batch: far below 1, training stays where the network is linear.

    Derivatives are never formed: products with them suffice, and 24 vectors like `params` are kept. The slope is exact
    up to `tolerance`. The curvature is the best of alternating maximization, which may stop at a local maximum, hence a
    lower bound.

    Args:
        f: `f(params, x)`, of one example.
        params: where it is looked at.
        x: a batch of examples.
        y: their targets, `(n, *outputs)`.
        tolerance: relative residual of the singular vectors, `|A u - s u| <= tolerance s`.
        max_cycles: of up to 24 products each, for either norm.
        seed: where the search begins.

    Returns:
        `kappa`; `residual`, `|y - f|`; `slope`, `|Df|`, and `curvature`, `|D^2 f|`, in operator norm over the whole
        batch; `converged`: both have reached the tolerance; `cycles`, of both.

    >>> import everwide as ew, jax, jax.numpy as jnp
    >>> from everwide.theory import finite_width
    >>> net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(1))
    >>> wide, narrow = (net.init(jax.random.key(0), (3,), width=width) for width in (1024, 16))
    >>> x, y = jnp.ones((1, 3)), jnp.ones((1, 1))
    >>> lazy = [finite_width.lazy_kappa(net.apply, params, x, y) for params in (wide, narrow)]
    >>> bool(lazy[0].kappa < lazy[1].kappa)
    True

    Chizat, Oyallon and Bach 2019, On lazy training in differentiable programming, section 1.
    """
    params, x, y = all_finite(params, "params"), all_finite(x, "x"), all_finite(y, "y")
    return _laziness(f, params, x, y, search_for(tolerance, max_cycles), jr.key(seed))


@eqx.filter_jit
def _laziness(f: Function, params: Params, x: Any, y: Any, search: "Search", key: Array) -> Laziness:
    here = outputs(f, params, x)
    residual = jnp.linalg.norm((targets(y, here) - here).reshape(-1))
    by, at = products(f, params, x), as_vector(parameters(params)[0])
    first, second = jr.split(key)

    def gram(w: Outputs) -> Outputs:
        """Its eigenvalues are the squares of the slopes."""
        return by.push(by.pull(w))

    slope = search.climb(lambda _: gram, _unit(first, here.size, here.dtype))
    bent = search.climb(lambda u: functools.partial(by.curve, _facing(by, u)), _unit(second, at.size, at.dtype))
    curvature = bent.value.astype(here.dtype)
    converged, cycles = slope.converged & bent.converged, slope.cycles + bent.cycles
    return Laziness(residual * curvature / slope.value, residual, jnp.sqrt(slope.value), curvature, converged, cycles)


def _unit(key: Array, size: int, dtype: Any) -> Vector:
    draw = jr.normal(key, (size,), dtype)
    return draw / jnp.linalg.norm(draw)


def _facing(by: Products, u: Vector) -> Outputs:
    """The direction of the outputs in which they are curved the most along `u`."""
    bend = by.curvature(u)
    size = jnp.linalg.norm(bend)
    return bend / jnp.where(size > 0, size, 1)


class Extreme(NamedTuple):
    """The largest |eigenvalue| that was found, with a status."""

    vector: Vector
    value: Float[Array, ""]
    converged: Bool[Array, ""]
    cycles: Int[Array, ""]


class Search(NamedTuple):
    """Restarted Lanczos cycles until the vector they begin with is an eigenvector up to `tolerance`."""

    tolerance: float
    max_cycles: int

    def climb(self, operator: Callable[[Vector], Callable[[Vector], Vector]], start: Vector) -> Extreme:
        """`operator(u)` is the symmetric operator of the next cycle, which begins at `u`."""

        def again(state: Extreme) -> Array:
            return ~state.converged & (state.cycles < self.max_cycles)

        def cycle(state: Extreme) -> Extreme:
            krylov = lanczos(operator(state.vector), state.vector, _CYCLE)
            done = krylov.beside[0] <= self.tolerance * jnp.abs(krylov.diagonal[0])
            value, vector = krylov.extreme()
            return Extreme(vector, jnp.abs(value), done, state.cycles + 1)

        begin = Extreme(start, jnp.zeros((), start.dtype), jnp.array(False), jnp.array(0, jnp.int32))
        return lax.while_loop(again, cycle, begin)


def all_finite(tree: Any, label: str) -> Any:
    """The same tree; raises where an array that is not traced holds NaN or infinity."""
    with contextlib.suppress(jax.errors.TracerArrayConversionError):
        if not all(
            np.isfinite(leaf).all() for leaf in map(np.asarray, jax.tree.leaves(tree)) if leaf.dtype.kind == "f"
        ):
            raise InputError(f"{label} holds numbers that are not finite. Training may have diverged.")
    return tree


def search_for(tolerance: float, max_cycles: int) -> Search:
    """Raise unless such a search can end."""
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance={tolerance!r}: expected a number between 0 and 1.")
    return Search(float(tolerance), whole(max_cycles, "max_cycles"))
