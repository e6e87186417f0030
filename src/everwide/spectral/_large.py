"""Kernel systems of many rows: what all of their solvers share. A solver is a value that `solve` calls."""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._engine import KernelOperator, Progress
from ._solvers import AbstractSolution, Problem

Watch = Callable[[Progress], None]


class Interrupted(KeyboardInterrupt):
    """A solver that was stopped from outside: `coefficients` are those so far, from which it can go on.

    >>> import everwide.spectral as sp
    >>> issubclass(sp.Interrupted, KeyboardInterrupt)
    True
    """

    def __init__(self, message: str, coefficients: Float[np.ndarray, "n k"]):
        KeyboardInterrupt.__init__(self, message)
        self.coefficients = coefficients


class AbstractLargeSolver(abc.ABC):
    """A solver that reads a kernel tile by tile: `solve` hands it an operator, whatever it was given."""

    @abc.abstractmethod
    def __call__(self, kernel: KernelOperator, problem: Problem) -> "AbstractLargeSolution":
        """Solve `(K + ridge / w) a = y`."""


@dataclass(frozen=True)
class AbstractLargeSolution(AbstractSolution):
    """Coefficients of some rows, the `centres`: predictions are `k(x, X[centres]) @ coefficients`."""

    kernel: KernelOperator

    @property
    @abc.abstractmethod
    def centres(self) -> Int[np.ndarray, " m"]:
        """Rows that the coefficients belong to."""

    @abc.abstractmethod
    def left_out(self) -> Float[np.ndarray, "n k"]:
        """The prediction of every row from all others; `report.left_out` says whether it is exact or estimated."""

    @abc.abstractmethod
    def along(self, ridges: Sequence[float]) -> "list[Any]":
        """Solutions at other ridges, for one pass over the kernel."""

    @abc.abstractmethod
    def predict(self, new: np.ndarray) -> Float[np.ndarray, "new k"]:
        """At other rows, in bounded memory, where the kernel is one of rows."""


def with_ridge(problem: Problem, ridge: float) -> Problem:
    """The same rows with another ridge."""
    return problem._replace(ridge=float(ridge))
