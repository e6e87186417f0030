"""Which rows without a target would be labelled next."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.distance import cdist

from ..._problem import Problem
from ..._words import count, percent
from ...selection import query
from .._page import Fact, Grid, Section, Text

_SHOWN = 8
_TIMES, _MOST_NUMBERS = 5, 20_000_000  # rows without a target that are looked at: times those with kernels; in all
_NEAR = 0.95  # of the labelled rows have another one within a distance
_ANOTHER_KIND, _FEWEST = 0.25, 5  # the share of rows without a target beyond it, and their number; by chance one in 20
_METHODS = {"classification": "badge", "regression": "lcmd"}


@dataclass(frozen=True, eq=False)
class Labels:
    """Rows to label next, the first one first.

    - `n_unlabelled`: rows without a target; `n_looked_at` of them, at random, could be picked.
    - `rows`: of the file, counted from 1; `why`: a reason for each, `scores`: at the moment of picking. `method`: by
      which, on the kernel of the report's network.
    - `passed_over`: rows that are near-duplicates of labelled or picked ones.
    - `share_far`: of the rows without a target, as far from the nearest labelled row as one in twenty labelled rows is.
    """

    n_unlabelled: int
    n_looked_at: int
    rows: Int[np.ndarray, " _"]
    why: list[str]
    scores: Float[np.ndarray, " _"]
    method: str
    passed_over: int
    share_far: float

    @property
    def of_another_kind(self) -> bool:
        """Whether more rows are far away than chance explains."""
        return self.share_far > _ANOTHER_KIND and self.share_far * self.n_looked_at >= _FEWEST


def labels(problem: Problem) -> Labels:
    """`everwide.selection.query`, by the estimator of the report."""
    others = problem.table.unlabelled
    if others is None:
        empty = np.zeros(0)
        return Labels(0, 0, empty.astype(np.int64), [], empty, "", 0, 0.0)
    rng = np.random.default_rng([problem.seed, 7])
    most = min(_TIMES * problem.limits.n_kernel, max(_SHOWN, _MOST_NUMBERS // max(others.x[0].size, 1)))
    some = np.sort(rng.permutation(others.n)[:most])
    x = np.concatenate([problem.table.x[problem.rows], others.x[some]])
    y = np.concatenate([problem.labels.astype(np.float64), np.full(len(some), np.nan)])
    task, size = problem.table.task, min(_SHOWN, len(some))
    picked = query(x, y, problem.estimator, batch_size=size, method=_METHODS[task], task=task, seed=problem.seed)
    places = some[picked.indices - len(problem.rows)]
    return Labels(
        n_unlabelled=others.n,
        n_looked_at=len(some),
        rows=1 + (places if others.rows is None else others.rows[places]),
        why=picked.why,
        scores=picked.scores,
        method=picked.method,
        passed_over=len(picked.passed_over),
        share_far=_share_far(problem, others.x[some]),
    )


def _share_far(problem: Problem, x: Float[np.ndarray, "m *shape"]) -> float:
    """In the inputs as the network reads them."""
    known = problem.x.reshape(len(problem.x), -1)
    others = np.asarray(problem.estimator.transform_inputs(x), np.float64).reshape(len(x), -1)
    among = cdist(known, known)
    np.fill_diagonal(among, np.inf)
    return float(np.mean(cdist(others, known).min(1) > np.quantile(among.min(1), _NEAR)))


def _text(problem: Problem, result: Labels) -> Text:
    label = "Rows without a target"
    if not result.n_unlabelled:
        meaning = "Every row has a target. Where some have none, the ones to label first are listed here."
        return Text((Fact(label, "none", meaning),))
    first = f"Row {result.rows[0]} would be labelled first." if len(result.rows) else _NOTHING
    facts = (Fact(label, count(result.n_unlabelled), first), _kind(result))
    grid = Grid("Rows to label first", ("row", "why"), tuple(zip(map(str, result.rows), result.why, strict=True)))
    return Text(facts, _warnings(result), _notes(result), (grid,) if len(result.rows) else ())


_NOTHING = "All of them are near-duplicates of labelled rows: their labels would bring nothing new."


def _kind(result: Labels) -> Fact:
    meaning = "Of these, so many are farther from every labelled row than 19 of 20 labelled rows are. "
    if result.of_another_kind:
        meaning += "One in 20 would be chance: they are of another kind."
    return Fact("Far from labelled rows", percent(result.share_far, 0), meaning.strip())


def _warnings(result: Labels) -> tuple[str, ...]:
    unlike = (
        "Rows without a target are unlike the labelled ones: what this page says of accuracy will not hold for them."
    )
    return (unlike,) if result.of_another_kind else ()


def _notes(result: Labels) -> tuple[str, ...]:
    notes = [
        f"Chosen by {result.method}, one after the other, with the kernel of the infinitely wide network; picked rows "
        "count as labelled. Whether they teach more than random rows is seen when they are labelled."
    ]
    if result.n_looked_at < result.n_unlabelled:
        notes.append(f"{count(result.n_looked_at)} rows without a target, drawn at random, were looked at.")
    if result.passed_over:
        notes.append(f"Near-duplicates of labelled or picked rows were passed over: {count(result.passed_over)}.")
    return tuple(notes)


SECTION = Section(
    "labels", "Rows to label next", "Which rows without a target are worth a label?", measure=labels, describe=_text
)
