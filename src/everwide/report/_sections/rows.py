"""The rows to look at: uncertain, surprising, and influential ones."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..._problem import Problem
from ..._words import count, number, percent
from ...spectral import Factor
from .._page import Fact, Grid, Section, Text

_SHOWN = 8
Places = Int[np.ndarray, " _"]
Values = Float[np.ndarray, " _"]


class Influence(NamedTuple):
    """Rows without which predictions would move the most, how far, and their share in all squared movements."""

    rows: Places
    moved: Values
    share: float


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Rows of the table, counted from 1, that a person would check first.

    Surprising ones, whose label all others doubt (`n_doubted` in all), with the probability of the class that they
    predict; uncertain ones, with the margin between the two likeliest classes.
    """

    surprising_rows: Places
    surprising_probability: Values
    uncertain_rows: Places
    margin: Values
    n_doubted: int
    influence: Influence


@dataclass(frozen=True, eq=False)
class NumberRows:
    """Rows of the table, counted from 1, that a person would check first.

    Surprising ones, with their leave-one-out residual (`residual_std`: of all); uncertain ones, with their variance
    given all others, over the median. `outliers`: residuals beyond four standard deviations.
    """

    surprising_rows: Places
    residual: Values
    residual_std: float
    uncertain_rows: Places
    relative_variance: Values
    outliers: int
    influence: Influence


def rows(problem: Problem) -> ClassRows | NumberRows:
    """From leave-one-out predictions and closed forms."""
    kernel, train = problem.kernel.ntk, problem.train
    inside, cross = kernel[np.ix_(train, train)], kernel[np.ix_(problem.held, train)]
    moved = influence(inside, cross, problem.y[train], problem.ridge(kernel))
    strongest = _largest(moved)
    share = float(np.sum(moved[strongest] ** 2) / max(np.sum(moved**2), 1e-300))
    most = Influence(problem.rows[train[strongest]] + 1, moved[strongest], share)
    return _of_classes(problem, most) if problem.classes else _of_numbers(problem, most)


def influence(
    kernel: Float[np.ndarray, "n n"], cross: Float[np.ndarray, "m n"], y: Float[np.ndarray, "n k"], ridge: float
) -> Float[np.ndarray, " n"]:
    """How far predictions at other rows move, in root mean square, when a row is removed: for each row, exactly.

    With `A = (K + ridge)^-1` and `a = A y`, the prediction at `x` moves by `(A k(x))_i a_i / A_ii` when row i goes.
    """
    factor = Factor.of(kernel, ridge)
    reach = np.mean(factor.solve(cross.T) ** 2, axis=1)
    own = np.mean(factor.solve(y) ** 2, axis=1) / factor.inverse_diagonal() ** 2
    return np.sqrt(reach * own)


def _largest(values: np.ndarray) -> Places:
    return np.argsort(-values, kind="stable")[:_SHOWN]


def _left_out(problem: Problem) -> np.ndarray:
    """What all others predict: probabilities `(n, classes)`, or numbers `(n,)`."""
    predicted = np.asarray(problem.estimator.leave_one_out_, np.float64)
    return predicted if problem.classes else predicted.reshape(len(predicted), -1)[:, 0]


def _predicted_codes(problem: Problem) -> Int[np.ndarray, " n"]:
    return problem.estimator.classes_.astype(np.int64)[_left_out(problem).argmax(1)]


def _of_classes(problem: Problem, most: Influence) -> ClassRows:
    left_out = _left_out(problem)
    ordered, sure = np.sort(left_out, axis=1), left_out.max(1)
    margin, wrong = ordered[:, -1] - ordered[:, -2], np.flatnonzero(_predicted_codes(problem) != problem.labels)
    surprising, uncertain = wrong[_largest(sure[wrong])], _largest(-margin)
    names = problem.rows + 1
    return ClassRows(names[surprising], sure[surprising], names[uncertain], margin[uncertain], len(wrong), most)


def _of_numbers(problem: Problem, most: Influence) -> NumberRows:
    residual = problem.labels - _left_out(problem)
    std, variance, names = max(float(np.std(residual)), 1e-300), _relative_variance(problem), problem.rows + 1
    surprising, uncertain = _largest(np.abs(residual)), _largest(variance)
    outliers = int(np.sum(np.abs(residual) > 4 * std))
    return NumberRows(
        names[surprising], residual[surprising], std, names[uncertain], variance[uncertain], outliers, most
    )


