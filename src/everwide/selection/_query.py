"""Which rows to label next, and why."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._checks import InputError, share, whole
from .._engine import as_rows
from .._words import listed, several
from ._ahead import Ahead, Bald, Gain
from ._driver import Asked, Driver
from ._embeddings import AbstractEmbedding, dim_for, embedding_of, standardized
from ._learners import AbstractLearner, learner_of, take, wide_learner
from ._methods import (
    AbstractMethod,
    Bait,
    Determinantal,
    Entropy,
    KCentre,
    KMeans,
    Lcmd,
    Margin,
    Pool,
    Random,
    Transform,
    TypiClust,
    squares,
)
from ._plan import Method, Plan, plan_of
from ._posterior import Posterior
from ._stop import Outlook, Stop, stop_of
from ._targets import Targets, targets_of

_POSTERIOR_RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Selection:
    """Rows to label next, the first one first, with a reason for each. Made by `query`; unpacks as `indices, why`."""

    indices: Int[np.ndarray, " b"]
    why: list[str]
    method: str
    kernel: str
    transform: str
    scores: Float[np.ndarray, " b"]
    passed_over: dict[int, int]
    note: str
    _outlook: Outlook = field(repr=False)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.indices, self.why))

    def stop(self, more: int | None = None, *, worth: float = 0.05) -> Stop:
        """Whether `more` labels, by default as many as were picked, are worth it: by a forecast, which takes a moment.

        They are not if random ones would lower the error by less than the share `worth` of it.
        """
        return stop_of(self._outlook, whole(len(self.indices) if more is None else more, "more"), share(worth, "worth"))

    def __str__(self) -> str:
        lines = [f"{row}: {reason}" for row, reason in zip(self.indices.tolist(), self.why, strict=True)]
        return "\n".join([*lines, self.note] if self.note else lines)


def query(
    x: Any,
    y: Any,
    model: Any = None,
    *,
    batch_size: int = 1,
    candidates: Any = None,
    method: str | None = None,
    kernel: Any = None,
    transform: str | None = None,
    which: str = "ntk",
    costs: Any = None,
    groups: Any = None,
    task: str = "auto",
    seed: int = 0,
    memory: int | None = None,
) -> Selection:
    """Rows of a pool that are worth a label, and the reason for each.

    A kernel says which rows are alike, a transform what is known of them already, and a method chooses, one row after
    the other; a picked row counts as labelled, with its most probable label where that matters, so that a batch
    needs no retraining. Near-duplicates of labelled or picked rows are passed over.

    Args:
        x: all rows, labelled or not: `(n, features)` or `(n, *sites, channels)`; a data frame of numbers.
        y: their labels, NaN where there is none (None in lists of text).
        model: trained on the labelled rows: an estimator with `predict_proba`, `decision_function` or `predict`; a
            pair `(f, params)`, `f(params, x)` for one example; an Equinox, Flax NNX or PyTorch module. Networks return
            logits of the classes in their sorted order, or numbers. None: an infinitely wide network is fitted.
        batch_size: rows to pick.
        candidates: rows that may be picked, by their numbers or as a mask; all that have no label.
        method: `"margin"` or `"entropy"`, for classes; `"random"`, `"bald"`, `"k_centre"`, `"badge"`, `"bait"`,
            `"lcmd"`, `"determinantal"`, `"typiclust"`; and those that look ahead: `"mlmoc"` (classes), `"emoc"`,
            `"expected_error"`. By default `"margin"` for classes, `"lcmd"` for numbers, and `"typiclust"` while there
            is nothing to learn from.
        kernel: `"tangent"`, that of a trained network, by default where there is one; `"last_layer"`; `"inputs"`; a
            network of everwide, for its infinite kernel; or a kernel matrix of all rows.
        transform: `"plain"`, `"posterior"`, `"uncertain"` or `"fisher"`; by default what the method was made for.
        which: `"ntk"` or `"nngp"`, of a network of everwide.
        costs: of labelling a row, above 0: scores are divided by them.
        groups: one for each row, such as patients: a batch takes from as many groups as it can.
        task: `"classification"`, `"regression"`, or `"auto"`, by the model and the labels.
        seed: of everything that is drawn.
        memory: bytes that the features of all rows may take; `None`: half of what is free.

    Returns:
        A pair `indices, why`: rows, in the order in which they were picked, and a sentence for each. Also `scores`, at
        the moment of picking; `method`, `kernel`, `transform`: what was used; `passed_over`: near-duplicates, and of
        which row; `note`: what else there is to say; `stop()`: whether more labels are worth it.

    >>> import everwide.selection as sel, numpy as np
    >>> x = np.linspace(-1, 1, 9).reshape(-1, 1)
    >>> y = np.full(9, np.nan)
    >>> y[[0, 1, 7, 8]] = [0, 0, 1, 1]
    >>> indices, why = sel.query(x, y)
    >>> indices
    array([4])
    >>> why[0][:19]
    'it may be 0 or 1: t'

    Holzmüller, Zaverkin, Kästner and Steinwart, "A framework and benchmark for deep batch active learning for
    regression" (2023); Mohamadi, Bae and Sutherland (2022), for looking ahead.

    """
    inputs, size = as_rows(x).x, whole(batch_size, "batch_size")
    x = x if hasattr(x, "iloc") else inputs
    whole(seed, "seed", least=0)
    given = None if model is None else learner_of(model)
    targets = targets_of(y, len(inputs), task, None if given is None else given.classifies)
    some = _candidates(candidates, targets, len(inputs), size)
    plan = plan_of(method, transform, targets, given)
    learner = given or (wide_learner(x, targets, kernel) if plan.needs_a_model(targets, kernel) else None)
    problem = _Problem(x, targets, learner, np.concatenate([targets.labelled, some]), seed, memory)
    embedding = embedding_of(kernel, learner, x, inputs, which)
    pool = problem.pool(embedding, plan)
    driver = Driver(standardized(inputs)[problem.order], pool, problem.order, Asked(costs, groups, len(inputs)))
    picks, why, scores = driver.run(_started(plan, pool, size), size)
    words = embedding.words if plan.uses_features else "none"
    twins = {int(problem.order[row]): int(problem.order[twin]) for row, twin in driver.passed_over.items()}
    outlook = Outlook(x, targets, model, embedding, dim_for(len(inputs), memory), seed)
    indices = problem.order[pool.labelled + picks]
    note = " ".join([*plan.notes, *_notes(len(picks), size, twins)])
    return Selection(indices, why, str(plan.method), words, str(plan.transform), scores, twins, note, outlook)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Checked rows, in the order of a pool: the labelled ones, then the candidates."""

    x: Any
    targets: Targets
    learner: AbstractLearner | None
    order: Int[np.ndarray, " n"]
    seed: int
    memory: int | None

    def pool(self, embedding: AbstractEmbedding, plan: Plan) -> Pool:
        """With the features that a transform asks for."""
        targets, learner = self.targets, self.learner
        classes, y = None, targets.numbers
        if targets.names is not None:
            classes = targets.classes if learner is None else learner.classes(targets, self.x)
            y = np.eye(max(len(classes), 1))[targets.codes(classes)]
        assert y is not None
        outputs = None
        if learner is not None and (classes is None or len(classes) > 1):
            outputs = learner.outputs(take(self.x, self.order), classes)
            if outputs.shape[1] != y.shape[1]:
                raise InputError(
                    f"The model has {several(outputs.shape[1], 'output')}, and y {y.shape[1]}: they must agree."
                )
        start = np.tile(y.mean(0) if len(y) else np.zeros(y.shape[1]), (len(self.order), 1))
        if learner is not None and outputs is not None and not learner.is_kernel_machine:
            start = outputs
        features = np.zeros((len(self.order), 1))
        if plan.uses_features:
            features = self._features(embedding, plan.transform, outputs)
        return Pool(features, y, outputs, start, classes, np.random.default_rng(self.seed))

    def _features(self, embedding: AbstractEmbedding, transform: Transform, outputs: Any) -> np.ndarray:
        """Transformed, and scaled to a mean square of 1."""
        dim = dim_for(len(self.order), self.memory)
        if transform is Transform.UNCERTAIN:
            surprise = outputs - np.eye(outputs.shape[1])[np.argmax(outputs, axis=1)]
            return _unit(embedding.weighted(self.order, surprise, dim, self.seed))
        features = _unit(embedding.features(self.order, dim, self.seed))
        if transform is Transform.FISHER:
            return _unit(features * np.sqrt(np.maximum(1 - np.sum(outputs**2, axis=1, keepdims=True), 0)))
        if transform is Transform.POSTERIOR:
            return Posterior(features, len(self.targets.labelled), _POSTERIOR_RIDGE).features
        return features


