"""The infinitely wide network, and what the others are measured by."""

from typing import NamedTuple

import numpy as np

from .._checks import InputError
from .._gram import ntk
from ..signal import Parametrization
from ..spectral import Spectrum, gradient_descent
from ._finite import Trained
from ._problem import Problem, on_host
from ._result import Curves


class Limit(NamedTuple):
    """How the infinitely wide network learns, and its kernels of training and test with training examples."""

    spectrum: Spectrum
    rate: float
    kernel: np.ndarray
    test_kernel: np.ndarray


class Measured(NamedTuple):
    """Curves `(seeds, steps)`, and test outputs after the last step, `(seeds, m, outputs)`."""

    curves: Curves
    finite: np.ndarray
    infinite: np.ndarray


def limit_of(problem: Problem, width: int, rate: float | None) -> Limit:
    """The analytic kernels, in float64; in the standard parametrization they depend on the width."""
    law, x = problem.parametrization, on_host(problem.x)
    fixed = width if law is Parametrization.STANDARD else None
    kernel = ntk(problem.net, x, parametrization=law, width=fixed)
    cross = ntk(problem.net, on_host(problem.x_test), x, parametrization=law, width=fixed)
    spectrum = Spectrum.of(kernel, what="The tangent kernel of x")
    largest = float(spectrum.values[-1])
    if rate is None and largest <= 0:
        raise InputError("The tangent kernel of x is zero: all layers are frozen, or all inputs are. Pass rate=.")
    return Limit(spectrum, 1 / largest if rate is None else float(rate), kernel, cross)


def measure(problem: Problem, limit: Limit, trained: Trained) -> Measured:
    """Set trained networks of one width beside their limit and their linearizations."""
    with np.errstate(over="ignore", invalid="ignore"):  # networks may diverge, and the result says so
        return _measure(problem, limit, trained)


def _measure(problem: Problem, limit: Limit, trained: Trained) -> Measured:
    train, test = (np.asarray(values, np.float64) for values in (trained.train, trained.test))
    residual = problem.y - train[:, 0]  # (seeds, n, outputs)
    steps = gradient_descent(limit.rate * len(problem.y), problem.steps)
    at_limit = lambda cross: np.stack([cross @ limit.spectrum.apply(steps, r) for r in residual])
    linear = [
        np.concatenate([kernel, cross]) @ Spectrum.of(kernel).apply(steps, r.reshape(-1, 1), len(problem.y))
        for kernel, cross, r in zip(np.asarray(trained.kernel), np.asarray(trained.test_kernel), residual, strict=True)
    ]
    split = train[0, 0].size
    linear_train = np.stack(linear)[:, :, :split].reshape(train.shape)
    linear_test = np.stack(linear)[:, :, split:].reshape(test.shape)
    start_train, start_test = train[:, :1], test[:, :1]
    infinite = start_test + at_limit(limit.test_kernel)
    error = lambda outputs: np.mean((outputs - problem.y) ** 2, (-2, -1))
    gap = lambda other: np.sqrt(np.mean((test - other) ** 2, (-2, -1)))
    curves = Curves(
        loss_finite=error(train),
        loss_infinite=error(start_train + at_limit(limit.kernel)),
        loss_linearized=error(start_train + linear_train),
        gap_infinite=gap(infinite),
        gap_linearized=gap(start_test + linear_test),
        kernel_change=np.asarray(trained.kernel_change, np.float64),
        movement=np.asarray(trained.movement, np.float64),
        relative_movement=np.asarray(trained.relative_movement, np.float64),
    )
    return Measured(curves, test[:, -1], infinite[:, -1])
