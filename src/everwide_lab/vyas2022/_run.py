"""Vyas, Bansal, Nakkiran 2022, "Limitations of the NTK for understanding generalization in deep learning"."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide import InputError

from .._claims import Claim
from .._report import Clock, Watcher, blank_figure, write_report
from .._resume import Ledger
from ._claims import Measured, claims_of
from ._learners import PRETRAINING, Learner, measured
from ._network import BATCH, LOOKS, RATE
from ._tasks import DIMENSION, VALIDATION, Task, tasks


@dataclass(frozen=True, eq=False)
class Vyas2022:
    """Errors of networks and of kernels by the amount of data. Made by `reproduce`.

    - `measured`: one for each task. `width`, `steps`, `tests`: of the networks, of training, rows to measure on.

    >>> from everwide_lab import vyas2022
    >>> result = vyas2022.reproduce(sizes=(32, 64), seeds=2, steps=100, width=16)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP
    """

    measured: tuple[Measured, ...]
    width: int
    steps: int
    tests: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each task and learner: the exponent with its standard error, and mean errors at all sizes."""
        return [self._row(one, learner) for one in self.measured for learner in Learner]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, each with a verdict that is computed from the numbers."""
        return claims_of(self.measured)

    def plot(self) -> Any:
        """Errors against the amount of data, one panel a task: a matplotlib figure."""
        figure = blank_figure(4.2 * len(self.measured), 4.2)
        axes = figure.subplots(1, len(self.measured), squeeze=False)[0]
        for ax, one in zip(axes, self.measured, strict=True):
            for learner in Learner:
                logs = np.log(one.errors[learner])
                spread = np.std(logs, 0, ddof=1) if len(logs) > 1 else np.zeros(len(one.sizes))
                means = np.exp(logs.mean(0))
                bars = np.stack([means * (1 - np.exp(-spread)), means * (np.exp(spread) - 1)])
                ax.errorbar(one.sizes, means, bars, marker="o", markersize=3, elinewidth=0.8, label=learner.value)
            ax.set(xscale="log", yscale="log", xlabel="training rows", title=one.task)
        axes[0].set_ylabel("test error / power of the target")
        axes[0].legend(fontsize="small")
        return figure

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        title = "Vyas, Bansal, Nakkiran 2022"
        write_report(folder, title, self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        seeds = len(self.measured[0].course_errors)
        return (
            f"Networks of two hidden layers of {self.width} rectifiers (standard parametrization) beside their tangent "
            f"kernels, {seeds} seeds with rows of their own. staircase: x1 + x1 x2 + x1 x2 x3 on the corners of a cube "
            f"in {DIMENSION} dimensions; single neuron: a rectifier of one of {DIMENSION} Gaussian directions; tables "
            f"as they are. Networks: ADAM, rate {RATE:g}, {self.steps} steps of {BATCH} rows on half the mean square, "
            f"stopped at the best of {LOOKS} looks at {VALIDATION} validation rows, on which the ridges of kernels are "
            f"chosen too. The pretrained kernel is that of the network after training on the first {PRETRAINING} rows; "
            "kernels of networks with several outputs are means over these. Errors are mean squares over the power of "
            f"the targets, on {self.tests} other rows at the most; an exponent is that of the rows, by least squares "
            "over all sizes (of the pretrained kernel, from 256 on), and its error a "
            "standard error between seeds."
        )

    def _row(self, one: Measured, learner: Learner) -> dict[str, Any]:
        least = PRETRAINING if learner is Learner.PRETRAINED else 0
        exponents, errors = one.exponents(learner, least), one.errors[learner]
        row = {"task": one.task, "learner": learner.value, "exponent": float(np.mean(exponents))}
        many = len(exponents) > 1
        row |= {"exponent_se": float(np.std(exponents, ddof=1)) / len(exponents) ** 0.5 if many else math.nan}
        row |= {"seeds": len(errors)}
        known = dict(zip(one.sizes, errors.mean(0), strict=True))
        sizes = sorted({size for other in self.measured for size in other.sizes})
        return row | {f"error_{size}": float(known.get(size, math.nan)) for size in sizes}


def reproduce(
    *,
    sizes: Sequence[int] = (64, 128, 256, 512, 1024, 2048),
    seeds: int = 4,
    steps: int = 3000,
    width: int = 256,
    tests: int = 1000,
    data: Path | str | None = None,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> Vyas2022:
    """Let networks and their tangent kernels learn from more and more rows, and compare their exponents.

    Args:
        sizes: Numbers of training rows, at least two; a table uses those that it has rows for.
        seeds: Networks, each with rows of its own.
        steps: Of training.
        width: Of the hidden layers.
        tests: Rows on which errors are measured.
        data: A table to learn, beside the tasks that need no file: as `everwide.tables.read_table` reads it.
        out: A folder. What a seed has found for a task is kept there in `runs.jsonl` at once, and a later call goes on
            from it; at the end table, figure and claims are written beside it.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `measured` behind them.

    >>> from everwide_lab import vyas2022
    >>> result = vyas2022.reproduce(sizes=(32, 64), seeds=2, steps=100, width=16)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Vyas, Bansal, Nakkiran, "Limitations of the NTK for understanding generalization in deep learning" (2022).

    """
    wanted = tuple(sorted(set(sizes)))
    if len(wanted) < 2 or min(*wanted, seeds, steps, width, tests) < 1:
        raise InputError(
            f"sizes={sizes!r}, seeds={seeds!r}, steps={steps!r}, width={width!r}, tests={tests!r}: expected two sizes "
            "or more, and whole numbers above 0."
        )
    chosen = tasks(wanted[-1], tests, None if data is None else Path(data))
    folder, clock = None if out is None else Path(out), Clock(progress)
    ledger = Ledger(None if folder is None else folder / "runs.jsonl")
    found, total = [], len(chosen) * seeds
    for task in chosen:
        fitting = tuple(size for size in wanted if size <= task.most)
        if len(fitting) < 2:
            raise InputError(f"{task.name} has {task.most} rows to learn from: expected two of the sizes {wanted}.")
        kept = []
        for seed in range(seeds):
            clock(len(found) * seeds + seed, total)
            kept.append(_known(ledger, task, fitting, width, steps, seed))
        found.append(_gathered(task.name, fitting, kept))
    result = Vyas2022(tuple(found), width, steps, tests)
    clock(1, 1)
    if folder is not None:
        result.write(folder)
    return result


def _known(ledger: Ledger, task: Task, sizes: tuple[int, ...], width: int, steps: int, seed: int) -> dict[str, Any]:
    """What one seed has found, unless it is kept already. Rows are known by their bytes."""
    sample = task.draw(seed)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in sample)).hexdigest()[:16]
    identity = {"task": task.name, "rows": digest, "sizes": list(sizes), "width": width, "steps": steps, "seed": seed}
    return ledger.result(identity, lambda: measured(sample, sizes, width, steps, seed))


def _gathered(name: str, sizes: tuple[int, ...], kept: list[dict[str, Any]]) -> Measured:
    errors = {learner: np.asarray([one["errors"][learner.value] for one in kept]) for learner in Learner}
    courses = (np.asarray([one["course"][part] for one in kept]) for part in ("errors", "distances"))
    return Measured(name, sizes, errors, *courses)
