"""The rows to look at: uncertain, surprising, and influential ones."""

import numpy as np
from jaxtyping import Float

from ...spectral import Factor, solve
from .._words import count, number, percent
from ._problem import Problem
from ._section import Fact, Grid, Section

KEY, TITLE = "rows", "Rows to look at"
QUESTION = "Which rows would a person check first?"
_SHOWN = 8


def rows(problem: Problem) -> Section:
    """From leave-one-out predictions and closed forms."""
    kernel = problem.kernel.ntk
    ridge = problem.ridge * float(np.mean(np.diagonal(kernel)))
    inside, cross = kernel[np.ix_(problem.train, problem.train)], kernel[np.ix_(problem.held, problem.train)]
    moved = influence(inside, cross, problem.y[problem.train], ridge)
    left_out = np.asarray(problem.estimator.leave_one_out_, np.float64)
    doubt, doubt_grid, doubt_fact = (_of_classes if problem.classes else _of_numbers)(problem, left_out)
    strongest = np.argsort(-moved, kind="stable")[:_SHOWN]
    share = float(np.sum(np.sort(moved**2)[::-1][:_SHOWN]) / max(np.sum(moved**2), 1e-300))
    numbers = {
        **doubt,
        "influential_rows": problem.rows[problem.train[strongest]] + 1,
        "influence": moved[strongest],
        "share_of_the_strongest": share,
    }
    facts = (
        *doubt_fact,
        Fact(
            "Largest influence",
            number(float(moved[strongest[0]])),
            "How far the outputs at held-out rows move, in root mean square, when that one row is removed; in "
            f"{_unit(problem)}. "
            + ("Check these rows twice: much hangs on them." if share > 0.5 else "No single row rules the result."),
        ),
    )
    grids = (doubt_grid, _influential(problem, strongest, moved))
    notes = (f"Of {_which(problem)}. Rows are counted from 1, as the table was read, without the line of names.",)
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=notes, grids=grids)


def _unit(problem: Problem) -> str:
    return "units of an indicator, 0 or 1" if problem.classes else "standard deviations of the target"


def _which(problem: Problem) -> str:
    shown, there = len(problem.rows), len(problem.table.x)
    return f"all {count(there)} rows" if shown == there else f"{count(shown)} rows, drawn at random from {count(there)}"


def influence(
    kernel: Float[np.ndarray, "n n"], cross: Float[np.ndarray, "m n"], y: Float[np.ndarray, "n k"], ridge: float
) -> Float[np.ndarray, " n"]:
    """How far predictions at other rows move, in root mean square, when a row is removed: for each row, exactly.

    With `A = (K + ridge)^-1` and `a = A y`, the prediction at `x` moves by `(A k(x))_i a_i / A_ii` when row i goes.
    """
    solution = solve(kernel, y, ridge=ridge)
    reach = np.mean(solution.solve(cross.T) ** 2, axis=1)
    own = np.mean(solution.coefficients**2, axis=1) / solution.precision() ** 2
    return np.sqrt(reach * own)


