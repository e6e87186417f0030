"""Uncertainty of wide networks: what Bayesian ones leave open, and where trained ones disagree."""

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ._learn import Learned, Task
from ._modes import with_other_copies
from ._reader import KernelReader, batches
from ._solution import AbstractSolution

KERNELS = ("nngp", "ensemble")


def log_density(solution: AbstractSolution, task: Task) -> Float[np.ndarray, " n"]:
    """Minus the logarithm of the density of each target, given all others, in a Gaussian process of fitted amplitude.

    Rasmussen and Williams 2006, section 5.4.2. Up to constants.
    """
    variance = solution.left_out_variance() + solution.ridge * task.copies / task.weights
    squares = (task.y - solution.left_out()) ** 2 / variance[:, None]
    amplitude = np.maximum(np.average(squares, axis=0, weights=task.weights), np.finfo(np.float64).tiny)
    return 0.5 * np.sum(np.log(amplitude) + np.log(variance)[:, None] + squares / amplitude, axis=1)


class AbstractUncertainty(abc.ABC):
    """The variance of a network's outputs, for a kernel of mean diagonal 1."""

    @abc.abstractmethod
    def left_out(self, learned: Learned) -> Float[np.ndarray, " n"]:
        """At every row, given all others."""

    @abc.abstractmethod
    def at(self, learned: Learned, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """At new rows, as the network reads them."""


@dataclass(frozen=True)
class Posterior(AbstractUncertainty):
    """Of a Gaussian process, given the targets."""

    def left_out(self, learned: Learned) -> Float[np.ndarray, " n"]:
        return learned.solution.left_out_variance()

    def at(self, learned: Learned, x: np.ndarray) -> Float[np.ndarray, " n"]:
        reader, solution, scale = learned.reader, learned.solution, learned.solution.scale
        explained = []
        for rows in batches(len(x), len(learned.task.x)):
            cross = reader.cross(x[rows], learned.task.x, learned.dtype) / scale
            explained.append(np.sum(cross.T * solution.solve(cross.T), axis=0))
        return np.maximum(_diagonals(reader, x) / scale - np.concatenate(explained), 0.0)


@dataclass(frozen=True)
class Disagreement(AbstractUncertainty):
    """Between networks that are trained to the end from different random weights (Lee et al. 2019)."""

    drawn: KernelReader  # of the outputs at initialization
    among: Float[np.ndarray, "n n"]  # training rows, in units of the tangent kernel's scale

    @classmethod
    def of(cls, learned: Learned) -> "Disagreement":
        """Of a network that was trained with its tangent kernel."""
        drawn = KernelReader(learned.reader.network, "nngp", learned.reader.rounds)
        return cls(drawn, drawn.among(learned.task.x, learned.dtype) / learned.solution.scale)

    def left_out(self, learned: Learned) -> Float[np.ndarray, " n"]:
        """Training moves outputs at a row by what the others' residuals say: the rest of the random start stays."""
        solution, precision, weights = learned.solution, learned.solution.precision(), learned.task.weights
        solved = solution.solve(self.among)
        without = np.maximum(np.diagonal(solution.solve(solved.T)) / precision**2, 0.0)
        one, left = np.ones((len(weights), 1)), solution.ridge / weights * precision
        share = with_other_copies(one, np.zeros_like(one), left, learned.task.copies)[:, 0]
        return share**2 * without

    def at(self, learned: Learned, x: np.ndarray) -> Float[np.ndarray, " n"]:
        solution, scale, seen = learned.solution, learned.solution.scale, learned.task.x
        found = []
        for rows in batches(len(x), len(seen)):
            moved = solution.solve(learned.reader.cross(x[rows], seen, learned.dtype).T / scale)
            start = self.drawn.cross(x[rows], seen, learned.dtype) / scale
            found.append(np.sum(moved * (self.among @ moved), axis=0) - 2 * np.sum(start.T * moved, axis=0))
        return np.maximum(_diagonals(self.drawn, x) / scale + np.concatenate(found), 0.0)


def _diagonals(reader: KernelReader, x: np.ndarray) -> Float[np.ndarray, " n"]:
    return np.concatenate([reader.diagonal(x[rows]) for rows in batches(len(x), 1)])


def uncertainty_of(kernel: str, learned: Learned) -> AbstractUncertainty:
    """By the name of the kernel."""
    return Posterior() if kernel == "nngp" else Disagreement.of(learned)


def noise_of(kernel: str, learned: Learned) -> Float[np.ndarray, " n"] | None:
    """The variance of each target around the function, where the kernel's ridge is one."""
    return learned.choice.ridge * learned.task.copies / learned.task.weights if kernel == "nngp" else None


def checked_kernel_name(kernel: Any) -> str:
    """One of `KERNELS`."""
    if kernel not in KERNELS:
        raise ValueError(f"kernel={kernel!r}: expected 'nngp' (a Bayesian network) or 'ensemble' (trained networks).")
    return kernel
