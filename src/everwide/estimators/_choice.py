"""What an estimator is asked, what it may choose from, and what it has chosen and learned."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ._readers import Looking, Reader, Which, batches
from ._scaling import counted


class Task(NamedTuple):
    """What is to be learned: inputs, scaled targets, weights above 0, of which `copies` are repetitions.

    Inputs are the user's, folded; then scaled; then as the network reads them. `left`: as `copies`, but 1 where
    leave-one-out leaves out all copies of a row.
    """

    x: Float[np.ndarray, "n *shape"]
    y: Float[np.ndarray, "n k"]
    weights: Float[np.ndarray, " n"]
    copies: Float[np.ndarray, " n"]
    left: Float[np.ndarray, " n"]

    def rows(self, at: Int[np.ndarray, " m"]) -> "Task":
        """Some of them."""
        return Task(*(part[at] for part in self))


class Goal(NamedTuple):
    """What the user has fixed, `None` is to be chosen; and `score`: for each row, the smaller the better."""

    which: Which
    ridge: float | None  # relative, as is the time
    time: float | None
    score: Callable[[Any, Task], Float[np.ndarray, " n"]]
    scored_by: str
    robust: bool = False  # targets of tables that lie far off may be drawn near

    def mean(self, solution: Any, task: Task) -> float:
        """The score of all rows."""
        return float(np.average(self.score(solution, task), weights=task.weights))

    @property
    def stops(self) -> bool:
        """Whether training ends at a time that the user has fixed."""
        return self.time is not None and bool(np.isfinite(self.time))


class Candidate(NamedTuple):
    """A network, and in words what it is. The first family is preferred until another one is clearly better."""

    reader: Reader
    description: str
    depth: int | None
    activation: str | None
    frozen: int | None
    family: int


@dataclass(frozen=True)
class Choice:
    """The network and its training that an estimator has chosen on its training rows: `choice_`, after `fit`."""

    description: str  # of the network, or of all that are added
    depth: int | None  # hidden layers; None for a network that was given, and for several
    activation: str | None
    frozen: int | None  # hidden layers that are not trained
    which: str  # kernel is solved for: "ntk" or "nngp"
    relative_ridge: float  # in units of the mean of the kernel's diagonal
    relative_time: float  # of gradient flow, in units of its inverse
    score: float  # the smaller, the better: what was minimized
    scored_by: str
    jitter: float  # what had to be added to the diagonal, in units of its mean
    tried: int  # combinations that were compared
    rows: int  # that are learned from
    rows_compared: int  # on which networks were compared
    notes: tuple[str, ...] = ()  # sentences on what was done to rows, columns and targets, and on rare classes
    solver: str = field(default="", compare=False)  # a sentence: which one, rows, iterations, residual, seconds, bytes

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: an endless time is null."""
        return asdict(self) | {"relative_time": None if math.isinf(self.relative_time) else self.relative_time}

    def __str__(self) -> str:
        time = self.relative_time
        until = "to the end" if math.isinf(time) else f"for the time {time:.3g}"
        frozen = f", the first {self.frozen} of them frozen" if self.frozen and self.frozen != self.depth else ""
        frozen = ", only the last layer trained" if self.frozen and self.frozen == self.depth else frozen
        lines = [
            f"{self.description}{frozen}",
            f"{self.which} kernel, ridge {self.relative_ridge:.2g}, trained {until}, on {self.rows} rows",
            f"{self.scored_by} {self.score:.4g}: {self.tried} were tried, compared on {self.rows_compared} rows",
        ]
        if self.jitter:
            lines.append(f"jitter {self.jitter:.2g} was added to the diagonal")
        lines += [self.solver] if self.solver else []
        return "\n".join([*lines, *self.notes])


@dataclass(frozen=True)
class Member:
    """A network that has learned the task, by a solution of `everwide.spectral.solve` in units of `scale`."""

    candidate: Candidate
    solution: Any
    scale: float  # the mean of the kernel's diagonal, by which it was divided
    share: float = 1.0  # of its outputs in the sum
    unit: float = 1.0  # the mean of the diagonal of what was solved
    exact: bool = True  # all rows at once; otherwise the solution knows how to predict

    @property
    def reader(self) -> Reader:
        """Its kernel."""
        return self.candidate.reader

    @cached_property
    def left_out(self) -> Float[np.ndarray, "n k"]:
        """Every row, predicted from all others, without the share."""
        return self.solution.left_out()

    @property
    def coefficients(self) -> Float[np.ndarray, "n k"]:
        """Of the kernel with the rows learned from, without the share."""
        return self.solution.coefficients / self.scale

    @property
    def relative_ridge(self) -> float:
        """In units of the mean of the kernel's diagonal."""
        return float(self.solution.ridge / self.unit)

    @property
    def jitter(self) -> float:
        """What had to be added to the diagonal, in units of its mean."""
        return float(self.solution.jitter if self.exact else self.solution.report.jitter / self.unit)

    def outputs(self, x: Float[np.ndarray, "m *shape"], learned: "Learned") -> Float[np.ndarray, "m k"]:
        """At new rows, without the share."""
        if not self.exact:
            return self.solution.predict(x.astype(learned.dtype, copy=False))
        seen = learned.task.x
        parts = [self.reader.cross(x[rows], seen, learned.dtype) for rows in batches(len(x), len(seen))]
        return np.concatenate([part @ self.coefficients for part in parts])


class Honest(NamedTuple):
    """Predictions of some rows by kernels that had learned nothing from them."""

    rows: Int[np.ndarray, " m"]
    outputs: Float[np.ndarray, "m k"]


@dataclass(frozen=True)
class Learned:
    """Networks that have learned a task together: their outputs are added, each with its share."""

    members: tuple[Member, ...]
    task: Task
    choice: Choice
    dtype: type
    honest: Honest | None = None  # where kernels have learned from rows: what they say of rows that they have not seen

    @property
    def first(self) -> Member:
        """The one with the largest share."""
        return max(self.members, key=lambda member: member.share)

    @property
    def importances(self) -> Float[np.ndarray, " d"] | None:
        """The share of each column in what first layers see; None where these look at no columns."""
        total = np.zeros(self.task.x.shape[-1])
        for member in self.members:
            if not isinstance(member.reader, Looking):
                return None
            total += member.share * member.reader.importances
        return total / max(float(total.sum()), np.finfo(np.float64).tiny)

    @cached_property
    def left_out(self) -> Float[np.ndarray, "n k"]:
        """Every row, predicted from all others."""
        total = np.zeros_like(self.task.y)
        for member in self.members:
            total += member.share * member.left_out
        if self.honest is not None:
            total[self.honest.rows] = self.honest.outputs
        return total

    @property
    def judged(self) -> Int[np.ndarray, " m"]:
        """Rows whose predictions from all others are as good as those of new rows."""
        return np.arange(len(self.task.x)) if self.honest is None else self.honest.rows

    def each(self, x: Float[np.ndarray, "m *shape"]) -> Float[np.ndarray, "members m k"]:
        """Outputs of the networks at new rows."""
        return np.stack([member.outputs(x, self) for member in self.members])

    def outputs(self, x: Float[np.ndarray, "m *shape"]) -> Float[np.ndarray, "m k"]:
        """Their sum, each with its share."""
        return np.einsum("s,smk->mk", np.array([member.share for member in self.members]), self.each(x))


def is_clear(gains: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"], *, errors: float) -> bool:
    """Whether rows gain on average, by more than so many standard errors."""
    mean = np.average(gains, weights=weights)
    error = np.sqrt(np.average((gains - mean) ** 2, weights=weights) / counted(weights))
    return bool(mean > errors * error)
