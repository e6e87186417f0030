"""The data: what is in the table, and what to look at before trusting any number below."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float, Int
from sklearn.metrics import r2_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from ..._problem import Problem, known_target
from ..._words import count, listed, number, percent, several
from ...tables import Table
from .._page import Fact, Grid, Section, Text

_IMBALANCED = 5  # the largest class over the smallest
_SKEWED = 3
_FEW_ROWS = 100
_MOST_CLASSES = 20  # in the table of the page
_LEAVES = 64  # of a tree that looks at one column
_MOST_COLUMNS, _MOST_ROWS, _FEWEST_ROWS = 1000, 2000, 20
_TOO_GOOD = 0.98  # of what there is to know about the target, from one column alone
_RULES = 0.5  # of the variance of the target, in one row
_MADE = ("=", ": ", " is missing")  # after the name of a column, in names of what was made of it


class Leak(NamedTuple):
    """A column, and which share of the target it gives away by itself."""

    column: str
    share: float


class ClassBalance(NamedTuple):
    """Rows of each class, the share of the largest, the largest over the smallest."""

    class_counts: Int[np.ndarray, " classes"]
    chance: float
    imbalance: float


class Spread(NamedTuple):
    """Moments and bounds of a target of numbers; the row of the file with the largest share of its variance."""

    mean: float
    std: float
    min: float
    max: float
    skew: float
    farthest_row: int
    share_of_farthest: float

    @property
    def ruled(self) -> bool:
        """Whether one row has most of the variance, so that squared errors speak of nothing else."""
        return self.share_of_farthest > _RULES


@dataclass(frozen=True, eq=False)
class Data:
    """Sizes, the target, and what is suspicious: rows that repeat, columns that say nothing or too much.

    `conflicting_rows`: all rows of groups with equal inputs and different targets.
    """

    n: int
    columns: int
    task: str
    target: str
    duplicate_rows: int
    conflicting_rows: int
    constant_columns: list[str]
    counting_columns: list[str]
    leakage_suspects: list[Leak]
    target_values: ClassBalance | Spread


def data(problem: Problem) -> Data:
    """Look at a table before anything is learned."""
    table = problem.table
    y, flat = known_target(table), table.x.reshape(len(table.x), -1)
    names = names_of(table)
    repeated, conflicting = duplicates(flat, y)
    counting = [] if is_image(table) else [names[at] for at in _counting_columns(flat)]
    columns = sources(names)
    shares = _leaks(flat, y, list(columns.values()), classes=table.classes is not None)
    leaks = [Leak(list(columns)[at], share) for at, share in shares]
    return Data(
        n=len(y),
        columns=flat.shape[1],
        task=table.task,
        target=table.target,
        duplicate_rows=repeated,
        conflicting_rows=conflicting,
        constant_columns=[names[at] for at in np.flatnonzero(np.ptp(flat, axis=0) == 0)],
        counting_columns=counting,
        leakage_suspects=leaks,
        target_values=_balance(y, len(table.classes)) if table.classes else _spread(problem, y),
    )


def names_of(table: Table) -> tuple[str, ...]:
    """Of all numbers in a row."""
    return table.names or tuple(f"value {at}" for at in range(table.x[0].size))


def is_image(table: Table) -> bool:
    """Whether rows are images, flat or not."""
    return table.sites is not None or table.x.ndim > 2


def _balance(y: np.ndarray, classes: int) -> ClassBalance:
    sizes = np.bincount(y.astype(np.int64), minlength=classes)
    return ClassBalance(sizes, sizes.max() / len(y), sizes.max() / max(sizes.min(), 1))


def _spread(problem: Problem, y: np.ndarray) -> Spread:
    std, unit = float(y.std()), max(float(np.abs(y).max()), 1e-300)
    skew = float(scipy.stats.skew(y)) if std > 0 else 0.0
    squares = ((y - y.mean()) / unit) ** 2
    farthest = int(np.argmax(squares))
    share = float(squares[farthest] / max(squares.sum(), 1e-300))
    bounds = float(y.mean()), std, float(y.min()), float(y.max())
    return Spread(*bounds, skew, int(problem.number(np.array([farthest]))[0]), share)


def duplicates(x: Float[np.ndarray, "n d"], y: np.ndarray) -> tuple[int, int]:
    """Rows whose inputs were there before; rows of groups with equal inputs whose targets differ."""
    groups: dict[bytes, list[int]] = {}
    for row, values in enumerate(np.ascontiguousarray(x + 0.0)):  # -0.0 becomes 0.0
        groups.setdefault(values.tobytes(), []).append(row)
    shared = [rows for rows in groups.values() if len(rows) > 1]
    conflicting = sum(len(rows) for rows in shared if len(np.unique(y[rows])) > 1)
    return sum(len(rows) - 1 for rows in shared), conflicting


def _counting_columns(x: Float[np.ndarray, "n d"]) -> Int[np.ndarray, " columns"]:
    """Columns of whole numbers that count the rows."""
    steps = np.diff(x, axis=0)
    return np.flatnonzero((len(x) > 2) & ((steps == 1).all(0) | (steps == -1).all(0)))


def sources(names: tuple[str, ...]) -> dict[str, list[int]]:
    """Columns of the file, with the places of what was made of them, which stand side by side."""
    places_of: dict[str, list[int]] = {}
    last = ""
    for place, name in enumerate(names):
        if not (last and name.startswith(last) and name[len(last) :].startswith(_MADE)):
            last = name.partition("=")[0] or name
        places_of.setdefault(last, []).append(place)
    return places_of


def _leaks(
    x: Float[np.ndarray, "n d"], y: np.ndarray, sources: list[list[int]], *, classes: bool
) -> list[tuple[int, float]]:
    """Columns that nearly give the target away, each by itself; of large tables a part is looked at."""
    rows = np.random.default_rng(0).permutation(len(x))[:_MOST_ROWS]
    if len(rows) < _FEWEST_ROWS:
        return []
    share, some = _share_of_classes if classes else _share_of_numbers, x[rows]
    shares = [
        (at, share(some[:, places], y[rows]))
        for at, places in enumerate(sources[:_MOST_COLUMNS])
        if np.ptp(some[:, places], axis=0).any()
    ]
    return sorted((one for one in shares if one[1] >= _TOO_GOOD), key=lambda one: -one[1])


def _from_the_other_half(tree: Any, values: Float[np.ndarray, "n k"], y: np.ndarray) -> np.ndarray:
    """Every row, predicted by a tree that has seen one half of the rows, and not this one."""
    predicted, half = np.empty_like(y), len(y) // 2
    for seen, other in ((slice(None, half), slice(half, None)), (slice(half, None), slice(None, half))):
        predicted[other] = tree.fit(values[seen], y[seen]).predict(values[other])
    return predicted


def _share_of_classes(values: Float[np.ndarray, "n k"], y: np.ndarray) -> float:
    """0 where the column is as good as the most frequent class, 1 where it is always right."""
    tree = DecisionTreeClassifier(max_leaf_nodes=_LEAVES, random_state=0)
    right = np.mean(_from_the_other_half(tree, values, y) == y)
    chance = np.unique(y, return_counts=True)[1].max() / len(y)
    return float((right - chance) / (1 - chance)) if chance < 1 else 0.0


def _share_of_numbers(values: Float[np.ndarray, "n k"], y: np.ndarray) -> float:
    """The share of the variance that a straight line or a tree explains, whichever is more."""
    if np.ptp(y) == 0:
        return 0.0
    tree = DecisionTreeRegressor(max_leaf_nodes=_LEAVES, random_state=0)
    lines = [np.corrcoef(one / np.ptp(one), y)[0, 1] ** 2 for one in values.T if np.ptp(one) > 0]
    return max(*map(float, lines), float(r2_score(y, _from_the_other_half(tree, values, y))))


def _text(problem: Problem, result: Data) -> Text:
    table, image = problem.table, is_image(problem.table)
    warnings = tuple(_warnings(result, table))
    notes, constant = list(table.notes), len(result.constant_columns)
    if image and constant:
        notes.append(f"{several(constant, 'pixel is', 'pixels are')} the same in all images; that does no harm.")
    if not warnings:
        columns = "" if image else "no constant columns, "
        which = f"no column among the first {count(_MOST_COLUMNS)}" if result.columns > _MOST_COLUMNS else "no column"
        notes.append(f"No repeated rows, {columns}{which} that gives the target away: nothing to warn of.")
    made = "Inputs of the network, after categories were made indicators."
    facts = (
        Fact("Rows", count(result.n), "Each row is one example."),
        Fact("Columns", count(result.columns), "Numbers in a row." if image else made),
        _target(result),
    )
    return Text(facts, warnings, tuple(notes), _class_grids(result, table), tuple(_cautions(result)))


def _target(result: Data) -> Fact:
    values = result.target_values
    if isinstance(values, ClassBalance):
        return Fact(
            f"Classes of \u201c{result.target}\u201d",
            count(len(values.class_counts)),
            f"Who always says the most frequent class is right {percent(values.chance)} of the time: an accuracy is to "
            "be compared with that.",
        )
    return Fact(
        f"Spread of \u201c{result.target}\u201d",
        number(values.std),
        f"The standard deviation around the mean, {number(values.mean)}: the root mean square error of who always says "
        "the mean.",
    )


def _cautions(result: Data) -> Iterator[str]:
    """What makes all numbers of the page misleading."""
    if result.leakage_suspects:
        column, share = result.leakage_suspects[0]
        yield (
            f"Leakage? The column \u201c{column}\u201d alone tells {percent(share)} of what there is to know about the "
            "target. If it is not known before the target is, all accuracies and forecasts of this page are too good "
            "to be true: drop it, and ask again."
        )
    values = result.target_values
    if isinstance(values, Spread) and values.ruled:
        yield (
            f"One row rules: row {count(values.farthest_row)} of the file has {percent(values.share_of_farthest)} of "
            f"the variance of the target, which goes from {number(values.min)} to {number(values.max)}. Errors and "
            "R\u00b2 speak mostly of that row: look at it before anything else."
        )
    if result.n < _FEW_ROWS:
        yield f"There are only {several(result.n, 'row')}: every number of this page is uncertain."


def _target_warnings(result: Data) -> Iterator[str]:
    values = result.target_values
    if isinstance(values, ClassBalance) and values.imbalance > _IMBALANCED:
        sizes = values.class_counts
        yield (
            f"The largest class has {number(values.imbalance, 2)} times as many rows as the smallest "
            f"({count(sizes.max())} and {count(sizes.min())}). Look at each class by itself, not at the accuracy "
            "alone; class_weight='balanced' makes rare classes count as much as the others."
        )
    if isinstance(values, Spread) and abs(values.skew) > _SKEWED:
        side = "large" if values.skew > 0 else "small"
        advice = "Its logarithm may be easier to learn." if values.min > 0 else "Look at them first."
        yield f"The target is skewed ({number(values.skew, 2)}): few {side} values rule the squared error. {advice}"


def _class_grids(result: Data, table: Table) -> tuple[Grid, ...]:
    values = result.target_values
    if table.classes is None or not isinstance(values, ClassBalance):
        return ()
    sizes = values.class_counts
    order = np.argsort(-sizes, kind="stable")[:_MOST_CLASSES].tolist()
    rows = tuple((table.classes[at], count(int(sizes[at])), percent(float(sizes[at]) / result.n)) for at in order)
    caption = "Rows of each class" + (f", the {_MOST_CLASSES} largest" if len(sizes) > _MOST_CLASSES else "")
    return (Grid(caption, ("class", "rows", "share"), rows),)


def _warnings(result: Data, table: Table) -> Iterator[str]:
    n, columns, repeated, conflicting = result.n, result.columns, result.duplicate_rows, result.conflicting_rows
    if n < _FEW_ROWS:
        yield f"There are only {several(n, 'row')}. Label more rows first."
    if columns > n:
        yield (
            f"There are more columns ({count(columns)}) than rows ({count(n)}): a network can fit nearly anything "
            "here. Trust the cross-validated numbers only."
        )
    yield from _target_warnings(result)
    if repeated:
        yield (
            f"{several(repeated, 'row repeats', 'rows repeat')} the inputs of another ({percent(repeated / n)}). "
            "If copies fall on both sides of a split, accuracies are too good: drop them, or keep copies together."
        )
    if conflicting:
        yield (
            f"{several(conflicting, 'row has', 'rows have')} the inputs of another row and a different target. No "
            "model can be right about all of them: look for a missing column, or for wrong labels."
        )
    if result.constant_columns and table.sites is None:
        yield f"Constant columns say nothing, and can go: {_quoted(result.constant_columns)}."
    if result.counting_columns:
        yield f"These columns count the rows, and should not be inputs: {_quoted(result.counting_columns)}."
    if result.leakage_suspects:
        yield (
            "Leakage? A column that alone nearly gives the target away: "
            f"{_quoted([leak.column for leak in result.leakage_suspects])}. Keep it only if it is known before the "
            "target is."
        )


def _quoted(names: list[str]) -> str:
    return listed([f"\u201c{name}\u201d" for name in names])


SECTION = Section(
    "data",
    "The data",
    "What is in the table, and what should you look at before you trust any number below?",
    measure=data,
    describe=_text,
)
