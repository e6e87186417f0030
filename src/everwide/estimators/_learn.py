"""Choose a network, its ridge and its stopping time on training rows alone, and solve for it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._checks import InputError
from .._engine import require
from .._kernels import Tower
from ..activations import Erf, Relu
from ..layers import AbstractLayer, Dense
from ._choice import Candidate, Choice, Goal, Learned, Member, Task, is_clear
from ._effort import Clock
from ._images import image_networks
from ._large import (
    BYTES,
    BYTES_STOPPED,
    DOUBLE,
    MOST_DOUBLE,
    SAFE_IN_FLOAT32,
    Within,
    solved_on_all,
    told,
    tolerance_of,
)
from ._readers import KernelReader, Which, rounded
from ._solve import RIDGES, all_ridges, solved, squared_error
from ._tables import MOST_EXACT, learn_table

_WIDTHS = tuple(2**k for k in range(2, 11))  # numbers of features are rounded up to these, then to multiples
# A tower, and its networks: hidden layers, and how many of them may be frozen.
_TOWERS = (
    (Tower(Dense(w_std=2**0.5, b_std=0.1), Relu(), 5), {1: (0, 1), 2: (0, 2), 3: (0, 3), 5: (0, 3, 5)}),
    (Tower(Dense(w_std=2.0, b_std=0.1), Erf(), 3), {1: (0,), 3: (0,)}),
)
_COMPARED_ROWS, _COMPARED_IMAGES = 1000, 500  # on which networks are compared
_MANY = 200  # rows from which other families of networks and early stopping are tried: fewer tell luck from merit badly
_NEIGHBOURS = 10.0 ** np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
_NEGLIGIBLE = 2e-3  # of an error: what a larger ridge may cost; that of each row may be tiny, and clear
_SMALL = 2000  # rows up to which kernels are computed in float64

Kernels = Iterator[tuple[Candidate, Float[np.ndarray, "n n"]]]
Asked = AbstractLayer | str  # a network, or the name of a way to choose one: TABLE, DENSE, IMAGES
TABLE, DENSE, IMAGES = "table", "dense", "images"


def padded(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n more"]:
    """More columns, all zero, that change no kernel: sizes of inputs are means over the columns.

    A dense network is compiled for each number of columns. So there are few of these.
    """
    d = x.shape[1]
    columns = rounded(d, _WIDTHS)
    return np.pad(x * np.sqrt(columns / d), ((0, 0), (0, columns - d)))


def dense_candidates(x: Float[np.ndarray, "n d"], which: Which) -> Kernels:
    """Dense networks of several depths and activations, with some of their layers frozen."""
    for family, (tower, depths) in enumerate(_TOWERS):
        floors = tower.floors(x)
        activation = type(tower.activation).__name__
        for depth, some in depths.items():
            for frozen in some if which == "ntk" else (depth,):
                shown = 0 if which == "nngp" else frozen
                words = f"dense network, {depth} hidden layer{'s' * (depth > 1)}, {activation}"
                reader = KernelReader(tower.network(depth, shown), which, rounds=True)
                yield Candidate(reader, words, depth, activation, shown, family), floors.ntk(depth, frozen)


def image_candidates(x: Float[np.ndarray, "n h w c"], which: Which, rows: int, clock: Clock) -> Kernels:
    """Networks for images, of which so many will be learned from."""
    for net, description, depth in image_networks(x.shape[1:], rows, clock.budget):
        clock.say(f"compares on {len(x)} images: {description}")
        reader = KernelReader(net, which, rounds=False)
        yield Candidate(reader, description, depth, "Relu", 0, 0), reader.among(x)


def given_candidate(net: AbstractLayer, x: np.ndarray, which: Which) -> Kernels:
    """The user's own."""
    reader = KernelReader(net, which, rounds=x.ndim == 2)
    yield Candidate(reader, f"given network {type(net).__name__}", None, None, None, 0), reader.among(x)


