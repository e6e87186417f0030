"""A random part of a file that is larger than memory: it is read in stretches, of which little is ever held."""

import importlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from .._engine import budget, require
from ._table import TableError, printable

_STRETCH = 1 << 16  # rows that are read at once
_FOR_A_BYTE = 4  # bytes of memory, for one of a file of text
_FOR_A_NUMBER = 24  # as it came, in float64, and a copy


class Part(NamedTuple):
    """Which rows of a file were read, from 0, of how many."""

    rows: Int[np.ndarray, " some"]
    total: int

    @property
    def note(self) -> str:
        """A sentence."""
        return (
            f"The file has {self.total} rows, more than fit into memory: {len(self.rows)} of them, drawn at random, "
            "were read."
        )


class _Draw:
    """Rows of stretch after stretch, each with the same probability."""

    def __init__(self, share: float):
        self._share, self._random = share, np.random.default_rng(0)
        self._rows: list[np.ndarray] = []
        self._total = 0

    def __call__(self, n: int) -> Int[np.ndarray, " some"]:
        """Of the next `n` rows."""
        kept = np.flatnonzero(self._random.random(n) < self._share)
        self._rows.append(self._total + kept)
        self._total += n
        return kept

    @property
    def part(self) -> Part:
        return Part(np.concatenate([np.arange(0), *self._rows]), self._total)


def needed_for(path: Path) -> int:
    """Bytes of memory that a file takes while it is read."""
    kind, size = path.suffix.lower(), path.stat().st_size
    if kind == ".npy" and _FOR_A_NUMBER * size > budget(None):
        return _FOR_A_NUMBER * _mapped(path).size
    return _FOR_A_BYTE * size


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except (ValueError, EOFError, SyntaxError) as fault:
        raise TableError(f"{path.name} cannot be read as an array of numpy: {printable(fault, 200)}.") from None


def fitting_share(needed: int) -> float:
    """The share of a file that fits; 1 where all of it does."""
    have = budget(None)
    return 1.0 if needed <= have else have / needed


def part_of_text(path: Path, share: float, **how: Any) -> tuple[io.StringIO, Part]:
    """Lines without their names, and which rows these are; `how` is for pandas, and holds for the lines, too."""
    draw, text = _Draw(share), io.StringIO()
    for stretch in pd.read_csv(path, dtype=str, na_filter=False, chunksize=_STRETCH, **how):
        stretch.iloc[draw(len(stretch))].to_csv(text, sep=how["sep"], index=False, header=False)
    text.seek(0)
    return text, draw.part


def part_of_parquet(path: Path, *, part: bool) -> tuple[pd.DataFrame, Part | None]:
    """All columns, which are counted before they are unpacked; of the rows as many as fit, where a part is enough."""
    parquet, arrow = importlib.import_module("pyarrow.parquet"), importlib.import_module("pyarrow")
    file = parquet.ParquetFile(path)
    known = file.metadata
    unpacked = sum(known.row_group(group).total_byte_size for group in range(known.num_row_groups))
    needed = max(_FOR_A_BYTE * unpacked, _FOR_A_NUMBER * known.num_rows * known.num_columns)
    if not part:
        require(needed, None, f"Reading {path.name}", "Use fewer rows or columns.")
    if (share := fitting_share(needed)) == 1:
        return pd.read_parquet(path), None
    draw = _Draw(share)
    batches = [batch.take(draw(batch.num_rows)) for batch in file.iter_batches(_STRETCH)]
    return arrow.Table.from_batches(batches, schema=file.schema_arrow).to_pandas(), draw.part


def part_of_array(path: Path, share: float) -> tuple[np.ndarray, Part]:
    """Rows of an .npy file, read where they lie."""
    mapped, draw = _mapped(path), _Draw(share)
    return np.array(mapped[draw(len(mapped))]), draw.part
