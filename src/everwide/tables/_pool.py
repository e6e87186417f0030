"""A file whose rows wait for labels: some have one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ._read import encoded_inputs, named_arrays, of_array, raw_file
from ._table import Table, TableError
from ._target import Target, chosen_name, read_target


@dataclass(frozen=True, eq=False)
class Pool:
    """Rows of a file, some of them with a label. Made by `read_pool`.

    - `table`: inputs of all rows, without a target.
    - `labels`: one for each row: names of classes, with None where there is none, or numbers, with NaN.
    - `target`, `task`: its name, and "classification" or "regression".
    """

    table: Table
    labels: np.ndarray
    target: str
    task: str
    _frame: pd.DataFrame | None

    @property
    def labelled(self) -> int:
        """How many rows have a label."""
        return int(pd.notna(self.labels).sum())

    def column(self, name: str) -> np.ndarray:
        """A column as the file has it, by its name."""
        if self._frame is None:
            raise TableError(f"{self.table.source} has arrays and no columns: there is no {name!r}.")
        return self._frame[chosen_name(list(self._frame.columns), name, self.table.source)].to_numpy()

    def written(self, places: Any) -> list[dict[str, Any]]:
        """Rows as the file has them, by columns; without any, where the file holds arrays."""
        if self._frame is None:
            return [{} for _ in places]
        some = self._frame.iloc[list(places)].astype(object)
        return [
            {str(name): value for name, value in row.items()} for row in some.where(some.notna(), "").to_dict("records")
        ]


def read_pool(
    path: str | Path, *, target: str | None = None, task: str | None = None, besides: Sequence[str] = ()
) -> Pool:
    r"""All rows of a file, most of which have no label yet: one class, or no label at all, is enough.

    Args:
        path: of the file, as in `read_table`.
        target: the column (or array of an .npz file) of the labels, empty where there is none; by default the last
            column, or the array `y`.
        task: "classification" or "regression"; by default as in `read_table`.
        besides: columns that are no inputs, such as groups of rows.

    Returns:
        `table`, the inputs of all rows; `labels`; `target`, `task`, `labelled` (how many are); `column(name)` and
        `written(places)`: what the file has. What cannot be used raises `TableError`.

    >>> import pathlib, tempfile
    >>> from everwide.tables import read_pool
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "fruit.csv"
    ...     _ = file.write_text("weight,kind\n120,apple\n9,cherry\n8,\n")
    ...     pool = read_pool(file)
    >>> pool.labels
    array(['apple', 'cherry', None], dtype=object)
    >>> pool.written([2])
    [{'weight': 8, 'kind': ''}]

    """
    raw = raw_file(path)
    if raw.frame is None:
        key, x, name, y = named_arrays(raw, target)
        learned = read_target(pd.Series(y), name, raw.source, task, enough=False)
        return _pool(of_array(x, key, raw.source, *learned.notes), learned, name, None)
    frame = raw.frame.reset_index(drop=True)
    name = chosen_name(list(frame.columns), target, raw.source)
    dropped = {name, *(chosen_name(list(frame.columns), one, raw.source) for one in besides)}
    if len(dropped) == frame.shape[1]:
        raise TableError(f"{raw.source} has no column left to learn from: expected inputs beside {name!r}.")
    learned = read_target(pd.Series(frame[name]), name, raw.source, task, enough=False)
    table = encoded_inputs(raw, frame.drop(columns=list(dropped)), learned)
    return _pool(table, learned, name, frame if table.rows is None else frame.iloc[table.rows])


def _pool(table: Table, learned: Target, name: str, frame: pd.DataFrame | None) -> Pool:
    if learned.classes is None:
        labels = np.full(len(learned.kept), np.nan)
        labels[learned.kept] = learned.y
    else:
        labels = np.full(len(learned.kept), None, object)
        labels[learned.kept] = np.array(learned.classes, object)[learned.y] if len(learned.y) else []
    labels = labels if table.rows is None else labels[table.rows]
    task = "regression" if learned.classes is None else "classification"
    return Pool(table, labels, name, task, frame)
