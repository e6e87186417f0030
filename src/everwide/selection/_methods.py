"""Ways to choose rows: each scores all candidates, is told which one was picked, and can say why."""

import abc
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from .._checks import Choice
from .._words import number
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
    def reason(self, pick: int) -> str:
        """Why this candidate, before it is added."""


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

    def reason(self, pick: int) -> str:
        return "drawn at random"


class Margin(AbstractFixed):
    """The two most probable classes are nearly as probable."""

    def __init__(self, pool: Pool):
        self.order = np.argsort(-pool.chances, axis=1)[:, :2]
        best = np.take_along_axis(pool.chances, self.order, axis=1)
        self.margin = best[:, 0] - best[:, 1]
        self.values, self.names = 1 - self.margin, pool.classes

    def reason(self, pick: int) -> str:
        assert self.names is not None
        first, second = (self.names[place] for place in self.order[pick])
        return f"it may be {first} or {second}: their probabilities differ by {number(self.margin[pick])}"


class Entropy(AbstractFixed):
    """The classes are nearly as probable as each other."""

    def __init__(self, pool: Pool):
        self.values = entropy(pool.chances)

    def reason(self, pick: int) -> str:
        return f"its class is uncertain: the entropy of the probabilities is {number(self.values[pick])}"


def entropy(chances: Float[np.ndarray, "*any k"]) -> Float[np.ndarray, "*any"]:
    """In nats."""
    return -np.sum(chances * np.log(np.maximum(chances, 1e-300)), axis=-1)


class KCentre(AbstractMethod):
    """The candidate farthest from all labelled and picked rows: a core set."""

    def __init__(self, pool: Pool):
        self.candidates = pool.features[pool.labelled :]
        centres = pool.features[: pool.labelled]
        self.distance = nearest(self.candidates, centres)[0] if len(centres) else squares(self.candidates)

    def scores(self, allowed: Mask) -> Scores:
        return self.distance

    def add(self, pick: int) -> None:
        self.distance = np.minimum(self.distance, squares(self.candidates - self.candidates[pick]))

    def reason(self, pick: int) -> str:
        away = number(np.sqrt(self.distance[pick]))
        return f"it is the farthest from every labelled or picked row, {away} times the size of a typical row"


class KMeans(AbstractMethod):
    """Drawn in proportion to the squared distance from all picked rows, and from nothing: k-means++ (BADGE)."""

    random = True

    def __init__(self, pool: Pool, from_labelled: bool):
        self.candidates = pool.features[pool.labelled :]
        far = pool.labelled and from_labelled
        self.distance = nearest(self.candidates, pool.features[: pool.labelled])[0] if far else squares(self.candidates)
        self.total = float(self.distance.mean())

    def scores(self, allowed: Mask) -> Scores:
        return self.distance

    def add(self, pick: int) -> None:
        self.distance = np.minimum(self.distance, squares(self.candidates - self.candidates[pick]))

    def reason(self, pick: int) -> str:
        more = number(self.distance[pick] / max(self.total, 1e-300))
        return (
            f"drawn with a chance {more} times that of a typical row, for its uncertainty and its distance from picks"
        )


class Lcmd(AbstractMethod):
    """From the largest cluster, the row farthest from its centre; labelled and picked rows are the centres."""

    def __init__(self, pool: Pool):
        self.candidates = pool.features[pool.labelled :]
        self.centres = pool.labelled or 1
        if pool.labelled:
            self.distance, self.cluster = nearest(self.candidates, pool.features[: pool.labelled])
        else:
            self.distance, self.cluster = squares(self.candidates), np.zeros(pool.size, np.int64)

    def scores(self, allowed: Mask) -> Scores:
        sizes = np.bincount(self.cluster[allowed], self.distance[allowed], self.centres)
        members = np.bincount(self.cluster[allowed], minlength=self.centres)
        largest = np.argmax(np.where(members > 0, sizes, -1.0))
        return np.where(self.cluster == largest, self.distance + 1e-300, 0.0)

    def add(self, pick: int) -> None:
        new = squares(self.candidates - self.candidates[pick])
        nearer = new < self.distance
        self.distance, self.cluster = np.where(nearer, new, self.distance), np.where(nearer, self.centres, self.cluster)
        self.cluster[pick] = self.centres
        self.centres += 1

    def reason(self, pick: int) -> str:
        around = int(np.sum(self.cluster == self.cluster[pick]))
        return f"it is the farthest of {around} rows around one labelled or picked row, which together are farthest off"


class Determinantal(AbstractMethod):
    """Where a Gaussian process, given labelled and picked rows, is least certain: the greedy determinant."""

    def __init__(self, pool: Pool):
        self.posterior, self.labelled = Posterior(pool.features, pool.labelled, _SMALL_RIDGE), pool.labelled

    def scores(self, allowed: Mask) -> Scores:
        return self.posterior.variance()[self.labelled :]

    def add(self, pick: int) -> None:
        self.posterior.learn(self.labelled + pick)

    def reason(self, pick: int) -> str:
        left = self.posterior.variance()[self.labelled + pick]
        return f"labelled and picked rows say least about it: {number(left)} of a typical row's variance is left"


class Bait(AbstractMethod):
    """What lowers the variance of all rows together most, given labelled and picked rows."""

    def __init__(self, pool: Pool, ridge: float):
        self.posterior, self.labelled = Posterior(pool.features, pool.labelled, ridge), pool.labelled
        inner = self.posterior.features.astype(np.float64)
        self.gram = inner.T @ inner
        self.told = np.einsum("np,pq,nq->n", inner, self.gram, inner, optimize=True)  # sums of squared covariances

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

    def reason(self, pick: int) -> str:
        total = float(self.posterior.variance().sum())
        share = self.scores(np.ones(0, bool))[pick] / max(total, 1e-300)
        return f"its label would take {100 * share:.2g} % off the variance of all rows, the most of any"


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

    def reason(self, pick: int) -> str:
        place = self.cluster[pick]
        taken = self.covered[place]
        have = "none of which is labelled or picked" if not taken else f"of which {taken} are labelled or picked"
        return f"it is the most typical of {int(np.sum(self.cluster == place))} similar rows, {have}"


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
