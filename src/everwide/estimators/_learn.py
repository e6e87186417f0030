"""Choose a network, its ridge and its stopping time on training rows alone, and solve for it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._checks import InputError
from .._engine import require
from .._kernels import Tower
from ..activations import Erf, Relu
from ..layers import AbstractLayer, Dense
from ._choice import Candidate, Choice, Goal, Learned, Member, Task
from ._effort import Clock
from ._images import image_networks
from ._readers import KernelReader, Reader, Which, rounded
from ._solve import RIDGES, all_ridges, solved
from ._tables import MOST_EXACT, learn_table

_WIDTHS = tuple(2**k for k in range(2, 11))  # numbers of features are rounded up to these, then to multiples
# A tower, and its networks: hidden layers, and how many of them may be frozen.
_TOWERS = (
    (Tower(Dense(w_std=2**0.5, b_std=0.1), Relu(), 5), {1: (0, 1), 2: (0, 2), 3: (0, 3), 5: (0, 3, 5)}),
    (Tower(Dense(w_std=2.0, b_std=0.1), Erf(), 3), {1: (0,), 3: (0,)}),
)
_COMPARED_ROWS, _COMPARED_IMAGES = 1000, 500  # on which networks are compared
_REFINED_ROWS = 5000  # up to which the ridge is chosen again on all rows
_MANY = 200  # rows from which other families of networks and early stopping are tried: fewer tell luck from merit badly
_NEIGHBOURS = 10.0 ** np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
_SAFE_IN_FLOAT32 = 1e-3  # ridges that cover the rounding of float32 kernels
_SMALL = 2000  # rows up to which kernels are computed in float64
# For each pair of rows: a kernel, its copy, its factor and the inverse of that; or what LAPACK decomposes it in.
_BYTES, _BYTES_STOPPED = 28, 48

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


def learn(task: Task, asked: Asked, goal: Goal, seed: int, clock: Clock) -> Learned:
    """Compare on some rows, then solve on all."""
    n = len(task.x)
    table = isinstance(asked, str) and asked == TABLE
    if not table or n <= MOST_EXACT:
        what = f"Exact training on {n} rows"
        require((_BYTES_STOPPED if goal.stops else _BYTES) * n**2, None, what, "Learn from fewer rows: max_rows=...")
    task = task._replace(x=show(task.x, asked))
    if table:
        return learn_table(task, goal, seed, clock)
    rows = _compared_rows(task, seed)
    some = task.rows(rows)
    best, tried = _best(_kernels(some.x, asked, goal.which, n, clock), some, goal)
    if goal.time is None and len(rows) == n and task.copies.sum() >= _MANY:
        best, more = _stopped(best, some, goal)
        tried += more
    exact = best.solution.ridge < _SAFE_IN_FLOAT32 or n <= (_SMALL if task.x.ndim == 2 else _COMPARED_IMAGES)
    dtype = np.float64 if exact else np.float32
    solution, scale, score = best.solution, best.scale, best.mean
    if len(rows) < n:
        solution, scale, score, more = _on_all(best.candidate.reader, task, best.solution, goal, dtype)
        tried += more
    choice = Choice(
        *best.candidate[1:5],
        which=best.candidate.reader.which,
        relative_ridge=float(solution.ridge),
        relative_time=float(getattr(solution, "time", np.inf)),
        score=score,
        scored_by=goal.scored_by,
        jitter=float(solution.jitter),
        tried=tried,
        rows=n,
        rows_compared=len(rows),
    )
    return Learned((Member(best.candidate, solution, scale),), task, choice, dtype)


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
    gain = old.losses - new.losses
    mean = np.average(gain, weights=weights)
    error = np.sqrt(np.average((gain - mean) ** 2, weights=weights) / weights.sum())
    return bool(mean > error)


def _stopped(best: _Scored, task: Task, goal: Goal) -> tuple[_Scored, int]:
    """Training that stops early, if that is clearly better than the best ridge."""
    if goal.ridge is not None:
        return best, 0
    times = [best.solution.at(0.0, 1 / ridge) for ridge in RIDGES[::2]]
    scored = [_scored(best.candidate, solution, best.scale, task, goal) for solution in times]
    first = min(scored, key=lambda one: one.mean)
    other = first._replace(candidate=first.candidate._replace(family=-1))
    return (first if _better(other, best, task.weights) else best), len(scored)


def _on_all(reader: Reader, task: Task, chosen: Any, goal: Goal, dtype: type) -> tuple[Any, float, float, int]:
    """Solve for all rows; the ridge may move to a neighbour."""
    kernel = reader.among(task.x, dtype)
    if np.isfinite(chosen.time):
        base, scale = solved(kernel, task, solver="eigen")
        solution = base.at(0.0, chosen.time)
        return solution, scale, goal.mean(solution, task), 1
    moves = _NEIGHBOURS if goal.ridge is None and len(task.x) <= _REFINED_ROWS else np.ones(1)
    best, scale, score = None, 1.0, np.inf
    for move in moves:
        taken = kernel.copy() if len(moves) > 1 else kernel
        solution, scale = solved(taken, task, ridge=float(chosen.ridge * move))
        mean = goal.mean(solution, task)
        if best is None or mean < score:
            best, score = solution, mean
    return best, scale, score, len(moves)
