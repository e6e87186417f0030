"""How far training has moved outputs, parameters, features; and by how much one step on an example moves others."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import InputError
from .._trees import Function, Params, displacement, named_leaves, norm, outputs, parameters
from ._expansion import linearize


class Gap(NamedTuple):
    """Outputs of a network minus those of its linearization. Made by `linearization_gap`."""

    values: Float[Array, "n *outputs"]
    rms: Float[Array, ""]
    largest: Float[Array, ""]
    relative: Float[Array, ""]


class Moved(NamedTuple):
    """The Euclidean length of a movement, and its ratio to the length of what moved."""

    absolute: Float[Array, ""]
    relative: Float[Array, ""]


class Movement(NamedTuple):
    """How far a tree of arrays has moved, all of them together and leaf by leaf. Made by `movement`."""

    absolute: Float[Array, ""]
    relative: Float[Array, ""]
    leaves: dict[str, Moved]


@eqx.filter_jit
def linearization_gap(f: Function, params0: Params, params: Params, x: Any) -> Gap:
    """`f(params, x) - f_lin(params, x)` over a batch `x`, where `f_lin` is `f` linearized at `params0`.

    Args:
        f: `f(params, x)`, of one example.
        params0: where it is linearized.
        params: where both are compared.
        x: a batch of examples.

    Returns:
        `values`, `(n, *outputs)`; `rms`, their root mean square; `largest`, in magnitude; `relative`, `rms` over the
        root mean square by which the outputs have moved.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import linearization_gap
    >>> gap = linearization_gap(lambda p, x: p**2 * x, jnp.ones(()), 1.5 * jnp.ones(()), jnp.ones(4))
    >>> round(float(gap.rms), 4), round(float(gap.relative), 4)
    (0.25, 0.2)

    Lee et al. 2019, theorem 2.1: along gradient descent, `O(width**-0.5)`.
    """
    now, before = outputs(f, params, x), outputs(f, params0, x)
    values = now - outputs(linearize(f, params0), params, x)
    rms = _rms(values)
    return Gap(values, rms, jnp.max(jnp.abs(values)), _ratio(rms, _rms(now - before)))


@eqx.filter_jit
def movement(start: Params, end: Params) -> Movement:
    """The Euclidean distance between two sets of parameters, and its ratio to the length of the first.

    Features are trees of arrays too: `movement(hidden(params0, x), hidden(params, x)).relative` is how far they have
    moved. It falls like `width**-0.5` in the ntk parametrization, and stays in a mean-field one.

    Args:
        start: a tree of arrays.
        end: one of the same structure.

    Returns:
        `absolute`, `relative`, and `leaves`, the same for every leaf by its place in the tree. What starts at zero and
        moves has an infinite ratio.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import movement
    >>> moved = movement({"w": jnp.array([3.0, 4.0])}, {"w": jnp.array([3.0, 5.0])})
    >>> float(moved.relative), float(moved.leaves["['w']"].absolute)
    (0.2, 1.0)

    Lee et al. 2019, theorem 2.1: `O(1)` in the ntk parametrization, `O(width**-0.5)` in the standard one.
    """
    first, last = parameters(start, "start")[0], parameters(end, "end")[0]
    away = displacement(first, last, ("start", "end"))
    leaves = zip(named_leaves(away), jax.tree.leaves(first), strict=True)
    named = {path: Moved(norm(d), _ratio(norm(d), norm(leaf))) for (path, d), leaf in leaves}
    return Movement(norm(away), _ratio(norm(away), norm(first)), named)


def influence(ntk: Any, residual: Any, rate: float | Array) -> Float[Array, "n1 n *outputs"]:
    """By how much a step of gradient descent on example `j` alone moves the output of example `i`, to first order.

    `-rate residual_j K_ij`: the loss of one example is `1/2 (f - y)^2`. Their mean over `j` is a step on all of them.
    Examples with orthogonal gradients leave each other alone.

    Args:
        ntk: `(n1, n)`; with outputs, `(n1, n, outputs, outputs)`.
        residual: `f - y` of the `n` examples, `(n,)` or `(n, outputs)`.
        rate: the learning rate.

    Returns:
        `(n1, n)` or `(n1, n, outputs)`.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import influence
    >>> influence(jnp.array([[1.0, 0.5]]), jnp.array([1.0, -1.0]), 0.1)
    Array([[-0.1 ,  0.05]], dtype=float...)
    """
    k, r = _real(ntk), _real(residual)
    full = k.ndim == 4 and r.ndim == 2 and k.shape[1:] == (*r.shape, r.shape[1])
    shared = k.ndim == 2 and r.ndim in (1, 2) and k.shape[1] == r.shape[0]
    if not (full or shared):
        raise InputError(
            f"ntk {k.shape} and residual {r.shape} do not fit together: expected (n1, n) with "
            "(n,) or (n, outputs), or (n1, n, outputs, outputs) with (n, outputs)."
        )
    moved = k.reshape(*k.shape, *(1,) * (r.ndim - 1)) * r if shared else jnp.einsum("ijab,jb->ija", k, r)
    return -(rate if isinstance(rate, int | float) else jnp.asarray(rate, moved.dtype)) * moved


def forgetting_score(ntk: Any, old_residual: Any, residual: Any) -> Float[Array, ""]:
    """How fast the loss of old examples grows while gradient flow learns new ones: above 0, it forgets them.

    Args:
        ntk: of the old examples with the new ones, as in `influence`.
        old_residual: `f - y` of the old examples, `(n1,)` or `(n1, outputs)`.
        residual: `f - y` of the new ones, whose mean loss is learned.

    Returns:
        The derivative by time, at the start, of the mean loss of the old examples.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import forgetting_score
    >>> float(forgetting_score(jnp.array([[0.5]]), jnp.array([1.0]), jnp.array([-2.0])))
    1.0
    """
    moved, old = influence(ntk, residual, 1.0).mean(1), _real(old_residual)
    if old.shape != moved.shape:
        raise InputError(f"old_residual has shape {old.shape}, expected {moved.shape}: one for each row of ntk.")
    return jnp.sum(old * moved) / len(old)


def _real(value: Any) -> Float[Array, "..."]:
    """A floating-point array; Python numbers stay weakly typed, so that they widen nothing."""
    array = jnp.asarray(float(value) if isinstance(value, int | float) else value)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.result_type(float))


def _rms(values: Array) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(jnp.square(values)))


def _ratio(change: Array, whole: Array) -> Float[Array, ""]:
    """Nothing that moves from nothing has moved by 0, something by infinity."""
    empty = jnp.where(change > 0, jnp.inf, 0).astype(change.dtype)
    return jnp.where(whole > 0, change / jnp.where(whole > 0, whole, 1), empty)