class _Scored(NamedTuple):
    candidate: Candidate
    solution: Any
    scale: float
    losses: Float[np.ndarray, " n"]
    mean: float


def show(x: np.ndarray, asked: Asked) -> np.ndarray:
    """The inputs as the network reads them: the dense ones that are chosen here have few different widths."""
    return padded(x) if isinstance(asked, str) and asked == DENSE else x


def learn(task: Task, asked: Asked, goal: Goal, seed: int, within: Within, clock: Clock) -> Learned:
    """Compare on some rows, then solve on all."""
    n = len(task.x)
    task = task._replace(x=show(task.x, asked))
    if isinstance(asked, str) and asked == TABLE:
        at_once = goal.stops or within.variances
        if at_once or n <= MOST_EXACT:
            _require_double(n, goal, within)
        learned = learn_table(task, goal, seed, clock, at_once=at_once)
        return replace(learned, choice=replace(learned.choice, solver=told(learned.members, n)))
    rows = _compared_rows(task, seed)
    if len(rows) < n and (goal.stops or within.variances):
        _require_double(n, goal, within)
    some = task.rows(rows)
    best, tried = _best(_kernels(some.x, asked, goal.which, n, clock), some, goal)
    if goal.time is None and len(rows) == n and task.copies.sum() >= _MANY:
        best, more = _stopped(best, some, goal)
        tried += more
    exact = best.solution.ridge < SAFE_IN_FLOAT32 or n <= (_SMALL if task.x.ndim == 2 else _COMPARED_IMAGES)
    dtype, member = np.float64 if exact else np.float32, Member(best.candidate, best.solution, best.scale)
    result = _OnAll(member, best.mean, 0, dtype, float(best.solution.ridge))
    if len(rows) < n:
        result = _on_all(best, some, task, goal, dtype, within)
    choice = Choice(
        *best.candidate[1:5],
        which=best.candidate.reader.which,
        relative_ridge=result.member.relative_ridge,
        relative_time=float(getattr(result.member.solution, "time", np.inf)),
        score=result.score,
        scored_by=goal.scored_by,
        jitter=result.member.jitter,
        tried=tried + result.tried,
        rows=n,
        rows_compared=len(rows),
        solver=told([result.member], n, result.ridge),
    )
    return Learned((result.member,), task, choice, result.dtype)


def _require_double(n: int, goal: Goal, within: Within) -> None:
    """Raise where so many rows are not solved for in float64."""
    if goal.stops and n > MOST_DOUBLE:
        raise InputError(
            f"relative_time={goal.time:g} with {n} rows: training that stops early takes up to {MOST_DOUBLE}. Leave it "
            f"at 'auto', or pass max_rows={MOST_DOUBLE}."
        )
    needed = (BYTES_STOPPED if goal.stops else BYTES) * n**2
    require(needed, within.memory, f"Exact training on {n} rows", "Learn from fewer rows: max_rows=...")


def _compared_rows(task: Task, seed: int) -> np.ndarray:
    most = _COMPARED_ROWS if task.x.ndim == 2 else _COMPARED_IMAGES
    n = len(task.x)
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(seed).permutation(n)[:most])


def _kernels(x: np.ndarray, asked: Asked, which: Which, rows: int, clock: Clock) -> Kernels:
    if isinstance(asked, AbstractLayer):
        return given_candidate(asked, x, which)
    if asked == IMAGES and x.ndim == 4:
        return image_candidates(x, which, rows, clock)
    if asked == DENSE and x.ndim == 2:
        return dense_candidates(x, which)
    raise InputError(
        f"architecture='auto' knows rows (n, features) and images (n, height, width, channels), not {x.shape}. "
        "Pass a network that reads such inputs."
    )


def _best(kernels: Kernels, task: Task, goal: Goal) -> tuple[_Scored, int]:
    """The best candidate of the first family, or of another one if that is clearly better."""
    best: _Scored | None = None
    tried = 0
    for candidate, kernel in kernels:
        if candidate.family and task.copies.sum() < _MANY:
            break
        solutions, scale = all_ridges(kernel, task, goal)
        tried += len(solutions)
        for solution in solutions:
            scored = _scored(candidate, solution, scale, task, goal)
            if best is None or _better(scored, best, task.weights):
                best = scored
    assert best is not None
    return best, tried


