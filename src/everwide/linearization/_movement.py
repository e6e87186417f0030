"""How far training has moved parameters, features and kernels."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import InputError
from .._trees import Function, Params, displacement, named_leaves, norm, outputs, parameters
from ._expansion import linearize

_ASYMMETRY = 1e-3  # relative to the largest entry: more than rounding, less than any honest mistake


class KernelDistance(NamedTuple):
    """Distances and similarities of two kernel matrices. Made by `kernel_distance`."""

    frobenius: Float[Array, ""]
    relative: Float[Array, ""]
    operator: Float[Array, ""]
    alignment: Float[Array, ""]
    cka: Float[Array, ""]


class LabelAlignment(NamedTuple):
    """Made by `label_alignment`."""

    uncentred: Float[Array, ""]
    centred: Float[Array, ""]


def kernel_distance(k0: Any, k1: Any) -> KernelDistance:
    """How far a kernel has moved from `k0` to `k1`.

    Args:
        k0: `(n, n)`, symmetric.
        k1: another one, on the same examples.

    Returns:
        `frobenius`: `|k1 - k0|_F`; `relative`: the same over `|k0|_F`; `operator`: the largest eigenvalue of `k1 - k0`
        in magnitude; `alignment`: `<k0, k1> / (|k0|_F |k1|_F)`, 1 for kernels that differ by a factor; `cka`: the
        alignment of the centred kernels `H k H`, `H = I - 1/n`.

    >>> import everwide as ew, jax.numpy as jnp, numpy as np
    >>> from everwide.linearization import kernel_distance
    >>> x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    >>> near, far = (ew.gram(ew.Serial(ew.Dense(w_std=s), ew.Relu(), ew.Dense(1)), x).ntk for s in (1.0, 2.0))
    >>> round(float(kernel_distance(near, far).relative), 4)  # homogeneous: the ntk is proportional to w_std**2
    3.0

    Cristianini et al. 2001, On kernel-target alignment; Kornblith et al. 2019, Similarity of neural network
    representations revisited.
    """
    first, second = symmetric(k0, "k0"), symmetric(k1, "k1")
    if first.shape != second.shape:
        raise InputError(f"k0 has shape {first.shape} and k1 {second.shape}: both must be on the same examples.")
    second = second.astype(first.dtype)
    change = second - first
    frobenius = jnp.linalg.norm(change)
    alignment, cka = _cosine(first, second), _cosine(_centred(first), _centred(second))
    return KernelDistance(frobenius, frobenius / jnp.linalg.norm(first), jnp.linalg.norm(change, 2), alignment, cka)


def label_alignment(kernel: Any, y: Any) -> LabelAlignment:
    """The cosine between a kernel and that of the labels: near 1, the kernel alone explains them.

    Args:
        kernel: `(n, n)`, symmetric.
        y: `(n,)` or `(n, outputs)`.

    Returns:
        `uncentred`: `<K, y y^T> / (|K|_F |y y^T|_F)`; `centred`: the same for the centred kernel and labels, `nan` for
        labels that are all equal.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import label_alignment
    >>> y = jnp.array([1.0, -1.0, 1.0])
    >>> round(float(label_alignment(jnp.outer(y, y), y).uncentred), 6)
    1.0

    Cristianini et al. 2001; centred: Cortes, Mohri and Rostamizadeh 2012, Algorithms for learning kernels based on
    centered alignment.
    """
    matrix, labels = symmetric(kernel, "kernel"), jnp.asarray(y)
    if labels.ndim not in (1, 2) or len(labels) != len(matrix):
        raise InputError(
            f"y has shape {labels.shape}, but the kernel has {len(matrix)} examples. Expected (n,) or (n, outputs)."
        )
    labels = labels.reshape(len(labels), -1).astype(matrix.dtype)
    outer = labels @ labels.T
    return LabelAlignment(_cosine(matrix, outer), _cosine(_centred(matrix), _centred(outer)))


def symmetric(k: Any, label: str) -> Float[Array, "n n"]:
    """A kernel matrix as a JAX array; raises unless it is square, floating-point and symmetric up to rounding."""
    kernel = jnp.asarray(k)
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or not kernel.size:
        raise InputError(
            f"{label} has shape {kernel.shape}, expected a kernel of n examples with themselves, (n, n). Reduce one "
            'with outputs first (outputs="trace"), or reshape it to (n * outputs, n * outputs).'
        )
    if not jnp.issubdtype(kernel.dtype, jnp.floating):
        raise InputError(f"{label} holds {kernel.dtype}, expected floating-point numbers.")
    message = f"{label} is not symmetric: a kernel of n examples with themselves is expected, in one order of examples."
    try:
        values = np.asarray(kernel)
    except jax.errors.TracerArrayConversionError:
        skewed = jnp.max(jnp.abs(kernel - kernel.T)) > _ASYMMETRY * jnp.max(jnp.abs(kernel))
        return eqx.error_if(kernel, skewed, message)
    if np.abs(values - values.T).max() > _ASYMMETRY * np.abs(values).max():
        raise InputError(message)
    return kernel


def _centred(k: Float[Array, "n n"]) -> Float[Array, "n n"]:
    rows = k - jnp.mean(k, 0, keepdims=True)
    return rows - jnp.mean(rows, 1, keepdims=True)


def _cosine(a: Float[Array, "n n"], b: Float[Array, "n n"]) -> Float[Array, ""]:
    return jnp.sum(a * b) / (jnp.linalg.norm(a) * jnp.linalg.norm(b))


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
