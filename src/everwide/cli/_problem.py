"""A file of data and a network, made ready for each other."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..layers import AbstractLayer
from ..tables import Table, TableError, read_table
from ._networks import network_and_rows


class Problem(NamedTuple):
    """A table, a network, the examples `x` as it reads them, and what was done to the data."""

    table: Table
    net: AbstractLayer
    x: np.ndarray
    notes: tuple[str, ...]

    @property
    def labels(self) -> np.ndarray:
        """Numbers, or codes of classes."""
        if self.table.y is None:
            raise TableError(f"{self.table.source} has no targets.")
        return self.table.y

    @property
    def outputs(self) -> np.ndarray:
        """What a network is trained on: centred numbers of unit variance, or centred indicators of classes."""
        y = self.labels
        if self.table.classes is None:
            return ((y - y.mean()) / (y.std() or 1.0))[:, None]
        indicators = np.eye(len(self.table.classes))[y]
        return indicators - indicators.mean(axis=0)

    def described(self) -> dict[str, object]:
        """Where the answer comes from, in plain types."""
        return {"data": self.table.source, "rows": self.table.rows, "task": self.table.task, "notes": list(self.notes)}


def read_problem(data: Path, net: str, *, target: str | None, standardize: bool, sample: int, seed: int = 0) -> Problem:
    """At most `sample` rows of a file, drawn at random."""
    table = read_table(data, target=target)
    notes = list(table.notes)
    if table.rows > sample:
        chosen = np.sort(np.random.default_rng(seed).permutation(table.rows)[:sample])
        notes.append(f"{sample} of {table.rows} rows were drawn at random (--sample).")
        table = table.take(chosen)
    if standardize:
        (scaled,) = standardized(table.x)
        table = replace(table, x=scaled)
        notes.append("Columns were brought to mean 0 and variance 1; --raw leaves them as they are.")
    return Problem(table, *network_and_rows(net, table), tuple(notes))


def standardized(x: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean 0 and variance 1 in each column (channel, for images) of the first; the others are moved along."""
    axes = tuple(range(x.ndim - 1))
    middle, spread = x.mean(axis=axes), x.std(axis=axes)
    constant = spread <= 1e-12 * np.maximum(np.abs(middle), np.finfo(np.float64).tiny)
    return tuple((one - middle) / np.where(constant, 1.0, spread) for one in (x, *others))
