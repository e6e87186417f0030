"""Will training leave the linearization? One number, before training."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from .._checks import InputError
from ..spectral import lanczos
from ._products import Outputs, Products, Vector, products
from ._trees import Function, Params, as_vector, outputs, parameters, targets

_CYCLE = 24  # products between restarts, and vectors that are kept


class Laziness(NamedTuple):
    """`kappa = residual * curvature / slope**2`: far below 1, training stays where the network is linear.

    - `residual`: `|y - f|`. `slope`: `|Df|`. `curvature`: `|D^2 f|`, all over the whole batch.
    - `converged`: both operator norms have reached the tolerance. `cycles`: of up to 24 products each, for both.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import lazy_kappa
    >>> lazy = lazy_kappa(lambda p, x: jnp.sum(p**2) * x, jnp.ones(4), jnp.ones(1), jnp.zeros(1))
    >>> round(float(lazy.curvature), 4), bool(lazy.converged)
    (2.0, True)
    """

    kappa: Float[Array, ""]
    residual: Float[Array, ""]
    slope: Float[Array, ""]
    curvature: Float[Array, ""]
    converged: Bool[Array, ""]
    cycles: Int[Array, ""]


def lazy_kappa(
    f: Function, params: Params, x: Any, y: Any, *, tolerance: float = 1e-3, max_cycles: int = 200, seed: int = 0
) -> Laziness:
    """The laziness `|y - f| |D^2 f| / |Df|^2` of a batch, in operator norms.

    Derivatives are never formed: products with them suffice, and 24 vectors like `params` are kept.

    - `f(params, x)`: of one example. `x`, `y`: a batch of examples and their targets, `(n, *outputs)`.
    - `tolerance`: relative residual of the singular vectors, `|A u - s u| <= tolerance s`.

    `|D^2 f|` is the largest `|D^2 f[u, u]|` over unit vectors `u`. For one output this is an eigenvalue. For several,
    each cycle looks for the best `u` in the direction of the outputs that the last one has found: a local maximum,
    hence a lower bound. `seed` chooses where it begins.

    >>> import everwide as ew, jax, jax.numpy as jnp
    >>> from everwide.linearization import lazy_kappa
    >>> net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(1))
    >>> wide, narrow = (net.init(jax.random.key(0), (3,), width=width) for width in (1024, 16))
    >>> x, y = jnp.ones((1, 3)), jnp.ones((1, 1))
    >>> bool(lazy_kappa(net.apply, wide, x, y).kappa < lazy_kappa(net.apply, narrow, x, y).kappa)
    True

    Chizat, Oyallon and Bach 2019, On lazy training in differentiable programming, section 1.
    """
    if not 0 < tolerance < 1 or max_cycles < 1:
        raise InputError(f"{tolerance=}, {max_cycles=}: expected a tolerance between 0 and 1 and at least one cycle.")
    return _laziness(f, params, x, y, Search(tolerance, max_cycles), jr.key(seed))


@eqx.filter_jit
def _laziness(f: Function, params: Params, x: Any, y: Any, search: "Search", key: Array) -> Laziness:
    found = outputs(f, params, x)
    residual = jnp.linalg.norm((targets(y, found) - found).reshape(-1))
    by, here = products(f, params, x), as_vector(parameters(params)[0])
    first, second = jr.split(key)
    gram = lambda w: by.push(by.pull(w))  # its eigenvalues are the squares of the slopes
    slope = search.climb(lambda _: gram, _unit(first, found.size, found.dtype))
    bent = search.climb(lambda u: functools.partial(by.curve, _facing(by, u)), _unit(second, here.size, here.dtype))
    curvature = bent.value.astype(found.dtype)
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
