"""Where curvature, activations and what flows back come from: classes, pairs of classes, and rows (Papyan 2020)."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import InputError, bytes_of, finite_array
from .._losses import SoftmaxCrossEntropy, class_labels
from ..empirical import as_model, evaluate
from ..spectral import leading
from ._operators import Curvature, Kind, curvature
from ._prepared import as_columns

_TINY = float(np.finfo(float).tiny)


class LowRank(eqx.Module):
    """`V V^T`, from the columns of `V`."""

    vectors: Float[Array, "p r"]

    @property
    def shape(self) -> tuple[int, int]:
        """Parameters and parameters."""
        return self.vectors.shape[0], self.vectors.shape[0]

    def __matmul__(self, v: Any) -> Array:
        """A vector, or columns."""
        return self.vectors @ (self.vectors.T @ jnp.asarray(as_columns(v, self.shape, self.vectors.dtype)))

    def eigenvalues(self) -> Float[np.ndarray, " r"]:
        """All that may differ from 0, descending: those of the small matrix `V^T V`."""
        small = np.asarray(self.vectors, np.float64)
        return leading(small.T @ small, small.shape[1]).values


class Within(eqx.Module):
    """What is left of a matrix."""

    whole: Curvature
    own: Curvature
    pairs: LowRank

    @property
    def shape(self) -> tuple[int, int]:
        """Parameters and parameters."""
        return self.whole.shape

    def __matmul__(self, v: Any) -> Array:
        """A vector, or columns."""
        return self.whole @ v - self.own @ v - self.pairs @ v


class GradientLevels(NamedTuple):
    """Made by `gradient_levels`: four symmetric operators whose sum is the Gauss-Newton matrix."""

    between: LowRank
    cross: LowRank
    within: Within
    own: Curvature


class Levels(NamedTuple):
    """Made by `backprop_levels`: four matrices whose sum is the second moment."""

    between: Float[np.ndarray, "d d"]
    cross: Float[np.ndarray, "d d"]
    within: Float[np.ndarray, "d d"]
    own: Float[np.ndarray, "d d"]


class ActivationLevels(NamedTuple):
    """Made by `activation_levels`: three matrices whose sum is the second moment."""

    mean: Float[np.ndarray, "d d"]
    between: Float[np.ndarray, "d d"]
    within: Float[np.ndarray, "d d"]


def gradient_levels(f: Any, params: Any, x: Any, y: Any, *, memory: int | str | None = None) -> GradientLevels:
    """The Gauss-Newton matrix of the softmax cross-entropy, taken apart into classes, pairs of classes, and rows.

    It is the sum, over rows `i` and labels `c'`, of `p_ic' / n` times the square of the gradient that row `i` would
    have with label `c'`. Averages of these over the rows of a class `c` are `g_cc'`, averages of those over `c'` are
    `g_c`. The few eigenvalues that stand apart in the spectrum of a trained network come from `g_c`.

    Args:
        f: as in `hessian`; not for PyTorch.
        params: as in `hessian`.
        x: as in `hessian`.
        y: labels `(n,)`.
        memory: as in `hessian`.

    Returns:
        `between`: of the averages of classes, of rank `C` at most, with its `eigenvalues()`; `cross`: of those of pairs
        around them, of rank `C (C - 2)` at most; `within`: of rows around those of pairs; `own`: of the labels that
        rows have. Each is multiplied by `@`, and they add up.

    >>> import everwide.diagnosis as dg, jax.numpy as jnp
    >>> parts = dg.gradient_levels(lambda w, x: w @ x, jnp.zeros((3, 2)), jnp.eye(2), [0, 1])
    >>> len(parts.between.eigenvalues()), parts.cross.shape
    (2, (6, 6))

    """
    model = as_model(f, params)
    if hasattr(model, "module"):
        raise NotImplementedError(
            "gradient_levels has no way through PyTorch modules yet. Use gauss_newton and leading."
        )
    loss, room = SoftmaxCrossEntropy(), bytes_of(memory)
    whole = curvature(Kind.GAUSS_NEWTON, model, None, x, y, loss, room)
    if whole.y.ndim != 1:
        raise InputError("y holds probabilities, expected a label for each row: levels are those of classes.")
    own = curvature(Kind.OWN_LABEL, model, None, x, y, loss, room)
    outputs = np.asarray(evaluate(model, None, x), np.float64)
    _check_outputs(outputs)
    pairs = _pairs(outputs, np.asarray(whole.y))
    tree = whole.model.vjp(jnp.asarray(pairs.cotangents, whole.model.dtype))
    vectors = jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(tree)], axis=1)
    split = _means(np.asarray(vectors, np.float64), pairs)
    columns = [LowRank(jnp.asarray(part.T, whole.dtype)) for part in split]
    between, cross, together = columns
    return GradientLevels(between, cross, Within(whole, own, together), own)


def backprop_levels(head: Any, features: Any, y: Any) -> Levels:
    """The second moment of what flows back to a layer, under every label, taken apart as in `gradient_levels`.

    Args:
        head: a JAX function from the activations of that layer, for one row, to the outputs.
        features: the activations, `(n, d)`.
        y: labels `(n,)`.

    Returns:
        `between`, `cross`, `within`, `own`: matrices `(d, d)` that add up to `sum_ic' p_ic'/n d_ic' d_ic'^T`.

    >>> import everwide.diagnosis as dg, numpy as np
    >>> dg.backprop_levels(lambda h: h, np.eye(3), [0, 1, 2]).between.shape
    (3, 3)

    """
    h = jnp.asarray(finite_array(features, "features"), float)
    _check(class_labels(y), h)
    outputs, pull = jax.vjp(jax.vmap(head), h)
    _check_outputs(outputs)
    chances = _chances(np.asarray(outputs, np.float64))
    labels, k = class_labels(y, chances.shape[1]), chances.shape[1]
    slopes = chances[:, None, :] - np.eye(k)  # (n, c', k)
    deltas = [np.asarray(pull(jnp.asarray(slopes[:, c], outputs.dtype))[0], np.float64) for c in range(k)]
    return _explicit(np.stack(deltas, 1), chances / len(h), labels)


def activation_levels(features: Any, y: Any) -> ActivationLevels:
    """The second moment of the activations of a layer: their mean, classes around it, and rows around their classes.

    Args:
        features: the activations, `(n, d)`.
        y: labels `(n,)`.

    Returns:
        `mean`, `between`, `within`: matrices `(d, d)` whose sum is the mean of `h h^T`; classes count by their rows.

    >>> import everwide.diagnosis as dg, numpy as np
    >>> [np.trace(part) for part in dg.activation_levels([[2.0, 0.0], [0.0, 2.0]], [0, 1])]
    [np.float64(2.0), np.float64(2.0), np.float64(0.0)]

    """
    h = finite_array(features, "features")
    labels = class_labels(y)
    _check(labels, h)
    mean, means = h.mean(0), np.stack([h[labels == c].mean(0) for c in np.unique(labels)])
    centres = means[np.searchsorted(np.unique(labels), labels)]
    even = np.full(len(h), 1 / len(h))
    return ActivationLevels(np.outer(mean, mean), _second(centres - mean, even), _second(h - centres, even))


def _chances(outputs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Softmax in double precision: in single, what a confident network rules out is 0."""
    chances = np.exp(outputs - outputs.max(1, keepdims=True))
    return chances / chances.sum(1, keepdims=True)


