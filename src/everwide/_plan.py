"""What a kernel of so many rows will cost before anything runs: minutes and bytes of each solver, on this machine."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ._checks import InputError, whole
from ._engine import TILE, KernelOperator, MatrixBlocks, as_rows, budget, human
from ._gram import Network, kernel_of
from ._operator import NetworkKernel
from .kernel import AbstractKernelFunction
from .layers import AbstractLayer
from .signal import Parametrization
from .spectral import ConjugateGradients, Leaves, Nystrom, SingleCholesky

_COLUMNS = 64  # of rows whose shape is not said
_SQUARE, _OPERATOR = 1200, 8192  # sizes of the matrices that rates are measured with: the second beyond all caches
_ENOUGH = 0.25  # seconds that a rate is measured for
_ROUNDS, _FEW = 10, 128  # in which pivots are found, and columns that are computed in each at the least
_FIRST, _FIRST_FLAT = 64, 512  # of the first trial: an image may take long, a flat row does not, and is compiled once
_STEADY = 0.65  # of the speed of one tile again and again: what many new ones reach that are written and kept
# Programs that are compiled beside the one that a plan has measured; that of the diagonal is a third of one.
_PROGRAMS = {"cholesky": 1.0, "single": 0.3, "gradients": 1.3, "nystrom": 4.0}
_NARROW, _FEATURES = 2, 3  # what columns of few pivots, and features in float64, cost more than entries of a tile
_ITERATIONS = 30  # of conjugate gradients, to a residual of 1e-3 or 1e-4, with pivots
_REFINEMENTS, _WIDER = 6, 4  # products of a factor that is refined, and what those in float64 cost more
_MENDED, _MORE = 4, 3  # of a kernel in 16 bits: how often it is computed, and how many times more products it takes
_TILES = 1 << 28  # bytes of tiles that are under way
_EFFICIENCY = 0.8  # of a factorization, beside a product
_DAY = 24 * 60  # minutes
_EXACT_UNTIL = 60  # minutes that an exact solution is worth, where an approximate one is faster


class Rates(NamedTuple):
    """What this machine does in a second."""

    entries: float  # of the kernel
    single: float  # operations of a product in float32
    double: float  # in float64
    products: float  # entries of a kept kernel that are multiplied with all outputs
    compiling: float = 0.0  # seconds that a program of the kernel takes to compile


class Option(NamedTuple):
    """A solver, and what it costs."""

    name: str
    solver: Any  # for `everwide.spectral.solve`
    exact: bool
    minutes: float
    bytes: int
    fits: bool


@dataclass(frozen=True)
class WorkPlan:
    """What `everwide.plan` returns: `print` it, read `to_dict()`, or hand its `solver` to `everwide.spectral.solve`."""

    n: int
    outputs: int
    memory: int
    workers: int
    assumed: tuple[int, ...] | None  # the shape of rows, where none was said
    rates: Rates
    options: tuple[Option, ...]
    chosen: Option

    @property
    def solver(self) -> Any:
        """Of the option that was chosen."""
        return self.chosen.solver

    @property
    def minutes(self) -> float:
        """Of the option that was chosen."""
        return self.chosen.minutes

    @property
    def bytes(self) -> int:
        """Of the option that was chosen."""
        return self.chosen.bytes

    def __str__(self) -> str:
        rows = [
            (one.name, "exact" if one.exact else "approximate", duration(one.minutes), human(one.bytes), self._why(one))
            for one in self.options
        ]
        lines = _table([("solver", "solution", "time", "memory", ""), *rows])
        lines.append(
            f"{self.n} rows, {self.outputs} output{'s' * (self.outputs > 1)}, {human(self.memory)} of memory, "
            f"{self.workers} worker{'s' * (self.workers > 1)}: {self.chosen.name}, {duration(self.minutes)}."
        )
        lines.append(f"Measured here: {self.rates.entries / 1e6:.3g} million entries of the kernel a second.")
        if self.assumed is not None:
            lines.append(f"Rows of shape {self.assumed} are assumed: say input_shape=.")
        return "\n".join(lines)

    def _why(self, one: Option) -> str:
        if one is self.chosen:
            return "chosen"
        return "" if one.fits else "does not fit"

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types."""
        return {
            "rows": self.n,
            "outputs": self.outputs,
            "memory": self.memory,
            "workers": self.workers,
            "chosen": self.chosen.name,
            "rates": self.rates._asdict(),
            "options": [{k: v for k, v in one._asdict().items() if k != "solver"} for one in self.options],
        }


