"""The one door to all solvers of kernel systems: arguments are checked here, and kernels made what a solver reads."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

import numpy as np
from jaxtyping import Float

from .._checks import InputError, finite_array, not_negative, row_weights, warn
from .._engine import KernelError, KernelOperator, as_operator, checked_kernel
from ._large import AbstractLargeSolver
from ._solvers import AbstractSolution, Decomposed, Factored, Problem, cholesky, eigen

Solution = TypeVar("Solution", bound=AbstractSolution)
Solver = Callable[[Float[np.ndarray, "n n"], Problem], Solution]
LargeSolver = Callable[[KernelOperator, Problem], Solution]
SOLVERS: dict[str, Solver[Any]] = {"cholesky": cholesky, "eigen": eigen}


@overload
def solve(
    kernel: Any,
    y: Any,
    *,
    ridge: float = ...,
    weights: Any = ...,
    copies: Any = ...,
    solver: Literal["cholesky"] = ...,
    overwrite: bool = ...,
) -> Factored: ...
@overload
def solve(
    kernel: Any,
    y: Any,
    *,
    ridge: float = ...,
    weights: Any = ...,
    copies: Any = ...,
    solver: Literal["eigen"],
    overwrite: bool = ...,
) -> Decomposed: ...
@overload
def solve(
    kernel: Any,
    y: Any,
    *,
    ridge: float = ...,
    weights: Any = ...,
    copies: Any = ...,
    solver: Solver[Solution] | LargeSolver[Solution],
    overwrite: bool = ...,
) -> Solution: ...
def solve(
    kernel: Any,
    y: Any,
    *,
    ridge: float = 0.0,
    weights: Any = None,
    copies: Any = None,
    solver: str | Solver[Any] | LargeSolver[Any] = "cholesky",
    overwrite: bool = False,
) -> Factored | Decomposed | AbstractSolution:
    """Kernel ridge regression `(K + ridge / w) a = y`, with everything that follows from one factorization.

    Args:
        kernel: `(n, n)`, of the training rows: a matrix, or `everwide.operator(net, x)`, which is never whole.
        y: targets, `(n,)` or `(n, k)`.
        ridge: absolute, added to the diagonal. Where the matrix cannot be inverted, the least jitter is added too,
            with a warning from `"cholesky"` where it is above the ridge.
        weights: `(n,)`, above 0: a row of weight `w` counts as `w` rows. None: all are 1.
        copies: `(n,)`: how many rows each one stands for, of which leave-one-out leaves out one. None: 1 each.
        solver: `"cholesky"`, or `"eigen"`, whose solution answers for other ridges and for gradient flow: `at`; one for
            many rows, such as `ConjugateGradients()`; or a function. It gets the kernel, float64 and symmetric, which
            it may use up, and the problem, checked: `y` `(n, k)`, `weights` and `copies` `(n,)`, `ridge`, and `scale`,
            the mean of the kernel's diagonal. It returns a solution, of which `coefficients`, `report` and `ridge` are
            asked; iterative ones end there.
        overwrite: a float64 kernel is used up, and not checked.

    Returns:
        A solution: `coefficients` `(n, k)`; `report` (solver, residual, iterations, jitter, seconds, bytes, whether
        leave-one-out is exact or estimated, what stopped it); `ridge`. Those for many rows have `left_out()`,
        `along(ridges)`, `centres`, to which the coefficients belong, and `predict(new)`. Of the solvers with a name
        also `left_out()` and `left_out_variance()`, each row from all others, exactly; `variance(cross, own)` of a
        Gaussian process at other rows; `solve(b)`; `precision()`. With `"cholesky"`, `extended` adds rows.

    >>> import everwide.spectral as sp, numpy as np
    >>> solution = sp.solve(np.eye(2) + 1, np.array([1.0, 4.0]), ridge=1.0)
    >>> solution.coefficients.ravel()
    array([-0.125,  1.375])
    >>> solution.left_out().ravel()  # 4 * 1 / 3, and 1 * 1 / 3
    array([1.33333333, 0.33333333])

    """
    chosen = solver if callable(solver) else SOLVERS.get(solver)
    if chosen is None:
        raise InputError(f"solver={solver!r}: expected one of {', '.join(map(repr, SOLVERS))}, or a solver.")
    large = isinstance(chosen, AbstractLargeSolver)
    if large:
        matrix: Any = as_operator(kernel if isinstance(kernel, KernelOperator) else _checked_shape(kernel))
    elif isinstance(kernel, KernelOperator):
        matrix = kernel.dense(np.float64)
    else:
        matrix = kernel if overwrite else checked_kernel(kernel)
    solution = chosen(matrix, _problem(matrix, y, ridge, weights, copies))
    if chosen is cholesky and not overwrite and solution.jitter > solution.ridge:
        warn(
            f"The kernel with ridge={solution.ridge:g} is singular up to rounding: {solution.jitter:.1g} was added to "
            "its diagonal (report.jitter). Are rows equal? Give a larger ridge, or fold copies into one row.",
            UserWarning,
        )
    return solution


def _problem(matrix: Any, y: Any, ridge: Any, weights: Any, copies: Any) -> Problem:
    n, targets = len(matrix), finite_array(y, "y")
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2 or len(targets) != n:
        raise InputError(f"y has shape {np.shape(y)}, expected ({n},) or ({n}, outputs).")
    own = matrix.diagonal()
    if not np.isfinite(own).all():
        raise KernelError(f"The kernel holds {own[~np.isfinite(own)][0]} on its diagonal. Compute it from finite data.")
    each, copies = row_weights(weights, n), row_weights(copies, n, "copies")
    scale = float(np.average(own, weights=each))
    return Problem(targets, each, copies, not_negative(ridge, "ridge"), scale if scale > 0 else 1.0)


def _checked_shape(kernel: Any) -> Any:
    shape = np.shape(kernel)
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise KernelError(f"The kernel has shape {shape}, expected (n, n): training rows with themselves.")
    return np.asarray(kernel)