class Pairs(NamedTuple):
    """Of a class and another label: cotangents that give `w_cc' g_cc'`, the weights, and the classes."""

    cotangents: Float[np.ndarray, "r n k"]
    weights: Float[np.ndarray, " r"]
    classes: np.ndarray


def _pairs(outputs: Float[np.ndarray, "n k"], labels: np.ndarray) -> Pairs:
    chances = _chances(outputs)
    n, k = outputs.shape
    rows, weights, classes = [], [], []
    for c in np.unique(labels):
        here = labels == c
        for other in (label for label in range(k) if label != c):
            weight = np.where(here, chances[:, other], 0) / n
            rows.append(weight[:, None] * (chances - np.eye(k)[other]))
            weights.append(weight.sum())
            classes.append(c)
    return Pairs(np.stack(rows), np.array(weights), np.array(classes))


def _means(sums: Float[np.ndarray, "r p"], pairs: Pairs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Roots of `between`, `cross`, and their sum, in rows."""
    weights = np.maximum(pairs.weights, _TINY)
    of_pairs = sums / weights[:, None]
    between, cross = [], np.zeros_like(of_pairs)
    for c in np.unique(pairs.classes):
        here = pairs.classes == c
        weight = weights[here].sum()
        centre = sums[here].sum(0) / max(weight, _TINY)
        between.append(np.sqrt(weight) * centre)
        cross[here] = np.sqrt(weights[here])[:, None] * (of_pairs[here] - centre)
    return np.stack(between), cross, np.sqrt(weights)[:, None] * of_pairs


def _explicit(vectors: Float[np.ndarray, "n k d"], weights: Float[np.ndarray, "n k"], labels: np.ndarray) -> Levels:
    _, k, d = vectors.shape
    parts = [np.zeros((d, d)) for _ in range(4)]
    for c in np.unique(labels):
        here = labels == c
        others = [label for label in range(k) if label != c]
        v, w = vectors[here][:, others], weights[here][:, others]
        sums, of_pairs = np.einsum("nk,nkd->kd", w, v), w.sum(0)
        means = sums / np.maximum(of_pairs, _TINY)[:, None]
        centre = sums.sum(0) / max(of_pairs.sum(), _TINY)
        parts[0] += of_pairs.sum() * np.outer(centre, centre)
        parts[1] += _second(means - centre, of_pairs)
        parts[2] += _second((v - means).reshape(-1, d), w.reshape(-1))
        parts[3] += _second(vectors[here, c], weights[here, c])
    return Levels(*parts)


def _second(rows: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]) -> Float[np.ndarray, "d d"]:
    return (rows * weights[:, None]).T @ rows


def _check(labels: np.ndarray, features: Any) -> None:
    if np.ndim(features) != 2 or len(labels) != len(features):
        raise InputError(
            f"features have shape {np.shape(features)} and there are {len(labels)} labels: expected (n, d) and n, and "
            "they must agree. Flatten each row: features.reshape(len(features), -1)."
        )


def _check_outputs(outputs: Any) -> None:
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        raise InputError(
            f"The outputs have shape {outputs.shape}, expected (n, 2) or more classes: levels are those of classes."
        )
