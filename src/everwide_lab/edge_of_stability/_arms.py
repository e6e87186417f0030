"""Optimizers at several rates, and a network that each of them trains, looked at on the way."""

import enum
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from everwide import Dense, InputError, Serial, Tanh
from everwide.diagnosis import hessian, preconditioner
from everwide.theory.stability import edge
from everwide.training import Mse, SoftmaxCrossEntropy

from .._digits import digits
from .._training import Params, compiled

MOMENTUM, B1, EPS = 0.9, 0.9, 1e-7
READOUT = 0.1  # w_std of the last layer: outputs begin near 0, so that sharpening is training's work
_TOLERANCE = 1e-3  # of eigenvalues


class Optimizer(enum.StrEnum):
    """What takes the steps.

    >>> from everwide_lab.edge_of_stability._arms import Optimizer
    >>> Optimizer.ADAM.value
    'Adam'
    """

    DESCENT = "gradient descent"
    MOMENTUM = "momentum"
    ADAM = "Adam"


class Arm(NamedTuple):
    """An optimizer, its rate, and which loss falls: half the square, or cross-entropy."""

    optimizer: Optimizer
    rate: float
    squared: bool = True

    @property
    def edge(self) -> float:
        """The curvature above which its steps grow; for Adam, of the preconditioned Hessian."""
        momentum = MOMENTUM if self.optimizer is Optimizer.MOMENTUM else 0.0
        return edge(self.rate, momentum=momentum, b1=B1 if self.optimizer is Optimizer.ADAM else 0.0)

    @property
    def loss(self) -> Mse | SoftmaxCrossEntropy:
        """Of one row."""
        return Mse() if self.squared else SoftmaxCrossEntropy()

    def rule(self) -> optax.GradientTransformation:
        """Of optax."""
        if self.optimizer is Optimizer.ADAM:
            return optax.adam(self.rate, b1=B1, eps=EPS)
        return optax.sgd(self.rate, momentum=MOMENTUM if self.optimizer is Optimizer.MOMENTUM else None)

    def __str__(self) -> str:
        return f"{self.optimizer.value}{'' if self.squared else ', cross-entropy'}, rate {self.rate:g}"


ARMS = (
    *(Arm(Optimizer.DESCENT, rate) for rate in (0.6, 0.45, 0.35)),
    *(Arm(Optimizer.MOMENTUM, rate) for rate in (1.0, 0.7)),
    *(Arm(Optimizer.ADAM, rate) for rate in (0.01, 0.005)),
    Arm(Optimizer.DESCENT, 2.0, squared=False),
)


class Course(NamedTuple):
    """One run: what was seen at some of its steps. It ends early where its loss is no number any more.

    - `steps`, `losses`; `sharpness`: the largest eigenvalue of the Hessian, for Adam of the preconditioned one; `raw`:
      without preconditioning. `rises`: the share of the steps since the look before after which the loss was higher.
      `finished`: whether it did not diverge.
    """

    steps: np.ndarray
    losses: np.ndarray
    sharpness: np.ndarray
    raw: np.ndarray
    rises: np.ndarray
    finished: bool


def network(outputs: int) -> Serial:
    """Two hidden layers of hyperbolic tangents, as in the paper's first experiments."""
    return Serial(Dense(), Tanh(), Dense(), Tanh(), Dense(outputs, w_std=READOUT))


def follow(arm: Arm, *, n: int, width: int, steps: int, looks: int, seed: int) -> dict[str, Any]:
    """Train one network by all rows, and look at it now and then: the fields of a `Course`, as lists."""
    rows, dtype = digits(n, seed), jax.dtypes.canonicalize_dtype(np.float64)
    y = rows.targets().astype(dtype) if arm.squared else rows.labels
    x, net = jnp.asarray(rows.x, dtype), network(10)
    params = net.init(jr.key(seed), x.shape[1:], width=width, parametrization="standard")
    training, vector, kept = Training(net, arm, x, jnp.asarray(y)), None, {name: [] for name in Course._fields[:-1]}
    state, taken = training.begin(params), 0
    for step in times(steps, looks):
        state = _taken(training, state._replace(rises=jnp.zeros((), jnp.int32)), jnp.asarray(step - taken))
        if not np.isfinite(float(state.loss)):
            break
        op: Any = hessian(net.apply, state.params, x, y, loss=arm.loss)
        raw = op.leading(1, start=vector, tolerance=_TOLERANCE)
        sharp, vector = float(raw.values[0]), raw.vectors[:, 0]
        if arm.optimizer is Optimizer.ADAM:
            flat = preconditioner(state.memory, eps=EPS)
            sharp = float(op.preconditioned(flat).leading(1, tolerance=_TOLERANCE).values[0])
        risen, taken = int(state.rises) / (step - taken), step
        for name, value in zip(kept, (step, float(state.loss), sharp, float(raw.values[0]), risen), strict=True):
            kept[name].append(value)
    if not taken:
        raise InputError(f"{arm}: the loss is not finite at the first look. Take wider networks, or more rows.")
    return kept | {"finished": taken == steps}


def times(steps: int, looks: int) -> list[int]:
    """Half of the looks are dense at the beginning, where sharpness rises; half are evenly spread."""
    early, late = np.geomspace(2, steps, looks - looks // 2), np.linspace(0, steps, looks // 2 + 1)[1:]
    return sorted({max(1, round(float(step))) for step in (*early, *late)})


class State(NamedTuple):
    """Parameters, what the optimizer remembers, the loss and the gradient there; steps that led upwards."""

    params: Params
    memory: Any
    loss: Float[Array, ""]
    gradient: Params
    rises: Int[Array, ""]


class Training(eqx.Module):
    """All rows at every step."""

    net: Serial
    arm: Arm = eqx.field(static=True)
    x: Float[Array, "n d"]
    y: Array

    def begin(self, params: Params) -> State:
        """Before the first step."""
        return State(params, self.arm.rule().init(params), *self._slope(params), jnp.zeros((), jnp.int32))

    def step(self, here: State) -> State:
        """One step."""
        updates, memory = self.arm.rule().update(here.gradient, here.memory, here.params)
        params: Any = optax.apply_updates(here.params, updates)
        loss, gradient = self._slope(params)
        return State(params, memory, loss, gradient, here.rises + (loss > here.loss).astype(jnp.int32))

    def _slope(self, params: Params) -> tuple[Array, Params]:
        def value(now: Params) -> Array:
            return jnp.mean(jax.vmap(self.arm.loss)(jax.vmap(self.net.apply, (None, 0))(now, self.x), self.y))

        return jax.value_and_grad(value)(params)


@compiled
def _taken(training: Training, state: State, steps: Int[Array, ""]) -> State:
    return lax.fori_loop(0, steps, lambda _, here: training.step(here), state)