def _of_classes(problem: Problem, left_out: np.ndarray) -> tuple[dict, Grid, tuple[Fact, ...]]:
    names, places = list(problem.classes or ()), problem.estimator.classes_.astype(np.int64)
    ordered = np.sort(left_out, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    chosen = np.argsort(margin, kind="stable")[:_SHOWN]
    codes = places[left_out.argmax(1)]
    wrong = np.flatnonzero(codes != problem.labels)
    sure = left_out.max(1)
    surprising = wrong[np.argsort(-sure[wrong], kind="stable")][:_SHOWN]
    shown = np.concatenate([surprising, chosen[~np.isin(chosen, surprising)]])
    kind = ["surprising"] * len(surprising) + ["uncertain"] * (len(shown) - len(surprising))
    grid = Grid(
        "Surprising rows (all others say something else) and uncertain ones",
        ("row", "why", "label", "the others say", "sure"),
        tuple(
            (str(problem.rows[at] + 1), why, names[int(problem.labels[at])], names[codes[at]], percent(sure[at], 0))
            for at, why in zip(shown, kind, strict=True)
        ),
        _pictures(problem, shown),
    )
    found = {
        "uncertain_rows": problem.rows[chosen] + 1,
        "margin": margin[chosen],
        "surprising_rows": problem.rows[surprising] + 1,
        "surprising_probability": sure[surprising],
        "rows_the_others_disagree_with": len(wrong),
    }
    fact = Fact(
        "Rows whose label the others doubt",
        count(len(wrong)),
        f"Out of {count(len(problem.rows))}, each predicted from all others. Those of which they are the most sure are "
        "below: the likeliest mistakes in the labels.",
    )
    return found, grid, (fact,)


def _of_numbers(problem: Problem, left_out: np.ndarray) -> tuple[dict, Grid, tuple[Fact, ...]]:
    residual = problem.labels - left_out.reshape(len(problem.labels), -1)[:, 0]
    spread = max(float(np.std(residual)), 1e-300)
    chosen = np.argsort(-np.abs(residual), kind="stable")[:_SHOWN]
    variance = _doubt(problem)
    unsure = np.argsort(-variance, kind="stable")[:_SHOWN]
    shown = np.concatenate([chosen, unsure[~np.isin(unsure, chosen)]])
    kind = ["surprising"] * len(chosen) + ["uncertain"] * (len(shown) - len(chosen))
    grid = Grid(
        "Surprising rows (all others say something else) and uncertain ones (far from all others)",
        ("row", "why", "target", "the others say", "doubt"),
        tuple(
            (
                str(problem.rows[at] + 1),
                why,
                number(float(problem.labels[at]), 4),
                number(float(problem.labels[at] - residual[at]), 4),
                f"{number(float(variance[at] / np.median(variance)), 2)} \u00d7",
            )
            for at, why in zip(shown, kind, strict=True)
        ),
        _pictures(problem, shown),
    )
    outliers = int(np.sum(np.abs(residual) > 4 * spread))
    found = {
        "surprising_rows": problem.rows[chosen] + 1,
        "residual": residual[chosen],
        "uncertain_rows": problem.rows[unsure] + 1,
        "relative_doubt": variance[unsure] / np.median(variance),
        "outliers": outliers,
    }
    meaning = (
        f"Rows that are off by more than four times the usual error, {number(spread)}, each predicted from all others. "
        "Look for wrong units and typing errors."
    )
    return found, grid, (Fact("Outliers", count(outliers), meaning),)


def _doubt(problem: Problem) -> np.ndarray:
    """The variance of each row given all others, up to a factor: 1 over the diagonal of the inverse kernel."""
    kernel = problem.kernel.nngp
    ridge = problem.ridge * float(np.mean(np.diagonal(kernel)))
    return 1 / Factor.of(kernel, ridge).inverse_diagonal()


def _influential(problem: Problem, strongest: np.ndarray, moved: np.ndarray) -> Grid:
    places = problem.train[strongest]
    label = lambda at: problem.classes[int(at)] if problem.classes else number(float(at), 4)
    rows = tuple(
        (str(problem.rows[at] + 1), label(problem.labels[at]), number(float(size)))
        for at, size in zip(places, moved[strongest], strict=True)
    )
    columns = ("row", "label" if problem.classes else "target", "moves outputs by")
    return Grid("Influential rows: what the network would say without them", columns, rows, _pictures(problem, places))


def _pictures(problem: Problem, places: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of rows that are small images with one channel or three, from 0 to 1."""
    table = problem.table
    shape = table.x.shape[1:] if table.x.ndim > 2 else table.sites
    if shape is None or len(shape) != 3 or shape[-1] not in (1, 3) or max(shape[:2]) > 128:
        return ()
    images = table.x[problem.rows[places]].reshape(-1, *shape)
    low, high = float(table.x.min()), float(table.x.max())
    return tuple((images - low) / max(high - low, 1e-300))
