"""Ways to choose rows: each scores all candidates, is told which one was picked, and can say why."""

import abc
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from .._checks import Choice
from .._words import number, several
from ._posterior import Posterior, best_ridge

_TILE = 1 << 25  # numbers that exist at a time
_SMALL_RIDGE = 1e-6  # of determinants: relative to the mean of the kernel's diagonal
_NEIGHBOURS, _LLOYD, _CLUSTERED, _MOST_CLUSTERS = 20, 10, 10_000, 500

Scores = Float[np.ndarray, " c"]
Mask = Bool[np.ndarray, " c"]


class Transform(Choice):
    """What is done to features before rows are chosen by them.

    - plain: nothing.
    - posterior: what the labelled rows tell already is taken out.
    - uncertain: the gradient of the loss, were the most probable class the label (BADGE).
    - fisher: times the root of the chance that two draws of the class differ, the trace of the Fisher information.
    """

    PLAIN = "plain"
    POSTERIOR = "posterior"
    UNCERTAIN = "uncertain"
    FISHER = "fisher"


@dataclass(frozen=True, eq=False)
class Pool:
    """All that methods read. Rows are in order: the labelled ones, then the candidates.

    `y` are targets of labelled rows, indicators of classes or numbers; `outputs` are probabilities of classes, or
    numbers, of all rows, or None where nothing is learned yet; `start` are those that learning corrects.
    """

    features: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, "m k"]
    outputs: Float[np.ndarray, "n k"] | None
    start: Float[np.ndarray, "n k"]
    classes: np.ndarray | None
    rng: np.random.Generator

    @property
    def labelled(self) -> int:
        """How many rows have labels."""
        return len(self.y)

    @property
    def size(self) -> int:
        """Candidates."""
        return len(self.features) - self.labelled

    @cached_property
    def chances(self) -> Float[np.ndarray, "c k"]:
        """Probabilities of the candidates."""
        assert self.outputs is not None
        return self.outputs[self.labelled :]

    @cached_property
    def ridge(self) -> float:
        """For regression in the space of features."""
        return best_ridge(self.features[: self.labelled], self.y)


class AbstractMethod(abc.ABC):
    """Scores candidates, given those that were picked before."""

    random = False  # a candidate is drawn in proportion to its score, instead of the best taken

    @abc.abstractmethod
    def scores(self, allowed: Mask) -> Scores:
        """At least 0, the larger the better; of candidates that are not allowed, they are not looked at."""

    @abc.abstractmethod
    def add(self, pick: int) -> None:
        """Reckon with a candidate that was picked."""

    @abc.abstractmethod
    def reason(self, pick: int, score: float) -> str:
        """Why this candidate, before it is added; with its score."""


class AbstractFixed(AbstractMethod):
    """Scores do not depend on what was picked."""

    values: Scores

    def scores(self, allowed: Mask) -> Scores:
        return self.values

    def add(self, pick: int) -> None:
        pass


class Random(AbstractFixed):
    """All alike."""

    random = True

    def __init__(self, pool: Pool):
        self.values = np.ones(pool.size)

    def reason(self, pick: int, score: float) -> str:
        return "drawn at random"


class Margin(AbstractFixed):
    """The two most probable classes are nearly as probable."""

    def __init__(self, pool: Pool):
        self.order = np.argsort(-pool.chances, axis=1)[:, :2]
        best = np.take_along_axis(pool.chances, self.order, axis=1)
        self.margin = best[:, 0] - best[:, 1]
        self.values, self.names = 1 - self.margin, pool.classes

    def reason(self, pick: int, score: float) -> str:
        assert self.names is not None
        first, second = (self.names[place] for place in self.order[pick])
        return f"it may be {first} or {second}: their probabilities differ by {number(self.margin[pick])}"


class Entropy(AbstractFixed):
    """The classes are nearly as probable as each other."""

    def __init__(self, pool: Pool):
        self.values = entropy(pool.chances)

    def reason(self, pick: int, score: float) -> str:
        return f"its class is uncertain: the entropy of the probabilities is {number(score)}"


def entropy(chances: Float[np.ndarray, "*any k"]) -> Float[np.ndarray, "*any"]:
    """In nats."""
    return -np.sum(chances * np.log(np.maximum(chances, 1e-300)), axis=-1)


class Clusters:
    """Candidates, each with the nearest labelled or picked row, its centre; without any, the centre is 0."""

    def __init__(self, features: Float[np.ndarray, "n p"], labelled: int):
        """The first rows are labelled."""
        self.candidates, centres = features[labelled:], features[:labelled]
        self.squares, self.count = squares(self.candidates), max(labelled, 1)
        self.distance: Scores = self.squares.copy()
        self.cluster: Int[np.ndarray, " c"] = np.zeros(len(self.candidates), np.int64)
        if labelled:
            self.distance, self.cluster = nearest(self.candidates, centres)

    def add(self, pick: int) -> None:
        """One centre more; distances are squared."""
        inner = np.asarray(self.candidates @ self.candidates[pick], np.float64)
        new = np.maximum(self.squares + self.squares[pick] - 2 * inner, 0)
        new[pick] = 0.0
        nearer = new < self.distance
        nearer[pick] = True
        self.distance, self.cluster = np.where(nearer, new, self.distance), np.where(nearer, self.count, self.cluster)
        self.count += 1

    def away(self, pick: int) -> str:
        """In words: features have a mean square of 1."""
        return f"{number(np.sqrt(self.distance[pick]))} times the size of a typical row"


