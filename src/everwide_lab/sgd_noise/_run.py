"""Yaida 2018, "Fluctuation-dissipation relations for stochastic gradient descent"."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from everwide import InputError

from .._claims import Claim
from .._report import Clock, Watcher, blank_figure, write_report
from ._claims import Settled, claims_of
from ._descent import BLOCK, DECAY, Task, Walker, minimum, task
from ._schedules import FACTOR, FIRST, TOLERANCE, Scheduled, schedules

RATES = (0.05, 0.1, 0.2, 0.4)
_RELAXATIONS = 40.0  # times in which weight decay forgets, in a run


@dataclass(frozen=True, eq=False)
class SgdNoise:
    """Runs in batches at several rates, long enough to settle. Made by `reproduce`.

    - `settled`: for each model and rate, all runs. `schedules`: for each seed, runs with schedules of the rate.
    - `n`, `width`, `batch_size`, `blocks`: rows, of the network, rows of a batch, blocks of a run with a schedule.

    >>> from everwide_lab import sgd_noise
    >>> result = sgd_noise.reproduce(seeds=2, n=30, width=2, blocks=40)  # doctest: +SKIP
    >>> result.settled[0].first(early=False)  # doctest: +SKIP
    """

    settled: tuple[Settled, ...]
    schedules: tuple[tuple[Scheduled, ...], ...]
    n: int
    width: int
    batch_size: int
    blocks: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each quantity: mean and standard deviation over the seeds."""
        rows = []
        for one in self.settled:
            figures = {"first relation, early": one.first(early=True), "first relation": one.first(early=False)}
            figures |= {"second relation": one.second()}
            figures |= {"raised": one.raised(), "predicted": one.predicted()} if one.minima else {}
            rows += [_row(str(one), name, values) for name, values in figures.items()]
        for runs in zip(*self.schedules, strict=True):
            rows.append(_row(runs[0].name, "raised in the end", np.array([run.raised for run in runs])))
        return rows

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, each with a verdict that is computed from the numbers."""
        return claims_of(self.settled, self.schedules)

    def plot(self) -> Any:
        """Both relations, losses beside predictions, and schedules: a matplotlib figure."""
        figure = blank_figure(12.0, 3.8)
        first, second, third = figure.subplots(1, 3)
        for kind, color in (("linear", "C0"), ("tanh", "C1")):
            group = [one for one in self.settled if one.kind == kind]
            rates = [one.rate for one in group]
            for name, style in (("first", "o-"), ("second", "s--")):
                values = [one.second() if name == "second" else one.first(early=False) for one in group]
                middle, spread = [v.mean() for v in values], [v.std() for v in values]
                first.errorbar(
                    rates, middle, spread, fmt=style, color=color, capsize=3, label=f"{kind}, {name} relation"
                )
        first.axhline(1, color="black", lw=0.6, ls=":")
        first.set(xscale="log", xlabel="rate", ylabel="ratio", title="settled: both sides agree", ylim=(0.5, 1.5))
        alone = [one for one in self.settled if one.minima]
        second.plot([one.rate for one in alone], [one.raised().mean() for one in alone], "o", label="measured")
        second.plot([one.rate for one in alone], [one.predicted().mean() for one in alone], "k:", label="predicted")
        second.set(xscale="log", yscale="log", xlabel="rate", title="loss above the lowest, linear")
        names = [run.name for run in self.schedules[0]]
        ends = [np.mean([runs[place].raised for runs in self.schedules]) for place in range(len(names))]
        third.barh(names, ends)
        third.set(xscale="log", title="loss above its valley, in the end")
        for ax in (first, second):
            ax.set_xticks(RATES, [f"{rate:g}" for rate in RATES])
            ax.set_xticks([], minor=True)
            ax.legend(fontsize="small")
        return figure

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        title = "Noise of batches (Yaida 2018)"
        write_report(folder, title, self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        return (
            f"Linear models, and networks of one hidden layer of {self.width} hyperbolic tangents, learn the classes "
            f"of {self.n} digits of scikit-learn by cross-entropy with weight decay ({DECAY:g} / 2 times the squares), "
            f"in batches of {self.batch_size} without replacement, for {_RELAXATIONS:g} / (rate decay) steps; all rows "
            f"are looked at every {BLOCK} steps. first relation: parameters times gradient of the batch over rate / 2 "
            "times its square; second relation: squared gradient of all rows over rate / 2 times g H g, of a batch's "
            "gradient g; both in the second half, early in the first tenth. raised: the mean loss of all rows, in the "
            "second half, above the lowest; predicted: half the trace of the Hessian and the stationary covariance "
            f"there. Of networks, schedules are tried: {self.blocks * BLOCK} steps from {FIRST:g} on; by hand the "
            f"rate falls by {FACTOR:g} after a half and three quarters, by the relation where three windows in "
            f"succession are within {TOLERANCE:g} of 1; raised in the end: above where descent by all rows leads from "
            f"there. {len(self.schedules)} seeds: rows, weights and batches of their own."
        )


def _row(setting: str, quantity: str, values: np.ndarray) -> dict[str, Any]:
    numbers = {"mean": float(values.mean()), "spread": float(values.std(ddof=1)) if len(values) > 1 else np.nan}
    return {"setting": setting, "quantity": quantity, **numbers, "seeds": len(values)}


def reproduce(
    *,
    seeds: int = 4,
    n: int = 200,
    width: int = 4,
    batch_size: int = 10,
    blocks: int = 600,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> SgdNoise:
    """Train in batches until nothing changes any more, and hold what is seen against relations that must hold then.

    Args:
        seeds: Draws of rows, weights and batches.
        n: Training rows.
        width: Of the hidden layer.
        batch_size: Rows of a step.
        blocks: Of 50 steps, in runs with a schedule.
        out: A folder for table, figure and claims.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `settled` and `schedules` behind them.

    >>> from everwide_lab import sgd_noise
    >>> result = sgd_noise.reproduce(seeds=2, n=30, width=2, blocks=40)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Yaida, "Fluctuation-dissipation relations for stochastic gradient descent" (2018).

    """
    if min(seeds, width, batch_size) < 1 or blocks < 4:
        raise InputError(
            f"seeds={seeds!r}, width={width!r}, batch_size={batch_size!r}, blocks={blocks!r}: expected whole numbers "
            "above 0, and 4 blocks or more."
        )
    clock, kinds = Clock(progress), {"linear": 0, "tanh": width}
    parts, settled, planned = len(kinds) * len(RATES) + seeds, [], []
    with jax.enable_x64(True):
        for kind, units in kinds.items():
            tasks = [task(n, units, batch_size, seed) for seed in range(seeds)]
            for rate in RATES:
                clock(len(settled), parts)
                settled.append(_settled(kind, rate, tasks))
        for seed in range(seeds):
            clock(len(settled) + seed, parts)
            planned.append(tuple(schedules(task(n, width, batch_size, seed), blocks, seed)))
    clock(1, 1)
    result = SgdNoise(tuple(settled), tuple(planned), n, width, batch_size, blocks)
    if out is not None:
        result.write(Path(out))
    return result


def _settled(kind: str, rate: float, tasks: list[Task]) -> Settled:
    """All seeds at a rate; linear models have one minimum."""
    runs, minima = [], []
    for seed, one in enumerate(tasks):
        walker = Walker(one, seed)
        runs.append(walker.walk(rate, round(_RELAXATIONS / (rate * DECAY) / BLOCK)))
        minima += [minimum(one, walker.w, rate)] if not one.width else []
    return Settled(kind, rate, tuple(runs), tuple(minima))
