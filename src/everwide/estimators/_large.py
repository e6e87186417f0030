"""Rows so many that their kernel is not solved for in float64: which solver is taken, what stays of it, what is said.

Network and ridge were chosen on few rows; here all of them are learned, within the memory that may be used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .._checks import InputError, bytes_of, warn
from .._engine import KernelOperator, budget, human
from .._fingerprint import fingerprint
from .._operator import operator
from .._plan import duration, plan
from ..scale import AbstractBackend, Devices, Store
from ..spectral import ConjugateGradients, Leaves, SingleCholesky, solve
from ._choice import Member, Task
from ._effort import USUAL
from ._readers import KernelReader
from ._solve import solved_in_leaves

DOUBLE = 5000  # rows up to which a kernel is solved for in float64, and its ridge chosen again
MOST_DOUBLE = 20_000  # where variances or a stopping time are asked for, and for rows that come later
BYTES, BYTES_STOPPED = 28, 48  # for each pair of rows: kernel, copy, factor, its inverse; or what decomposes it
SAFE_IN_FLOAT32 = 1e-3  # ridges that cover the rounding of kernels that were computed in float32
_LEAST = 4 * 6e-8  # times the root of the rows: ridges that cover the rounding of float32 entries
_FACTORED, _FACTOR_BYTES = 8000, 4.2  # rows up to which a factor costs less than iterations; for each pair of rows
_SURE = 20_000  # flat rows, whose kernel takes seconds: no plan is asked for them
_VECTORS = 4200  # bytes for each row: pivots of a preconditioner, and vectors
_NAME = 16  # letters of a folder of a store
_LOOSE = 1e-2  # residuals that are warned of
TIGHT, _SLACK = 1e-4, 1e-3  # residuals that iterations end with, at the least and at the most
_BESIDE = 3e-3  # residuals, beside errors of rows that were left out


class Within(NamedTuple):
    """What may be used: bytes (None: half of what is free), a folder for kernels, and who computes them.

    `variances`: whether these will be asked of the solution, which needs a factor.
    """

    memory: int | None = None
    variances: bool = False
    store: Path | None = None
    backend: AbstractBackend | None = None

    @classmethod
    def of(cls, memory: Any, variances: bool, store: Any, backend: Any) -> "Within":
        """Checked, as users give it."""
        if not isinstance(store, str | Path | None):
            raise InputError(f"store={store!r}: expected None or a folder.")
        if not isinstance(backend, AbstractBackend | None):
            raise InputError(f"backend={backend!r}: expected everwide.scale.Devices() or everwide.scale.Dask(client).")
        if store is None and not isinstance(backend, Devices | None):
            raise InputError(f"backend={type(backend).__name__} needs store=, a folder that all of its workers see.")
        return cls(bytes_of(memory), variances, None if store is None else Path(store), backend)

    def doubles(self, n: int, most: int | None = None) -> bool:
        """Whether so many rows are solved for in float64."""
        return n <= (DOUBLE if most is None else most) and BYTES * n**2 <= budget(self.memory)


@dataclass(frozen=True)
class Slim:
    """What stays of a solution of many rows: neither the kernel nor a factor, which fill the memory."""

    kernel: KernelOperator  # keeps no tiles
    coefficients: Float[np.ndarray, "n k"]  # 0 for rows that are no centres
    centres: Int[np.ndarray, " m"] | None  # None: all rows
    without: Float[np.ndarray, "n k"]
    report: Any
    ridge: float

    @classmethod
    def of(cls, solution: Any) -> "Slim":
        """Leave-one-out is computed while the kernel is there."""
        blocks, n = replace(solution.kernel.blocks, stored=None), len(solution.kernel)
        centres, whole = solution.centres, np.zeros_like(solution.problem.y)
        whole[centres] = solution.coefficients
        some = None if len(centres) == n else centres
        light = KernelOperator(blocks, memory=0)
        return cls(light, whole, some, solution.left_out(), solution.report, solution.ridge)

    def left_out(self) -> Float[np.ndarray, "n k"]:
        """Every row, predicted from all others."""
        return self.without

    def predict(self, new: np.ndarray) -> Float[np.ndarray, "new k"]:
        """In bounded memory."""
        some = self.coefficients if self.centres is None else self.coefficients[self.centres]
        return self.kernel.predict(new, some, self.centres)


class OnAll(NamedTuple):
    """A solution for all rows, the mean of the kernel's diagonal, and in which precision the kernel is computed."""

    solution: Any
    unit: float
    dtype: type