class KCentre(AbstractMethod):
    """The candidate farthest from all labelled and picked rows: a core set."""

    def __init__(self, pool: Pool):
        self.clusters = Clusters(pool.features, pool.labelled)

    def scores(self, allowed: Mask) -> Scores:
        return self.clusters.distance

    def add(self, pick: int) -> None:
        self.clusters.add(pick)

    def reason(self, pick: int, score: float) -> str:
        return f"the nearest labelled or picked row is far from it: {self.clusters.away(pick)}"


class KMeans(AbstractMethod):
    """Drawn in proportion to the squared distance from all picked rows, or from 0: k-means++, and BADGE.

    Gradients of a loss are 0 where the model is certain: these are not compared with those of labelled rows.
    """

    random = True

    def __init__(self, pool: Pool, gradients: bool):
        self.gradients, first = gradients, pool.labelled if gradients else 0
        self.clusters = Clusters(pool.features[first:], pool.labelled - first)
        self.typical = float(self.clusters.distance.mean())

    def scores(self, allowed: Mask) -> Scores:
        return self.clusters.distance

    def add(self, pick: int) -> None:
        self.clusters.add(pick)

    def reason(self, pick: int, score: float) -> str:
        more = number(self.clusters.distance[pick] / max(self.typical, 1e-300))
        what = "the gradient of its loss is large, and unlike those of picked rows"
        what = what if self.gradients else "it is unlike labelled and picked rows"
        return f"drawn with {more} times the chance of a typical row: {what}"


class Lcmd(AbstractMethod):
    """From the largest cluster, the row farthest from its centre; labelled and picked rows are the centres."""

    def __init__(self, pool: Pool):
        self.clusters = Clusters(pool.features, pool.labelled)

    def scores(self, allowed: Mask) -> Scores:
        cluster, distance, count = self.clusters.cluster, self.clusters.distance, self.clusters.count
        sizes = np.bincount(cluster[allowed], distance[allowed], count)
        members = np.bincount(cluster[allowed], minlength=count)
        largest = np.argmax(np.where(members > 0, sizes, -1.0))
        return np.where(cluster == largest, distance + 1e-300, 0.0)

    def add(self, pick: int) -> None:
        self.clusters.add(pick)

    def reason(self, pick: int, score: float) -> str:
        around = int(np.sum(self.clusters.cluster == self.clusters.cluster[pick]))
        return (
            f"of all clusters around labelled or picked rows, its own is the largest ({several(around, 'candidate')}), "
            f"and it is far from the centre: {self.clusters.away(pick)}"
        )


class Determinantal(AbstractMethod):
    """Where a Gaussian process, given labelled and picked rows, is least certain: the greedy determinant."""

    def __init__(self, pool: Pool):
        self.posterior, self.labelled = Posterior(pool.features, pool.labelled, _SMALL_RIDGE), pool.labelled

    def scores(self, allowed: Mask) -> Scores:
        return self.posterior.variance()[self.labelled :]

    def add(self, pick: int) -> None:
        self.posterior.learn(self.labelled + pick)

    def reason(self, pick: int, score: float) -> str:
        left = self.posterior.variance()[self.labelled + pick]
        return f"labelled and picked rows say little about it: {number(left)} of a typical row's variance is left"


class Bait(AbstractMethod):
    """What lowers the variance of all rows together most, given labelled and picked rows."""

    def __init__(self, pool: Pool, ridge: float):
        self.posterior, self.labelled = Posterior(pool.features, pool.labelled, ridge), pool.labelled
        inner = self.posterior.features
        self.gram: Float[np.ndarray, "p p"] = np.asarray(inner.T @ inner, np.float64)
        self.told: Float[np.ndarray, " n"] = np.concatenate(  # sums of squared covariances
            [np.einsum("np,np->n", inner[cut] @ self.gram, inner[cut]) for cut in cuts(*inner.shape)]
        )

    def scores(self, allowed: Mask) -> Scores:
        return np.maximum(self.told / (self.posterior.variance() + self.posterior.ridge), 0)[self.labelled :]

    def add(self, pick: int) -> None:
        features, ridge = self.posterior.features, self.posterior.ridge
        own = features[self.labelled + pick].astype(np.float64)
        less = 1 / (float(own @ own) + ridge)  # learning takes `less own own^T` off the covariance of features
        along = features @ own.astype(features.dtype)
        pulled = self.gram @ own
        across = features @ pulled.astype(features.dtype)
        self.told = self.told - 2 * less * along * across + less**2 * along**2 * float(own @ pulled)
        size = float(own @ own)
        shrink = (1 - np.sqrt(ridge * less)) / size if size > 0 else 0.0
        step = np.eye(len(own)) - shrink * np.outer(own, own)
        self.gram = step @ self.gram @ step
        self.posterior.learn(self.labelled + pick)

    def reason(self, pick: int, score: float) -> str:
        total = float(self.posterior.variance().sum())
        share = score / max(total, 1e-300)
        return f"its label would take {100 * share:.2g} % off the variance of the predictions of all rows"


