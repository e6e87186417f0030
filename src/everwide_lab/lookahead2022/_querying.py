"""Rounds of queries: a network is trained, rows are chosen, their labels are bought, and so on."""

import enum

import numpy as np
from jaxtyping import Float, Int

from everwide.selection import look_ahead

from ._network import Labelled, Learner
from ._retraining import RIDGE
from ._tasks import Sample


class Strategy(enum.StrEnum):
    """How rows are chosen.

    >>> from everwide_lab.lookahead2022._querying import Strategy
    >>> Strategy.MLMOC.value
    'look-ahead'
    """

    RANDOM = "random"
    MARGIN = "margin"
    ENTROPY = "entropy"
    MLMOC = "look-ahead"
    INFINITE = "look-ahead, infinite kernel"


def curve(
    sample: Sample, learner: Learner, strategy: Strategy, first: int, batch: int, rounds: int, seed: int
) -> list[float]:
    """Test accuracies: before the first round of queries, and after each. Every network begins anew."""
    labelled, most = np.arange(first), first + rounds * batch
    rng, start = np.random.default_rng([seed, 3]), learner.first(sample.x.shape[1], seed)
    accuracies = []
    for done in range(rounds + 1):
        params = learner.train(start, _padded(sample, labelled, most))
        outputs = learner.outputs(params, sample.x_test)
        accuracies.append(float(np.mean(outputs.argmax(1) == sample.y_test)))
        if done < rounds:
            rest = np.setdiff1d(np.arange(len(sample.x)), labelled)
            order = np.concatenate([labelled, rest])
            now = learner.outputs(params, sample.x[order])
            if strategy in (Strategy.MLMOC, Strategy.INFINITE):
                x = sample.x[order]
                kernel = learner.kernel(params, x) if strategy is Strategy.MLMOC else learner.limit(x)
                picked = looked_ahead(kernel, sample.targets(sample.y[labelled]), now, batch)
            else:
                picked = by_outputs(strategy, now[len(labelled) :] + 1 / sample.classes, batch, rng)
            labelled = np.concatenate([labelled, rest[picked]])
    return accuracies


def by_outputs(
    strategy: Strategy, outputs: Float[np.ndarray, "u k"], batch: int, rng: np.random.Generator
) -> Int[np.ndarray, " b"]:
    """The rows about whose class the network is least certain, its outputs taken as probabilities; or any."""
    if strategy is Strategy.RANDOM:
        return rng.permutation(len(outputs))[:batch]
    chances = np.maximum(outputs, 1e-6)
    chances = chances / chances.sum(1, keepdims=True)
    if strategy is Strategy.MARGIN:
        ordered = np.sort(chances, axis=1)
        certain = ordered[:, -1] - ordered[:, -2]
    else:
        certain = np.sum(chances * np.log(chances), axis=1)
    return np.argsort(certain, kind="stable")[:batch]


def looked_ahead(
    kernel: Float[np.ndarray, "n n"], y: Float[np.ndarray, "m k"], now: Float[np.ndarray, "n k"], batch: int
) -> Int[np.ndarray, " b"]:
    """One row after the other by MLMOC; what was chosen is learned with its most likely label before the next."""
    n, ridge = len(y), RIDGE * float(np.mean(np.diagonal(kernel)))
    classes = np.eye(y.shape[1]) - 1 / y.shape[1]
    start = (now[:n], now[n:])
    ahead = look_ahead(kernel[:n, :n], y, kernel[n:, :n], kernel[n:, n:], ridge=ridge, labels=classes, start=start)
    picked: list[int] = []
    for _ in range(batch):
        scores = ahead.mlmoc()
        scores[picked] = -np.inf
        best = int(np.argmax(scores))
        picked.append(best)
        ahead = ahead.learned(best, classes[int(np.argmax(ahead.before[best]))])
    return np.array(picked)


def _padded(sample: Sample, labelled: Int[np.ndarray, " m"], most: int) -> Labelled:
    """The labelled rows, and copies without weight up to the size that they will have in the end."""
    places = np.resize(labelled, most)
    weights = (np.arange(most) < len(labelled)).astype(np.float64)
    return Labelled(sample.x[places], sample.targets(sample.y[places]), weights)
