"""The rows to look at: uncertain, surprising, and influential ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..._problem import Problem
from ..._words import count, number, percent
from ...spectral import Factor
from .._page import Fact, Grid, Section, Text

_SHOWN = 8
_UNSURE = 0.8  # probability of the likeliest class, below which a row is called uncertain
_CONTRADICTED = 0.95  # probability of another class than the label
_FAR = 2.0  # standard deviations of a residual, or medians of a variance
_RULES = 0.5  # of all squared movements
Places = Int[np.ndarray, " _"]
Values = Float[np.ndarray, " _"]


class Influence(NamedTuple):
    """Rows without which predictions would move the most, how far; the share of all, and of the first, in the squares.

    Rows of the file, counted from 1, as all `rows` here.
    """

    rows: Places
    moved: Values
    share: float
    share_of_first: float


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Rows that a person would check first.

    - `surprising_rows`: the others predict another class, with that probability; `n_wrong` in all, of which
      `n_contradicted` with 95 % or more. `right`: the share of labels that are met, `chance`: of the largest class.
    - `uncertain_rows`: no class is likely, with the margin between the two likeliest ones.
    """

    surprising_rows: Places
    surprising_probability: Values
    uncertain_rows: Places
    margin: Values
    n_wrong: int
    n_contradicted: int
    right: float
    chance: float
    influence: Influence

    @property
    def knows(self) -> bool:
        """Whether the others predict labels clearly better than the largest class does."""
        return self.right - self.chance > (1 - self.chance) / 2


@dataclass(frozen=True, eq=False)
class NumberRows:
    """Rows that a person would check first.

    Surprising ones, with their leave-one-out residual (`residual_std`: of all); uncertain ones, with their variance
    given all others, over the median. `outliers`: residuals beyond four standard deviations. `ruled`: whether one row
    has most of the squared residuals.
    """

    surprising_rows: Places
    residual: Values
    residual_std: float
    uncertain_rows: Places
    relative_variance: Values
    outliers: int
    ruled: bool
    influence: Influence


def rows(problem: Problem) -> ClassRows | NumberRows:
    """From leave-one-out predictions and closed forms."""
    kernel, train = problem.kernel.ntk, problem.train
    inside, cross = kernel[np.ix_(train, train)], kernel[np.ix_(problem.held, train)]
    moved = influence(inside, cross, problem.y[train], problem.ridge(kernel))
    strongest = _largest(moved)
    shares = moved[strongest] ** 2 / max(float(np.sum(moved**2)), 1e-300)
    numbers = problem.number(problem.rows[train[strongest]])
    most = Influence(numbers, moved[strongest], float(shares.sum()), float(shares[0]))
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
    left_out, names = _left_out(problem), problem.number(problem.rows)
    ordered, sure = np.sort(left_out, axis=1), left_out.max(1)
    margin, wrong = ordered[:, -1] - ordered[:, -2], np.flatnonzero(_predicted_codes(problem) != problem.labels)
    surprising, uncertain = wrong[_largest(sure[wrong])], _largest(-margin)
    uncertain = uncertain[sure[uncertain] < _UNSURE]
    return ClassRows(
        surprising_rows=names[surprising],
        surprising_probability=sure[surprising],
        uncertain_rows=names[uncertain],
        margin=margin[uncertain],
        n_wrong=len(wrong),
        n_contradicted=int(np.sum(sure[wrong] >= _CONTRADICTED)),
        right=1 - len(wrong) / len(names),
        chance=float(problem.means.max()),
        influence=most,
    )


def _of_numbers(problem: Problem, most: Influence) -> NumberRows:
    residual, names = problem.labels - _left_out(problem), problem.number(problem.rows)
    std, variance = max(float(np.std(residual)), 1e-300), _relative_variance(problem)
    surprising, uncertain = _largest(np.abs(residual)), _largest(variance)
    surprising = surprising[np.abs(residual[surprising]) > _FAR * std]
    uncertain = uncertain[variance[uncertain] > _FAR]
    return NumberRows(
        surprising_rows=names[surprising],
        residual=residual[surprising],
        residual_std=std,
        uncertain_rows=names[uncertain],
        relative_variance=variance[uncertain],
        outliers=int(np.sum(np.abs(residual) > 4 * std)),
        ruled=float(np.max((residual / std) ** 2)) > _RULES * len(residual),
        influence=most,
    )


