"""Lee et al. 2019, "Wide neural networks of any depth evolve as linear models under gradient descent"."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from everwide import Dense, Erf, Serial, compare

from .._claims import Claim
from .._report import Clock, Watcher, blank_figure, widths_on_axis, write_report
from ._claims import Comparison, claims_of
from ._compare import Measured, compare_in
from ._regimes import CrossEntropy, SquaredLossWithMomentum, digits

DESCENT, MOMENTUM, CROSS_ENTROPY = "gradient descent", "momentum", "cross-entropy"
_QUANTITIES = ("gap_infinite", "gap_linearized", "kernel_change", "movement")


@dataclass(frozen=True, eq=False)
class Lee2019:
    """Finite networks beside their linearizations and their limit, in three regimes. Made by `reproduce`.

    - `comparisons`: results of `everwide.compare`, by regime: gradient descent and momentum on the squared loss,
      gradient descent on cross-entropy. `n`: training examples, and as many for the test.

    >>> from everwide_lab import lee2019
    >>> result = lee2019.reproduce(widths=(16, 64), seeds=2, steps=20)  # doctest: +SKIP
    >>> result.comparisons["momentum"].slopes()["gap_infinite"]  # doctest: +SKIP
    """

    comparisons: dict[str, Comparison]
    n: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each regime and width, and one for the slopes: largest values over the steps.

        For each quantity the mean over the seeds and their standard deviation (`..._spread`); in the row of the slopes
        (`width` is "exponent") the exponent of the width and its standard error.
        """
        return [row for regime in self.comparisons for row in self._rows(regime)]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, each with a verdict that is computed from the numbers."""
        return claims_of(self.comparisons, (DESCENT, MOMENTUM), CROSS_ENTROPY)

    def plot(self) -> Any:
        """Losses and gaps over time, and gaps against the width, for each regime: a matplotlib figure."""
        labels = {DESCENT: "mean squared error", MOMENTUM: "mean squared error", CROSS_ENTROPY: "cross-entropy, nats"}
        return _draw(self.comparisons, labels)

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        write_report(folder, "Lee et al. 2019", self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        one = self.comparisons[DESCENT]
        return (
            f"Networks of two hidden layers (error function, NTK parametrization) learn {self.n} digits, 3 or 8, of "
            f"scikit-learn, full batch, {one.steps[-1]} steps, {one.finite.shape[1]} seeds. Rates are half of the "
            "largest stable one; with momentum 0.9 a tenth of that. Every prediction begins with the outputs with "
            "which its network began. Gaps are root mean squares over test outputs, the largest over time. Spread is "
            "the standard deviation between seeds; that of an exponent is its standard error."
        )

    def _rows(self, regime: str) -> list[dict[str, Any]]:
        one = self.comparisons[regime]
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
    n: int = 12,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> Lee2019:
    """Train networks of growing width, and set them beside their linearizations and the infinitely wide network.

    Args:
        widths: Of the hidden layers, one network after the other.
        seeds: Networks of each width.
        steps: Of training.
        n: Training examples.
        out: A folder for table, figure and claims.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `comparisons` by the name of the regime.

    >>> from everwide_lab import lee2019
    >>> result = lee2019.reproduce(widths=(16, 64), seeds=2, steps=20)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Lee et al., "Wide neural networks of any depth evolve as linear models under gradient descent" (2019).

    """
    data, sizes, clock = digits(n), tuple(sorted(widths)), Clock(progress)
    hidden = (Dense(w_std=1.5, b_std=0.1), Erf())
    net = Serial(*hidden, *hidden, Dense(2, w_std=1.0))
    clock(0, 3)
    descent = compare(
        net,
        data.x,
        data.targets,
        sizes,
        x_test=data.x_test,
        steps=steps,
        seeds=seeds,
        progress=lambda p: clock(p.done / p.total, 3),
    )
    comparisons = {DESCENT: descent}
    for done, (name, regime) in enumerate(((MOMENTUM, SquaredLossWithMomentum()), (CROSS_ENTROPY, CrossEntropy())), 1):
        measured = compare_in(
            regime,
            net,
            data,
            widths=sizes,
            steps=descent.steps,
            seeds=seeds,
            watch=lambda share, done=done: clock(done + share, 3),
        )
        comparisons[name] = _as_comparison(descent, measured)
    result = Lee2019(comparisons, n)
    if out is not None:
        result.write(Path(out))
    return result


def _as_comparison(like: Comparison, measured: Measured) -> Comparison:
    """What was measured in another regime, with the methods of a result of `everwide.compare`."""
    curves = like.curves._replace(**measured.curves._asdict())
    rates = (measured.rate,) * len(like.widths)
    return replace(like, rates=rates, curves=curves, finite=measured.finite, infinite=measured.infinite)


def _draw(comparisons: dict[str, Comparison], losses: dict[str, str]) -> Any:
    """For each regime (a column): losses over time, gaps over time at two widths, gaps against the width."""
    figure = blank_figure(4.2 * len(comparisons), 10.0)
    columns = figure.subplots(3, len(comparisons), squeeze=False).T
    for (name, one), (first, second, third) in zip(comparisons.items(), columns, strict=True):
        _losses_over_time(first, one)
        first.set(title=name, ylabel=losses[name])
        _gaps_over_time(second, one)
        one.plot_gaps(third)
        widths_on_axis(third, one.widths)
    return figure


def _losses_over_time(ax: Any, one: Comparison) -> None:
    narrow, wide = one.widths[0], one.widths[-1]
    lines = {
        f"width {narrow}": (one.curves.loss_finite[0], "-"),
        f"width {wide}": (one.curves.loss_finite[-1], "-"),
        f"width {wide}, linearized": (one.curves.loss_linearized[-1], ":"),
        "infinite width": (one.curves.loss_infinite[-1], "k--"),
    }
    for label, (values, style) in lines.items():
        ax.plot(one.steps, values.mean(0), style, label=label)
    ax.set(xscale="symlog", yscale="log", xlabel="step")
    ax.legend()


def _gaps_over_time(ax: Any, one: Comparison) -> None:
    for place in (0, -1):
        for name, style in (("gap_infinite", "-"), ("gap_linearized", ":")):
            values = getattr(one.curves, name)[place].mean(0)
            label = f"width {one.widths[place]}, {name.replace('gap_', 'to ')}"
            ax.plot(one.steps[1:], values[1:], style, color=f"C{-place}", label=label)
    ax.set(xscale="log", yscale="log", xlabel="step", ylabel="rms gap of test outputs")
    ax.legend()
