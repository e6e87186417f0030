"""Choose a network, its ridge and its stopping time on training rows alone, and solve for it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from .._checks import InputError
from .._engine import require
from .._gram import diagonal, nngp, ntk
from .._kernels import Tower
from ..activations import Erf, Relu
from ..architectures import cnn, mlp
from ..layers import AbstractLayer, Dense
from ..spectral import solve
from ._columns import DEPTH, ColumnsReader, learn_columns

Which = Literal["nngp", "ntk"]
_LENGTHS = (64, 256, 512)  # numbers of rows and of columns are rounded up to these, then to multiples of the last
_WIDTHS = tuple(2**k for k in range(2, 11))  # the same for the numbers of features
_BATCH_BYTES = 1 << 28  # of a kernel with new rows that is held at once
# A tower, and its networks: hidden layers, and how many of them may be frozen.
_TOWERS = (
    (Tower(Dense(w_std=2**0.5, b_std=0.1), Relu(), 5), {1: (0, 1), 2: (0, 2), 3: (0, 3), 5: (0, 3, 5)}),
    (Tower(Dense(w_std=2.0, b_std=0.1), Erf(), 3), {1: (0,), 3: (0,)}),
)
_CONVOLUTIONS = (2, 4, 7)
RIDGES = 10.0 ** np.arange(-9, 1.01, 0.5)
_COMPARED_ROWS, _COMPARED_IMAGES = 1000, 500  # on which networks are compared
_REFINED_ROWS = 5000  # up to which the ridge is chosen again on all rows
_MANY = 200  # rows from which other families of networks and early stopping are tried: fewer tell luck from merit badly
_NEIGHBOURS = 10.0 ** np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
_SAFE_IN_FLOAT32 = 1e-3  # ridges that cover the rounding of float32 kernels
_SMALL = 2000  # rows up to which kernels are computed in float64
# For each pair of rows: a kernel, its copy, its factor and the inverse of that; or what LAPACK decomposes it in.
_BYTES, _BYTES_STOPPED = 28, 48


def rounded(n: int, lengths: tuple[int, ...]) -> int:
    """The next larger one of few numbers."""
    return next((length for length in lengths if n <= length), -(-n // lengths[-1]) * lengths[-1])


def padded(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n more"]:
    """More columns, all zero, that change no kernel: sizes of inputs are means over the columns.

    A dense network is compiled for each number of columns. So there are few of these.
    """
    d = x.shape[1]
    columns = rounded(d, _WIDTHS)
    return np.pad(x * np.sqrt(columns / d), ((0, 0), (0, columns - d)))


@dataclass(frozen=True)
class KernelReader:
    """One kernel of a network, between rows of scaled inputs."""

    network: AbstractLayer
    which: Which
    rounds: bool  # dense networks, of which many small ones are read: other numbers of rows compile nothing

    def among(self, x: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n n"]:
        """Of rows with themselves, in float64, computed in `dtype`."""
        return self._read(x, x, self._more_rows(x.astype(dtype)))

    def cross(self, x1: np.ndarray, x2: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n1 n2"]:
        """Of new rows with old ones."""
        return self._read(x1, x2, self._more_rows(x1.astype(dtype)), self._more_rows(x2.astype(dtype)))

    def diagonal(self, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """Of every row with itself."""
        return np.asarray(getattr(diagonal(self.network, self._more_rows(x)), self.which), np.float64)[: len(x)]

    def _read(self, x1: np.ndarray, x2: np.ndarray, *padded: np.ndarray) -> Float[np.ndarray, "n1 n2"]:
        matrix = (ntk if self.which == "ntk" else nngp)(self.network, *padded)
        return np.asarray(matrix, np.float64)[: len(x1), : len(x2)]

    def _more_rows(self, x: np.ndarray) -> np.ndarray:
        more = rounded(len(x), _LENGTHS) - len(x) if self.rounds else 0
        return np.pad(x, ((0, more), *((0, 0),) * (x.ndim - 1))) if more else x


Reader = KernelReader | ColumnsReader


def batches(rows: int, columns: int) -> list[slice]:
    """New rows, so many at a time that their kernel with `columns` old ones stays small."""
    size = max(_BATCH_BYTES // (8 * max(columns, 1)), 64)
    size = size // _LENGTHS[-1] * _LENGTHS[-1] or size
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


class Candidate(NamedTuple):
    """A network, and in words what it is. The first family is preferred until another one is clearly better."""

    reader: Reader
    description: str
    depth: int | None
    activation: str | None
    frozen: int | None
    family: int


Kernels = Iterator[tuple[Candidate, Float[np.ndarray, "n n"]]]


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


def image_candidates(x: Float[np.ndarray, "n h w c"], which: Which) -> Kernels:
    """Convolutions of several depths, and a dense network."""
    nets = [(cnn(depth=depth), f"{depth} convolutions of 3 x 3, flattened, Relu", depth) for depth in _CONVOLUTIONS]
    nets.append((mlp(flatten=True), "dense network, 3 hidden layers, Relu", 3))
    for net, description, depth in nets:
        reader = KernelReader(net, which, rounds=False)
        yield Candidate(reader, description, depth, "Relu", 0, 0), reader.among(x)


def given_candidate(net: AbstractLayer, x: np.ndarray, which: Which) -> Kernels:
    """The user's own."""
    reader = KernelReader(net, which, rounds=x.ndim == 2)
    yield Candidate(reader, f"given network {type(net).__name__}", None, None, None, 0), reader.among(x)


