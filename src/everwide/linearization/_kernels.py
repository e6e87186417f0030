"""How much two kernels differ, and how well a kernel knows the labels."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import InputError

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
    operator = jnp.linalg.norm(change, 2)
    alignment, cka = _cosine(first, second), _cosine(_centred(first), _centred(second))
    return KernelDistance(frobenius, frobenius / jnp.linalg.norm(first), operator, alignment, cka)


def label_alignment(k: Any, y: Any) -> LabelAlignment:
    """The cosine between a kernel and that of the labels: near 1, the kernel alone explains them.

    Args:
        k: `(n, n)`, symmetric.
        y: `(n,)` or `(n, outputs)`.

    Returns:
        `uncentred`: `<k, y y^T> / (|k|_F |y y^T|_F)`; `centred`: the same for the centred kernel and labels, `nan` for
        labels that are all equal.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import label_alignment
    >>> y = jnp.array([1.0, -1.0, 1.0])
    >>> round(float(label_alignment(jnp.outer(y, y), y).uncentred), 6)
    1.0

    Cristianini et al. 2001; centred: Cortes, Mohri and Rostamizadeh 2012, Algorithms for learning kernels based on
    centered alignment.
    """
    kernel, labels = symmetric(k, "k"), jnp.asarray(y)
    if labels.ndim not in (1, 2) or len(labels) != len(kernel):
        raise InputError(
            f"y has shape {labels.shape}, but k has {len(kernel)} examples. Expected (n,) or (n, outputs)."
        )
    labels = labels.reshape(len(labels), -1).astype(kernel.dtype)
    outer = labels @ labels.T
    return LabelAlignment(_cosine(kernel, outer), _cosine(_centred(kernel), _centred(outer)))


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
