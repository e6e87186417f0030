"""The solver that rows, memory and kind of data ask for."""

from dataclasses import dataclass, field

from .._engine import KernelOperator, RowBlocks, budget
from ._conjugate import ConjugateGradients
from ._large import AbstractLargeSolution, AbstractLargeSolver, Watch
from ._leaves import Leaves
from ._nystrom import Nystrom
from ._single import SingleCholesky
from ._solvers import Problem

_FACTORED = 8000  # rows up to which a factor costs less than iterations, and leave-one-out is exact
_BYTES = 4.2  # of a factor, for each pair of rows
_TABLE = 100  # columns up to which rows are those of a table, whose neighbours tell most


@dataclass(frozen=True)
class Auto(AbstractLargeSolver):
    """`SingleCholesky` for few rows, `ConjugateGradients` while a triangle can be kept, then `Leaves` or `Nystrom`.

    Leaves are for tables, of up to 100 columns; `everwide.plan` says what each would cost.

    Args:
        memory: bytes that may be used; None: half of what is free.
        progress: handed on.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.solve(np.eye(3), np.ones(3), ridge=1.0, solver=sp.Auto()).report.solver
    'cholesky, float32'
    """

    memory: int | None = None
    progress: Watch | None = field(default=None, repr=False)

    def __call__(self, kernel: KernelOperator, problem: Problem) -> AbstractLargeSolution:
        return self.chosen(kernel)(kernel, problem)

    def chosen(self, kernel: KernelOperator) -> AbstractLargeSolver:
        """The solver for this kernel."""
        n, have = len(kernel), budget(self.memory)
        if n <= _FACTORED and _BYTES * n**2 <= have:
            return SingleCholesky(progress=self.progress)
        if kernel.keeps and kernel.bytes <= have:
            return ConjugateGradients(progress=self.progress)
        rows = kernel.blocks.x if isinstance(kernel.blocks, RowBlocks) else None
        if rows is not None and rows.ndim == 2 and rows.shape[1] <= _TABLE:
            return Leaves(progress=self.progress)
        return Nystrom(progress=self.progress)
