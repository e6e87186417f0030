"""How large a Jacobian is near a point, and how fast it changes there."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..._checks import InputError, not_negative
from ..._compile import trusted_filter_jit
from ...linearization._laziness import Search
from ...linearization._trees import Function, Params, as_vector, batch_size, from_vector, parameters

Vector = Float[Array, " p"]


class JacobianLipschitz(NamedTuple):
    """The largest values found near a point. Made by `estimate_jacobian_lipschitz`.

    - `norm`: of `|J|_F`, over all rows and outputs. `lipschitz`: of `|J - J'|_F / |theta - theta'|`, for near points.
    - `converged`: the search for the fastest direction has reached its tolerance everywhere.

    >>> import jax.numpy as jnp

    >>> from everwide.theory import finite_width
    >>> found = finite_width.estimate_jacobian_lipschitz(lambda p, x: x * p**2, jnp.array(1.0), jnp.ones(4), radius=0.0)
    >>> float(found.norm), float(found.lipschitz), float(found.constant(4))
    (4.0, 4.0, 2.0)
    """

    norm: Float[Array, ""]
    lipschitz: Float[Array, ""]
    converged: Bool[Array, ""]

    def constant(self, width: float) -> Float[Array, ""]:
        """`K` of `lee_certificate`: both are at most `K sqrt(width)`, as far as was seen."""
        return jnp.maximum(self.norm, self.lipschitz) / width**0.5


def estimate_jacobian_lipschitz(
    apply: Function,
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
    jumps: no constant exists there, and none of that is seen.

    At each point the change is exact up to `tolerance`: the largest singular value of the derivative of the Jacobian,
    in the Frobenius norm, by Lanczos' method on products with it. `everwide.linearization.lazy_kappa` has the
    operator norms.

    - `apply(params, x)`: of one example, with any outputs. `x`: a batch. One example's Jacobian is in memory at a time.

    >>> import everwide as ew, jax, jax.numpy as jnp

    >>> from everwide.theory import finite_width
    >>> net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(1))
    >>> params = net.init(jax.random.key(0), (3,), width=16)
    >>> found = finite_width.estimate_jacobian_lipschitz(net.apply, params, jnp.eye(3), radius=0.1)
    >>> bool(found.converged), bool(found.lipschitz > 0)
    (True, True)

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, lemma on the
    local Lipschitzness of the Jacobian.
    """
    reach = not_negative(radius, "radius")
    if points < 0 or not 0 < tolerance < 1 or max_cycles < 1:
        raise InputError(
            f"{points=}, {tolerance=}, {max_cycles=}: expected 0 or more points, a tolerance between 0 and 1 and at "
            "least one cycle."
        )
    batch_size(x)
    moving, rest = parameters(params)
    x = jax.tree.map(jnp.asarray, x)
    return _estimate(apply, moving, rest, x, Search(tolerance, max_cycles), jnp.asarray(reach), jr.key(seed), points)


@trusted_filter_jit
def _estimate(
    apply: Function,
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
    values = lambda at, one: apply(eqx.combine(from_vector(at, moving), rest), one).reshape(-1)
    jacobian = lambda at, one: jax.jacrev(values)(at, one)

    def at_point(at: Vector) -> tuple[Array, Array, Array]:
        def change_squared(u: Vector) -> Vector:
            """`sum_a H_a H_a u` over all rows and outputs `a`, `H_a` the second derivatives of `a`."""

            def add(total: Vector, one: Any) -> tuple[Vector, None]:
                of = lambda place: jacobian(place, one)
                _, back = jax.vjp(of, at)
                return total + back(jax.jvp(of, (at,), (u,))[1])[0].astype(total.dtype), None

            return lax.scan(add, jnp.zeros_like(u), x)[0]

        squares = lax.map(lambda one: jnp.sum(jnp.square(jacobian(at, one))).astype(at.dtype), x)
        found = search.climb(lambda _: change_squared, start / jnp.linalg.norm(start))
        return jnp.sqrt(jnp.sum(squares)), jnp.sqrt(found.value), found.converged

    norms, changes, converged = lax.map(at_point, places)
    return JacobianLipschitz(jnp.max(norms), jnp.max(changes), jnp.all(converged))