def _relative_variance(problem: Problem) -> Float[np.ndarray, " n"]:
    """The variance of each row given all others, over the median: 1 over the diagonal of the inverse kernel."""
    kernel = problem.kernel.nngp
    variance = 1 / Factor.of(kernel, problem.ridge(kernel)).inverse_diagonal()
    return variance / np.median(variance)


def _text(problem: Problem, result: ClassRows | NumberRows) -> Text:
    n, there, most = len(problem.rows), problem.table.n, result.influence
    which = f"all {count(there)} rows" if n == there else f"{count(n)} rows, drawn at random from {count(there)}"
    note = (
        f"Of {which}, by the infinitely wide network. Rows are counted from 1 as they stand in the file, those without "
        "a target included; the line of names and empty lines are not counted."
    )
    unit = "units of an indicator, 0 or 1" if problem.classes else "standard deviations of the target"
    strongest = Fact(
        "Largest influence",
        number(float(most.moved[0])),
        "How far the outputs at held-out rows move, in root mean square, when that one row is removed; in "
        f"{unit}. {_ruled(result)}",
    )
    fact = _class_fact(result) if isinstance(result, ClassRows) else _number_fact(result)
    doubtful, influential = _doubtful_grid(problem, result), _influence_grid(problem, most)
    useless = isinstance(result, ClassRows) and not result.knows
    grids = (influential,) if useless or not doubtful.rows else (doubtful, influential)
    return Text((fact, strongest), notes=(note,), grids=grids)


def _ruled(result: ClassRows | NumberRows) -> str:
    most = result.influence
    if isinstance(result, NumberRows) and result.ruled:
        return "But one row has most of the squared errors, and sets this unit: look at that one first."
    if most.share_of_first > _RULES:
        return "It alone makes most of all such movements: check it first."
    if most.share > _RULES:
        return "The rows below make most of all such movements: check them twice."
    return "No single one of the rows that it learned from rules the result."


def _class_fact(result: ClassRows) -> Fact:
    label, right = "Rows that the others contradict", percent(result.right)
    if not result.knows:
        meaning = (
            f"Each row is predicted from all others, and {right} of the labels are met, where the largest class has "
            f"{percent(result.chance)}: too little to doubt a label."
        )
        return Fact(label, "cannot be told", meaning)
    look = " Look at these first: a wrong label, or a row unlike its class." if result.n_contradicted else ""
    meaning = f"With 95\u202f% certainty or more. Each row is predicted from all others; {right} of the labels are met."
    return Fact(label, count(result.n_contradicted), meaning + look)


def _number_fact(result: NumberRows) -> Fact:
    meaning = (
        f"Rows that are off by more than four times the usual error, {number(result.residual_std)}, each predicted "
        "from all others."
    )
    meaning += " Look for wrong units and typing errors." if result.outliers else ""
    return Fact("Outliers", count(result.outliers), meaning)


def _doubtful_grid(problem: Problem, result: ClassRows | NumberRows) -> Grid:
    """Surprising rows, and then uncertain ones; without any where none is."""
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
    places = _places(problem, words)
    labels, others = (_shown(problem, values[places]) for values in (problem.labels, said))
    rows = tuple(zip(map(str, words), words.values(), labels, others, (doubt[at] for at in places), strict=True))
    return Grid(caption, columns, rows, _pictures(problem, places))


def _influence_grid(problem: Problem, most: Influence) -> Grid:
    places = _places(problem, most.rows)
    labels = _shown(problem, problem.labels[places])
    rows = tuple(zip(map(str, most.rows), labels, map(number, most.moved), strict=True))
    columns = ("row", "label" if problem.classes else "target", "moves outputs by")
    return Grid("Influential rows: what the network would say without them", columns, rows, _pictures(problem, places))


def _places(problem: Problem, numbers: Iterable[Any]) -> Places:
    """Of rows of the file, among those with a kernel."""
    place = {number: at for at, number in enumerate(problem.number(problem.rows).tolist())}
    return np.array([place[int(one)] for one in numbers], np.int64)


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
