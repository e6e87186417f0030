"""Simon et al. 2021, "The eigenlearning framework": what a kernel and a wide network learn from few examples."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide import Dense, InputError, Relu, Serial
from everwide.layers import AbstractLayer
from everwide.theory.eigenlearning import eigensystem

from .._claims import Claim
from .._report import Clock, Watcher, blank_figure, write_report
from ._claims import claims_of
from ._data import populations
from ._finite import ENOUGH, MOMENTUM, train_networks
from ._kernel import KERNEL, Laws, Measured, check_laws, regress

_MARKS = ("o", "^", "s", "D", "v", "P")
_SIZES = (4, 8, 16, 32, 64, 128)
_NETWORK_SIZES = (16, 64)
_SMALL_CUBE, _SEQUENCES = 6, 50


@dataclass(frozen=True, eq=False)
class Simon2021:
    """Kernel regression and networks of several widths beside what eigenvalues predict. Made by `reproduce`.

    - `rows`: a `Measured` for each domain, target, number of examples, and width or kernel.
    - `laws`: what holds for every single training set.

    >>> from everwide_lab import simon2021
    >>> result = simon2021.reproduce(widths=(20,), seeds=2, steps=100, draws=4)  # doctest: +SKIP
    >>> result.rows[0].predicted_learnability  # doctest: +SKIP
    """

    rows: tuple[Measured, ...]
    laws: Laws

    def table(self) -> list[dict[str, Any]]:
        """Means over training sets, standard errors of these (`..._se`), and predictions."""
        return [_row(one) for one in self.rows]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, each with a verdict that is computed from the numbers."""
        return claims_of(self.rows, self.laws)

    def plot(self) -> Any:
        """Learnabilities and errors against the number of examples, for each domain: a matplotlib figure."""
        return _drawn(self.rows)

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        write_report(folder, "Simon et al. 2021", self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        draws = {len(row.error) for row in self.rows if row.width == KERNEL}
        seeds = {len(row.error) for row in self.rows if row.width != KERNEL}
        return (
            "The tangent kernel of a ReLU network with one hidden layer (NTK parametrization, biases) learns single "
            "eigenfunctions on the circle, the hypercube and the sphere in 8 dimensions, and to which of two groups of "
            "classes an image belongs, without a ridge. Predictions take eigenvalues and coefficients only. On "
            "hypercube and images the population is finite and errors are means over all of it; on circle and sphere, "
            f"over points that were not trained on. {max(draws, default=0)} training sets a setting for the kernel, "
            f"the first {max(seeds, default=0)} of them for networks of finite width. These are trained by full-batch "
            f"gradient descent with momentum {MOMENTUM} until {ENOUGH:g} of the power of the target is left, or their "
            "steps are used up (see train_error), and start at 0: their first outputs are subtracted. Errors are over "
            "the power of the target; an error of 1 is that of learning nothing."
        )


def _row(one: Measured) -> dict[str, Any]:
    return {
        "domain": one.domain,
        "target": one.target,
        "n": one.n,
        "width": one.width,
        "learnability": float(np.mean(one.learnability)),
        "learnability_se": _standard_error(one.learnability),
        "predicted_learnability": one.predicted_learnability,
        "error": float(np.mean(one.error)),
        "error_se": _standard_error(one.error),
        "predicted_error": one.predicted_error,
        "train_error": float(np.mean(one.train_error)),
    }


def _standard_error(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else math.nan


def reproduce(
    *,
    widths: Sequence[int] = (20, 100, 500),
    seeds: int = 8,
    steps: int = 2000,
    draws: int = 50,
    points: int = 1500,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> Simon2021:
    """Let an infinitely wide network and finite ones learn from random examples, and compare with the prediction.

    Fashion-MNIST takes part if `fashion_mnist.npz` (arrays `x_train`, `y_train`) is in the folder that the variable
    EVERWIDE_DATA names.

    Args:
        widths: Of the hidden layer, one network after the other.
        seeds: Networks of each width, each with a training set of its own.
        steps: Of training, at the most.
        draws: Training sets for the kernel, at least `seeds`.
        points: Images, and points of circle and sphere, of which training sets are drawn; at least 200.
        out: A folder for table, figure and claims.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `rows` and `laws` behind them.

    >>> from everwide_lab import simon2021
    >>> result = simon2021.reproduce(widths=(20,), seeds=2, steps=100, draws=4)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Simon et al., "The eigenlearning framework" (2021).

    """
    if not 1 <= seeds <= draws:
        raise InputError(f"seeds={seeds!r}, draws={draws!r}: expected at least as many draws as seeds, and one seed.")
    if points < 200:
        raise InputError(f"points={points!r}: expected at least 200: training sets have up to {max(_SIZES)} examples.")
    net = Serial(Dense(w_std=2**0.5, b_std=0.5), Relu(), Dense(1))
    clock = Clock(progress)
    clock(0, 1)
    places, rows, sizes = populations(net, points), [], tuple(sorted(widths))
    for index, population in enumerate(places):
        rows += [row for n in _SIZES for row in regress(population, n, draws)]
        for at, width in enumerate(sizes):
            clock(index + at / len(sizes), len(places))
            rows += train_networks(net, population, _NETWORK_SIZES, width, seeds, steps)
    result = Simon2021(tuple(rows), _laws_of(net))
    clock(1, 1)
    if out is not None:
        result.write(Path(out))
    return result


def _laws_of(net: AbstractLayer) -> Laws:
    """On a hypercube, with all of its eigenfunctions."""
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=_SMALL_CUBE)))
    system = eigensystem("hypercube", net, _SMALL_CUBE)
    functions = np.concatenate([system.functions(level, corners) for level in range(_SMALL_CUBE + 1)], 1)
    return check_laws(np.repeat(system.eigenvalues, system.multiplicities.astype(int)), functions, _SEQUENCES)