class TypiClust(AbstractMethod):
    """The most typical row of the largest cluster that has no labelled or picked row."""

    def __init__(self, pool: Pool, batch: int):
        clusters = min(pool.labelled + batch, _MOST_CLUSTERS, len(pool.features))
        cluster = k_means(pool.features, clusters, pool.rng)
        self.features, self.cluster = pool.features[pool.labelled :], cluster[pool.labelled :]
        self.covered = np.bincount(cluster[: pool.labelled], minlength=clusters)
        self.rng, self.typical = pool.rng, {}

    def scores(self, allowed: Mask) -> Scores:
        members = np.bincount(self.cluster[allowed], minlength=len(self.covered))
        fewest = np.where(members > 0, self.covered, np.iinfo(np.int64).max)
        chosen = int(np.argmax(np.where(fewest == fewest.min(), members, -1)))
        scores = np.zeros(len(self.cluster))
        inside = np.flatnonzero(self.cluster == chosen)
        if chosen not in self.typical:
            self.typical[chosen] = typicality(self.features[inside], self.rng)
        scores[inside] = self.typical[chosen]
        return scores

    def add(self, pick: int) -> None:
        self.covered[self.cluster[pick]] += 1

    def reason(self, pick: int, score: float) -> str:
        place = self.cluster[pick]
        taken = self.covered[place]
        have = f"near {several(int(taken), 'labelled or picked row')}" if taken else "far from labelled and picked rows"
        return f"it is typical of {several(int(np.sum(self.cluster == place)), 'similar candidate')}, {have}"


def typicality(features: Float[np.ndarray, "n p"], rng: np.random.Generator) -> Float[np.ndarray, " n"]:
    """The inverse of the mean distance to the nearest neighbours."""
    some = features[rng.permutation(len(features))[:2000]]
    near = min(_NEIGHBOURS + 1, len(some))
    mean = np.empty(len(features))
    for cut in cuts(len(features), len(some)):
        distance = np.sqrt(distances(features[cut], some))
        mean[cut] = np.partition(distance, near - 1, axis=1)[:, :near].sum(1) / max(near - 1, 1)
    return 1 / (mean + 1e-12)


def k_means(features: Float[np.ndarray, "n p"], clusters: int, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """The cluster of every row: Lloyd's iterations on some rows, from k-means++."""
    some = features[rng.permutation(len(features))[: max(_CLUSTERED, clusters)]]
    centres, distance = some[:1], squares(some - some[0])
    while len(centres) < clusters and distance.any():
        new = some[rng.choice(len(some), p=distance / distance.sum())]
        centres, distance = np.vstack([centres, new]), np.minimum(distance, squares(some - new))
    for _ in range(_LLOYD):
        cluster = nearest(some, centres)[1]
        count = np.bincount(cluster, minlength=len(centres))
        sums = np.zeros(centres.shape)
        np.add.at(sums, cluster, some)
        centres = np.where(count[:, None] > 0, sums / np.maximum(count, 1)[:, None], centres)
    return nearest(features, centres)[1]


def squares(features: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
    """Of the lengths of rows."""
    return np.einsum("np,np->n", features, features, dtype=np.float64)


def distances(x1: Float[np.ndarray, "a p"], x2: Float[np.ndarray, "b p"]) -> Float[np.ndarray, "a b"]:
    """Squared; never below 0."""
    return np.maximum(squares(x1)[:, None] + squares(x2) - 2 * np.asarray(x1 @ x2.T, np.float64), 0)


def cuts(rows: int, columns: int) -> list[slice]:
    """Some rows at a time, so that their distances from all columns stay small."""
    step = max(1, _TILE // max(columns, 1))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def nearest(
    x: Float[np.ndarray, "n p"], centres: Float[np.ndarray, "m p"]
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The squared distance from the nearest centre, and which it is."""
    distance, place = np.empty(len(x)), np.empty(len(x), np.int64)
    for cut in cuts(len(x), len(centres)):
        tile = distances(x[cut], centres)
        place[cut] = np.argmin(tile, axis=1)
        distance[cut] = tile[np.arange(len(tile)), place[cut]]
    return distance, place