def columns_candidates(task: "Task", which: Which, seed: int) -> Kernels:
    """Networks that have learned how to look at columns: by evidence, and by predicting each row from all others."""
    if task.x.ndim != 2:
        raise InputError(
            f"architecture='columns' reads rows (n, columns), and the rows have the shape {task.x.shape[1:]}."
        )
    ways = {"likelihood": "evidence", "left_out": "leave-one-out"}
    by = list(ways) if task.copies.sum() >= _MANY else ["likelihood"]
    for family, (way, reader) in enumerate(
        zip(by, learn_columns(task.x, task.y, which, by=by, seed=seed), strict=True)
    ):
        words = f"columns weighed and mixed as learned by {ways[way]}, then {DEPTH} hidden layers, Relu"
        yield Candidate(reader, words, DEPTH, "Relu", 0, family), reader.among(task.x)


@dataclass(frozen=True)
class Choice:
    """The network and its training that an estimator has chosen on its training rows: `choice_`, after `fit`."""

    description: str  # of the network
    depth: int | None  # hidden layers; None for a network that was given
    activation: str | None
    frozen: int | None  # hidden layers that are not trained
    which: str  # kernel is solved for: "ntk" or "nngp"
    relative_ridge: float  # in units of the mean of the kernel's diagonal
    relative_time: float  # of gradient flow, in units of its inverse
    score: float  # the smaller, the better: what was minimized
    scored_by: str
    jitter: float  # what had to be added to the diagonal, in units of its mean
    tried: int  # combinations that were compared
    rows: int  # that are learned from
    rows_compared: int  # on which networks were compared
    notes: tuple[str, ...] = ()  # sentences on what was done to the columns of X, and on rare classes

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: an endless time is null."""
        return asdict(self) | {"relative_time": None if math.isinf(self.relative_time) else self.relative_time}

    def __str__(self) -> str:
        time = self.relative_time
        until = "to the end" if math.isinf(time) else f"for the time {time:.3g}"
        frozen = f", the first {self.frozen} of them frozen" if self.frozen and self.frozen != self.depth else ""
        frozen = ", only the last layer trained" if self.frozen and self.frozen == self.depth else frozen
        lines = [
            f"{self.description}{frozen}",
            f"{self.which} kernel, ridge {self.relative_ridge:.2g}, trained {until}, on {self.rows} rows",
            f"{self.scored_by} {self.score:.4g}: the smallest of {self.tried}, compared on {self.rows_compared} rows",
        ]
        if self.jitter:
            lines.append(f"jitter {self.jitter:.2g} was added to the diagonal")
        return "\n".join([*lines, *self.notes])


class Task(NamedTuple):
    """What is to be learned: inputs, scaled targets, weights above 0, of which `copies` are repetitions.

    Inputs are the user's, folded; then scaled; then as the network reads them.
    """

    x: Float[np.ndarray, "n *shape"]
    y: Float[np.ndarray, "n k"]
    weights: Float[np.ndarray, " n"]
    copies: Float[np.ndarray, " n"]


class Goal(NamedTuple):
    """What the user has fixed, `None` is to be chosen; and `score`: for each row, the smaller the better."""

    which: Which
    ridge: float | None  # relative, as is the time
    time: float | None
    score: Callable[[Any, Task], Float[np.ndarray, " n"]]
    scored_by: str

    def mean(self, solution: Any, task: Task) -> float:
        """The score of all rows."""
        return float(np.average(self.score(solution, task), weights=task.weights))


@dataclass(frozen=True)
class Learned:
    """A network that has learned a task: a solution of `everwide.spectral.solve` in units of `scale`."""

    reader: Reader
    task: Task
    solution: Any
    scale: float  # the mean of the kernel's diagonal
    choice: Choice
    dtype: type


class _Scored(NamedTuple):
    candidate: Candidate
    solution: Any
    scale: float
    losses: Float[np.ndarray, " n"]
    mean: float


def solved(kernel: np.ndarray, task: Task, scale: float | None = None, **how: Any) -> tuple[Any, float]:
    """A solution in units of the kernel's mean diagonal, and that; the kernel is used up."""
    unit = float(np.average(np.diagonal(kernel), weights=task.weights)) if scale is None else scale
    unit = unit if unit > 0 else 1.0
    kernel /= unit
    return solve(kernel, task.y, weights=task.weights, copies=task.copies, overwrite=True, **how), unit


