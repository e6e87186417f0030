"""Mohamadi, Bae, Sutherland 2022: what look-ahead foresees, and what the rows teach that it chooses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide import InputError

from .._claims import Claim
from .._report import Clock, Watcher, blank_figure, write_report
from .._resume import Ledger
from ._claims import Measured, claims_of
from ._network import RATE, Learner
from ._querying import Strategy, curve
from ._retraining import RIDGE, Course, Guess, agreement
from ._tasks import Task, tasks

_KINDS = [(course, guess) for course in Course for guess in Guess]


@dataclass(frozen=True, eq=False)
class LookAhead2022:
    """How well look-ahead foresees retraining, and what rows teach that it chooses. Made by `reproduce`.

    - `measured`: one for each task. `width`, `steps`: of networks and of their training. `labelled`, `candidates`: rows
      when look-ahead is held against retraining, and rows with which networks were trained again.

    >>> from everwide_lab import lookahead2022
    >>> result = lookahead2022.reproduce(seeds=2, pool=60, rounds=1, steps=50, width=16)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP
    """

    measured: tuple[Measured, ...]
    width: int
    steps: int
    labelled: int
    candidates: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each task and guess or strategy: means, and standard errors between seeds."""
        return [row for one in self.measured for row in (*_guesses(one), *_strategies(one))]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, each with a verdict that is computed from the numbers."""
        return claims_of(self.measured)

    def plot(self) -> Any:
        """Accuracies by labelled rows, one panel a task: a matplotlib figure."""
        figure = blank_figure(4.6 * len(self.measured), 3.8)
        for ax, one in zip(figure.subplots(1, len(self.measured), squeeze=False)[0], self.measured, strict=True):
            for strategy, values in one.accuracies.items():
                error = values.std(0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else None
                ax.errorbar(one.sizes, values.mean(0), error, marker="o", markersize=3, label=strategy.value)
            ax.set(xlabel="labelled rows", ylabel="test accuracy", title=one.task)
            ax.legend(fontsize="small")
        return figure

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        title = "Mohamadi, Bae, Sutherland 2022"
        write_report(folder, title, self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        sizes = self.measured[0].sizes
        seeds = len(self.measured[0].accuracies[Strategy.MLMOC])
        return (
            f"Networks of two hidden layers of {self.width} rectifiers (standard parametrization), {seeds} seeds with "
            f"rows of their own, trained by ADAM (rate {RATE:g}, {self.steps} steps of all labelled rows) on half the "
            "mean square of centred indicators of the classes; the closed form is that of gradient descent to the end. "
            "Retraining: "
            f"{self.labelled} labelled rows, {self.candidates} candidates with the label that the network thinks most "
            "likely, each learned by a network of its own, from the same first parameters or from the trained ones; a "
            "change is the difference to as long a training without the candidate, on all rows that are not labelled. "
            "Guesses: the closed form with the kernel, a mean over outputs, and the outputs of the trained network, "
            f"ridge {RIDGE:g} of the mean diagonal; or one step of descent. Queries: {sizes[0]} random labels, then "
            f"batches of {sizes[1] - sizes[0]}, look-ahead one row after the other with most likely labels (MLMOC); "
            "networks begin anew after each batch. Accuracies are means over the batches; errors are standard errors "
            "between seeds."
        )


def _guesses(one: Measured) -> list[dict[str, Any]]:
    return [
        {"task": one.task, "what": f"{guess.value}, {course.value}", "ranks": float(one.ranks[course, guess].mean())}
        | {"ranks_se": _error(one.ranks[course, guess]), "cosine": float(one.cosines[course, guess].mean())}
        | {"accuracy": np.nan, "accuracy_se": np.nan, "seeds": len(one.ranks[course, guess])}
        for course, guess in _KINDS
    ]


def _strategies(one: Measured) -> list[dict[str, Any]]:
    return [
        {"task": one.task, "what": strategy.value, "ranks": np.nan, "ranks_se": np.nan, "cosine": np.nan}
        | {"accuracy": float(one.area(strategy).mean()), "accuracy_se": _error(one.area(strategy))}
        | {"seeds": len(one.area(strategy))}
        for strategy in Strategy
    ]


def _error(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else np.nan


def reproduce(
    *,
    seeds: int = 5,
    pool: int = 400,
    rounds: int = 6,
    batch: int = 10,
    labelled: int = 40,
    candidates: int = 32,
    width: int = 128,
    steps: int = 500,
    tests: int = 600,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> LookAhead2022:
    """Hold look-ahead against real retraining, and the rows that it chooses against those of others.

    Args:
        seeds: Networks, each with rows of its own.
        pool: Rows that can be labelled.
        rounds: Of queries.
        batch: Rows that are labelled in a round; twice as many are labelled before the first.
        labelled: Rows that are labelled where look-ahead is held against retraining.
        candidates: Rows with each of which a network is trained again.
        width: Of the hidden layers.
        steps: Of training.
        tests: Rows on which accuracies are measured.
        out: A folder. What a seed has found for a task is kept there in `runs.jsonl` at once, and a later call goes on
            from it; at the end table, figure and claims are written beside it.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `measured` behind them.

    >>> from everwide_lab import lookahead2022
    >>> result = lookahead2022.reproduce(seeds=2, pool=60, rounds=1, steps=50, width=16)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Mohamadi, Bae, Sutherland, "Making look-ahead active learning strategies feasible with neural tangent kernels"
    (2022).

    """
    sizes = {"pool": pool, "rounds": rounds, "batch": batch, "labelled": labelled, "candidates": candidates}
    sizes |= {"width": width, "steps": steps, "tests": tests}
    _check(seeds, sizes)
    folder, clock, found = None if out is None else Path(out), Clock(progress), []
    ledger, chosen = Ledger(None if folder is None else folder / "runs.jsonl"), tasks(pool, tests)
    for task in chosen:
        kept = []
        for seed in range(seeds):
            clock(len(found) * seeds + seed, len(chosen) * seeds)
            run = {"task": task.name, "seed": seed} | sizes
            kept.append(ledger.result(run, lambda task=task, seed=seed: _measured(task, sizes, seed)))
        found.append(_gathered(task.name, sizes, kept))
    clock(1, 1)
    result = LookAhead2022(tuple(found), width, steps, labelled, candidates)
    if folder is not None:
        result.write(folder)
    return result


def _check(seeds: int, sizes: dict[str, int]) -> None:
    if min(seeds, *sizes.values()) < 1 or sizes["candidates"] < 3:
        raise InputError(f"seeds={seeds}, {sizes}: expected whole numbers above 0, and three candidates or more.")
    needed = max(sizes["batch"] * (sizes["rounds"] + 2), sizes["labelled"] + sizes["candidates"])
    if sizes["pool"] < needed or sizes["pool"] + sizes["tests"] > 1797:
        raise InputError(
            f"pool={sizes['pool']}, tests={sizes['tests']}: expected a pool of {needed} rows or more, for all that is "
            "labelled, and 1797 rows of digits at the most for both."
        )


def _measured(task: Task, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    """What one seed has found."""
    sample, batch = task.draw(seed), sizes["batch"]
    learner = Learner(sample.classes, sizes["width"], sizes["steps"])
    agreed = agreement(sample, learner, sizes["labelled"], sizes["candidates"], seed)
    rounds = sizes["rounds"]
    curves = {one.value: curve(sample, learner, one, 2 * batch, batch, rounds, seed) for one in Strategy}
    return {"agreement": agreed, "curves": curves}


def _gathered(name: str, sizes: dict[str, int], kept: list[dict[str, Any]]) -> Measured:
    ranks, cosines = (
        {
            kind: np.array([one["agreement"][f"{kind[0].value}, {kind[1].value}"][what] for one in kept])
            for kind in _KINDS
        }
        for what in ("ranks", "cosine")
    )
    curves = {strategy: np.array([one["curves"][strategy.value] for one in kept]) for strategy in Strategy}
    known = tuple(sizes["batch"] * (2 + done) for done in range(sizes["rounds"] + 1))
    return Measured(name, known, ranks, cosines, curves)