def _started(plan: Plan, pool: Pool, batch: int) -> AbstractMethod:
    method = plan.method
    match method:
        case Method.MLMOC | Method.EMOC | Method.EXPECTED_ERROR:
            return Ahead(pool, Gain(str(method)))
        case Method.BADGE:
            return KMeans(pool, gradients=plan.transform is Transform.UNCERTAIN)
        case Method.BAIT:
            return Bait(pool, pool.ridge)
        case Method.TYPICLUST:
            return TypiClust(pool, batch)
    return {
        Method.RANDOM: Random,
        Method.MARGIN: Margin,
        Method.ENTROPY: Entropy,
        Method.BALD: Bald,
        Method.K_CENTRE: KCentre,
        Method.LCMD: Lcmd,
        Method.DETERMINANTAL: Determinantal,
    }[method](pool)


def _candidates(candidates: Any, targets: Targets, n: int, size: int) -> Int[np.ndarray, " c"]:
    """Rows that may be picked."""
    unlabelled = np.setdiff1d(np.arange(n), targets.labelled)
    if not len(unlabelled):
        raise InputError(
            "y has a label in every row: there is nothing to pick from. Rows without a label hold NaN (whole numbers "
            "as floats), or None in lists of text."
        )
    rows = unlabelled
    if candidates is not None:
        given = np.asarray(candidates)
        if given.dtype == bool and given.shape != (n,):
            raise InputError(f"candidates is a mask of shape {given.shape}, expected ({n},), one for each row of x.")
        given = np.flatnonzero(given) if given.dtype == bool else given
        if given.ndim != 1 or given.dtype.kind not in "iu" or not given.size or given.min() < 0 or given.max() >= n:
            raise InputError(f"candidates={candidates!r}: expected numbers of rows, from 0 to {n - 1}, or a mask.")
        rows = np.unique(given)
        taken = np.intersect1d(rows, targets.labelled)
        if len(taken):
            names = listed([str(row) for row in taken.tolist()])
            raise InputError(f"candidates: {several(len(taken), 'row')} have a label already: {names}. Leave them out.")
    if size > len(rows):
        raise InputError(
            f"batch_size={size}: there are {several(len(rows), 'candidate')} only. Ask for at most as many."
        )
    return rows


def _notes(picked: int, size: int, twins: dict[int, int]) -> list[str]:
    notes = []
    if twins:
        some = listed([f"{row} (of {twin})" for row, twin in twins.items()])
        notes.append(f"Near-duplicates of labelled or picked rows were passed over: {some}.")
    if picked < size:
        notes.append(f"Only {several(picked, 'row')} of {size} were picked: all others are such near-duplicates.")
    return notes


def _unit(features: np.ndarray) -> np.ndarray:
    if not np.isfinite(features).all():
        raise InputError("The kernel of some rows is not finite. Has the training of the model diverged?")
    size = float(np.sqrt(np.mean(squares(features))))
    return features / np.asarray(size, features.dtype) if size > 0 else features
