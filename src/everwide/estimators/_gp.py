"""Uncertainty of wide networks: what Bayesian ones leave open, and where trained ones disagree."""

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from .._checks import InputError
from ._candidates import KernelReader, batches
from ._learn import Learned, Task


def log_density(solution: Any, task: Task) -> Float[np.ndarray, " n"]:
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
        reader, scale, seen, own = learned.reader, learned.scale, learned.task.x, _diagonals(learned.reader, x)
        return np.concatenate(
            [
                learned.solution.variance(reader.cross(x[rows], seen, learned.dtype) / scale, own[rows] / scale)
                for rows in batches(len(x), len(seen))
            ]
        )


@dataclass(frozen=True)
class Disagreement(AbstractUncertainty):
    """Between networks that are trained to the end from different random weights (Lee et al. 2019)."""

    drawn: KernelReader  # of the outputs at initialization
    among: Float[np.ndarray, "n n"]  # training rows, in units of the tangent kernel's scale

    @classmethod
    def of(cls, learned: Learned) -> "Disagreement":
        """Of a network that was trained with its tangent kernel."""
        drawn = KernelReader(learned.reader.network, "nngp", learned.reader.rounds)
        return cls(drawn, drawn.among(learned.task.x, learned.dtype) / learned.scale)

    def left_out(self, learned: Learned) -> Float[np.ndarray, " n"]:
        return learned.solution.ensemble_left_out_variance(self.among)

    def at(self, learned: Learned, x: np.ndarray) -> Float[np.ndarray, " n"]:
        scale, seen, own = learned.scale, learned.task.x, _diagonals(self.drawn, x)
        parts = []
        for rows in batches(len(x), len(seen)):
            cross, start = (
                reader.cross(x[rows], seen, learned.dtype) / scale for reader in (learned.reader, self.drawn)
            )
            moved = learned.solution.solve(cross.T)
            parts.append(np.sum(moved * (self.among @ moved), axis=0) - 2 * np.sum(start.T * moved, axis=0))
        return np.maximum(own / scale + np.concatenate(parts), 0.0)


def _diagonals(reader: KernelReader, x: np.ndarray) -> Float[np.ndarray, " n"]:
    return np.concatenate([reader.diagonal(x[rows]) for rows in batches(len(x), 1)])


def uncertainty_of(which: str, learned: Learned) -> AbstractUncertainty:
    """By the name of the kernel."""
    return Disagreement.of(learned) if which == "ensemble" else Posterior()


def noise_of(which: str, learned: Learned) -> Float[np.ndarray, " n"] | None:
    """The variance of each target around the function, where the kernel's ridge is one."""
    if which == "ensemble":
        return None
    return learned.choice.relative_ridge * learned.task.copies / learned.task.weights


def checked_which(which: Any) -> Any:
    """Whose uncertainty: of a Gaussian process with one of two kernels, or of an ensemble."""
    if which not in ("nngp", "ntk", "ensemble"):
        raise InputError(
            f"which={which!r}: expected 'nngp' (a Bayesian network), 'ntk' (the process of the tangent kernel) or "
            "'ensemble' (trained networks)."
        )
    return which
