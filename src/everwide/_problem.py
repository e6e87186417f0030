"""A table and a network made ready for each other: what the report and the command line speak of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from ._checks import InputError
from ._engine import Gram
from ._gram import gram
from ._presets import PRESETS
from ._trees import name
from ._walk import unfrozen, walk
from ._words import listed
from .estimators import WideClassifier, WideRegressor
from .forecasting import forecast
from .layers import AbstractLayer
from .signal import ArchitectureError, Signal
from .tables import Table

T = TypeVar("T")
_HELD_OUT = 0.25  # of the rows with kernels
_LEAST_RIDGE = 1e-8  # of the mean diagonal: what rounding asks for


class Limits(NamedTuple):
    """How much is looked at: rows with kernels, rows and folds of cross-validation; of networks, `seeds` and steps."""

    n_kernel: int
    n_validation: int
    folds: int
    seeds: int
    steps: int


FULL = Limits(1000, 3000, 5, seeds=3, steps=2000)
QUICK = Limits(400, 480, 3, seeds=2, steps=500)


@dataclass(frozen=True, eq=False)
class Problem:
    """A table, the network that was chosen for it, and what all answers about them share. Made by `prepare`.

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
    _shared: dict[Any, Any] = field(default_factory=dict, init=False)

    @property
    def quick(self) -> bool:
        """Whether fewer rows and folds were asked for."""
        return self.limits.folds == QUICK.folds

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes; `None` for numbers."""
        return self.table.classes

    @property
    def adds(self) -> bool:
        """Whether predictions are those of several networks, added: theory reads a single one, `net`."""
        return isinstance(self.asked, str) and self.asked == "auto" and self.table.x.ndim == 2

    @property
    def network(self) -> str:
        """In words: what was chosen, what a preset is, or the layers of a network that was given."""
        if isinstance(self.asked, str):
            chosen = str(self.estimator.choice_).splitlines()[0]
            return f"{self.asked}: {PRESETS[self.asked]}" if self.asked in PRESETS else chosen
        layers = [name(visit.layer) for visit in walk(self.asked) if not visit.parts.layers]
        return f"given network: {listed(layers, most=12)}"

    def number(self, rows: Int[np.ndarray, " some"]) -> Int[np.ndarray, " some"]:
        """Which rows of the file those of the table are, counted from 1, without its line of names."""
        return 1 + (rows if self.table.rows is None else self.table.rows[rows])

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

    @property
    def unit(self) -> float:
        """Of the outputs, in those of the target: the standard deviation of numbers; 1 for classes."""
        return 1.0 if self.classes else float(self.labels.std())

    @cached_property
    def _outputs(self) -> Float[np.ndarray, "n outputs"]:
        if not self.classes:
            return self.labels.astype(np.float64)[:, None]
        codes = self.labels.astype(np.int64)
        return np.eye(len(self.classes))[codes][:, np.unique(codes)]

    @cached_property
    def kernel(self) -> Gram:
        """Both kernels of the rows, in float64."""
        return gram(self.net, self.x)

    @property
    def relative_ridge(self) -> float:
        """Of the mean diagonal; what stops after a time t learns about what a ridge of 1/t leaves to learn."""
        choice = self.estimator.choice_
        return max(choice.relative_ridge, 1 / choice.relative_time if choice.relative_time > 0 else 0.0, _LEAST_RIDGE)

    def ridge(self, kernel: Float[np.ndarray, "n n"]) -> float:
        """What is added to the diagonal of this kernel."""
        return self.relative_ridge * float(np.mean(np.diagonal(kernel)))

    def forecast(self, n: Any = None, *, of: str = "kernel", width: int | None = None, progress: Any = None) -> Any:
        """What `everwide.forecasting` says of `n` rows: of classes, or of numbers as the network learns them.

        Of a "network", all layers are trained, whichever the kernel had chosen.
        """
        y = self.labels.astype(np.int64) if self.classes else self.y[:, 0]
        if of == "kernel":
            return forecast(self.kernel.ntk, None, y, n, task=self.table.task, seed=self.seed)
        how = {"task": self.table.task, "seed": self.seed, "width": width, "progress": progress}
        return forecast(unfrozen(self.net), self.x, y, n, of="network", **how)

    def new(self, make: Callable[..., Any], architecture: AbstractLayer | str | None = None) -> Any:
        """A new estimator of this kind, with the architecture that was asked for, or another."""
        chosen = self.asked if architecture is None else architecture
        return make(chosen, input_shape=self.input_shape, random_state=self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Of what an answer speaks, in plain types."""
        n, there = len(self.rows), self.table.n
        drawn = [] if n == there else [f"{n} of {there} rows were drawn at random."]
        return {
            "data": self.table.source,
            "n": n,
            "task": self.table.task,
            "network": self.network,
            "notes": [*self.table.notes, *drawn],
        }

    def once(self, compute: Callable[["Problem"], T]) -> T:
        """What several answers need: computed for the first of them."""
        if compute not in self._shared:
            self._shared[compute] = compute(self)
        return self._shared[compute]


def known_target(table: Table) -> np.ndarray:
    """The target of a table that has one."""
    if table.y is None:
        raise InputError(f"{table.source} has no target: nothing says what a network is to learn. Name a column.")
    return table.y


def shape_for(net: AbstractLayer | str, table: Table) -> tuple[int, ...]:
    """The shape in which a network reads an example of this table: flat rows become images where they must."""
    flat = tuple(table.x.shape[1:])
    if isinstance(net, str):
        return flat if net in ("auto", "mlp") else tuple(table.shape)
    faults = []
    for shape in (flat, tuple(table.shape)):
        try:
            net.describe(Signal(shape))
        except ArchitectureError as fault:
            faults.append(fault)
        else:
            return shape
    raise faults[0]


def prepare(
    table: Table, net: AbstractLayer | str = "auto", *, quick: bool = False, most: int | None = None, seed: int = 0
) -> Problem:
    """Choose rows (`most` of them, if there are more) and a network, and scale the rows for it."""
    y, shape = known_target(table), shape_for(net, table)
    limits = QUICK if quick else FULL
    limits = limits if most is None else limits._replace(n_kernel=most)
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(y))[: limits.n_kernel])
    folded = None if shape == tuple(table.x.shape[1:]) else shape
    make = WideClassifier if table.classes else WideRegressor
    single = "dense" if isinstance(net, str) and net == "auto" and len(shape) == 1 else net  # that theory can read
    estimator = make(single, input_shape=folded, random_state=seed).fit(table.x[rows], y[rows])
    order = rng.permutation(len(rows))
    held = max(1, round(_HELD_OUT * len(rows)))
    return Problem(
        table=table,
        asked=net,
        input_shape=folded,
        rows=rows,
        estimator=estimator,
        net=estimator.network_,
        x=np.asarray(estimator.transform_inputs(table.x[rows]), np.float64),
        train=np.sort(order[held:]),
        held=np.sort(order[:held]),
        limits=limits,
        seed=seed,
    )