def show(x: np.ndarray, network: AbstractLayer | str | None) -> np.ndarray:
    """The inputs as the network reads them: the dense ones that are chosen here have few different widths."""
    return padded(x) if network is None and x.ndim == 2 else x


def squared_error(solution: Any, task: Task) -> Float[np.ndarray, " n"]:
    """Of every row, predicted from all others."""
    return np.sum((task.y - solution.left_out()) ** 2, axis=1)


def learn(task: Task, network: AbstractLayer | str | None, goal: Goal, seed: int) -> Learned:
    """Compare on some rows, then solve on all."""
    n = len(task.x)
    stopped = goal.time is not None and np.isfinite(goal.time)
    require(
        (_BYTES_STOPPED if stopped else _BYTES) * n**2,
        None,
        f"Exact training on {n} rows",
        "Learn from a random part of the rows with max_rows=...; training on more rows than fit is planned.",
    )
    task = task._replace(x=show(task.x, network))
    rows = _compared_rows(task, seed)
    some = Task(*(part[rows] for part in task))
    best, tried = _best(_kernels(some, network, goal.which, seed), some, goal)
    if goal.time is None and len(rows) == n and task.copies.sum() >= _MANY:
        best, more = _stopped(best, some, goal)
        tried += more
    reader = best.candidate.reader
    exact = best.solution.ridge < _SAFE_IN_FLOAT32 or n <= (_SMALL if task.x.ndim == 2 else _COMPARED_IMAGES)
    dtype = np.float64 if exact else np.float32
    solution, scale, score = best.solution, best.scale, best.mean
    if len(rows) < n:
        solution, scale, score, more = _on_all(reader, task, best.solution, goal, dtype)
        tried += more
    choice = Choice(
        *best.candidate[1:5],
        which=reader.which,
        relative_ridge=float(solution.ridge),
        relative_time=float(getattr(solution, "time", np.inf)),
        score=score,
        scored_by=goal.scored_by,
        jitter=float(solution.jitter),
        tried=tried,
        rows=n,
        rows_compared=len(rows),
    )
    return Learned(reader, task, solution, scale, choice, dtype)


def _compared_rows(task: Task, seed: int) -> np.ndarray:
    most = _COMPARED_ROWS if task.x.ndim == 2 else _COMPARED_IMAGES
    n = len(task.x)
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(seed).permutation(n)[:most])


def _kernels(task: Task, network: AbstractLayer | str | None, which: Which, seed: int) -> Kernels:
    x = task.x
    if isinstance(network, str):
        return columns_candidates(task, which, seed)
    if network is not None:
        return given_candidate(network, x, which)
    if x.ndim == 4:
        return image_candidates(x, which)
    if x.ndim == 2:
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
        base, scale = solved(kernel, task, solver="eigen")
        solutions = [base.at(*point) for point in _points(goal)]
        tried += len(solutions)
        for solution in solutions:
            scored = _scored(candidate, solution, scale, task, goal)
            if best is None or _better(scored, best, task.weights):
                best = scored
    assert best is not None
    return best, tried


def _points(goal: Goal) -> list[tuple[float, float]]:
    """Ridges and times to compare."""
    if goal.time is not None and np.isfinite(goal.time):
        return [(0.0, goal.time)]
    return [(float(ridge), np.inf) for ridge in (RIDGES if goal.ridge is None else [goal.ridge])]


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


def _on_all(
    reader: KernelReader | ColumnsReader, task: Task, chosen: Any, goal: Goal, dtype: type
) -> tuple[Any, float, float, int]:
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
