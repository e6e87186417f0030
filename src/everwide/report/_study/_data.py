"""The data: what is in the table, and what to look at before trusting any number below."""

from collections.abc import Iterator

import numpy as np

from ...tables import Table
from .._words import count, listed, number, percent, several
from ._problem import known_target
from ._section import Fact, Grid, Section
from ._suspects import constant_columns, duplicates, identifiers, leaks

KEY, TITLE = "data", "The data"
QUESTION = "What is in the table, and what should you look at before you trust any number below?"
_IMBALANCED = 5  # the largest class over the smallest
_SKEWED = 3
_FEW_ROWS = 100
_MOST_CLASSES = 20  # in the table of the page


def data(table: Table) -> Section:
    """Sizes, the target, and warnings."""
    y, flat = known_target(table), table.x.reshape(len(table.x), -1)
    names = table.names or tuple(f"value {at}" for at in range(flat.shape[1]))
    twice, constant = duplicates(flat, y), constant_columns(flat)
    counting = [] if table.sites or table.x.ndim > 2 else identifiers(flat).tolist()
    suspects = [one for one in leaks(flat, y, classes=table.classes is not None) if one.column not in counting]
    target, target_numbers, target_warnings = _target(table, y)
    warnings = [
        *_size(*flat.shape),
        *target_warnings,
        *_repeated(twice.repeated, twice.conflicting, len(y)),
        *_said_by_columns(
            names, constant.tolist(), counting, [one.column for one in suspects], table.sites is not None
        ),
    ]
    numbers = {
        "rows": len(y),
        "columns": flat.shape[1],
        "task": table.task,
        "target": table.target,
        "duplicate_rows": twice.repeated,
        "conflicting_rows": twice.conflicting,
        "constant_columns": [names[at] for at in constant],
        "counting_columns": [names[at] for at in counting],
        "leakage_suspects": [{"column": names[one.column], "share": one.share} for one in suspects],
        **target_numbers,
    }
    facts = (
        Fact("Rows", count(len(y)), "Each row is one example. The forecast below says what more of them would bring."),
        Fact("Columns", count(flat.shape[1]), "Inputs of the network, after categories were made indicators."),
        target,
    )
    grids = (_class_table(table, y),) if table.classes else ()
    notes = (*table.notes, *_notes(table, len(constant), bool(warnings)))
    return Section(KEY, TITLE, QUESTION, numbers, facts, tuple(warnings), notes, grids)


def _notes(table: Table, constant: int, warned: bool) -> Iterator[str]:
    """What is no reason to worry."""
    image = table.sites is not None or table.x.ndim > 2
    if image and constant:
        yield f"{several(constant, 'pixel is', 'pixels are')} the same in all images; that does no harm."
    if not warned:
        columns = "" if image else "no constant columns, "
        yield f"No repeated rows, {columns}no column that gives the target away: nothing to warn of."


def _target(table: Table, y: np.ndarray) -> tuple[Fact, dict, list[str]]:
    return _classes(table, y) if table.classes else _numbers(table, y)


def _classes(table: Table, y: np.ndarray) -> tuple[Fact, dict, list[str]]:
    sizes = np.bincount(y.astype(np.int64), minlength=len(table.classes or ()))
    least, most, ratio = sizes.min(), sizes.max(), sizes.max() / max(sizes.min(), 1)
    chance = percent(most / len(y))
    fact = Fact(
        f"Classes of \u201c{table.target}\u201d",
        count(len(sizes)),
        f"Who always says the most frequent class is right {chance} of the time: nothing below that is worth anything.",
    )
    warnings = []
    if ratio > _IMBALANCED:
        warnings.append(
            f"The largest class has {number(ratio, 2)} times as many rows as the smallest ({count(most)} and "
            f"{count(least)}). Look at each class by itself, not at the accuracy alone; class_weight='balanced' "
            "makes rare classes count as much as the others."
        )
    return fact, {"class_counts": sizes, "chance": most / len(y), "imbalance": ratio}, warnings


def _numbers(table: Table, y: np.ndarray) -> tuple[Fact, dict, list[str]]:
    mean, std = float(y.mean()), float(y.std())
    skew = float(np.mean((y - mean) ** 3) / std**3) if std > 0 else 0.0
    fact = Fact(
        f"Spread of \u201c{table.target}\u201d",
        number(std),
        f"The standard deviation around the mean, {number(mean)}. Errors below are to be compared with it: who always "
        "says the mean is off by that much.",
    )
    warnings = []
    if abs(skew) > _SKEWED:
        side = "large" if skew > 0 else "small"
        warnings.append(
            f"The target is skewed ({number(skew, 2)}): few {side} values rule the squared error. "
            + ("Its logarithm may be easier to learn." if y.min() > 0 else "Look at them first.")
        )
    return fact, {"mean": mean, "std": std, "min": float(y.min()), "max": float(y.max()), "skew": skew}, warnings


def _class_table(table: Table, y: np.ndarray) -> Grid:
    sizes = np.bincount(y.astype(np.int64), minlength=len(table.classes or ()))
    order = np.argsort(-sizes, kind="stable")[:_MOST_CLASSES].tolist()
    names = list(table.classes or ())
    rows = tuple((names[at], count(int(sizes[at])), percent(float(sizes[at]) / len(y))) for at in order)
    caption = "Rows of each class" + (f", the {_MOST_CLASSES} largest" if len(sizes) > _MOST_CLASSES else "")
    return Grid(caption, ("class", "rows", "share"), rows)


def _size(rows: int, columns: int) -> list[str]:
    found = []
    if rows < _FEW_ROWS:
        found.append(f"There are only {several(rows, 'row')}: all numbers below are uncertain. Label more rows first.")
    if columns > rows:
        found.append(
            f"There are more columns ({count(columns)}) than rows ({count(rows)}): a network can fit anything here. "
            "Trust the cross-validated numbers only."
        )
    return found


def _repeated(repeated: int, conflicting: int, rows: int) -> list[str]:
    found = []
    if repeated:
        found.append(
            f"{several(repeated, 'row repeats', 'rows repeat')} the inputs of another ({percent(repeated / rows)}). If "
            "copies fall on both sides of a split, accuracies are too good: drop them, or keep copies together."
        )
    if conflicting:
        found.append(
            f"{several(conflicting, 'row has', 'rows have')} the inputs of another row and a different target. No "
            "model can be right about all of them: look for a missing column, or for wrong labels."
        )
    return found


def _said_by_columns(
    names: tuple[str, ...], constant: list[int], counting: list[int], suspects: list[int], image: bool
) -> list[str]:
    called = lambda columns: listed([f"\u201c{names[at]}\u201d" for at in columns])
    found = []
    if constant and not image:
        found.append(f"Constant columns say nothing, and can go: {called(constant)}.")
    if counting:
        found.append(f"These columns count the rows, and should not be inputs: {called(counting)}.")
    if suspects:
        found.append(
            f"Leakage? One column alone nearly gives the target away: {called(suspects)}. Keep it only if it is known "
            "before the target is."
        )
    return found
