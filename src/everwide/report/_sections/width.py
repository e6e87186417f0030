"""Whether a network that you can train behaves as the infinitely wide one."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..._problem import Limits, Problem
from ..._walk import with_outputs
from ..._words import count, number, percent, several
from ...comparison import compare
from ...signal import ArchitectureError
from .._page import BLUE, INK, Fact, Figure, Section, Text, plain_ticks

_WIDTH = 256
_CLOSE, _FAR = 0.1, 0.3
_MOST_SITES = 100


@dataclass(frozen=True, eq=False)
class Width:
    """Networks of that width beside their limit, on a few rows and one output (`everwide.compare`).

    `gap`: between outputs, in standard deviations of the target; `kernel_change`: relative, while training;
    `correlation`: of outputs for rows that were not seen.
    """

    width: int
    n_train: int
    n_test: int
    networks: int
    steps: Any
    loss_finite: Float[np.ndarray, " looks"]
    loss_infinite: Float[np.ndarray, " looks"]
    gap: float
    kernel_change: float
    correlation: float


def width(problem: Problem) -> Width:
    """Train a few networks, and look how far they are from the theory."""
    net, size, y = with_outputs(problem.net, 1), _size(problem), _one_target(problem)
    train, test = np.split(_drawn(problem, size.n_compared), [size.n_compared])
    compared = compare(
        net,
        problem.x[train],
        y[train],
        [_WIDTH],
        x_test=problem.x[test],
        steps=size.steps,
        seeds=size.seeds,
        seed=problem.seed,
    )
    curves = compared.curves
    return Width(
        width=_WIDTH,
        n_train=len(train),
        n_test=len(test),
        networks=size.seeds,
        steps=compared.steps,
        loss_finite=curves.loss_finite[0].mean(0),
        loss_infinite=curves.loss_infinite[0].mean(0),
        gap=float(curves.gap_infinite[..., -1].mean()),
        kernel_change=float(curves.kernel_change[..., -1].mean()),
        correlation=_correlation(compared.finite, compared.infinite),
    )


def _size(problem: Problem) -> Limits:
    """Every site of an image costs as much as a row: networks that read images are compared on few of them."""
    sites = math.prod(problem.x.shape[1:-1])
    if sites > _MOST_SITES:
        raise ArchitectureError(
            f"networks of width {_WIDTH} that read {sites} pixels take long to train. Run everwide.compare(net, x, y, "
            "widths=[64]) on a few rows when you have the time."
        )
    size = problem.limits
    few = size._replace(n_compared=size.n_compared // 4, seeds=max(1, size.seeds // 2), steps=size.steps // 4)
    return size if sites == 1 else few


def _drawn(problem: Problem, n: int) -> np.ndarray:
    """Rows to train on, and then as many others to look at, as far as there are any."""
    rows = np.random.default_rng([problem.seed, 3]).permutation(len(problem.x))[: 2 * n]
    if len(rows) <= n:
        raise ArchitectureError(f"it takes more than {n} rows, and there are {len(rows)}.")
    return rows


def _one_target(problem: Problem) -> Float[np.ndarray, " n"]:
    """The largest class against the others, or the numbers; centred, of unit variance."""
    y = problem.y[:, int(np.argmax(problem.means)) if problem.classes else 0]
    return y / max(float(y.std()), 1e-300)


def _correlation(finite: np.ndarray, infinite: np.ndarray) -> float:
    if np.ptp(finite) == 0 or np.ptp(infinite) == 0:
        return 0.0
    return float(np.corrcoef(np.ravel(finite), np.ravel(infinite))[0, 1])


def _text(problem: Problem, result: Width) -> Text:
    facts = (
        Fact(f"Gap at width {result.width}", number(result.gap), _near(result.gap)),
        Fact(
            "Agreement of outputs",
            percent(result.correlation),
            "Correlation of what trained networks and theory say about rows that neither has seen. Near 100\u202f% "
            "this page speaks for the network that you will train.",
        ),
        Fact(
            "Change of the kernel",
            percent(result.kernel_change),
            "How far features move while it trains. Small: the theory holds. Large: the finite network learns features "
            "of its own, and may do better or worse than forecast.",
        ),
    )
    note = (
        f"{several(result.networks, 'network')} of width {result.width}, {count(result.n_train)} rows, "
        f"{count(result.steps[-1])} steps of gradient descent, {_task(problem)}; the gap is in standard deviations of "
        "the target."
    )
    return Text(facts, notes=(note,))


def _task(problem: Problem) -> str:
    if not problem.classes:
        return "to learn the target"
    codes = np.unique(problem.labels.astype(np.int64))
    return f"to tell \u201c{problem.classes[codes[int(np.argmax(problem.means))]]}\u201d from the other classes"


def _near(gap: float) -> str:
    if gap < _CLOSE:
        return "The theory speaks for the network: width 256 is wide enough here."
    if gap < _FAR:
        return "Nearly the theory. Twice the width takes about 30\u202f% off the gap."
    return "Some way from the theory: take this page as a first estimate, or train a wider network."


def _draw(figure: Any, result: Width) -> None:
    ax = figure.subplots()
    ax.plot(result.steps, result.loss_infinite, "--", color=INK, linewidth=1.4, label="infinite width, predicted")
    ax.plot(result.steps, result.loss_finite, color=BLUE, label="width 256, trained")
    ax.set(xscale="symlog", yscale="log", xlabel="steps of gradient descent", ylabel="training error")
    ax.set_xlim(0, result.steps[-1])
    ax.legend(loc="lower left")
    plain_ticks(ax.xaxis, ax.yaxis)


def _tile(result: Width) -> Fact:
    return Fact("agreement at width 256", percent(result.correlation), "of a trained network with this page")


_CAPTION = "If the lines lie on each other, the theory speaks for the network that you will train."
SECTION = Section(
    "width",
    "A network of width 256 beside the theory",
    "Will the network that you train behave as this page says?",
    measure=width,
    describe=_text,
    figure=Figure(_draw, 2.9, _CAPTION),
    tile=_tile,
    beside=True,
)