def plan(
    net: Network,
    n: int,
    input_shape: tuple[int, ...] | None = None,
    *,
    which: str = "ntk",
    outputs: int = 1,
    memory: int | None = None,
    workers: int = 1,
) -> WorkPlan:
    """Which solver `n` rows ask for, in how many minutes and bytes, and what others would cost.

    Rates of this machine are measured, which takes a second or two and the compilation of the network. That program is
    then there for this process; what solvers compile beside it is counted.

    Args:
        net: A network, or a kernel function.
        n: Rows to learn from.
        input_shape: The shape of one of them; `None`: 64 columns.
        which: `"ntk"` or `"nngp"`.
        outputs: Columns of the targets.
        memory: Bytes that may be used; `None`: half of what is free.
        workers: Machines like this one that compute tiles.

    Returns:
        A plan: `print` it. `solver`, for `everwide.spectral.solve`; `minutes`; `bytes`; `options`, each with its name,
        minutes, bytes and whether it is exact and fits; `to_dict()`. Work of days is refused, with that number.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> plan = ew.plan(net, 2000, (8,), memory=10**9)
    >>> plan.chosen.exact, plan.chosen.fits
    (True, True)

    """
    rows, many, hands = whole(n, "n", 2), whole(outputs, "outputs"), whole(workers, "workers")
    have = budget(None if memory is None else whole(memory, "memory"))
    if which not in ("ntk", "nngp"):
        raise InputError(f"which={which!r}: expected 'ntk' or 'nngp'.")
    shape = _shape(net, input_shape)
    rates = _rates(net, shape, which, many)
    options = tuple(costs(rows, rates, outputs=many, memory=have, workers=hands, sites=len(shape) > 1))
    chosen = choice(rows, options, have)
    return WorkPlan(rows, many, have, hands, shape if input_shape is None else None, rates, options, chosen)


def _shape(net: Network, given: tuple[int, ...] | None) -> tuple[int, ...]:
    if not isinstance(net, AbstractLayer | AbstractKernelFunction):
        raise InputError(f"Expected a network (everwide.Serial, everwide.Dense, ...), got {type(net).__name__}.")
    shape = (_COLUMNS,) if given is None else tuple(given)
    sites = kernel_of(net, as_rows(np.zeros((1, *shape))), 1, Parametrization.NTK, None).site_shape()
    if sites:
        raise InputError("The network has outputs at sites, which no solver has. End it with Flatten or pooling.")
    return shape


def costs(n: int, rates: Rates, *, outputs: int, memory: int, workers: int = 1, sites: bool = False) -> list[Option]:
    """All rungs of the ladder, by what they count: entries of the kernel, operations, and bytes.

    Workers compute tiles and multiply with them; factors are made on one machine.
    """
    triangle, whole_tiles = n * n / 2, n * (n + min(n, TILE)) / 2
    rates = rates._replace(entries=rates.entries * workers, products=rates.products * workers)
    form, factor, product = whole_tiles / rates.entries, n**3 / 3 / _EFFICIENCY, triangle / rates.products
    r = ConjugateGradients().pivots_of(n)
    compiled = {name: many * rates.compiling for name, many in _PROGRAMS.items()}
    near = (
        _NARROW * n * max(1.3 * r, _ROUNDS * _FEW) / rates.entries + 3 * n * r**2 / rates.double + compiled["gradients"]
    )
    near += _ITERATIONS * _FEATURES * n * r / rates.products
    beside = 4 * n * r + 64 * n * outputs

    def option(name: str, solver: Any, seconds: float, size: float, exact: bool = True) -> Option:
        return Option(name, solver, exact, seconds / 60, int(size), size <= memory)

    gradients, refined = ConjugateGradients(), _REFINEMENTS * _WIDER * product + compiled["single"]
    rungs = [
        option("cholesky", "cholesky", form + 3 * factor / rates.double + compiled["cholesky"], 28 * n**2),
        option("cholesky, float32", SingleCholesky(), form + 2 * factor / rates.single + refined, 4.2 * n**2),
        option("conjugate gradients", gradients, form + near + _ITERATIONS * product, 2 * n**2 + beside),
        option("the same, in 16 bits", gradients, _MENDED * form + near + _MORE * _ITERATIONS * product, n**2 + beside),
        option("the same, recomputed", gradients, _ITERATIONS * (form + product) + near, beside + _TILES),
        option(*_nystrom(n, rates, outputs), exact=False),
    ]
    return rungs if sites else [*rungs, option(*_leaves(n, rates, outputs), exact=False)]


