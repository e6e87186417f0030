"""The effective ridge of kernel regression: the scale that parts what is learned from what is not."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

_MOST_STEPS = 200  # halving alone takes about 120, from the widest bracket of float64 down to its rounding


class Problem(NamedTuple):
    """`sum_i m_i lam_i / (lam_i + kappa) + ridge / kappa = n`: one number of examples `n`, above 0, and one ridge."""

    eigenvalues: Float[Array, " modes"]
    multiplicities: Float[Array, " modes"]
    n: Float[Array, ""]
    ridge: Float[Array, ""]


class Scale(NamedTuple):
    """The solution `kappa`, and `slack = ridge / kappa`: the part of `n` that the ridge takes from the modes.

    Without a ridge and with more examples than modes, both are the limits of a vanishing ridge: `kappa` is 0 and the
    slack is the number of surplus examples.
    """

    kappa: Float[Array, ""]
    slack: Float[Array, ""]


@jax.custom_jvp
def effective_ridge(problem: Problem) -> Scale:
    """Solve for kappa to the last digits, for spectra of any scale; differentiable by the implicit function theorem."""
    eigenvalues, multiplicities, n, ridge = problem
    modes = jnp.sum(jnp.where(eigenvalues > 0, multiplicities, 0))
    saturated = (ridge == 0) & (n >= modes)
    low, high = _bracket(problem, modes)
    kappa = jnp.where(saturated, 0, _solve(problem, low, high))
    return Scale(kappa, jnp.where(saturated, n - modes, ridge / jnp.where(saturated, 1, kappa)))


@effective_ridge.defjvp
def _implicit(primals: tuple[Problem], tangents: tuple[Problem]) -> tuple[Scale, Scale]:
    """Of `kappa` itself and not of its logarithm: so the limit of a vanishing ridge has a derivative too."""
    (problem,), (change,) = primals, tangents
    kappa, slack = scale = effective_ridge(problem)
    learned, missed = shares(problem.eigenvalues, kappa)
    curvature = jnp.sum(problem.multiplicities * learned * missed) + slack
    drawn = jnp.where(problem.eigenvalues + kappa > 0, missed**2, 0)
    pull = jnp.sum(problem.multiplicities * drawn * change.eigenvalues) + change.ridge
    more = change.n - jnp.sum(learned * change.multiplicities)
    edge = curvature == 0  # as many examples as modes and no ridge: a pole
    moved = (pull - kappa * more) / jnp.where(edge, 1, curvature)
    freed = jnp.where(kappa > 0, (change.ridge - slack * moved) / jnp.where(kappa > 0, kappa, 1), 0)
    surplus = more + moved * jnp.sum(jnp.where(problem.eigenvalues > 0, problem.multiplicities / _one(problem), 0))
    return scale, Scale(moved, jnp.where(kappa > 0, freed, surplus))


def _one(problem: Problem) -> Float[Array, " modes"]:
    """The eigenvalues, with 1 for 0, by which one may divide."""
    return jnp.where(problem.eigenvalues > 0, problem.eigenvalues, 1)


def shares(
    eigenvalues: Float[Array, " modes"], kappa: Float[Array, ""]
) -> tuple[Float[Array, " modes"], Float[Array, " modes"]]:
    """`lam / (lam + kappa)` and `kappa / (lam + kappa)`, each without cancellation; 0 and 1 where both are 0."""
    total = eigenvalues + kappa
    safe = jnp.where(total > 0, total, 1)
    return eigenvalues / safe, jnp.where(total > 0, kappa / safe, 1)


def _bracket(problem: Problem, modes: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Below: all modes are as weak as the weakest, or there is only the ridge. Above: kappa exceeds every mode."""
    eigenvalues, multiplicities, n, ridge = problem
    smallest = jnp.min(jnp.where(eigenvalues > 0, eigenvalues, jnp.inf))
    weakest = jnp.where(modes > n, smallest * (modes / n - 1), 0)
    limits = jnp.finfo(n.dtype)
    low = jnp.clip(jnp.maximum(weakest, ridge / n), limits.tiny, limits.max)
    high = jnp.sum(multiplicities / n * eigenvalues) + ridge / n
    return low * (1 - 8 * limits.eps), jnp.clip(high * (1 + 8 * limits.eps), low, limits.max)


class _Search(NamedTuple):
    low: Float[Array, ""]
    high: Float[Array, ""]
    kappa: Float[Array, ""]
    last: Float[Array, ""]  # the last step, in the logarithm of kappa
    steps: Array


def _solve(problem: Problem, low: Float[Array, ""], high: Float[Array, ""]) -> Float[Array, ""]:
    """Newton in the logarithm of kappa, and a bisection wherever that leaves the bracket or slows down."""
    precise = 4 * jnp.finfo(low.dtype).eps

    def forward(here: _Search) -> _Search:
        above, slope = _imbalance(problem, here.kappa)
        low = jnp.where(above >= 0, here.kappa, here.low)
        high = jnp.where(above <= 0, here.kappa, here.high)
        newton = above / jnp.where(slope > 0, slope, 1)
        middle = jnp.sqrt(low) * jnp.sqrt(high)
        guess = here.kappa * jnp.exp(newton)
        good = (slope > 0) & (guess >= low) & (guess <= high) & (jnp.abs(newton) <= jnp.abs(here.last) / 2)
        last = jnp.where(good, newton, jnp.log(middle) - jnp.log(here.kappa))
        return _Search(low, high, jnp.where(good, guess, middle), last, here.steps + 1)

    def going(here: _Search) -> Array:
        return (here.steps < _MOST_STEPS) & (jnp.abs(here.last) > precise) & (here.low < here.high)

    begin = _Search(low, high, jnp.sqrt(low) * jnp.sqrt(high), jnp.full_like(low, jnp.inf), jnp.zeros((), jnp.int32))
    return lax.while_loop(going, forward, begin).kappa


def _imbalance(problem: Problem, kappa: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The logarithm of a ratio that is 1 at the solution and falls with kappa, and by how much it falls.

    Modes above kappa are counted, and what they miss is subtracted: on a plateau, where `n` modes are learned and the
    next is far weaker, the sum of all shares rounds to `n`, and says nothing about kappa.
    """
    eigenvalues, multiplicities, n, ridge = problem
    learned, missed = shares(eigenvalues, kappa)
    strong = eigenvalues > kappa
    sharp = multiplicities * learned * missed
    surplus = jnp.sum(jnp.where(strong, multiplicities, 0)) - n
    for_more = jnp.sum(jnp.where(strong, 0, multiplicities * learned)) + ridge / kappa
    for_less = jnp.sum(jnp.where(strong, multiplicities * missed, 0))
    more, less = for_more + jnp.maximum(surplus, 0), for_less + jnp.maximum(-surplus, 0)
    slope_more = jnp.sum(jnp.where(strong, 0, sharp)) + ridge / kappa
    slope_less = jnp.sum(jnp.where(strong, sharp, 0))
    tiny = jnp.finfo(n.dtype).tiny
    more, less = jnp.maximum(more, tiny), jnp.maximum(less, tiny)
    return jnp.log(more) - jnp.log(less), slope_more / more + slope_less / less
