"""How large a Jacobian is near a point, and how fast it changes there."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..._checks import not_negative, whole
from ..._compile import trusted_filter_jit
from ..._trees import Function, Params, Vector, as_vector, batch_size, from_vector, parameters
from ._laziness import Search, search_for


class JacobianLipschitz(NamedTuple):
    """Made by `estimate_jacobian_lipschitz`."""

    norm: Float[Array, ""]
    lipschitz: Float[Array, ""]
    converged: Bool[Array, ""]

    def constant(self, width: float) -> Float[Array, ""]:
        """`K` of `lee_certificate`: both are at most `K sqrt(width)`, as far as was seen."""
        return jnp.maximum(self.norm, self.lipschitz) / width**0.5


def estimate_jacobian_lipschitz(
    f: Function,
    params: Params,
    x: Any,
    radius: float,
    *,
    points: int = 4,
    tolerance: float = 1e-3,
    max_cycles: int = 50,
    seed: int = 0,
) -> JacobianLipschitz:
    """The largest Jacobian, and its largest change for a unit step, around `params`. An estimate, from below.

    Looked for at `params` and at `points` random points at distance `radius`; between them it may be larger, so that a
    certificate made with it is as good as the estimate. Where two slopes of an activation meet, as in ReLU, a Jacobian
    jumps: no constant exists there, and none of that is seen. At each point the change is exact up to `tolerance`: the
    largest singular value of the derivative of the Jacobian, in the Frobenius norm, by Lanczos' method on products
    with it. `lazy_kappa` has the operator norms.

    Args:
        f: `f(params, x)`, of one example, with any outputs.
        params: the centre.
        x: a batch. One example's Jacobian is in memory at a time.
        radius: of the sphere.
        points: how many there, 0 or more.
        tolerance: of the search at each point.
        max_cycles: of the search.
        seed: of points and search.

    Returns:
        `norm`: the largest `|J|_F`, over all rows and outputs; `lipschitz`: of `|J - J'|_F / |theta - theta'|`, for
        near points; `converged`; and `constant(width)`, the `K` of `lee_certificate`.

    >>> import jax.numpy as jnp
    >>> from everwide.theory import finite_width
    >>> near = finite_width.estimate_jacobian_lipschitz(lambda p, x: x * p**2, jnp.array(1.0), jnp.ones(4), radius=0.0)
    >>> float(near.norm), float(near.lipschitz), float(near.constant(4))
    (4.0, 4.0, 2.0)

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, lemma on the
    local Lipschitzness of the Jacobian.
    """
    reach, around = not_negative(radius, "radius"), whole(points, "points", least=0)
    search = search_for(tolerance, max_cycles)
    batch_size(x)
    moving, rest = parameters(params)
    x = jax.tree.map(jnp.asarray, x)
    return _estimate(f, moving, rest, x, search, jnp.asarray(reach), jr.key(seed), around)


@trusted_filter_jit
def _estimate(
    f: Function,
    moving: Params,
    rest: Params,
    x: Any,
    search: Search,
    radius: Float[Array, ""],
    key: PRNGKeyArray,
    points: int,
) -> JacobianLipschitz:
    center = as_vector(moving)
    outward, first = jr.split(key)
    directions = jr.normal(outward, (points, center.size), center.dtype)
    directions = directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    places = jnp.concatenate([center[None], center + radius.astype(center.dtype) * directions])
    start = jr.normal(first, center.shape, center.dtype)
    jacobian = jax.jacrev(lambda at, one: f(eqx.combine(from_vector(at, moving), rest), one).reshape(-1))

    def at_point(at: Vector) -> tuple[Array, Array, Array]:
        def change_squared(u: Vector) -> Vector:
            """`sum_a H_a H_a u` over all rows and outputs `a`, `H_a` the second derivatives of `a`."""

            def add(total: Vector, one: Any) -> tuple[Vector, None]:
                _, back = jax.vjp(lambda place: jacobian(place, one), at)
                along = jax.jvp(lambda place: jacobian(place, one), (at,), (u,))[1]
                return total + back(along)[0].astype(total.dtype), None

            return lax.scan(add, jnp.zeros_like(u), x)[0]

        squares = lax.map(lambda one: jnp.sum(jnp.square(jacobian(at, one))).astype(at.dtype), x)
        top = search.climb(lambda _: change_squared, start / jnp.linalg.norm(start))
        return jnp.sqrt(jnp.sum(squares)), jnp.sqrt(top.value), top.converged

    norms, changes, converged = lax.map(at_point, places)
    return JacobianLipschitz(jnp.max(norms), jnp.max(changes), jnp.all(converged))


def lipschitz_upper_bound(params: Params) -> float:
    """The product of the largest singular values of all matrices: how fast outputs can change with the inputs, at most.

    For a chain of dense layers and activations with slopes of at most 1 (ReLU, tanh, erf's is `2 / sqrt(pi)`), whose
    `params` hold the matrices as they are multiplied: the standard parametrization, or any model of yours. Biases,
    vectors, do not count.

    Args:
        params: a tree of arrays.

    Returns:
        The bound.

    >>> import jax.numpy as jnp
    >>> from everwide.theory import finite_width
    >>> finite_width.lipschitz_upper_bound([jnp.diag(jnp.array([3.0, 1.0])), jnp.ones((2, 1))])
    4.24...
    """
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(parameters(params)[0])]
    return math.prod(float(np.linalg.norm(leaf, 2)) for leaf in leaves if leaf.ndim == 2)