def _nystrom(n: int, rates: Rates, outputs: int) -> tuple[str, Any, float, float]:
    """Features of all rows, whitened and summed; then a decomposition."""
    m = Nystrom().centres_of(n)
    seconds = n * m / rates.entries + (2 * n * m**2 + 10 * m**3) / rates.double
    seconds += _PROGRAMS["nystrom"] * rates.compiling
    return f"nystrom, {m} centres", Nystrom(), seconds, 24 * m**2 + 16 * 4096 * m + 8 * n * outputs


def _leaves(n: int, rates: Rates, outputs: int) -> tuple[str, Any, float, float]:
    """Each leaf has a kernel, a factor, and its inverse for leave-one-out; borders are in two leaves."""
    how = Leaves()
    depth = max(math.ceil(math.log2(n / how.size)), 0)
    s, many = (1 + how.overlap) ** depth * n / 2**depth, 2**depth
    seconds = many * (s**2 / rates.entries + s**3 / _EFFICIENCY / rates.double)
    return f"{many} leaves of {s:.0f} rows", how, seconds, 32 * s**2 + 32 * n * outputs


def choice(n: int, options: tuple[Option, ...], memory: int) -> Option:
    """The fastest exact solver that fits, unless it takes hours; then the fastest of all. Days are refused."""
    fitting = [one for one in options if one.fits]
    if not fitting:
        least = min(options, key=lambda one: one.bytes)
        raise InputError(
            f"n={n}: the solver that needs the least memory ({least.name}) asks for {human(least.bytes)}, and "
            f"{human(memory)} may be used. Give more with memory=, or learn from fewer rows."
        )
    exact = min((one for one in fitting if one.exact), key=lambda one: one.minutes, default=None)
    best = min(fitting, key=lambda one: one.minutes)
    if exact is not None and exact.minutes <= _EXACT_UNTIL:
        return exact
    if best.minutes > _DAY:
        raise InputError(
            f"n={n}: the fastest solver that fits ({best.name}) would take {duration(best.minutes)}. Learn from fewer "
            f"rows ({_affordable(n, best.minutes)} take an hour), take a network without sites, or more workers=."
        )
    return best


def _affordable(n: int, minutes: float) -> int:
    """Rows that an hour is enough for, as rows cost in proportion to their number; two digits."""
    rows = max(n * 60 / minutes, 1.0)
    digits = 10 ** max(math.floor(math.log10(rows)) - 1, 0)
    return int(rows // digits * digits)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "  ".join("-" * width for width in widths).rstrip(), *lines[1:]]


def duration(minutes: float) -> str:
    """As people say it."""
    if minutes < 1:
        return f"{60 * minutes:.2g} s"
    if minutes < 120:
        return f"{minutes:.2g} min" if minutes < 99.5 else f"{minutes:.0f} min"
    return f"{minutes / 60:.2g} h" if minutes < 2 * _DAY else f"{minutes / _DAY:.3g} days"


def _rates(net: Network, shape: tuple[int, ...], which: Any, outputs: int) -> Rates:
    reader, rng = NetworkKernel(net, which, Parametrization.NTK, None), np.random.default_rng(0)
    rows, compiling = _FIRST_FLAT if len(shape) == 1 else _FIRST, 0.0
    while True:
        x, y = (rng.standard_normal((rows, *shape), np.float32) for _ in range(2))
        first = _timed(lambda: reader.cross(x, y), once=True)  # noqa: B023
        seconds = _timed(lambda: reader.cross(x, y), once=rows < TILE)  # noqa: B023
        compiling = max(first - seconds, compiling)
        if rows >= TILE or seconds > _ENOUGH / 4:
            return Rates(_STEADY * rows**2 / seconds, *_products(outputs), compiling)
        rows *= 4


@cache
def _products(outputs: int) -> tuple[float, float, float]:
    """Rates of products in float32 and float64, and of a kept kernel with all outputs."""
    rng = np.random.default_rng(0)
    square = rng.standard_normal((_SQUARE, _SQUARE), np.float32)
    double = square.astype(np.float64)
    flops = [2 * _SQUARE**3 / _timed(lambda a=a: a @ a) for a in (square, double)]
    tall = rng.standard_normal((_OPERATOR, outputs), np.float32)
    ones = np.broadcast_to(np.float32(1), (_OPERATOR, _OPERATOR))  # takes no memory before it is a tile
    kernel = KernelOperator(MatrixBlocks(ones), memory=1 << 40)
    seconds = [_timed(lambda: kernel @ tall, once=once) for once in (True, False)]  # the first one keeps the tiles
    return flops[0], flops[1], _OPERATOR**2 / 2 / seconds[1]


def _timed(work: Callable[[], Any], *, once: bool = False) -> float:
    """The median of a few, or one."""
    seconds: list[float] = []
    while not seconds or (not once and sum(seconds) < _ENOUGH):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))
