"""What `architecture="auto"` makes of tables: networks that look at columns in several ways, and their sum.

Some see all columns alike; others have learned how to look at them, by evidence, by leave-one-out, as random trees.
What has learned from a row is not asked to predict it when shares are chosen.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._checks import InputError
from ..layers import Columns, Trees
from ._choice import Candidate, Choice, Goal, Honest, Learned, Member, Task
from ._columns import DEPTH, LENGTH, Pace, evaluation, learn_columns, learn_trees
from ._effort import FOLDED, FOLDS, USUAL, Clock, Effort, effort_for
from ._host import one_thread_each
from ._readers import ColumnsReader, Looking, Numbers, Which
from ._robust import calmed
from ._solve import HUGE, all_ridges, best_ridge, ridge_of_neighbours, solved, solved_in_leaves
from ._stack import shares

_FEW = 300  # rows on which all ridges are compared
_BYTES = 1 << 28  # of what is held for all pairs of them
_LEARNED = 20  # rows from which numbers are learned at all
_BIAS = 0.005  # of networks that see all columns alike
# These: the shares of scaled columns and of their ranks, hidden layers, and the ratio of their speeds.
_ALIKE = ((0.5, 0.5, 1, 1.0), (1.0, 0.0, 1, 0.0))
_WORKERS, _SMALL = 2, 2000  # threads, and rows up to which they solve for all rows side by side
MOST_EXACT, _MOST_TOGETHER = USUAL.exact, 3  # rows that are solved for at once; networks for more rows than that
_NEAR = 2000  # rows near each other, on which a ridge is chosen where all are too many
_LEARNING = 0.6  # of a budget: then numbers are as good as they are
_SCORED_BY = "squared error of rows that nothing had learned from"


class Way(NamedTuple):
    """How to look at columns is learned from rows; and what is said of it."""

    learn: Callable[[np.ndarray, np.ndarray], Looking]
    words: str
    depth: int
    activation: str | None


class Contender(NamedTuple):
    """A network, the best ridge, and what it says of the compared rows that it has not learned from."""

    candidate: Candidate
    ridge: float
    outputs: Float[np.ndarray, "n k"]
    tried: int


def learn_table(task: Task, goal: Goal, seed: int, clock: Clock, *, at_once: bool) -> Learned:
    """Networks that look at columns in several ways, compared on some rows and solved for on all, `at_once` or not."""
    if goal.stops and len(task.x) > MOST_EXACT:
        raise InputError(
            f"relative_time={goal.time:g} with {len(task.x)} rows: training that stops early takes up to {MOST_EXACT}. "
            f"Leave it at 'auto', or pass max_rows={MOST_EXACT}."
        )
    effort = _effort(task, goal, clock)
    effort = replace(effort, exact=max(effort.exact, len(task.x))) if at_once else effort
    order = _order(task, seed, effort)
    compared = order[: effort.compared]
    given, (task, alike) = task, _calm(task, compared, goal)
    some, parts = task.rows(compared), _parts(len(compared), effort)
    asked = np.sort(np.concatenate([held for _, held in parts]))
    clock.say(f"learns how to look at columns from {len(parts[0][0])} of {len(task.x)} rows")
    contenders = alike + _learned(task.x, some, parts, goal, effort, clock)
    said = np.stack([contender.outputs[asked] for contender in contenders])
    chosen = shares(said, some.y[asked], some.weights[asked])
    kept = [(one, float(share)) for one, share in zip(contenders, chosen, strict=True) if share]
    if len(order) > effort.exact:
        kept = sorted(kept, key=lambda one: -one[1])[: _MOST_TOGETHER if len(order) <= HUGE else 1]
    honest = Honest(compared[asked], np.einsum("s,smk->mk", chosen, said))
    unseen = np.sort(order[len(parts[0][0]) :]) if len(order) > len(compared) else None
    members = _members(kept, task, goal, unseen, effort, clock)
    if unseen is not None:
        members, honest = _weighed_again(members, task, unseen)
    error = np.sum((given.y[honest.rows] - honest.outputs) ** 2, axis=1)
    score = float(np.average(error, weights=task.weights[honest.rows]))
    choice = _choice(members, task, goal, score, len(honest.rows), sum(one.tried for one in contenders))
    return Learned(tuple(members), task, replace(choice, notes=_on_targets(given, task)), np.float64, honest)


def _effort(task: Task, goal: Goal, clock: Clock) -> Effort:
    """What fits into a budget, by the time that an evaluation of a criterion takes."""

    def ready(rows: int) -> Callable[[], Any]:
        x = task.x[:rows]
        return evaluation(scaled_columns(x), x, task.y[:rows], goal.which)

    with one_thread_each():
        return effort_for(len(task.x), clock, ready, _WORKERS, _most_rows(task.x.shape[1]))


def _most_rows(columns: int) -> int:
    """That numbers are learned from at once: of all pairs of them, every column is held."""
    return max(int(np.sqrt(_BYTES / (8 * columns))), 50)


def _members(
    kept: list[tuple[Contender, float]], task: Task, goal: Goal, unseen: Any, effort: Effort, clock: Clock
) -> list[Member]:
    """Solved for on all rows."""

    def member(one: tuple[Contender, float]) -> Member:
        clock.say(f"solves for {len(task.x)} rows: {one[0].candidate.description}")
        return _member(one[0], one[1], task, goal, unseen, effort)

    return (_together if len(task.x) <= _SMALL else _one_by_one)(member, kept)


def _weighed_again(members: list[Member], task: Task, unseen: Int[np.ndarray, " m"]) -> tuple[list[Member], Honest]:
    """With shares from all rows that no numbers were learned from."""
    said = np.stack([member.left_out[unseen] for member in members])
    chosen = shares(said, task.y[unseen], task.weights[unseen])
    kept = [replace(member, share=float(share)) for member, share in zip(members, chosen, strict=True) if share]
    return kept, Honest(unseen, np.einsum("s,smk->mk", chosen, said))


def _order(task: Task, seed: int, effort: Effort) -> Int[np.ndarray, " n"]:
    """A random order; of few rows, one that does not depend on the order in which they came."""
    if len(task.x) > effort.exact:
        return np.random.default_rng(seed).permutation(len(task.x))
    keys = np.concatenate([task.y, task.x], axis=1).T
    start = seed if len(task.x) > effort.compared else 0  # where all rows are compared, nothing is left to chance
    return np.random.default_rng(start).permutation(np.lexsort(keys))


def _parts(n: int, effort: Effort) -> list[tuple[Int[np.ndarray, " learned"], Int[np.ndarray, " held"]]]:
    """Rows to learn numbers from, and rows to judge them on; of few rows, each is judged once."""
    if n > FOLDED:
        learned = effort.part(n)
        return [(np.arange(learned), np.arange(learned, n))]
    folds = [np.arange(fold, n, FOLDS) for fold in range(FOLDS)]
    return [(np.setdiff1d(np.arange(n), held), held) for held in folds]


def _together(work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
    """Small work in threads of ours: a pool of threads in each product would mostly wait."""
    with one_thread_each(), ThreadPoolExecutor(_WORKERS) as threads:
        return list(threads.map(work, jobs))


def _one_by_one(work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
    return [work(job) for job in jobs]


def _calm(task: Task, compared: Int[np.ndarray, " m"], goal: Goal) -> tuple[Task, list[Contender]]:
    """Networks that see all columns alike, and what they learn from: targets without those that lie far off."""
    some = task.rows(compared)
    alike = _alike(some, goal)
    if not goal.robust:
        return task, alike
    best = min(alike, key=lambda one: float(np.sum(some.weights[:, None] * (some.y - one.outputs) ** 2)))
    with one_thread_each() if len(compared) <= _SMALL else nullcontext():
        y = calmed(task, compared, best.candidate.reader, best.ridge, best.outputs, goal)
    if y is None:
        return task, alike
    task = task._replace(y=y)
    return task, _alike(task.rows(compared), goal)


def _on_targets(given: Task, calm: Task) -> tuple[str, ...]:
    count = int(np.sum(given.y != calm.y))
    text = f"{count} of {given.y.size} targets lie far from what all other rows say of them: drawn near."
    return (text,) if count else ()


def _alike(some: Task, goal: Goal) -> list[Contender]:
    """Networks that see all columns alike: for those there is nothing to learn but a ridge."""
    few, first = some.rows(np.arange(min(_FEW, len(some.x)))), scaled_columns(some.x)

    def contender(candidate: Candidate) -> Contender:
        solutions, _ = all_ridges(candidate.reader.among(few.x), few, goal)
        best, tried = min(solutions, key=lambda solution: goal.mean(solution, few)), len(solutions)
        if len(few.x) < len(some.x):
            kernel = candidate.reader.among(some.x)
            best, _, more = best_ridge(kernel, some, goal, best.ridge, lambda one: goal.mean(one, some))
            tried += more
        return Contender(candidate, best.ridge, best.left_out(), tried)

    return _together(contender, _alike_candidates(first, goal.which))


def scaled_columns(x: Float[np.ndarray, "n d"]) -> Columns:
    """A first layer for columns that have their scales already: those of a category share one."""
    first = Columns.of(x, length=LENGTH)
    return replace(first, centre=np.zeros(x.shape[1]), scale=(np.asarray(first.scale) > 0).astype(np.float64))


def _alike_candidates(first: Columns, which: Which) -> list[Candidate]:
    d, candidates = first.columns, []
    for linear, ranked, depth, speed in _ALIKE:
        words = " and ".join(["columns"] * (linear > 0) + ["ranks of columns"] * (ranked > 0))
        words = f"{words}, all alike, then {depth} hidden layer{'s' * (depth > 1)}, Relu"
        numbers = Numbers(np.full(d, np.sqrt(linear / d)), np.full(d, ranked / d), _BIAS, 0.0, speed)
        frozen = depth if which == "ntk" and not speed else 0
        reader = ColumnsReader(first, numbers, which, depth)
        candidates.append(Candidate(reader, words, depth, "Relu", frozen, 0))
    return candidates


def _ways(x: np.ndarray, which: Which, pace: Pace) -> list[Way]:
    columns, trees = scaled_columns(x), Trees.of(x)

    def mixed(by: str, words: str) -> Way:
        text = f"columns weighed and mixed by {words}, then {DEPTH} hidden layers, Relu"
        return Way(lambda x, y: learn_columns(columns, x, y, which, by=by, pace=pace), text, DEPTH, "Relu")

    cut = Way(lambda x, y: learn_trees(trees, x, y, which, pace), "random trees with cuts by evidence", 0, None)
    return [mixed("likelihood", "evidence"), mixed("left_out", "leave-one-out"), cut]


def _learned(x: np.ndarray, some: Task, parts: list, goal: Goal, effort: Effort, clock: Clock) -> list[Contender]:
    """What has learned how to look at columns: each part by what has not seen it; then from as many rows as may be."""
    if len(some.x) < _LEARNED or not effort.rows:
        return []
    most = min(effort.rows, len(some.x), _most_rows(x.shape[1]))
    pace = Pace(effort.steps, effort.full_steps, lambda: clock.late(_LEARNING))
    ways, last = _ways(x, goal.which, pace), (np.arange(most), np.arange(0))
    parts = [(learned[:most], held) for learned, held in parts]
    jobs = [(way, learned) for way in ways for learned, _ in [*parts, *([last] if len(parts[0][0]) < most else [])]]
    readers = _together(lambda job: job[0].learn(some.x[job[1]], some.y[job[1]]), jobs)
    each = len(jobs) // len(ways)
    learned = [(way, readers[at * each : (at + 1) * each]) for at, way in enumerate(ways)]
    return _together(lambda one: _contender(one[0], one[1], some, parts, goal), learned)


def _contender(way: Way, readers: list[Looking], some: Task, parts: list, goal: Goal) -> Contender:
    outputs, ridges, tried = np.full_like(some.y, np.nan), [], 0
    for reader, (_, held) in zip(readers, parts, strict=False):
        kernel = reader.among(some.x)
        start = max(reader.noise / float(np.mean(np.diagonal(kernel))), 1e-9)
        solution, _, more = best_ridge(kernel, some, goal, start, _score_on(held, some, goal))
        outputs[held] = solution.left_out()[held]
        ridges.append(solution.ridge)
        tried += more
    candidate = Candidate(readers[-1], way.words, way.depth, way.activation, 0, 0)
    return Contender(candidate, float(np.exp(np.mean(np.log(ridges)))), outputs, tried)


def _member(contender: Contender, share: float, task: Task, goal: Goal, unseen: Any, effort: Effort) -> Member:
    """With all rows; where these are more than were compared, the ridge may move."""
    candidate, ridge, n = contender.candidate, contender.ridge, len(task.x)
    if unseen is not None and n > effort.refined and goal.ridge is None and isinstance(candidate.reader, Looking):
        ridge = ridge_of_neighbours(candidate.reader, task, goal, ridge, unseen, min(_NEAR, n))
    if n > effort.exact:
        assert isinstance(candidate.reader, Looking)
        solution, unit = solved_in_leaves(candidate.reader, task, ridge, effort.leaf)
        return Member(candidate, solution, 1.0, share, unit, exact=False)
    kernel = candidate.reader.among(task.x)
    if goal.stops:
        (solution,), scale = all_ridges(kernel, task, goal)
    elif unseen is None or n > effort.refined:
        solution, scale = solved(kernel, task, ridge=ridge)
    else:
        solution, scale, _ = best_ridge(kernel, task, goal, ridge, _score_on(unseen, task, goal))
    return Member(candidate, solution, scale, share)


def _score_on(rows: Int[np.ndarray, " m"], task: Task, goal: Goal) -> Callable[[Any], float]:
    """Of solutions, on some rows."""
    return lambda solution: float(np.average(goal.score(solution, task)[rows], weights=task.weights[rows]))


def _choice(members: list[Member], task: Task, goal: Goal, score: float, compared: int, tried: int) -> Choice:
    first, *others = sorted(members, key=lambda member: -member.share)
    total = sum(member.share for member in members)
    parts = [f"{member.share / total:.0%} {member.candidate.description}" for member in (first, *others)]
    alone = first.candidate if not others else Candidate(first.reader, "; ".join(parts), None, None, None, 0)
    return Choice(
        *alone[1:5],
        which=goal.which,
        relative_ridge=first.relative_ridge,
        relative_time=float(getattr(first.solution, "time", np.inf)),
        score=score,
        scored_by=_SCORED_BY,
        jitter=max(member.jitter for member in members),
        tried=tried,
        rows=len(task.x),
        rows_compared=compared,
    )