def _scored(candidate: Candidate, solution: Any, scale: float, task: Task, goal: Goal) -> _Scored:
    losses = goal.score(solution, task)
    return _Scored(candidate, solution, scale, losses, float(np.average(losses, weights=task.weights)))


def _better(new: _Scored, old: _Scored, weights: np.ndarray) -> bool:
    """Between families, by more than one standard error: comparing more networks must not mean trusting luck."""
    if new.candidate.family == old.candidate.family:
        return new.mean < old.mean
    return _clearly_better(new, old, weights)


def _clearly_better(new: _Scored, old: _Scored, weights: np.ndarray) -> bool:
    """By more than one standard error of the difference."""
    return is_clear(old.losses - new.losses, weights, errors=1)


def _steadiest(best: _Scored, some: Task, goal: Goal) -> float:
    """The largest ridge than which the best one is not clearly better, or hardly: the larger, the fewer iterations."""
    least = float(best.solution.ridge)
    for ridge in () if goal.ridge is not None else RIDGES[least < RIDGES][::-1]:
        scored = _scored(best.candidate, best.solution.at(float(ridge), np.inf), best.scale, some, goal)
        if scored.mean <= (1 + _NEGLIGIBLE) * best.mean or not _clearly_better(best, scored, some.weights):
            return float(ridge)
    return least


def _stopped(best: _Scored, task: Task, goal: Goal) -> tuple[_Scored, int]:
    """Training that stops early, if that is clearly better than the best ridge."""
    if goal.ridge is not None:
        return best, 0
    times = [best.solution.at(0.0, 1 / ridge) for ridge in RIDGES[::2]]
    scored = [_scored(best.candidate, solution, best.scale, task, goal) for solution in times]
    first = min(scored, key=lambda one: one.mean)
    other = first._replace(candidate=first.candidate._replace(family=-1))
    return (first if _better(other, best, task.weights) else best), len(scored)


class _OnAll(NamedTuple):
    """A network that has learned all rows, its score, how many ridges were tried, and the precision of its kernel."""

    member: Member
    score: float
    tried: int
    dtype: type
    ridge: float  # that was asked for, relative


def _on_all(best: _Scored, some: Task, task: Task, goal: Goal, dtype: type, within: Within) -> _OnAll:
    """Solve for all rows: by the ladder, or in float64, where the ridge may move to a neighbour."""
    reader, chosen = best.candidate.reader, best.solution
    if not (goal.stops or within.variances or within.doubles(len(task.x))):
        assert isinstance(reader, KernelReader)
        ridge, tolerance = _steadiest(best, some, goal), tolerance_of(squared_error(chosen, some), some)
        solution, unit, dtype = solved_on_all(reader, task, ridge, within, tolerance=tolerance)
        member = Member(best.candidate, solution, 1.0, unit=unit, exact=False)
        return _OnAll(member, goal.mean(solution, task), 1, dtype, ridge)
    kernel = reader.among(task.x, dtype)
    if np.isfinite(chosen.time):
        base, scale = solved(kernel, task, solver="eigen")
        solution = base.at(0.0, chosen.time)
        return _OnAll(Member(best.candidate, solution, scale), goal.mean(solution, task), 1, dtype, 0.0)
    moves = _NEIGHBOURS if goal.ridge is None and len(task.x) <= DOUBLE else np.ones(1)
    member, score = None, np.inf
    for move in moves:
        taken = kernel.copy() if len(moves) > 1 else kernel
        solution, scale = solved(taken, task, ridge=float(chosen.ridge * move))
        mean = goal.mean(solution, task)
        if member is None or mean < score:
            member, score = Member(best.candidate, solution, scale), mean
    assert member is not None
    return _OnAll(member, score, len(moves), dtype, member.relative_ridge)
