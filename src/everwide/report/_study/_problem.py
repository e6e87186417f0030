"""A table made ready: the network that was chosen, and the rows on which kernels are computed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..._engine import Gram
from ..._gram import gram
from ...estimators import WideClassifier, WideRegressor
from ...layers import AbstractLayer
from ...tables import Table
from ._nets import asked_network

_HELD_OUT = 0.25  # of the rows with kernels
_LEAST_RIDGE = 1e-8  # of the mean diagonal: what rounding asks for


class Compared(NamedTuple):
    """Finite networks that are trained: rows of each, how many, steps."""

    rows: int
    seeds: int
    steps: int


@dataclass(frozen=True)
class Limits:
    """How much of the data every part of the report looks at."""

    kernel_rows: int
    validation_rows: int
    folds: int
    compared: Compared


FULL = Limits(1000, 3000, 5, Compared(64, 3, 200))
QUICK = Limits(400, 480, 3, Compared(32, 2, 64))


@dataclass(frozen=True, eq=False)
class Problem:
    """A table, the network that was chosen for it, and what the parts of the report share.

    - `asked`: what estimators are given as `architecture`. `input_shape`: into which they fold a row, if they do.
    - `rows`: of the table, at random, for everything that needs a kernel. `estimator`: fitted to them.
    - `net`: the network of that estimator. `x`: the rows as the network reads them.
    - `train`, `held`: places in `rows`.
    """

    table: Table
    asked: AbstractLayer | str
    input_shape: tuple[int, ...] | None
    rows: Int[np.ndarray, " n"]
    estimator: Any
    net: AbstractLayer
    x: Float[np.ndarray, "n *shape"]
    train: Int[np.ndarray, " train"]
    held: Int[np.ndarray, " held"]
    limits: Limits
    seed: int

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes; `None` for numbers."""
        return self.table.classes

    @cached_property
    def labels(self) -> np.ndarray:
        """The target of every row with a kernel, as the table has it."""
        return known_target(self.table)[self.rows]

    @cached_property
    def means(self) -> Float[np.ndarray, " outputs"]:
        """What was subtracted from the outputs."""
        return self._outputs.mean(0)

    @cached_property
    def y(self) -> Float[np.ndarray, "n outputs"]:
        """What the network learns: centred indicators of the classes, or centred numbers of unit variance."""
        centred = self._outputs - self.means
        return centred if self.classes else centred / max(float(centred.std()), np.finfo(np.float64).tiny)

    @cached_property
    def _outputs(self) -> Float[np.ndarray, "n outputs"]:
        if not self.classes:
            return self.labels.astype(np.float64)[:, None]
        return np.eye(len(self.classes))[self.labels.astype(np.int64)][:, np.unique(self.labels.astype(np.int64))]

    @cached_property
    def kernel(self) -> Gram:
        """Both kernels of the rows, in float64."""
        return gram(self.net, self.x)

    @property
    def ridge(self) -> float:
        """Of the kernel's mean diagonal; what stops after a time t learns about what a ridge of 1/t leaves to learn."""
        choice = self.estimator.choice_
        return max(choice.relative_ridge, 1 / choice.relative_time if choice.relative_time > 0 else 0.0, _LEAST_RIDGE)

    def new(self, make: Callable[..., Any], architecture: AbstractLayer | str | None = None) -> Any:
        """A new estimator of this kind, with the architecture that was asked for, or another."""
        chosen = self.asked if architecture is None else architecture
        return make(chosen, input_shape=self.input_shape, random_state=self.seed)


def known_target(table: Table) -> np.ndarray:
    """The target of a table that has one."""
    if table.y is None:
        raise ValueError(f"{table.source} has no target: a report is about what a network learns. Name a column.")
    return table.y


def prepared(table: Table, net: AbstractLayer | str | None, limits: Limits, seed: int) -> Problem:
    """Choose rows and a network."""
    y = known_target(table)
    asked, shape = asked_network(net, table)
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(y))[: limits.kernel_rows])
    make = WideClassifier if table.classes else WideRegressor
    estimator = make(asked, input_shape=shape, random_state=seed).fit(table.x[rows], y[rows])
    order = rng.permutation(len(rows))
    held = max(1, round(_HELD_OUT * len(rows)))
    return Problem(
        table=table,
        asked=asked,
        input_shape=shape,
        rows=rows,
        estimator=estimator,
        net=estimator.network_,
        x=np.asarray(estimator.transform_inputs(table.x[rows]), np.float64),
        train=np.sort(order[held:]),
        held=np.sort(order[:held]),
        limits=limits,
        seed=seed,
    )