def solved_on_all(
    reader: KernelReader,
    task: Task,
    ridge: float,
    within: Within,
    start: Float[np.ndarray, "n k"] | None = None,
    unit: float = 0.0,
    tolerance: float = TIGHT,
) -> OnAll:
    """By the solver that rows, network and memory ask for.

    Args:
        reader: of the kernel.
        task: all rows.
        ridge: relative.
        within: what may be used.
        start: coefficients from which iterations begin.
        unit: of the ridge; 0: the mean of the kernel's diagonal.
        tolerance: of the residual, where there are iterations.

    """
    have, n = budget(within.memory), len(task.x)
    how = _solver(reader, task, within, have)
    unit = unit or float(np.average(reader.diagonal(task.x), weights=task.weights)) or 1.0
    if isinstance(how, SingleCholesky | ConjugateGradients):
        ridge = max(ridge, _LEAST * n**0.5)
    if isinstance(how, ConjugateGradients):
        how = replace(how, start=start, tolerance=tolerance, left_out=True)
    dtype = np.float32 if ridge >= SAFE_IN_FLOAT32 else np.float64
    kernel = _operator(reader, task.x.astype(dtype), within, have)
    solution: Any = solve(kernel, task.y, ridge=ridge * unit, weights=task.weights, copies=task.left, solver=how)
    if (residual := solution.report.residual) > _LOOSE:
        warn(
            f"{solution.report.solver} ended with a residual of {residual:.1g} ({solution.report.stopped_by}): take a "
            "larger relative_ridge, or fewer rows (max_rows).",
            UserWarning,
        )
    return OnAll(solution if isinstance(how, Leaves) else Slim.of(solution), unit, dtype)


def tolerance_of(errors: Float[np.ndarray, " m"], task: Task) -> float:
    """Residuals that are small beside the squared errors of rows that were left out."""
    size = float(np.average(np.sum(task.y**2, axis=1), weights=task.weights))
    relative = np.sqrt(np.average(errors, weights=task.weights) / size) if size > 0 else 0.0
    return float(np.clip(_BESIDE * relative, TIGHT, _SLACK))


def _operator(reader: KernelReader, x: np.ndarray, within: Within, have: int) -> KernelOperator:
    """One triangle in memory if it fits, else in the store, else computed for each product."""
    n, store = len(x), None
    if within.store is not None and not (_is_kept(n, have) and isinstance(within.backend, Devices | None)):
        folder = within.store / fingerprint(reader.network, reader.which, x)[:_NAME]  # rows and networks do not mix
        store = Store(folder, triangle=True)
    memory = max(have - _VECTORS * n, 0)
    return operator(reader.network, x, which=reader.which, memory=memory, out=store, backend=within.backend)


def _is_kept(n: int, have: int) -> bool:
    return 2 * n**2 + _VECTORS * n <= have


def _solver(reader: KernelReader, task: Task, within: Within, have: int) -> Any:
    """Exact while that takes an hour at the most, or in a store; a plan is asked where that is not sure."""
    n, flat = len(task.x), task.x.ndim == 2
    sure = (flat and n <= _SURE and _is_kept(n, have)) or within.store is not None
    if not sure:
        shape, outputs = task.x.shape[1:], task.y.shape[1]
        chosen = plan(reader.network, n, shape, which=reader.which, outputs=outputs, memory=have).chosen
        if not chosen.exact:
            return chosen.solver
    return SingleCholesky() if n <= _FACTORED and _FACTOR_BYTES * n**2 <= have else ConjugateGradients()


def told(members: Sequence[Member], n: int, ridge: float = 0.0) -> str:
    """A sentence: which solver, how many rows, and how it went; `ridge`: that was asked for, relative."""
    first, reports = members[0].solution, [member.solution.report for member in members]
    name = " and ".join(dict.fromkeys(report.solver for report in reports))
    several = f"{len(members)} networks, " if len(members) > 1 else ""
    steps, residual = (max(getattr(report, part) for report in reports) for part in ("iterations", "residual"))
    parts = [
        *([f"{steps} iterations"] if steps else []),
        *([f"residual {residual:.1e}"] if np.isinf(getattr(first, "time", np.inf)) else ["stopped early"]),
        duration(sum(report.seconds for report in reports) / 60),
        f"{human(sum(report.bytes for report in reports))} held",
    ]
    more = " Leave-one-out is estimated." if any(report.left_out != "exact" for report in reports) else ""
    if isinstance(first, Slim) and first.centres is not None:
        more += f" It is approximate: {len(first.centres)} rows stand for all."
    if isinstance(first, Slim) and members[0].relative_ridge > 1.001 * ridge:
        more += f" The ridge is {members[0].relative_ridge:.1g} instead of {ridge:.1g}, as kernels are kept in float32."
    return f"{several}{name} on {n} rows: {', '.join(parts)}.{more}"


def grown(member: Member, whole: Task, within: Within) -> tuple[Member, type]:
    """For all rows again, old and new, with the ridge that was chosen; and the precision of the kernel.

    Iterations begin with the coefficients of the old rows, which come first.
    """
    reader, unit = member.reader, member.scale if member.exact else member.unit
    if not isinstance(reader, KernelReader):
        solution, unit = solved_in_leaves(reader, whole, member.relative_ridge, USUAL.leaf)
        return replace(member, solution=solution, scale=1.0, unit=unit, exact=False), np.float64
    start = np.zeros_like(whole.y)
    if member.exact or isinstance(member.solution, Slim):
        start[: len(member.coefficients)] = member.coefficients
    solution, unit, dtype = solved_on_all(reader, whole, member.relative_ridge, within, start, unit)
    return replace(member, solution=solution, scale=1.0, unit=unit, exact=False), dtype