def _relative_variance(problem: Problem) -> Float[np.ndarray, " n"]:
    """The variance of each row given all others, over the median: 1 over the diagonal of the inverse kernel."""
    kernel = problem.kernel.nngp
    variance = 1 / Factor.of(kernel, problem.ridge(kernel)).inverse_diagonal()
    return variance / np.median(variance)


def _text(problem: Problem, result: ClassRows | NumberRows) -> Text:
    n, there, most = len(problem.rows), problem.table.n, result.influence
    which = f"all {count(there)} rows" if n == there else f"{count(n)} rows, drawn at random from {count(there)}"
    note = f"Of {which}. Rows are counted from 1, as the table was read, without the line of names."
    unit = "units of an indicator, 0 or 1" if problem.classes else "standard deviations of the target"
    ruled = "Check these rows twice: much hangs on them." if most.share > 0.5 else "No single row rules the result."
    strongest = Fact(
        "Largest influence",
        number(float(most.moved[0])),
        "How far the outputs at held-out rows move, in root mean square, when that one row is removed; in "
        f"{unit}. {ruled}",
    )
    fact = _class_fact(problem, result) if isinstance(result, ClassRows) else _number_fact(result)
    return Text(
        (fact, strongest), notes=(note,), grids=(_doubtful_grid(problem, result), _influence_grid(problem, most))
    )


def _class_fact(problem: Problem, result: ClassRows) -> Fact:
    return Fact(
        "Rows whose label the others doubt",
        count(result.n_doubted),
        f"Out of {count(len(problem.rows))}, each predicted from all others. Those of which they are the most sure are "
        "below: the likeliest mistakes in the labels.",
    )


def _number_fact(result: NumberRows) -> Fact:
    meaning = (
        f"Rows that are off by more than four times the usual error, {number(result.residual_std)}, each predicted "
        "from all others. Look for wrong units and typing errors."
    )
    return Fact("Outliers", count(result.outliers), meaning)


def _doubtful_grid(problem: Problem, result: ClassRows | NumberRows) -> Grid:
    """Surprising rows, and then uncertain ones."""
    caption = "Surprising rows (all others say something else) and uncertain ones"
    if problem.classes:
        said, doubt = _predicted_codes(problem), [percent(sure, 0) for sure in _left_out(problem).max(1)]
        columns = ("row", "why", "label", "the others say", "sure")
    else:
        said, doubt = _left_out(problem), [f"{number(one, 2)} \u00d7" for one in _relative_variance(problem)]
        columns = ("row", "why", "target", "the others say", "doubt")
        caption += " (far from all others)"
    words = dict.fromkeys(result.surprising_rows, "surprising")
    words |= {row: "uncertain" for row in result.uncertain_rows if row not in words}
    places = np.searchsorted(problem.rows, np.array(list(words)) - 1)
    labels, others = (_shown(problem, values[places]) for values in (problem.labels, said))
    rows = tuple(zip(map(str, words), words.values(), labels, others, (doubt[at] for at in places), strict=True))
    return Grid(caption, columns, rows, _pictures(problem, places))


def _influence_grid(problem: Problem, most: Influence) -> Grid:
    places = np.searchsorted(problem.rows, most.rows - 1)
    labels = _shown(problem, problem.labels[places])
    rows = tuple(zip(map(str, most.rows), labels, map(number, most.moved), strict=True))
    columns = ("row", "label" if problem.classes else "target", "moves outputs by")
    return Grid("Influential rows: what the network would say without them", columns, rows, _pictures(problem, places))


def _shown(problem: Problem, values: np.ndarray) -> list[str]:
    """Names of classes, or numbers."""
    names = problem.classes
    return [names[int(value)] if names else number(value, 4) for value in values]


def _pictures(problem: Problem, places: Places) -> tuple[np.ndarray, ...]:
    """Of rows that are small images with one channel or three, from 0 to 1."""
    table, shape = problem.table, problem.table.shape
    if len(shape) != 3 or shape[-1] not in (1, 3) or max(shape[:2]) > 128:
        return ()
    images = table.x[problem.rows[places]].reshape(-1, *shape)
    low, high = float(table.x.min()), float(table.x.max())
    return tuple((images - low) / max(high - low, 1e-300))


SECTION = Section("rows", "Rows to look at", "Which rows would a person check first?", measure=rows, describe=_text)
