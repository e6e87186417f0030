"""Neural collapse: how far the last layer's features are from one point a class, at the corners of a simplex."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._checks import InputError, finite_array
from .._losses import class_labels
from ..spectral import Spectrum

_NEGLIGIBLE = 1e-10  # of the largest eigenvalue between classes


class Collapse(NamedTuple):
    """Made by `neural_collapse`: four distances, 0 where a network has collapsed."""

    within: float
    norms: float
    angles: float
    duality: float | None
    centres: float | None


def neural_collapse(features: Any, y: Any, weights: Any = None, *, biases: Any = None) -> Collapse:
    """How far features are from neural collapse (Papyan, Han, Donoho 2020), NC1 to NC4.

    Args:
        features: what the last layer reads, `(n, d)`.
        y: labels `(n,)`, of two classes or more.
        weights: the last layer, `(classes, d)`.
        biases: its biases `(classes,)`, for `centres` alone.

    Returns:
        `within` (NC1): the variance within classes relative to that between them, `tr(S_W S_B^+) / C`; `norms` and
        `angles` (NC2): how far the centres of classes, seen from their mean, are from equal lengths (standard deviation
        over mean) and from the angles of a simplex (mean distance of cosines from `-1/(C - 1)`); `duality` (NC3): the
        distance of the weights, scaled to length 1, from the centres, scaled too; `centres` (NC4): the share of rows
        for which the last layer does not say the class of the nearest centre. The last two need `weights`.

    >>> import everwide.diagnosis as dg, numpy as np
    >>> corners = np.eye(3) - 1 / 3
    >>> [round(value, 9) for value in dg.neural_collapse(corners[[0, 1, 2, 0, 1, 2]], [0, 1, 2] * 2, corners)]
    [0.0, 0.0, 0.0, 0.0, 0.0]

    """
    h, labels = finite_array(features, "features"), class_labels(y)
    if h.ndim != 2 or len(h) != len(labels):
        raise InputError(f"features have shape {h.shape} and there are {len(labels)} labels: expected (n, d) and n.")
    classes, place = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"All rows have the label {classes[0]}: collapse is about 2 classes or more.")
    means = np.stack([h[place == c].mean(0) for c in range(len(classes))])
    centred = means - means.mean(0)
    lengths = np.linalg.norm(centred, axis=1)
    if not (lengths > 0).all():
        raise InputError(f"The centre of class {classes[lengths.argmin()]} is the mean of all: it has no direction.")
    cosines = (centred @ centred.T) / np.outer(lengths, lengths)
    apart = ~np.eye(len(classes), dtype=bool)
    duality, nearest = (None, None) if weights is None else _last_layer(h, means, classes, weights, biases)
    return Collapse(
        _variability(h - means[place], centred),
        float(lengths.std() / lengths.mean()),
        float(np.abs(cosines[apart] + 1 / (len(classes) - 1)).mean()),
        duality,
        nearest,
    )


def _variability(deviations: Float[np.ndarray, "n d"], centred: Float[np.ndarray, "c d"]) -> float:
    """`tr(S_W S_B^+) / C` by the few directions between classes."""
    spectrum = Spectrum.of(centred @ centred.T / len(centred), what="The covariance of classes")
    kept = spectrum.values > _NEGLIGIBLE * spectrum.values.max()
    directions = centred.T @ spectrum.vectors[:, kept] / np.sqrt(len(centred) * spectrum.values[kept])
    along = np.mean((deviations @ directions) ** 2, axis=0)
    return float(np.sum(along / spectrum.values[kept]) / len(centred))


def _last_layer(
    h: np.ndarray, means: np.ndarray, classes: np.ndarray, weights: Any, biases: Any
) -> tuple[float, float]:
    rows = finite_array(weights, "weights")
    if rows.ndim != 2 or rows.shape[1] != h.shape[1] or len(rows) <= classes.max():
        raise InputError(
            f"weights have shape {rows.shape}, expected ({classes.max() + 1}, {h.shape[1]}): classes and features. "
            "Transpose those of JAX layers."
        )
    offsets = np.zeros(len(rows)) if biases is None else finite_array(biases, "biases")
    if offsets.shape != (len(rows),):
        raise InputError(f"biases have shape {offsets.shape}, expected ({len(rows)},): one for each class.")
    centred, own = means - means.mean(0), rows[classes]
    if not np.any(own):
        raise InputError("All weights are 0: they have no direction.")
    away = float(np.linalg.norm(own / np.linalg.norm(own) - centred / np.linalg.norm(centred)))
    squares = np.sum(means**2, 1) - 2 * h @ means.T
    said = (h @ rows.T + offsets).argmax(1)
    return away, float(np.mean(said != classes[squares.argmin(1)]))
