"""The kernel's spectrum, and which part of the target each mode carries."""

import numpy as np

from ...spectral import Spectrum
from ...theory.eigenlearning import cumulative_power
from .._words import count, number, percent
from ._problem import Problem
from ._section import Fact, Grid, Section

KEY, TITLE = "modes", "What is learned first"
QUESTION = "Does the network find the target easy, or does it hide in patterns that are learned last?"
_LADDER = (1, 3, 10, 30, 100, 300, 1000, 3000)
_MOST = 0.9


def modes(problem: Problem) -> Section:
    """Eigenvalues of the tangent kernel, strongest first, and the power of the target on them."""
    spectrum = Spectrum.of(problem.kernel.ntk)
    values = np.maximum(spectrum.values[::-1], 0.0)
    target = np.minimum(cumulative_power(spectrum.vectors[:, ::-1], problem.y), 1.0)
    kernel = np.cumsum(values) / values.sum()
    rows, ridge = len(values), problem.ridge * float(np.mean(np.diagonal(problem.kernel.ntk)))
    needed = int(np.searchsorted(target, _MOST * (1 - 1e-12))) + 1
    learnable = float(target[spectrum.rank - 1])
    effective = float(np.sum(values / (values + ridge)))
    half = float(target[min(rows - 1, max(0, round(effective) - 1))])
    numbers = {
        "rows": rows,
        "eigenvalues": values / rows,
        "target_power": target,
        "kernel_power": kernel,
        "rank": spectrum.rank,
        "modes_for_90_percent": needed,
        "effective_dimension": effective,
        "target_in_effective_modes": half,
        "learnable": learnable,
    }
    facts = (
        Fact(f"Modes for {percent(_MOST, 0)} of the target", count(needed), _easy(needed, rows)),
        Fact(
            "Effective modes",
            count(effective),
            f"What ridge or stopping leaves. They carry {percent(half)} of the target; the rest is treated as noise. "
            "If that is little, more rows help more than another ridge.",
        ),
        Fact("Rank", f"{count(spectrum.rank)} of {count(rows)}", _rank(spectrum.rank, rows, learnable)),
        Fact(
            "Strongest mode",
            percent(float(kernel[0])),
            "Its share of the kernel. It sets the largest stable learning rate; when it is near 100\u202f%, "
            "subtracting the mean of the inputs speeds training up.",
        ),
    )
    notes = (f"From the tangent kernel of {count(rows)} rows.",)
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=notes, grids=(_table(values, target, kernel),))


def _easy(needed: int, rows: int) -> str:
    share = needed / rows
    if share < 0.1:
        return f"Out of {count(rows)}: the target is smooth to this network, and is learned early and from few rows."
    if share < 0.5:
        return f"Out of {count(rows)}: most of the target is within reach, and a tail of details needs more rows."
    return (
        f"Out of {count(rows)}: the target is spread over nearly all modes, as noise would be. Other inputs or another "
        "network may fit it better."
    )


def _rank(rank: int, rows: int, learnable: float) -> str:
    if rank == rows:
        return "Full: trained long enough, the network can fit every row."
    return f"Some rows cannot be told apart: {percent(learnable)} of the target can be fitted. Look for equal rows."


def _table(values: np.ndarray, target: np.ndarray, kernel: np.ndarray) -> Grid:
    places = [at for at in _LADDER if at < len(values)] + [len(values)]
    rows = tuple(
        (count(at), number(values[at - 1] / len(values)), percent(kernel[at - 1]), percent(target[at - 1]))
        for at in places
    )
    columns = ("first modes", "eigenvalue of the last", "of the kernel", "of the target")
    return Grid("How much the strongest modes carry", columns, rows)
