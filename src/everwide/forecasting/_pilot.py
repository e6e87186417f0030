"""A labelled pilot sample: its kernel, its ridge, and its own learning curve, measured."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .._checks import InputError
from .._kernel_matrix import checked_kernel
from ..spectral import Factor, Spectrum, solve
from ._labels import Targets

_RIDGES = 10.0 ** np.arange(-9, 2.01, 0.5)  # times the mean of the kernel's diagonal
_ORDERS, _FEWEST_ORDERS = 200, 8  # random orders in which the pilot is learned
_LARGE = 600  # rows from which there are fewer, as each takes longer
_SMALLEST_SIZE = 16
_SIZES = 9


@dataclass(frozen=True)
class Measured:
    """The learning curve inside the pilot, at `sizes`; `(orders, sizes)`. `wrong`: shares of wrong classes.

    `row_errors`, `row_wrong`: of each row, learned from all others.
    """

    sizes: np.ndarray
    errors: Float[np.ndarray, "orders sizes"]
    wrong: Float[np.ndarray, "orders sizes"]
    row_errors: Float[np.ndarray, " rows"]
    row_wrong: Float[np.ndarray, " rows"]
    variance: float  # of the targets
    chance: float  # the share of wrong classes without learning
    ridge: float

    @property
    def rows(self) -> int:
        """Of the pilot."""
        return len(self.row_errors)


def measure(given: np.ndarray, y: Targets, ridge: float | None, seed: int) -> Measured:
    """Learn the pilot in random orders; the ridge, if not given, has the smallest leave-one-out error."""
    kernel = checked_kernel(given)
    _check_useful(kernel)
    rows = len(kernel)
    if len(y.values) != rows:
        raise InputError(f"y has {len(y.values)} rows and x {rows}: they must agree.")
    scale = float(np.mean(np.diagonal(kernel)))
    ridges = _RIDGES * scale if ridge is None else np.array([ridge])
    chosen, left_out = _leave_one_out(given, ridges, y.values)
    sizes = np.unique(np.geomspace(max(_SMALLEST_SIZE, rows / 16), 0.85 * rows, _SIZES).astype(int))
    rng = np.random.default_rng(seed)
    orders = min(_ORDERS, max(_FEWEST_ORDERS, _ORDERS * _LARGE**2 // rows**2))
    curves = [_one_order(kernel, y, chosen, sizes, rng.permutation(rows)) for _ in range(orders)]
    errors, wrong = (np.stack(part) for part in zip(*curves, strict=True))
    residuals = y.values - left_out
    return Measured(
        sizes, errors, wrong, np.mean(residuals**2, axis=1), y.wrong(left_out), y.variance, y.chance, chosen
    )


def _leave_one_out(given: np.ndarray, ridges: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The ridge with the smallest error, and the predictions of each row from all others.

    No ridge is so small that the matrix with its rounding is not safely definite.
    """
    Spectrum.check(given)
    solved = solve(given, y, solver="eigen")
    smallest, largest = float(solved.spectrum.values[0]), float(solved.spectrum.values[-1])
    least = 4 * len(y) * float(np.finfo(np.float64).eps) * largest + 2 * max(-smallest, 0.0)
    guesses = {ridge: solved.at(ridge).left_out() for ridge in np.maximum(ridges, least).tolist()}
    best = min(guesses, key=lambda ridge: float(np.mean((y - guesses[ridge]) ** 2)))
    return best, guesses[best]


def _one_order(
    kernel: np.ndarray, y: Targets, ridge: float, sizes: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Errors on the rows that come after the first `size` of an order, for every size, from one factorization.

    The leading block of a Cholesky factor is the factor of the leading block, so that the prediction of later rows from
    the first `s` is `L[later, :s] z[:s]`, with `z = L^-1 y`: a running sum.
    """
    ordered, targets = kernel[np.ix_(order, order)], y.values[order]
    ordered[np.diag_indices_from(ordered)] += ridge
    factor = Factor.with_jitter(ordered)
    solved, lower = factor.whiten(targets), factor.lower
    predicted, before = np.zeros_like(targets), 0
    errors, wrong = np.empty(len(sizes)), np.empty(len(sizes))
    for at, size in enumerate(sizes):
        predicted = predicted + lower[:, before:size] @ solved[before:size]
        errors[at] = np.mean((predicted[size:] - targets[size:]) ** 2)
        wrong[at] = np.mean(y.wrong(predicted[size:], order[size:]))
        before = size
    return errors, wrong


def check_pilot(rows: int, fewest: int) -> None:
    """Raise on a pilot from which nothing can be said."""
    if rows < fewest:
        raise InputError(
            f"The pilot has {rows} labelled rows; a forecast needs at least {fewest}, to see how the error falls "
            "from a sixteenth of them to all. Label more rows."
        )


def _check_useful(kernel: np.ndarray) -> None:
    """Raise on a kernel that is the same for all pairs of rows."""
    if np.ptp(kernel) <= 1e-12 * np.abs(kernel).max():
        raise InputError("The kernel is the same for all pairs of rows: they cannot be told apart. Is x constant?")
