"""Fits of a model to parts of a pilot: which, their errors, kept in a file, several at a time."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._checks import InputError
from .._engine import Progress
from ._pilot import Targets

_SMALLEST = 16
_FEWEST_SIZES = 4  # that `extrapolate` needs


class Design(NamedTuple):
    """Every row is tested once at every size: by fold, which rows are learned from, in order, and which are tested."""

    sizes: np.ndarray
    orders: list[np.ndarray]
    tests: list[np.ndarray]

    def fits(self) -> list[tuple[int, int]]:
        """Fold and size of each fit, the cheap ones first."""
        return [(fold, int(size)) for size in self.sizes for fold in range(len(self.tests))]


class Fits(NamedTuple):
    """Errors by fold and size, NaN where a fit failed; and what those said, by name."""

    errors: Float[np.ndarray, "folds sizes"]
    failures: tuple[str, ...]


def design_of(y: Targets, seed: int, *, folds: int = 5, sizes: int = 6, smallest: float = 1 / 16) -> Design:
    """Sizes from that share of the pilot to all rows but a fold; at least two classes are among the first rows."""
    rng, rows = np.random.default_rng(seed), len(y.values)
    least, most = max(_SMALLEST, smallest * rows), rows - -(-rows // folds)
    counts = np.unique(np.geomspace(least, most, sizes).astype(int))
    tests = np.array_split(rng.permutation(rows), folds)
    orders = [_two_classes_first(rng.permutation(np.setdiff1d(np.arange(rows), test)), y) for test in tests]
    return Design(counts, orders, tests)


def _two_classes_first(order: np.ndarray, y: Targets) -> np.ndarray:
    """The first row of another class comes second."""
    other = 0 if y.labels is None else int(np.argmax(y.labels[order] != y.labels[order[0]]))
    return np.r_[order[0], order[other], np.delete(order, (0, other))] if other else order


def run(
    design: Design,
    fit: Callable[[np.ndarray, np.ndarray], float],
    *,
    path: Any,
    about: dict[str, Any],
    threads: int,
    progress: Callable[[Progress], None] | None,
) -> Fits:
    """The error of `fit(train, test)` for every fit that the file does not hold. What fails is named, others go on."""
    kept, lock, begin = _Kept(path, about), threading.Lock(), time.perf_counter()
    fits, errors, failures = design.fits(), {}, {}

    def one(which: tuple[int, int]) -> None:
        fold, size = which
        try:
            error = kept.get(which)
            error = fit(design.orders[fold][:size], design.tests[fold]) if error is None else error
            if not np.isfinite(error):
                raise InputError("predictions are not finite")
        except Exception as fault:  # whatever somebody's model raises
            failures[which] = f"{size} rows, fold {fold}: {type(fault).__name__}: {fault}"
            error = np.nan
        with lock:
            errors[which] = error
            kept.keep(which, error)
            if progress is not None:
                progress(Progress(len(errors), len(fits), time.perf_counter() - begin))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, fits))
    table = np.array([[errors[fold, int(size)] for size in design.sizes] for fold in range(len(design.tests))])
    told = tuple(failures[which] for which in fits if which in failures)
    if np.isfinite(table).any(0).sum() < _FEWEST_SIZES:
        raise InputError(
            f"{len(told)} of {len(fits)} fits failed, and a curve needs errors at {_FEWEST_SIZES} sizes. {told[0]}"
        )
    return Fits(table, told)


class _Kept:
    """Finished fits in a file, a line each; the first line says of what they are. Without a path nothing is kept."""

    def __init__(self, path: Any, about: dict[str, Any]):
        self._path, first = None if path is None else Path(path), json.dumps(about)
        self._known: dict[tuple[int, int], float] = {}
        if self._path is None:
            return
        if self._path.is_dir():
            raise InputError(f"path={str(self._path)!r} is a folder, expected a file in which fits are kept.")
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        if not lines:
            self._path.write_text(first + "\n")
        elif lines[0] != first:
            raise InputError(
                f"{self._path} holds fits of another model, other rows or another seed. Name another file."
            )
        for line in lines[1:]:
            fold, size, error = json.loads(line)
            self._known[fold, size] = error

    def get(self, which: tuple[int, int]) -> float | None:
        """The error of a fit, if it is known."""
        return self._known.get(which)

    def keep(self, which: tuple[int, int], error: float) -> None:
        """What failed is tried again the next time."""
        if self._path is not None and which not in self._known and np.isfinite(error):
            with self._path.open("a") as file:
                file.write(json.dumps([*which, float(error)]) + "\n")