def _drawn(rows: Sequence[Measured]) -> Any:
    """For each domain (a column): learnabilities above, errors below, against the number of examples."""
    domains = list(dict.fromkeys(row.domain for row in rows))
    figure = blank_figure(3.6 * len(domains), 7.0)
    axes = figure.subplots(2, len(domains), squeeze=False)
    for domain, (upper, lower) in zip(domains, axes.T, strict=True):
        mine = [row for row in rows if row.domain == domain]
        _draw(upper, mine, "learnability")
        _draw(lower, mine, "error")
        upper.set(title=domain, xscale="log")
        lower.set(xscale="log", yscale="log", ylim=(1e-4, 6), xlabel="training examples")
    axes[0][0].set_ylabel("learnability")
    axes[1][0].set_ylabel("test error / power of the target")
    _legend(axes[0][0], list(dict.fromkeys(row.width for row in rows)))
    return figure


def _draw(ax: Any, rows: list[Measured], quantity: str) -> None:
    widths = list(dict.fromkeys(row.width for row in rows))
    for number, target in enumerate(dict.fromkeys(row.target for row in rows)):
        mine = [row for row in rows if row.target == target]
        line = [row for row in mine if row.width == KERNEL]
        predicted = [getattr(row, f"predicted_{quantity}") for row in line]
        ax.plot([row.n for row in line], predicted, color=f"C{number}", label=target)
        for place, width in enumerate(widths):
            chosen = [row for row in mine if row.width == width]
            values = [getattr(row, quantity) for row in chosen]
            means, errors = [np.mean(v) for v in values], [np.std(v) / len(v) ** 0.5 for v in values]
            filled = f"C{number}" if width == KERNEL else "none"
            style = {"linestyle": "", "marker": _MARKS[place % len(_MARKS)], "markersize": 5, "color": f"C{number}"}
            ax.errorbar([row.n for row in chosen], means, errors, markerfacecolor=filled, elinewidth=0.8, **style)
    if quantity == "error":
        ax.legend(fontsize="small")


def _legend(ax: Any, widths: list[str]) -> None:
    """What the marks mean."""
    for place, width in enumerate(widths):
        name = "exact kernel" if width == KERNEL else f"width {width}"
        filled = "black" if width == KERNEL else "none"
        mark = {"marker": _MARKS[place % len(_MARKS)], "color": "black", "markerfacecolor": filled}
        ax.plot([], [], linestyle="", label=name, **mark)
    ax.plot([], [], color="black", label="predicted")
    handles, labels = ax.get_legend_handles_labels()
    kept = [(h, name) for h, name in zip(handles, labels, strict=True) if not name.startswith(("level", "0-4"))]
    ax.legend(*zip(*kept, strict=True), fontsize="small")
