"""What is wrong with a table before anything is learned: repeated rows, columns that say nothing or too much."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

_LEAVES = 64  # of a tree that looks at one column
_MOST_COLUMNS, _MOST_ROWS, _FEWEST_ROWS = 1000, 2000, 20
_TOO_GOOD = 0.98  # of what there is to know about the target, from one column alone


class Duplicates(NamedTuple):
    """Rows whose inputs were there before; those among all rows of such groups whose targets differ."""

    repeated: int
    conflicting: int


class Suspect(NamedTuple):
    """A column, and which share of the target it gives away by itself."""

    column: int
    share: float


def duplicates(x: Float[np.ndarray, "n d"], y: np.ndarray) -> Duplicates:
    """Rows with equal inputs."""
    groups: dict[bytes, list[int]] = {}
    for row, values in enumerate(np.ascontiguousarray(x + 0.0)):  # -0.0 becomes 0.0
        groups.setdefault(values.tobytes(), []).append(row)
    shared = [rows for rows in groups.values() if len(rows) > 1]
    conflicting = sum(len(rows) for rows in shared if len(np.unique(y[rows])) > 1)
    return Duplicates(sum(len(rows) - 1 for rows in shared), conflicting)


def constant_columns(x: Float[np.ndarray, "n d"]) -> Int[np.ndarray, " columns"]:
    """Columns with one value."""
    return np.flatnonzero(np.ptp(x, axis=0) == 0)


def identifiers(x: Float[np.ndarray, "n d"]) -> Int[np.ndarray, " columns"]:
    """Columns of whole numbers that count the rows."""
    steps = np.diff(x, axis=0)
    return np.flatnonzero((len(x) > 2) & ((steps == 1).all(0) | (steps == -1).all(0)))


def leaks(x: Float[np.ndarray, "n d"], y: np.ndarray, *, classes: bool) -> list[Suspect]:
    """Columns that nearly give the target away, each by itself; of large tables a part is looked at."""
    seen = np.random.default_rng(0).permutation(len(x))[:_MOST_ROWS]
    if len(seen) < _FEWEST_ROWS:
        return []
    share = _share_of_classes if classes else _share_of_numbers
    found = [
        Suspect(column, share(x[seen, column], y[seen]))
        for column in range(min(x.shape[1], _MOST_COLUMNS))
        if np.ptp(x[seen, column]) > 0
    ]
    return sorted((one for one in found if one.share >= _TOO_GOOD), key=lambda one: -one.share)


def _from_the_other_half(tree: Any, values: Float[np.ndarray, " n"], y: np.ndarray) -> np.ndarray:
    """Every row, predicted by a tree that has seen one half of the rows, and not this one."""
    found, half, column = np.empty_like(y), len(y) // 2, values[:, None]
    for seen, other in ((slice(None, half), slice(half, None)), (slice(half, None), slice(None, half))):
        found[other] = tree.fit(column[seen], y[seen]).predict(column[other])
    return found


def _share_of_classes(values: Float[np.ndarray, " n"], y: np.ndarray) -> float:
    """0 where the column is as good as the most frequent class, 1 where it is always right."""
    right = np.mean(
        _from_the_other_half(DecisionTreeClassifier(max_leaf_nodes=_LEAVES, random_state=0), values, y) == y
    )
    chance = np.unique(y, return_counts=True)[1].max() / len(y)
    return float((right - chance) / (1 - chance)) if chance < 1 else 0.0


def _share_of_numbers(values: Float[np.ndarray, " n"], y: np.ndarray) -> float:
    """The share of the variance that a straight line or a tree explains, whichever is more."""
    total = float(np.sum((y - y.mean()) ** 2))
    if total == 0:
        return 0.0
    tree = DecisionTreeRegressor(max_leaf_nodes=_LEAVES, random_state=0)
    left = float(np.sum((y - _from_the_other_half(tree, values, y)) ** 2))
    centred = (values - values.mean()) / np.ptp(values)
    line = float(centred @ (y - y.mean())) ** 2 / (float(centred @ centred) * total)
    return max(line, 1 - left / total)
