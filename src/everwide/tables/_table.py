"""What is read from a file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._checks import InputError
from .._words import listed

MOST_COLUMNS = 20_000


class TableError(InputError):
    """A file that cannot be used as it is; the message names it, the fault, and the way out.

    >>> from everwide.tables import read_table
    >>> read_table("numbers.xls")
    Traceback (most recent call last):
        ...
    everwide.tables._table.TableError: There is no file 'numbers.xls'.
    """


class TableWarning(UserWarning):
    """Rows hold what training rows did not: levels of a category, or gaps, that nothing is known of.

    >>> import warnings
    >>> from everwide.tables import TableWarning
    >>> warnings.filterwarnings("ignore", category=TableWarning)
    """


@dataclass(frozen=True, eq=False)
class Table:
    """Examples and targets of a file. Made by `read_table`, `read_inputs` and `Table.digits`.

    - `x`: float64 and finite, `(n, columns)`, or `(n, height, width, channels)` for images. `names`: of its columns.
    - `y`: targets in float64, or codes 0, 1, ... of `classes`; `None` where only inputs were asked for.
    - `target`, `classes`: names. `classes` is `None` for regression.
    - `source`: the name of the file. `notes`: sentences on what was dropped, filled and encoded.
    - `sites`: the shape of one example, if flat rows are images.
    - `rows`: which rows of the file these are, from 0; `None` where all of them are here, in their order.
    - `unlabelled`: rows of the same file without a target, as a table without one; `None` where every row has one.

    >>> from everwide.tables import Table
    >>> table = Table.digits()
    >>> table.n, table.task, table.sites
    (1797, 'classification', (8, 8, 1))
    """

    x: np.ndarray
    y: np.ndarray | None
    names: tuple[str, ...]
    target: str
    classes: tuple[str, ...] | None
    source: str
    notes: tuple[str, ...] = ()
    sites: tuple[int, ...] | None = None
    rows: np.ndarray | None = None
    unlabelled: "Table | None" = None

    @classmethod
    def digits(cls) -> "Table":
        """The handwritten digits of scikit-learn: 1797 images of 8 by 8 pixels, as flat rows.

        >>> from everwide.tables import Table
        >>> Table.digits().classes[:3]
        ('0', '1', '2')
        """
        from sklearn.datasets import load_digits

        x, y = (np.asarray(part) for part in load_digits(return_X_y=True))
        return cls(
            x=x.astype(np.float64),
            y=y.astype(np.int64),
            names=tuple(f"pixel {row},{column}" for row in range(8) for column in range(8)),
            target="digit",
            classes=tuple(str(digit) for digit in range(10)),
            source="digits of scikit-learn",
            sites=(8, 8, 1),
        )

    @property
    def n(self) -> int:
        """How many examples there are."""
        return len(self.x)

    @property
    def task(self) -> str:
        """What is to be learned, "classification" or "regression"."""
        return "regression" if self.classes is None else "classification"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example, as a network reads it: sites first, channels last."""
        return self.x.shape[1:] if self.sites is None else self.sites

    def take(self, rows: Any) -> "Table":
        """Some of the rows, by their numbers; classes keep their codes.

        >>> from everwide.tables import Table
        >>> Table.digits().take([0, 5]).rows.tolist()
        [0, 5]
        """
        known = np.arange(self.n) if self.rows is None else self.rows
        return replace(self, x=self.x[rows], y=None if self.y is None else self.y[rows], rows=known[rows])


def printable(text: Any, most: int = 60) -> str:
    """A name from a file as one short line: control characters could move the cursor of a terminal."""
    shown = "".join(sign if sign.isprintable() else " " for sign in str(text)).strip()
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def listed_names(names: Sequence[str]) -> str:
    """The first of some names from a file, and how many more there are."""
    return listed([printable(name, 40) for name in names], most=4)


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, printable, none empty, none twice."""
    unique: dict[str, None] = {}
    copies: Counter[str] = Counter()
    for number, name in enumerate(names, start=1):
        base = free = printable(name) or f"unnamed {number}"
        while free in unique:
            copies[base] += 1
            free = f"{base}.{copies[base] + 1}"
        unique[free] = None
    return tuple(unique)
