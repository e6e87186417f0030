"""The kernel's spectrum, and which part of the target each mode carries."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..._problem import Problem
from ..._words import count, number, percent
from ...spectral import Spectrum
from .._page import BLUE, GREY, ORANGE, Fact, Figure, Grid, Section, Text, plain_ticks

_LADDER = (1, 3, 10, 30, 100, 300, 1000, 3000)
_MOST = 0.9
_LIKE_NOISE = 0.85  # of all modes; pure noise needs about 0.9


@dataclass(frozen=True, eq=False)
class Modes:
    """Eigenvalues of the tangent kernel over n, strongest first, and the power of target and kernel so far.

    `effective_dimension`: of the kernel with its ridge. `learnable`: the share of the target that can be fitted.
    """

    n: int
    eigenvalues: Float[np.ndarray, " n"]
    target_power: Float[np.ndarray, " n"]
    kernel_power: Float[np.ndarray, " n"]
    rank: int
    modes_for_90_percent: int
    effective_dimension: float
    target_in_effective_modes: float
    learnable: float


def modes(problem: Problem) -> Modes:
    """The spectrum of the tangent kernel beside the target."""
    spectrum = Spectrum.of(problem.kernel.ntk)
    values = np.maximum(spectrum.values[::-1], 0.0)
    power = np.sum((spectrum.vectors[:, ::-1].T @ problem.y) ** 2, axis=1)
    target = np.minimum(np.cumsum(power) / np.sum(problem.y**2), 1.0)
    n, effective = len(values), float(np.sum(values / (values + problem.ridge(problem.kernel.ntk))))
    return Modes(
        n=n,
        eigenvalues=values / n,
        target_power=target,
        kernel_power=np.cumsum(values) / values.sum(),
        rank=spectrum.rank,
        modes_for_90_percent=int(np.searchsorted(target, _MOST * (1 - 1e-12))) + 1,
        effective_dimension=effective,
        target_in_effective_modes=float(target[min(n - 1, max(0, round(effective) - 1))]),
        learnable=float(target[spectrum.rank - 1]),
    )


def _text(problem: Problem, result: Modes) -> Text:
    facts = (
        Fact(f"Modes for {percent(_MOST, 0)} of the target", count(result.modes_for_90_percent), _easy(result)),
        Fact(
            "Effective modes",
            count(result.effective_dimension),
            f"What ridge or stopping leaves. The strongest modes, so many of them, carry "
            f"{percent(result.target_in_effective_modes)} of the target; the rest is mostly treated as noise.",
        ),
        Fact("Rank", f"{count(result.rank)} of {count(result.n)}", _rank(result)),
        Fact(
            "Strongest mode",
            percent(float(result.kernel_power[0])),
            "Its share of the kernel. It is learned first, and sets the edge of stable rates of gradient descent.",
        ),
    )
    notes = (f"From the tangent kernel of {count(result.n)} rows, at infinite width.",)
    return Text(facts, notes=notes, grids=(_grid(result),))


def _easy(result: Modes) -> str:
    share, out_of = result.modes_for_90_percent / result.n, f"Out of {count(result.n)}"
    if share < 0.1:
        return f"{out_of}: nearly all of the target lies in the strongest modes, which are learned first."
    if share < 0.5:
        return f"{out_of}: much of the target lies in strong modes, and a tail of details in weak ones, learned late."
    noise = ", as noise would be" if share > _LIKE_NOISE else ""
    return f"{out_of}: the target is spread over many modes{noise}. Other inputs or another network may fit it better."


def _rank(result: Modes) -> str:
    if result.rank == result.n:
        return "Full: an infinitely wide network that is trained long enough fits every row."
    return (
        f"The kernel knows no more patterns than that in these rows, and with them {percent(result.learnable)} of the "
        "target can be fitted. Equal rows, or few columns, are the usual reason."
    )


def _grid(result: Modes) -> Grid:
    places = [at for at in _LADDER if at < result.n] + [result.n]
    rows = tuple(
        (
            count(at),
            number(result.eigenvalues[at - 1]),
            percent(result.kernel_power[at - 1]),
            percent(result.target_power[at - 1]),
        )
        for at in places
    )
    columns = ("first modes", "eigenvalue of the last", "of the kernel", "of the target")
    return Grid("How much the strongest modes carry", columns, rows)


def _draw(figure: Any, result: Modes) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    order, seen = np.arange(1, result.n + 1), slice(0, max(1, result.rank))
    above.plot(order[seen], result.eigenvalues[seen], color=ORANGE)
    above.set(yscale="log", ylabel="eigenvalue")
    below.fill_between(order, 100 * result.target_power, color=BLUE, alpha=0.15, linewidth=0)
    below.plot(order, 100 * result.target_power, color=BLUE, label="of the target")
    below.plot(order, 100 * result.kernel_power, color=ORANGE, linewidth=1.2, label="of the kernel")
    below.axvline(result.effective_dimension, color=GREY, linestyle=":", linewidth=1.2, label="effective modes")
    below.set(xscale="log", xlabel="mode, strongest first", ylabel="carried so far, %", ylim=(0, 103))
    below.set_xlim(1, max(2, result.n))
    figure.legend(loc="outside upper left", ncols=3)
    plain_ticks(above.yaxis, below.xaxis)


_CAPTION = "Above, how strong each mode is; below, how much of the target the modes carry so far."
SECTION = Section(
    "modes",
    "What is learned first",
    "Does the network find the target easy, or does it hide in patterns that are learned last?",
    measure=modes,
    describe=_text,
    figure=Figure(_draw, 4.0, _CAPTION),
)
