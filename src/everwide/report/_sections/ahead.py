"""What more rows would bring to networks that are trained, beside their kernel."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..._problem import Problem
from ..._words import count, number, percent, several
from ...forecasting import ForecastWarning
from .._page import BLUE, GREY, INK, ORANGE, Fact, Figure, Section, Text, plain_ticks
from .width import width_for

_LOOKS = 16
_SURE = 0.9  # probability, beyond which one is said to be better than the other
_STILL, _GAIN = 0.1, 0.05  # change of a kernel, gain of alignment: what is less is little
Curve = Float[np.ndarray, " sizes"]


@dataclass(frozen=True, eq=False)
class Ahead:
    """`everwide.forecasting.forecast(of="network")` by rows `n`, beside the kernel of the same network.

    Errors are shares of wrong classes, or mean squares in units of the target squared.

    - `n_now`: rows of the table, at the place `now` of `n`; twice as many at `twice`. `n_pilot`: of them, those from
      which networks learned. `measured`: means over networks that learned from `measured_sizes`.
    - `kernel_error`: of infinite width, all layers trained. `better`: the probability that the network's is smaller.
    - `kernel_change`: how far training moved the tangent kernel, from 0 to 1; `alignment_before`, `alignment_after`:
      with the targets. `None` where that was not measured.
    - `n_failed`: networks that diverged, and are left out.
    """

    width: int
    n_pilot: int
    n_now: int
    n: Int[np.ndarray, " sizes"]
    now: int
    twice: int
    classes: bool
    error: Curve
    low: Curve
    high: Curve
    kernel_error: Curve
    better: Curve
    measured_sizes: np.ndarray
    measured: np.ndarray
    n_trained: int
    n_failed: int
    kernel_change: float | None
    alignment_before: float | None
    alignment_after: float | None

    def shown(self, error: float) -> str:
        """As it is printed: an accuracy, or a root mean square error."""
        return percent(1 - error) if self.classes else number(math.sqrt(error))


def ahead(problem: Problem) -> Ahead:
    """Networks that learned from parts of the rows with kernels, continued."""
    n, pilot, square = problem.table.n, len(problem.rows), problem.unit**2
    grid = np.geomspace(pilot / 8, max(20 * pilot, 2 * n), _LOOKS).astype(int)
    sizes = np.unique(np.concatenate([grid, [n, 2 * n]]))
    size = width_for(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForecastWarning)  # rows that lie far away are in the section on the data
        curve = problem.forecast(sizes, of="network", width=size)
    moved = (None, None, None) if curve.moved is None else curve.moved
    return Ahead(
        width=size,
        n_pilot=pilot,
        n_now=n,
        n=sizes,
        now=int(np.searchsorted(sizes, n)),
        twice=int(np.searchsorted(sizes, 2 * n)),
        classes=problem.classes is not None,
        better=curve.better,
        measured_sizes=curve.curve.sizes,
        measured=square * np.nanmean(curve.curve.errors, axis=0),
        n_trained=int(np.isfinite(curve.curve.errors).sum()),
        n_failed=len(curve.failures),
        kernel_change=moved[0],
        alignment_before=moved[1],
        alignment_after=moved[2],
        **{name: square * getattr(curve, name) for name in ("error", "low", "high", "kernel_error")},
    )


def _text(problem: Problem, result: Ahead) -> Text:
    note = (
        f"{count(result.n_trained)} networks of width {result.width} learned from {count(result.measured_sizes[0])} to "
        f"{count(result.measured_sizes[-1])} rows, all layers, by Adam at a rate of 0.001, a fifth of the rows held "
        "out to say when to stop; others say how good they are, and the curve goes on from there. Their kernel is that "
        "of the same network at infinite width, with all layers trained, too."
    )
    failed = several(result.n_failed, "network has", "networks have")
    warnings = (f"{failed} diverged, which the curve leaves out.",) if result.n_failed else ()
    return Text((_now(result), _which(result), *_why(result)), warnings, (note,))


def _now(result: Ahead) -> Fact:
    what, now, twice = "Accuracy" if result.classes else "Root mean square error", result.now, result.twice
    ends = sorted((result.low[now], result.high[now]), reverse=result.classes)
    interval = " to ".join(result.shown(float(end)) for end in ends)
    meaning = (
        f"What to expect of a network of width {result.width}: with 90\u202f% probability {interval}. With twice as "
        f"many rows about {result.shown(float(result.error[twice]))}."
    )
    return Fact(
        f"{what} of a trained network, all {count(result.n_now)} rows", result.shown(result.error[now]), meaning
    )


def _which(result: Ahead) -> Fact:
    """The network or its kernel, with all rows of the table."""
    label, at = f"Which to use, with {count(result.n_now)} rows", result.now
    kernel, better = result.shown(float(result.kernel_error[at])), float(result.better[at])
    beside = f"Its kernel is expected to reach {kernel}"
    if better > _SURE:
        meaning = f"{beside}: the network is better with probability {percent(better, 0)}."
        return Fact(label, "the network", meaning)
    if better < 1 - _SURE:
        meaning = f"{beside}: it is better with probability {percent(1 - better, 0)}, and nothing has to be tuned."
        return Fact(label, "the kernel", meaning)
    meaning = f"{beside}, and the network is better with probability {percent(better, 0)}: take what is simpler."
    return Fact(label, "either", meaning)


def _why(result: Ahead) -> tuple[Fact, ...]:
    change, before, after = result.kernel_change, result.alignment_before, result.alignment_after
    if change is None or before is None or after is None or math.isnan(before + after):
        return ()
    ends = f"Its alignment with the targets went from {number(before, 2)} to {number(after, 2)}"
    if change < _STILL:
        why = "the network learns nearly as its kernel does, and the two stay near each other."
    elif after - before > _GAIN:
        why = "the network learns features of its own, which is what sets it apart from its kernel."
    else:
        why = "the kernel moved, but hardly towards the targets: that is no reason to expect more of the network."
    return (Fact("The kernel moved by", percent(change, 0), f"{ends}: {why}"),)


def _draw(figure: Any, result: Ahead) -> None:
    ax, scale = figure.subplots(), (lambda e: 100 * (1 - e)) if result.classes else np.sqrt
    ax.fill_between(result.n, scale(result.low), scale(result.high), color=BLUE, alpha=0.18, linewidth=0)
    ax.plot(result.n, scale(result.error), color=BLUE, label="trained network")
    ax.plot(result.n, scale(result.kernel_error), color=GREY, linestyle="--", label="its kernel")
    ax.plot(result.measured_sizes, scale(result.measured), "o", color=INK, markersize=3.5, label="networks, measured")
    ax.axvline(result.n_now, color=ORANGE, linewidth=1.2, label="your rows")
    ax.set(xscale="log", xlabel="rows to learn from")
    ax.set(ylabel="accuracy, %" if result.classes else "root mean square error", xlim=(result.n[0], result.n[-1]))
    plain_ticks(ax.xaxis)
    figure.legend(loc="outside upper left", ncols=4)


_CAPTION = "Trained networks beyond your rows, with the 90\u202f% interval; their kernel beside them."
SECTION = Section(
    "ahead",
    "What more data would bring to them",
    "How good will a trained network be with more rows, and is it better than its kernel?",
    measure=ahead,
    describe=_text,
    figure=Figure(_draw, 3.1, _CAPTION),
    beside=True,
    takes_long=True,
)
