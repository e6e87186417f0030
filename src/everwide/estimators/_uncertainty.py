"""Uncertainty of wide networks: what Bayesian ones leave open, where trained ones disagree, and how that is matched.

Probabilities and widths are fitted to what rows look like from all others.
"""

import abc
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float, Int

from .._checks import InputError
from ._choice import Learned, Member, Task, is_clear
from ._readers import Reader, batches
from ._scaling import counted

_SHARPEST = np.log(1e4)
_LOUD, _LOUDEST = 100.0, 1e6  # times the function's own variance: what noise may be, beside a guess and without one
_PROBIT = np.pi / 8  # a logistic function, blurred by a Gaussian, is nearly a logistic function again (MacKay 1992)


@dataclass(frozen=True)
class Temperature:
    """`softmax(sharpness * outputs)`, less sharp where outputs are uncertain."""

    sharpness: float

    @classmethod
    def of(
        cls,
        outputs: Float[np.ndarray, "n k"],
        variance: Float[np.ndarray, "#n 1"],
        classes: Int[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
    ) -> "Temperature":
        """With the largest likelihood of rows that were predicted from all others.

        As many rows as there are classes could have been of any class: so perfect separation stays finite (Platt 1999).
        """
        n, k = outputs.shape
        doubt = k / (counted(weights) + k)
        targets = np.full((n, k), doubt / k)
        targets[np.arange(n), classes] += 1 - doubt

        def loss(log_sharpness: float) -> float:
            logits = _logits(np.exp(log_sharpness), outputs, variance)
            return float(-np.sum(weights[:, None] * targets * scipy.special.log_softmax(logits, axis=1)))

        grid = np.linspace(-_SHARPEST / 2, _SHARPEST, 40)
        near = grid[int(np.argmin([loss(point) for point in grid]))]
        step = grid[1] - grid[0]
        best = scipy.optimize.fminbound(loss, near - step, near + step)
        return cls(float(np.exp(best)))

    def __call__(self, outputs: Float[np.ndarray, "n k"], variance: Float[np.ndarray, "#n 1"]) -> np.ndarray:
        return scipy.special.softmax(_logits(self.sharpness, outputs, variance), axis=1)


def _logits(sharpness: float, outputs: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return sharpness * outputs / np.sqrt(1 + _PROBIT * sharpness**2 * variance)


@dataclass(frozen=True)
class Spread:
    """Variances `amplitude * (v + noise)` of targets, where `v` is the variance of the function for amplitude 1."""

    amplitude: Float[np.ndarray, " k"]
    noise: Float[np.ndarray, " k"]

    @classmethod
    def of(
        cls,
        residuals: Float[np.ndarray, "n k"],
        variance: Float[np.ndarray, " n"],
        noise: Float[np.ndarray, " n"] | None,
        weights: Float[np.ndarray, " n"],
        *,
        certain: bool = True,
    ) -> "Spread":
        """With the largest likelihood of residuals of rows that were predicted from all others.

        `noise`: of the rows, for amplitude 1, where it is known; `None` is chosen too, one number for each output.
        Noise that is not `certain` is chosen where that is clearly better.
        """
        share = weights / weights.sum()
        tiny = np.finfo(np.float64).tiny
        if noise is not None:
            amplitude = share @ (residuals**2 / (variance + noise)[:, None])
            known = cls(np.maximum(amplitude, tiny), np.full(residuals.shape[1], float(np.median(noise))))
            return known if certain else known._or_chosen(residuals, variance, weights)
        return cls._chosen(residuals, variance, share, _LOUDEST)

    @classmethod
    def _chosen(cls, residuals: np.ndarray, variance: np.ndarray, share: np.ndarray, most: float) -> "Spread":
        parts = [_two_parts(column**2, variance, share, most) for column in residuals.T]
        amplitude, noise = (np.array(part) for part in zip(*parts, strict=True))
        return cls(np.maximum(amplitude, np.finfo(np.float64).tiny), noise)

    def _or_chosen(self, residuals: np.ndarray, variance: np.ndarray, weights: np.ndarray) -> "Spread":
        """Another noise, where it makes residuals more likely by more than two standard errors.

        It may not drown the function: near rows tell little of how uncertain it is far from all of them.
        """
        other = self._chosen(residuals, variance, weights / weights.sum(), _LOUD)
        gain = (self._losses(residuals, variance) - other._losses(residuals, variance)).sum(1)
        return other if is_clear(gain, weights, errors=2) else self

    def _losses(self, residuals: np.ndarray, variance: np.ndarray) -> Float[np.ndarray, "n k"]:
        """Minus the logarithms of densities, up to constants."""
        std = np.maximum(self.std(variance), np.finfo(np.float64).tiny ** 0.25)
        return np.log(std) + (residuals / std) ** 2 / 2

    def std(self, variance: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
        """Of targets."""
        return np.sqrt(self.amplitude * (np.maximum(variance, 0)[:, None] + self.noise))


def _two_parts(squares: np.ndarray, variance: np.ndarray, share: np.ndarray, most: float) -> tuple[float, float]:
    typical = max(float(share @ variance), np.finfo(np.float64).tiny)

    def fit(log_noise: float) -> tuple[float, float]:
        total = variance + typical * np.exp(log_noise)
        amplitude = max(float(share @ (squares / total)), np.finfo(np.float64).tiny)
        return float(np.log(amplitude) + share @ np.log(total)), amplitude

    grid = np.linspace(np.log(1e-6), np.log(most), 61)
    best = min(grid, key=lambda point: fit(point)[0])
    return fit(best)[1], typical * float(np.exp(best))


def weighted_quantile(
    values: Float[np.ndarray, "n k"], copies: Float[np.ndarray, " n"], share: float
) -> Float[np.ndarray, " k"]:
    """The least value of each column that a new one stays below with this probability (Vovk et al. 2005)."""
    n = counted(copies)
    needed = min(np.ceil((n + 1) * share * (1 - 1e-12)) / n, 1.0) * copies.sum()  # but for rounding
    order = np.argsort(values, axis=0)
    reached = np.cumsum(copies[order], axis=0) >= needed * (1 - 1e-12)
    place = np.where(reached.any(0), np.argmax(reached, axis=0), len(values) - 1)
    return np.take_along_axis(np.take_along_axis(values, order, 0), place[None], 0)[0]


def log_density(solution: Any, task: Task) -> Float[np.ndarray, " n"]:
    """Minus the logarithm of the density of each target, given all others, in a Gaussian process of fitted amplitude.

    Rasmussen and Williams 2006, section 5.4.2. Up to constants.
    """
    variance = solution.left_out_variance() + solution.ridge * task.copies / task.weights
    squares = (task.y - solution.left_out()) ** 2 / variance[:, None]
    amplitude = np.maximum(np.average(squares, axis=0, weights=task.weights), np.finfo(np.float64).tiny)
    return 0.5 * np.sum(np.log(amplitude) + np.log(variance)[:, None] + squares / amplitude, axis=1)


class AbstractUncertainty(abc.ABC):
    """The variance of one network's outputs, for a kernel of mean diagonal 1."""

    @abc.abstractmethod
    def left_out(self, member: Member) -> Float[np.ndarray, " n"]:
        """At every row, given all others."""

    @abc.abstractmethod
    def at(self, member: Member, learned: Learned, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """At new rows, as the network reads them."""

    @abc.abstractmethod
    def noise(self, member: Member, task: Task) -> Float[np.ndarray, " n"] | None:
        """The variance of each target around the function, where the kernel's ridge is one."""


@dataclass(frozen=True)
class Posterior(AbstractUncertainty):
    """Of a Gaussian process, given the targets."""

    def left_out(self, member: Member) -> Float[np.ndarray, " n"]:
        return member.solution.left_out_variance()

    def at(self, member: Member, learned: Learned, x: np.ndarray) -> Float[np.ndarray, " n"]:
        reader, scale, seen, own = member.reader, member.scale, learned.task.x, _diagonals(member.reader, x)
        return np.concatenate(
            [
                member.solution.variance(reader.cross(x[rows], seen, learned.dtype) / scale, own[rows] / scale)
                for rows in batches(len(x), len(seen))
            ]
        )

    def noise(self, member: Member, task: Task) -> Float[np.ndarray, " n"]:
        return member.solution.ridge * task.copies / task.weights


@dataclass(frozen=True)
class Disagreement(AbstractUncertainty):
    """Between networks that are trained to the end from different random weights (Lee et al. 2019)."""

    drawn: Reader  # of the outputs at initialization
    among: Float[np.ndarray, "n n"]  # training rows, in units of the tangent kernel's scale

    @classmethod
    def of(cls, member: Member, learned: Learned) -> "Disagreement":
        """Of a network that was trained with its tangent kernel."""
        drawn = replace(member.reader, which="nngp")
        return cls(drawn, drawn.among(learned.task.x, learned.dtype) / member.scale)

    def left_out(self, member: Member) -> Float[np.ndarray, " n"]:
        return member.solution.ensemble_left_out_variance(self.among)

    def at(self, member: Member, learned: Learned, x: np.ndarray) -> Float[np.ndarray, " n"]:
        scale, seen, own = member.scale, learned.task.x, _diagonals(self.drawn, x)
        parts = []
        for rows in batches(len(x), len(seen)):
            cross, start = (
                reader.cross(x[rows], seen, learned.dtype) / scale for reader in (member.reader, self.drawn)
            )
            moved = member.solution.solve(cross.T)
            parts.append(np.sum(moved * (self.among @ moved), axis=0) - 2 * np.sum(start.T * moved, axis=0))
        return np.maximum(own / scale + np.concatenate(parts), 0.0)

    def noise(self, member: Member, task: Task) -> None:
        return None


@dataclass(frozen=True)
class Together:
    """Of networks whose outputs are added: what each leaves open, and how far they are apart.

    - `sizes`: the variance of each network's outputs in units of its kernel.
    """

    parts: tuple[AbstractUncertainty, ...]
    sizes: Float[np.ndarray, " members"]

    def left_out(self, learned: Learned) -> Float[np.ndarray, " n"]:
        """At every row, given all others."""
        own = [part.left_out(member) for part, member in zip(self.parts, learned.members, strict=True)]
        return self._mixed(np.stack(own), np.stack([member.left_out for member in learned.members]), learned)

    def at(self, learned: Learned, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """At new rows, as the networks read them."""
        own = [part.at(member, learned, x) for part, member in zip(self.parts, learned.members, strict=True)]
        apart = learned.each(x) if len(own) > 1 else np.zeros((1, len(x), 1))
        return self._mixed(np.stack(own), apart, learned)

    def noise(self, learned: Learned) -> Float[np.ndarray, " n"] | None:
        """The variance of each target around the function, where ridges are noise."""
        each = [part.noise(member, learned.task) for part, member in zip(self.parts, learned.members, strict=True)]
        known = [noise for noise in each if noise is not None]
        return (weights_of(learned) * self.sizes) @ np.stack(known) if len(known) == len(each) else None

    @property
    def certain(self) -> bool:
        """Whether that noise is the ridge of one network; several that are added err less than each, or more."""
        return len(self.parts) == 1

    def _mixed(self, own: np.ndarray, outputs: np.ndarray, learned: Learned) -> Float[np.ndarray, " n"]:
        """A mixture: the mean of variances, and the variance of means."""
        weights = weights_of(learned)
        mean = np.einsum("s,smk->mk", weights, outputs)
        apart = np.einsum("s,smk->m", weights, (outputs - mean) ** 2) / outputs.shape[2]
        return (weights * self.sizes) @ own + apart


def weights_of(learned: Learned) -> Float[np.ndarray, " members"]:
    """Shares, together 1."""
    each = np.array([member.share for member in learned.members])
    return each / each.sum()


def _diagonals(reader: Reader, x: np.ndarray) -> Float[np.ndarray, " n"]:
    return np.concatenate([reader.diagonal(x[rows]) for rows in batches(len(x), 1)])


def uncertainty_of(which: str, learned: Learned) -> Together:
    """By the name of the kernel. A single network has the size 1: the spread of targets is matched later."""
    members = learned.members
    parts = tuple(Disagreement.of(one, learned) if which == "ensemble" else Posterior() for one in members)
    if len(members) == 1:
        return Together(parts, np.ones(1))
    return Together(parts, np.array([_size(*pair, learned) for pair in zip(parts, members, strict=True)]))


def _size(part: AbstractUncertainty, member: Member, learned: Learned) -> float:
    """As large as its residuals."""
    task, rows, noise = learned.task, learned.judged, part.noise(member, learned.task)
    variance = part.left_out(member) + (0.0 if noise is None else noise)
    squares = np.mean((task.y - member.left_out) ** 2, axis=1)
    ratio = np.average((squares / np.maximum(variance, np.finfo(np.float64).tiny))[rows], weights=task.weights[rows])
    return max(float(ratio), np.finfo(np.float64).tiny)


def checked_which(which: Any) -> Any:
    """Whose uncertainty: of a Gaussian process with one of two kernels, or of an ensemble."""
    if which not in ("nngp", "ntk", "ensemble"):
        raise InputError(
            f"which={which!r}: expected 'nngp' (a Bayesian network), 'ntk' (the process of the tangent kernel) or "
            "'ensemble' (trained networks)."
        )
    return which
