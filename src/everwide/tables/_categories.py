"""Categories: which columns are some, and what becomes of their levels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .._checks import InputError
from .._engine import require
from ._plans import AbstractPlan, Levels, TargetMeans
from ._table import listed_names, printable
from ._texts import Texts

_MOST_LEVELS, _MOST_FREQUENT = 50, 255  # that have a column each: in any table, and where rows of each are enough
_ROWS_OF_A_LEVEL = 4
_FOLDS = 10
_LEAST_SMOOTHING = 0.1  # rows


def categorical_columns(given: Any, frame: pd.DataFrame) -> np.ndarray | None:
    """Which columns are categories whatever they hold; `None` where their types say it."""
    d = frame.shape[1]
    if given is None:
        return np.zeros(d, dtype=bool)
    if isinstance(given, str) and given == "from_dtype":
        return None
    chosen = np.asarray(given)
    names = [str(name) for name in frame.columns]
    way_out = "expected 'from_dtype', None, a mask of all columns, or numbers or names of some of them."
    if isinstance(given, str) or chosen.ndim != 1 or (chosen.dtype.kind not in "biuUO" and chosen.size):
        raise InputError(f"categorical_features={printable(repr(given), 100)}: {way_out}")
    if chosen.dtype.kind == "b":
        if len(chosen) != d:
            raise InputError(f"categorical_features is a mask of {len(chosen)}, and X has {d} columns: {way_out}")
        return chosen
    if chosen.dtype.kind in "UO" and len(unknown := [str(name) for name in chosen if str(name) not in names]):
        raise InputError(f"categorical_features has {listed_names(unknown)}, which are not in X: {way_out}")
    if chosen.dtype.kind in "UO":
        return np.isin(names, [str(name) for name in chosen])
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < d):
        raise InputError(f"categorical_features={chosen.tolist()}: X has columns 0 to {d - 1}; {way_out}")
    return np.isin(np.arange(d), chosen)


class Planned(NamedTuple):
    """A plan, the features of training rows, and what was done, in keys of sentences."""

    plan: AbstractPlan
    values: np.ndarray
    done: tuple[str, ...]


def plan_levels(texts: Texts, targets: np.ndarray | None, weights: np.ndarray, shows: bool) -> Planned:
    """A column of each level; of too many the means of the targets, or the most frequent ones without targets."""
    missing = bool(shows and (texts.codes < 0).any())
    most = max(_MOST_LEVELS, min(_MOST_FREQUENT, len(texts.codes) // _ROWS_OF_A_LEVEL))
    columns, other = min(len(texts.levels), most), len(texts.levels) > most
    require(8 * columns * len(texts.codes), None, "Categories as columns of zeros and ones", "Use fewer rows.")
    if other and targets is not None:
        return _plan_means(texts, targets, weights)
    kept: Sequence[int] = range(len(texts.levels))
    if other:
        kept = np.sort(np.argsort(-texts.counts, kind="stable")[: most - 1]).tolist()
    plan = Levels({texts.levels[code]: place for place, code in enumerate(kept)}, missing, other)
    return Planned(plan, plan.features(texts).values, ("other" if other else "levels",) + ("shown",) * missing)


def _plan_means(texts: Texts, targets: np.ndarray, weights: np.ndarray) -> Planned:
    """Training rows are shown the mean of other rows: their own target would give itself away."""
    size = len(texts.levels) + 1  # the last one: no level
    codes = np.where(texts.codes < 0, size - 1, texts.codes)
    centre = np.average(targets, axis=0, weights=weights)
    folds = np.random.default_rng(0).permutation(len(codes)) % _FOLDS
    values = np.empty(targets.shape)
    for number in np.unique(folds):
        own, others = folds == number, folds != number
        values[own] = smoothed_means(codes[others], targets[others], weights[others], size, centre)[codes[own]]
    means = smoothed_means(codes, targets, weights, size, centre)
    plan = TargetMeans({level: code for code, level in enumerate(texts.levels)}, np.vstack([means, centre]))
    return Planned(plan, values, ("means",))


def smoothed_means(
    codes: np.ndarray, targets: np.ndarray, weights: np.ndarray, size: int, centre: np.ndarray
) -> np.ndarray:
    """Of each level, `(size, k)`, drawn to the centre, the more so the fewer rows it has; that is what no row tells of.

    As many rows are added as the variance within levels has of that between them, by an analysis of variance: so the
    means are those of a Gaussian prior. The centre is one for all folds: their own would give the fold away, and with
    it what is left of the targets.
    """
    rows = np.bincount(codes, weights, size)
    total, seen = rows.sum(), int((rows > 0).sum())
    means = np.empty((size, targets.shape[1]))
    for at, y in enumerate((targets - centre).T):
        own = np.bincount(codes, weights * y, size) / np.where(rows > 0, rows, 1.0)
        within = float(weights @ (y - own[codes]) ** 2) / max(total - seen, 1.0)
        spread = max(total - float(rows @ rows) / total, np.finfo(np.float64).tiny)
        between = (float(rows @ own**2) - max(seen - 1, 0) * within) / spread
        added = total if between <= within / total else max(within / between, _LEAST_SMOOTHING)
        means[:, at] = centre[at] + own * rows / (rows + added)
    return means
