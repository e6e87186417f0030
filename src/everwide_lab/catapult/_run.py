"""Lewkowycz et al. 2020, "The large learning rate phase of deep learning: the catapult mechanism"."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide import InputError

from .._claims import Claim
from .._report import Clock, Watcher, write_report
from ._claims import Onset, Swept, claims_of, gain
from ._figure import draw
from ._model import limit
from ._sweep import ENOUGH, Kind, digits, sweep

KINDS = (Kind("linear", 1), Kind("tanh", 1), Kind("relu", 1), Kind("relu", 2), Kind("relu", 3))
MULTIPLES = (0.5, 1.0, 1.5, *(round(2 * 1.15**power, 3) for power in range(1, 21)))
ONSET = 2.5  # where the rise is timed
_WIDER = (1, 4, 16, 64)  # widths of that, over the smallest one
_MODEL_WIDTH, _MODEL_DRAWS = 10**6, 3


@dataclass(frozen=True, eq=False)
class Catapult:
    """Networks trained at many rates, below and above the edge of the linear theory. Made by `reproduce`.

    - `swept`: for each kind of network and width, all runs. `onsets`: how long the loss rises, by width.
    - `model`: limits of the solvable model, in units of 1 / lambda. `n`: training rows.

    >>> from everwide_lab import catapult
    >>> result = catapult.reproduce(widths=(16,), seeds=2, steps=50, n=16)  # doctest: +SKIP
    >>> result.swept[0].limits()  # doctest: +SKIP
    """

    swept: tuple[Swept, ...]
    onsets: tuple[Onset, ...]
    model: np.ndarray
    n: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each kind of network and width; rates in units of 1 / lambda, errors as shares of test rows."""
        return [_row(one) for one in self.swept]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, each with a verdict that is computed from the numbers."""
        return claims_of(self.swept, self.onsets, self.model)

    def plot(self) -> Any:
        """Losses over time, curvatures and errors over the rate, and limits: a matplotlib figure."""
        return draw(self.swept)

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        title = "The catapult (Lewkowycz et al. 2020)"
        write_report(folder, title, self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        seeds = len(self.swept[0].runs.last)
        return (
            f"Networks without biases (NTK parametrization, critical initialization) learn whether {self.n} digits of "
            "scikit-learn are below five, by full-batch gradient descent on half the mean square, at rates of "
            f"{MULTIPLES[0]:g} to {MULTIPLES[-1]:g} over lambda, the largest eigenvalue of the network's own tangent "
            f"kernel at the start over the number of rows; {seeds} networks of each width. Training ends at "
            f"{ENOUGH:.0%} of the first loss. limit is the rate from which runs diverge, or end above half of the "
            "first loss, in 1/lambda: the geometric mean of two neighbours on the grid, the median over the seeds. "
            "curvature_change: median of |lambda at the end / lambda - 1| at rates below 2/lambda. flatness: rate "
            "times lambda at the end, the median between 2/lambda and the limit. test_gain: share of test rows on "
            "the wrong side, of the best rate above 2/lambda minus that of the best below, chosen on other rows, "
            "among runs that reached the same training loss."
        )


def _row(one: Swept) -> dict[str, Any]:
    runs, below, between, limits, gains = one.runs, one.below(), one.catapults(), one.limits(), gain(one)
    flatness = (one.multiples * runs.curvature_end / runs.curvature)[between]
    ratios = runs.curvature_end[:, below] / runs.curvature[:, below]
    return {
        "activation": one.kind.activation,
        "hidden_layers": one.kind.hidden_layers,
        "width": one.width,
        "lambda": float(np.median(runs.curvature)),
        "never_rose": float(np.mean(runs.rises[:, below] == 0)),
        "curvature_change": float(np.median(np.abs(ratios - 1))),
        "rose_first": float(np.mean(runs.peak[between] >= 1.05)) if between.any() else np.nan,
        "flatness": float(np.median(flatness)) if between.any() else np.nan,
        "limit": float(np.median(limits)),
        "limit_low": float(limits.min()),
        "limit_high": float(limits.max()),
        "test_gain": float(np.mean(gains)) if len(gains) else np.nan,
        "seeds": len(limits),
    }


def reproduce(
    *,
    widths: Sequence[int] = (32, 128, 512),
    seeds: int = 4,
    steps: int = 1000,
    n: int = 64,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> Catapult:
    """Train networks below and above the largest rate of the linear theory, and see what becomes of them.

    Args:
        widths: Of the hidden layers, one network after the other.
        seeds: Networks of each width.
        steps: Of training, at the most.
        n: Training rows.
        out: A folder for table, figure and claims.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `swept` and `onsets` behind them.

    >>> from everwide_lab import catapult
    >>> result = catapult.reproduce(widths=(16,), seeds=2, steps=50, n=16)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Lewkowycz et al., "The large learning rate phase of deep learning: the catapult mechanism" (2020).

    """
    sizes = tuple(sorted(set(widths)))
    if not sizes or min(*sizes, seeds, steps) < 1:
        raise InputError(f"widths={widths!r}, seeds={seeds!r}, steps={steps!r}: expected whole numbers, 1 or more.")
    data, clock, multiples = digits(n), Clock(progress), np.asarray(MULTIPLES)
    settings = [(kind, width) for kind in KINDS for width in sizes]
    swept, onsets = [], []
    for done, (kind, width) in enumerate(settings):
        clock(done, len(settings) + 2)
        swept.append(Swept(kind, width, multiples, sweep(kind, data, width, MULTIPLES, seeds, steps)))
    wider = tuple(sizes[0] * factor for factor in _WIDER)
    for done, kind in enumerate((Kind("linear", 1), Kind("relu", 1))):
        clock(len(settings) + done, len(settings) + 2)
        peaks = [sweep(kind, data, width, (ONSET,), 2 * seeds, min(steps, 60)).peak_step[:, 0] for width in wider]
        onsets.append(Onset(kind, wider, ONSET, np.stack(peaks)))
    result = Catapult(tuple(swept), tuple(onsets), limit(_MODEL_WIDTH, _MODEL_DRAWS, seed=0), n)
    clock(1, 1)
    if out is not None:
        result.write(Path(out))
    return result
