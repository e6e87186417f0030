"""The infinitely wide network, and what the others are measured by."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._checks import InputError
from .._engine import Rows
from .._gram import ntk
from ..kernel import Edges, Inputs
from ..layers import AbstractLayer
from ..signal import Parametrization
from ..spectral import Spectrum, gradient_descent
from ._finite import Trained
from ._result import Curves


@dataclass(frozen=True)
class Problem:
    """A network, its data, and the steps at which one looks, from 0 on."""

    net: AbstractLayer
    x: Rows
    y: np.ndarray  # (n, outputs), float64
    x_test: Rows
    steps: tuple[int, ...]
    parametrization: Parametrization


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
    law, x = problem.parametrization, _on_host(problem.x)
    fixed = width if law is Parametrization.STANDARD else None
    kernel = ntk(problem.net, x, parametrization=law, width=fixed)
    cross = ntk(problem.net, _on_host(problem.x_test), x, parametrization=law, width=fixed)
    spectrum = Spectrum.of(kernel, what="The tangent kernel of x")
    largest = float(spectrum.values[-1])
    if rate is None and largest <= 0:
        raise InputError("The tangent kernel of x is zero: all layers are frozen, or all inputs are. Pass rate=.")
    return Limit(spectrum, len(kernel) / largest if rate is None else rate, kernel, cross)


def _on_host(rows: Rows) -> Inputs:
    """The examples in float64, for analytic kernels."""
    graph = Edges(*rows.graph) if isinstance(rows.graph, tuple) else rows.graph
    return Inputs(rows.x.astype(np.float64), rows.mask, graph)


def measure(problem: Problem, limit: Limit, trained: Trained) -> Measured:
    """Set trained networks of one width beside their limit and their linearizations."""
    with np.errstate(over="ignore", invalid="ignore"):  # networks may diverge, and the result says so
        return _measure(problem, limit, trained)


def _measure(problem: Problem, limit: Limit, trained: Trained) -> Measured:
    y, (train, test) = problem.y, (np.asarray(values, np.float64) for values in (trained.train, trained.test))
    residual = y - train[:, 0]  # (seeds, n, outputs)
    steps = gradient_descent(limit.rate, problem.steps)

    def at_limit(cross: np.ndarray) -> np.ndarray:
        return np.stack([cross @ limit.spectrum.apply(steps, r) for r in residual])

    linear = [
        np.concatenate([kernel, cross]) @ Spectrum.of(kernel).apply(steps, r.reshape(-1, 1), rows=len(y))
        for kernel, cross, r in zip(np.asarray(trained.kernel), np.asarray(trained.test_kernel), residual, strict=True)
    ]
    linear_train = np.stack(linear)[:, :, : y.size].reshape(train.shape)
    linear_test = np.stack(linear)[:, :, y.size :].reshape(test.shape)
    start_train, start_test = train[:, :1], test[:, :1]
    infinite = start_test + at_limit(limit.test_kernel)
    curves = Curves(
        loss_finite=_mean_square(train - y),
        loss_infinite=_mean_square(start_train + at_limit(limit.kernel) - y),
        loss_linearized=_mean_square(start_train + linear_train - y),
        gap_infinite=np.sqrt(_mean_square(test - infinite)),
        gap_linearized=np.sqrt(_mean_square(test - start_test - linear_test)),
        kernel_change=np.asarray(trained.kernel_change, np.float64),
        movement=np.asarray(trained.movement, np.float64),
        relative_movement=np.asarray(trained.relative_movement, np.float64),
    )
    return Measured(curves, test[:, -1], infinite[:, -1])


def _mean_square(outputs: np.ndarray) -> np.ndarray:
    return np.mean(outputs**2, (-2, -1))
