"""What look-ahead says of candidates, beside networks that are trained with each of them."""

import enum
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from everwide.selection import look_ahead

from ._network import Labelled, Learner
from ._tasks import Sample

RIDGE = 1e-3  # in units of the mean of a kernel's diagonal


class Guess(enum.StrEnum):
    """From what the change of predictions is foreseen.

    >>> from everwide_lab.lookahead2022._retraining import Guess
    >>> Guess.TRAINED.value
    'kernel after training'
    """

    TRAINED = "kernel after training"
    START = "kernel at the start"
    INFINITE = "infinite kernel"
    STEP = "one step of descent"


class Course(enum.StrEnum):
    """How a network is trained with one row more.

    >>> from everwide_lab.lookahead2022._retraining import Course
    >>> Course.SCRATCH.value
    'from scratch'
    """

    SCRATCH = "from scratch"
    ON = "trained on"


def agreement(sample: Sample, learner: Learner, labelled: int, candidates: int, seed: int) -> dict[str, Any]:
    """How well guesses agree with real retraining: of ranks (Spearman) of candidates, and cosines of changes.

    The first rows are labelled, the next are candidates; each gets the label that the network thinks most likely.
    Changes are looked at on all rows that are not labelled.
    """
    x, pool = sample.x, sample.x[labelled:]
    y = sample.targets(sample.y[:labelled])
    rows = Labelled(x[:labelled], y, np.ones(labelled))
    first = learner.first(x.shape[1], seed)
    trained = learner.train(first, rows)
    now = learner.outputs(trained, x)
    label = now[labelled : labelled + candidates].argmax(1)
    guesses = _guessed(learner, (first, trained), x, now, y, label)
    found: dict[str, Any] = {}
    for course, start in ((Course.SCRATCH, first), (Course.ON, trained)):
        real = _retrained(learner, start, rows, pool, label, sample)
        for guess, changes in guesses.items():
            sizes, foreseen = (np.linalg.norm(one, axis=2).sum(1) for one in (real, changes))
            found[f"{course.value}, {guess.value}"] = {
                "ranks": _rank_correlation(sizes, foreseen),
                "cosine": float(np.mean([_cosine(*both) for both in zip(real, changes, strict=True)])),
            }
    return found


def _retrained(
    learner: Learner,
    start: Any,
    rows: Labelled,
    pool: Float[np.ndarray, "u d"],
    label: Int[np.ndarray, " c"],
    sample: Sample,
) -> Float[np.ndarray, "c u k"]:
    """How predictions change for real: with the candidate, against as long a training without it."""
    new, each = sample.targets(label), [np.repeat(part[None], len(label) + 1, 0) for part in rows]
    extra_x, extra_y = (np.concatenate([part, part[:1]]) for part in (pool[: len(label)], new))
    used = np.append(np.ones(len(label)), 0)  # the last network does without
    parts = (
        np.concatenate([each[0], extra_x[:, None]], 1),
        np.concatenate([each[1], extra_y[:, None]], 1),
        np.concatenate([each[2], used[:, None]], 1),
    )
    outputs = learner.all_outputs(learner.train(start, Labelled(*parts)), pool)
    return outputs[:-1] - outputs[-1]


def _guessed(
    learner: Learner, params: tuple[Any, Any], x: np.ndarray, now: np.ndarray, y: np.ndarray, label: np.ndarray
) -> dict[Guess, Float[np.ndarray, "c u k"]]:
    """The same changes, without training."""
    n, first, trained = len(y), *params
    kernels = {
        Guess.TRAINED: learner.kernel(trained, x),
        Guess.START: learner.kernel(first, x),
        Guess.INFINITE: learner.limit(x),
    }
    classes = np.eye(y.shape[1]) - 1 / y.shape[1]
    guesses = {which: _look(kernel, n, y, now, classes, label) for which, kernel in kernels.items()}
    pulled = classes[label] - now[n : n + len(label)]
    reach = kernels[Guess.TRAINED][n:, n : n + len(label)]
    return guesses | {Guess.STEP: reach.T[:, :, None] * pulled[:, None]}


def _look(
    kernel: np.ndarray, n: int, y: np.ndarray, now: np.ndarray, classes: np.ndarray, label: np.ndarray
) -> Float[np.ndarray, "c u k"]:
    ridge = RIDGE * float(np.mean(np.diagonal(kernel)))
    start = (now[:n], now[n:])
    ahead = look_ahead(kernel[:n, :n], y, kernel[n:, :n], kernel[n:, n:], ridge=ridge, labels=classes, start=start)
    return ahead.predictions[np.arange(len(label)), label] - ahead.before


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's; 0 where all are alike."""
    ranks = [scipy.stats.rankdata(values) for values in (one, other)]
    centred = [values - values.mean() for values in ranks]
    return _cosine(*centred)


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(np.sum(one * other)) / size if size > 0 else 0.0
