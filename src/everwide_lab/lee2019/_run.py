"""Lee et al. 2019, "Wide neural networks of any depth evolve as linear models under gradient descent"."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide.activations import Erf
from everwide.comparison import Comparison, compare
from everwide.layers import Dense, Serial

from .._claims import Claim
from .._figures import gaps_by_time_and_width
from .._progress import Stage, Watcher, unwatched
from .._report import write_report
from ._claims import claims_of
from ._compare import compare_in
from ._data import digits
from ._regimes import CrossEntropy, SquaredLossWithMomentum

DESCENT, MOMENTUM, CROSS_ENTROPY = "gradient descent", "momentum", "cross-entropy"
_QUANTITIES = ("gap_infinite", "gap_linearized", "kernel_change", "movement")


@dataclass(frozen=True, eq=False)
class Lee2019:
    """Finite networks beside their linearizations and their limit, in three regimes. Made by `reproduce`.

    - `found`: an `everwide.comparison.Comparison` for each regime: gradient descent and momentum on the squared loss,
      gradient descent on cross-entropy. `rows`: training examples, and as many for the test.

    >>> from everwide_lab import lee2019
    >>> found = lee2019.reproduce(widths=(16, 64), seeds=2, steps=20)  # doctest: +SKIP
    >>> found.found["momentum"].slopes()["gap_infinite"]  # doctest: +SKIP
    """

    found: dict[str, Comparison]
    rows: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each regime and width, and one for the slopes: largest values over the steps.

        For each quantity the mean over the seeds and their standard deviation (`..._spread`); in the row of the slopes
        (`width` is "exponent") the exponent of the width and its standard error.
        """
        return [row for regime in self.found for row in self._rows(regime)]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, each with a verdict that is computed from the numbers."""
        return claims_of(self.found, (DESCENT, MOMENTUM), CROSS_ENTROPY)

    def plot(self) -> Any:
        """Losses and gaps over time, and gaps against the width, for each regime: a matplotlib figure."""
        labels = {DESCENT: "mean squared error", MOMENTUM: "mean squared error", CROSS_ENTROPY: "cross-entropy, nats"}
        return gaps_by_time_and_width(self.found, labels)

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        write_report(folder, "Lee et al. 2019", self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        one = self.found[DESCENT]
        return (
            f"Networks of two hidden layers (error function, NTK parametrization) learn {self.rows} digits, 3 or 8, of "
            f"scikit-learn, full batch, {one.steps[-1]} steps, {one.finite.shape[1]} seeds. Rates are half of the "
            "largest stable one; with momentum 0.9 a tenth of that. Every prediction begins with the outputs with "
            "which its network began. Gaps are root mean squares over test outputs, the largest over time. Spread is "
            "the standard deviation between seeds; that of an exponent is its standard error."
        )

    def _rows(self, regime: str) -> list[dict[str, Any]]:
        one = self.found[regime]
        largest, slopes = one.largest()._asdict(), one.slopes()
        rows: list[dict[str, Any]] = [{"regime": regime, "width": str(width)} for width in one.widths]
        rows.append({"regime": regime, "width": "exponent"})
        for name in _QUANTITIES:
            values = largest[name]
            spreads = np.std(values, axis=1, ddof=1) if values.shape[1] > 1 else np.full(len(values), math.nan)
            columns = [*zip(values.mean(1), spreads, strict=True), slopes[name]]
            for row, (mean, spread) in zip(rows, columns, strict=True):
                row |= {name: float(mean), f"{name}_spread": float(spread)}
        return rows


def reproduce(
    *,
    widths: Sequence[int] = (32, 64, 128, 256, 512),
    seeds: int = 5,
    steps: int = 4000,
    rows: int = 12,
    out: Path | str | None = None,
    progress: Watcher = unwatched,
) -> Lee2019:
    """Train networks of growing width, and set them beside their linearizations and the infinitely wide network.

    - `widths`, `seeds`, `steps`: of the networks. `rows`: training examples.
    - `out`: a folder for table, figure and claims. `progress`: called with a `Stage` now and then.

    >>> from everwide_lab import lee2019
    >>> found = lee2019.reproduce(widths=(16, 64), seeds=2, steps=20)  # doctest: +SKIP
    >>> print(found.claims()[0])  # doctest: +SKIP

    Lee et al., "Wide neural networks of any depth evolve as linear models under gradient descent" (2019).
    """
    data, sizes = digits(rows), tuple(sorted(widths))
    hidden = (Dense(w_std=1.5, b_std=0.1), Erf())
    net = Serial(*hidden, *hidden, Dense(2, w_std=1.0))
    stage = lambda done, name: lambda share: progress(Stage(done + share, 3, name))
    watch = stage(0, DESCENT)
    watch(0.0)
    found = {
        DESCENT: compare(
            net,
            data.x,
            data.targets,
            sizes,
            x_test=data.x_test,
            steps=steps,
            seeds=seeds,
            progress=lambda p: watch(p.done / p.total),
        )
    }
    looks = found[DESCENT].steps
    for name, regime in ((MOMENTUM, SquaredLossWithMomentum()), (CROSS_ENTROPY, CrossEntropy())):
        each = stage(len(found), name)
        found[name] = compare_in(regime, net, data, widths=sizes, steps=looks, seeds=seeds, watch=each)
    result = Lee2019(found, rows)
    if out is not None:
        result.write(Path(out))
    return result
