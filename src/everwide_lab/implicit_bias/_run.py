"""Woodworth et al. 2020, "Kernel and rich regimes in overparametrized models", and Soudry et al. 2018."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide import InputError

from .._claims import Claim
from .._report import Clock, Watcher, blank_figure, write_report
from ._claims import at_loss, claims_of
from ._separable import ADAM, CLASSES, Separable, follow
from ._sparse import COLUMNS, NONZERO, SCALES, Sparse, problem, train

_UNKNOWN = 0.4  # rows over columns of the sparse problem


@dataclass(frozen=True, eq=False)
class ImplicitBias:
    """Solutions that gradient descent found, beside those that theory has. Made by `reproduce`.

    - `sparse`: regression from weights of each scale. `separable`: two kinds of digits, a seed each.
    - `n`, `steps`: training rows of the digits, and steps.

    >>> from everwide_lab import implicit_bias
    >>> result = implicit_bias.reproduce(seeds=2, n=20, steps=1000)  # doctest: +SKIP
    >>> result.sparse[0].error  # doctest: +SKIP
    """

    sparse: tuple[Sparse, ...]
    separable: tuple[Separable, ...]
    n: int
    steps: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each quantity of each setting: mean and standard deviation over the seeds."""
        rows = [
            _row("sparse", f"scale {one.scale:g}", name, getattr(one, name))
            for one in self.sparse
            for name in ("off", "excess", "unlike_kernel", "error")
        ]
        runs = {"descent": [one.descent for one in self.separable], "adam": [one.adam for one in self.separable]}
        for name, group in runs.items():
            for quantity in ("losses", "test_losses", "errors", "sizes", "apart"):
                last = np.array([getattr(run, quantity)[-1] for run in group])
                rows.append(_row("separable", name, f"last {quantity}", last))
        same = np.array([at_loss(one.adam, one.descent.losses[-1]) for one in self.separable])
        rows.append(_row("separable", "adam", "apart at the same loss", same))
        predicted = np.array([one.predicted[-1] for one in self.separable])
        rows.append(_row("separable", "flow", "predicted apart", predicted))
        return rows

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the papers, each with a verdict that is computed from the numbers."""
        return claims_of(self.sparse, self.separable)

    def plot(self) -> Any:
        """Coefficients by scale, directions and losses over time: a matplotlib figure."""
        figure = blank_figure(12.0, 3.8)
        first, second, third = figure.subplots(1, 3)
        scales = [one.scale for one in self.sparse]
        for name, label in (
            ("excess", "sum of |b| above the smallest"),
            ("error", "squared error"),
            ("off", "off theory"),
        ):
            first.plot(scales, [max(float(getattr(one, name).mean()), 1e-6) for one in self.sparse], "o-", label=label)
        first.set(xscale="log", yscale="log", xlabel="scale of the first weights", title="sparse regression")
        for place, one in enumerate(self.separable):
            named = (
                {"descent": None, "adam": None, "flow": None} if place else {n: n for n in ("descent", "adam", "flow")}
            )
            second.plot(one.descent.log_times, one.descent.apart, color="C0", label=named["descent"])
            second.plot(one.adam.log_times, one.adam.apart, color="C1", label=named["adam"])
            second.plot(one.descent.log_times, one.predicted, color="black", ls=":", label=named["flow"])
            third.plot(one.descent.log_times, one.descent.losses, color="C0", label=None if place else "training rows")
            third.plot(one.descent.log_times, one.descent.test_losses, color="C3", label=None if place else "new rows")
        second.set(yscale="log", xlabel="log(rate steps)", title="distance from the largest margin")
        third.set(yscale="log", xlabel="log(rate steps)", title="loss, gradient descent")
        for ax in (first, second, third):
            ax.legend(fontsize="small")
        return figure

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        title = "Implicit bias (Woodworth et al. 2020, Soudry et al. 2018)"
        write_report(folder, title, self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        return (
            f"Sparse: {round(_UNKNOWN * COLUMNS)} Gaussian rows, {COLUMNS} columns, {NONZERO} coefficients of size 1, "
            "no noise. b = u^2 - v^2 is trained by gradient descent from u = v = scale until nothing is left. off: "
            "relative distance from the predicted limit; excess: how far the sum of |b| is above the smallest that "
            "fits; unlike_kernel: relative distance from the smallest sum of squares; error: squared distance from the "
            f"true coefficients, relative. Separable: logistic regression without a penalty on {self.n} digits "
            f"{CLASSES[0]} and {CLASSES[1]} of scikit-learn with a column of ones, all rows at every step, "
            f"{self.steps} steps of gradient descent at half of the largest stable rate, and of Adam at {ADAM:g}. "
            "apart: distance between the unit vectors of the weights and of the largest margin; sizes: lengths of the "
            f"weights; errors: shares of all other such digits on the wrong side. {len(self.separable)} seeds, rows of "
            "their own each."
        )


def _row(experiment: str, setting: str, quantity: str, values: np.ndarray) -> dict[str, Any]:
    numbers = {"mean": float(values.mean()), "spread": float(values.std(ddof=1)) if len(values) > 1 else np.nan}
    return {"experiment": experiment, "setting": setting, "quantity": quantity, **numbers, "seeds": len(values)}


def reproduce(
    *, seeds: int = 5, n: int = 60, steps: int = 100_000, out: Path | str | None = None, progress: Watcher = None
) -> ImplicitBias:
    """Train to the end where many solutions fit, and see which one was found.

    Args:
        seeds: Draws of the rows.
        n: Training rows of the digits.
        steps: Of training, at the most.
        out: A folder for table, figure and claims.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `sparse` and `separable` behind them.

    >>> from everwide_lab import implicit_bias
    >>> result = implicit_bias.reproduce(seeds=2, n=20, steps=1000)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Woodworth et al., "Kernel and rich regimes in overparametrized models" (2020); Soudry et al., "The implicit bias of
    gradient descent on separable data" (2018).

    """
    if seeds < 1 or steps < 100:
        raise InputError(f"seeds={seeds!r}, steps={steps!r}: expected 1 or more, and 100 or more.")
    clock, total = Clock(progress), len(SCALES) + 2 * seeds
    problems, sparse, separable = [problem(round(_UNKNOWN * COLUMNS), seed) for seed in range(seeds)], [], []
    for done, scale in enumerate(SCALES):
        clock(done, total)
        sparse.append(train(problems, scale, steps))
    for seed in range(seeds):
        clock(len(SCALES) + 2 * seed, total)
        separable.append(follow(n, steps, seed))
    clock(1, 1)
    result = ImplicitBias(tuple(sparse), tuple(separable), n, steps)
    if out is not None:
        result.write(Path(out))
    return result
