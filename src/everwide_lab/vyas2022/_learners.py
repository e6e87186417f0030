"""Test errors of kernels and of networks, on the same rows."""

import enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everwide import empirical_ntk, gram
from everwide.linearization import kernel_distance
from everwide.spectral import solve

from .._sample import Sample
from ._network import LOOKS, Trained, network, train

RIDGES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # in units of the mean of a kernel's diagonal
PRETRAINING = 256  # rows
PARTS = (0.1, 0.3, 1.0)  # of the training, where its kernel is looked at


class Learner(enum.StrEnum):
    """What learns.

    >>> from everwide_lab.vyas2022._learners import Learner
    >>> Learner.NETWORK.value
    'network'
    """

    INFINITE = "infinite kernel"
    START = "kernel at the start"
    PRETRAINED = "pretrained kernel"
    TRAINED = "kernel after training"
    NETWORK = "network"


def measured(sample: Sample, sizes: tuple[int, ...], width: int, steps: int, seed: int) -> dict[str, Any]:
    """Errors of every learner at every size; and, at the largest, how far the kernel was at parts of the training.

    Errors are mean squares over the power of the test targets.
    """
    few = min(PRETRAINING, sizes[-1])
    pretrained = train(sample, few, width, steps, seed)
    errors: dict[str, list[float]] = {learner.value: [] for learner in Learner}
    trained = pretrained
    for n in sizes:
        trained = pretrained if n == few else train(sample, n, width, steps, seed)
        kernels = {
            Learner.INFINITE: _limit(sample, n, width),
            Learner.START: _finite(sample, n, trained.start),
            Learner.PRETRAINED: _finite(sample, n, pretrained.best),
            Learner.TRAINED: _finite(sample, n, trained.best),
        }
        for learner, kernel in kernels.items():
            errors[learner.value].append(regressed(kernel, sample, n))
        errors[Learner.NETWORK.value].append(_power(_outputs(sample, trained.best) - sample.y_test, sample))
    return {"errors": errors, "course": _course(sample, sizes[-1], trained)}


def regressed(kernel: Float[np.ndarray, "rows n"], sample: Sample, n: int) -> float:
    """The test error of a kernel, from the first `n` rows to all rows; its ridge is chosen on validation rows."""
    among, rest = (kernel[:n] + kernel[:n].T) / 2, kernel[n:]
    size, checked = float(np.mean(np.diagonal(among))), len(sample.x_validation)
    guesses = [rest @ solve(among, sample.y[:n], ridge=ridge * size).coefficients for ridge in RIDGES]
    best = min(guesses, key=lambda guess: float(np.mean((guess[:checked] - sample.y_validation) ** 2)))
    return _power(best[checked:] - sample.y_test, sample)


def _course(sample: Sample, n: int, trained: Trained) -> dict[str, list[float]]:
    """At parts of the training: the error of the kernel of that moment, and its distance to the last one."""
    looks = [max(1, round(part * LOOKS)) - 1 for part in PARTS]
    moments = [trained.start] + [jax.tree.map(lambda leaf, at=at: leaf[at], trained.looks) for at in looks]
    kernels = [_finite(sample, n, params) for params in moments]
    distances = [kernel_distance(kernel[:n], kernels[-1][:n]) for kernel in kernels]
    errors = [regressed(kernel, sample, n) for kernel in kernels]
    return {"errors": errors, "distances": [1 - float(distance.cka) for distance in distances]}


def _rows(sample: Sample, n: int) -> np.ndarray:
    return np.concatenate([sample.x[:n], sample.x_validation, sample.x_test])


def _limit(sample: Sample, n: int, width: int) -> Float[np.ndarray, "rows n"]:
    """In the parametrization of the finite networks: the width weighs the layers, and is else infinite."""
    net = network(sample.y.shape[1])
    kernels = gram(net, _rows(sample, n), sample.x[:n], width=width, parametrization="standard")
    return np.asarray(kernels.ntk, np.float64)


def _finite(sample: Sample, n: int, params: Any) -> Float[np.ndarray, "rows n"]:
    """The mean over the outputs, which an infinitely wide network has the same kernel for."""
    dtype = jax.tree.leaves(params)[0].dtype
    rows, seen = (jnp.asarray(part, dtype) for part in (_rows(sample, n), sample.x[:n]))
    net = network(sample.y.shape[1])
    kernel = empirical_ntk(net.apply, params, rows, seen, outputs="trace")
    return np.asarray(kernel, np.float64)


def _outputs(sample: Sample, params: Any) -> Float[np.ndarray, "m k"]:
    net, dtype = network(sample.y.shape[1]), jax.tree.leaves(params)[0].dtype
    return np.asarray(jax.vmap(net.apply, (None, 0))(params, jnp.asarray(sample.x_test, dtype)), np.float64)


def _power(apart: np.ndarray, sample: Sample) -> float:
    return float(np.mean(apart**2) / np.mean(sample.y_test**2))
