"""Learning curves of kernel regression, from its eigenvalues."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..._checks import InputError
from ..._engine import trusted_jit
from ._hermite import checked_problem

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
    lam, seen = problem.eigenvalues, problem.eigenvalues > 0
    surplus = more + moved * jnp.sum(jnp.where(seen, problem.multiplicities / jnp.where(seen, lam, 1), 0))
    return scale, Scale(moved, jnp.where(kappa > 0, freed, surplus))


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


_FEWEST_MODES, _FEWEST_SETTINGS = 64, 8


class LearningCurve(eqx.Module):
    """Predictions for each `n` and ridge. Made by `learning_curve`."""

    kappa: Float[Array | np.ndarray, "*settings"]
    learnability: Float[Array | np.ndarray, "*settings modes"]
    test_error: Float[Array | np.ndarray, "*settings"]
    train_error: Float[Array | np.ndarray, "*settings"]
    overfitting: Float[Array | np.ndarray, "*settings"]
    mean: Float[Array | np.ndarray, "*settings modes"]
    variance: Float[Array | np.ndarray, "*settings modes"]


def learning_curve(
    eigenvalues: Any,
    coefficients: Any,
    n: Any,
    ridge: Any = 0.0,
    noise: Any = 0.0,
    multiplicities: Any = None,
    convention: str = "simon",
) -> LearningCurve:
    """Predict kernel (ridge) regression on `n` random examples from the eigenvalues of the kernel and the target.

    Without a ridge, and with at least as many examples as modes, values are the limits of a vanishing ridge; where the
    numbers are equal and something cannot be learned, the test error is infinite. Numbers are computed in float64
    whatever the precision of JAX; under `jax.grad`, `jax.jit` and `jax.vmap` in the widest precision that JAX has
    enabled. All arguments but `n = 0` have derivatives of any order.

    Args:
        eigenvalues: `(modes,)`, of the kernel under the distribution of the inputs; a mode of eigenvalue 0 is never
            learned.
        coefficients: of the target, one for each mode; their squares sum to its mean square.
        n: examples, whole or not; a number or an array, as `ridge` and `noise`, which broadcast.
        ridge: what is added to the diagonal of the kernel matrix, not multiplied by `n`.
        noise: standard deviation of the training targets.
        multiplicities: how often each eigenvalue occurs; then a coefficient is the norm of those of its modes.
        convention: "simon", whose test error is that on noisy targets; or "canatar", whose test error is that on the
            function without noise, and whose `kappa` is `n` times that of Simon.

    Returns:
        Arrays of the shape to which `n`, `ridge` and `noise` broadcast, numpy in float64 or JAX where an argument was
        traced. `kappa`: the effective ridge, infinite without examples; `learnability`: of every mode, from 0 to 1;
        `test_error`: mean squared error on new examples; `train_error`: on the training examples, with their noise;
        `overfitting`: the factor by which errors exceed those of the mean predictor, 1 without examples; `mean`,
        `variance`: of every coefficient of the predictor over training sets (of a mode with a multiplicity: the norm
        of the mean, and the variance of each of its coefficients); different modes are uncorrelated.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> lam = np.arange(1, 1001) ** -2.0
    >>> curve = eigenlearning.learning_curve(lam, lam**0.5, n=np.array([10, 100]), ridge=1e-3, noise=0.1)
    >>> np.round(curve.test_error, 4)
    array([0.2409, 0.0423])

    Simon et al., "The eigenlearning framework" (2021); Canatar, Bordelon and Pehlevan (2021).
    """
    if convention not in ("simon", "canatar"):
        raise InputError(f"learning_curve(convention={convention!r}): expected 'simon' or 'canatar'.")
    many = np.ones(np.shape(eigenvalues)) if multiplicities is None else multiplicities
    spectrum = {"eigenvalues": eigenvalues, "coefficients": coefficients, "multiplicities": many}
    numbers = checked_problem(spectrum | {"n": n, "ridge": ridge, "noise": noise})
    if all(isinstance(value, np.ndarray) for value in numbers):
        return _on_host(numbers, convention)
    dtype = jax.dtypes.canonicalize_dtype(np.float64)
    return _nested(tuple(jnp.asarray(value).astype(dtype) for value in numbers), convention)


def _on_host(numbers: tuple[np.ndarray, ...], convention: str) -> LearningCurve:
    """In float64, padded to few different sizes, as every size is compiled: with modes that are not there."""
    modes, settings = len(numbers[0]), np.broadcast_arrays(*numbers[3:])
    shape, count = settings[0].shape, settings[0].size
    spectrum = [_padded(value, _FEWEST_MODES, 0.0) for value in numbers[:3]]
    padded = [_padded(value.ravel(), _FEWEST_SETTINGS, 1.0) for value in settings]
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        curve = _compiled((*spectrum, *padded), convention)
    whole = [np.asarray(a)[:count] for a in jax.tree.leaves(curve)]
    cut = [a.reshape(shape) if a.ndim == 1 else a[:, :modes].reshape(*shape, modes) for a in whole]
    return jax.tree.unflatten(jax.tree.structure(curve), cut)


def _padded(values: np.ndarray, fewest: int, filling: float) -> np.ndarray:
    """Up to the next power of two."""
    size = 1 << (max(len(values), fewest) - 1).bit_length()
    return np.pad(values, (0, size - len(values)), constant_values=filling)


def _batched(numbers: tuple[Array, ...], convention: str) -> LearningCurve:
    """Over all settings."""
    settings = jnp.broadcast_arrays(*numbers[3:])
    flat = (value.ravel() for value in settings)
    curves = jax.vmap(lambda *setting: _one_setting((*numbers[:3], *setting), convention))(*flat)
    return jax.tree.map(lambda a: a.reshape(*settings[0].shape, *a.shape[1:]), curves)


_compiled = trusted_jit(_batched, static_argnums=1)
_nested = jax.jit(_batched, static_argnums=1)  # may be inside another `jit`; outside, one program and not hundreds


def _one_setting(numbers: tuple[Array, ...], convention: str) -> LearningCurve:
    """Errors are written with `slack = ridge / kappa = n - sum(learned)`, and so without cancellation."""
    eigenvalues, coefficients, multiplicities, n, ridge, noise = numbers
    some = n > 0
    count = jnp.where(some, n, 1)
    kappa, slack = effective_ridge(Problem(eigenvalues, multiplicities, count, ridge))
    learned, missed = shares(eigenvalues, kappa)
    learned, missed = jnp.where(some, learned, 0), jnp.where(some, missed, 1)
    trace = jnp.sum(multiplicities * eigenvalues) + ridge
    spare = jnp.where(some, jnp.sum(multiplicities * learned * missed) + slack, 1)
    left = jnp.sum((missed * coefficients) ** 2) + noise**2  # the error of the mean predictor, and the noise
    total = _ratio(left * count, spare)
    fitted = jnp.where(some, slack / count, _ratio(ridge, trace))
    clean = jnp.sum((missed * coefficients) ** 2) + noise**2 * jnp.sum(multiplicities * learned**2) / count
    simon = convention == "simon"
    return LearningCurve(
        kappa=jnp.where(some, kappa, jnp.inf) if simon else jnp.where(some, n * kappa, trace),
        learnability=learned,
        test_error=total if simon else _ratio(clean * count, spare),
        train_error=jnp.where(slack > 0, fitted**2 * total, 0),
        overfitting=_ratio(count, spare),
        mean=learned * coefficients,
        variance=_ratio(left * learned**2, spare),
    )


def _ratio(above: Array, below: Array) -> Array:
    """A quotient at whose pole 0 stays 0."""
    pole = below == 0
    return jnp.where(pole & (above == 0), 0, above / jnp.where(pole & (above == 0), 1, below))
