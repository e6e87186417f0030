"""Finite networks as people train them: all layers, minibatches, an optimizer of optax, early stopping."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ._checks import InputError, whole
from ._engine import Progress, Rows, as_rows
from ._losses import AbstractLoss, Loss, SoftmaxCrossEntropy, as_loss
from .kernel import Example
from .layers import AbstractLayer
from .signal import ArchitectureError, Parametrization, Signal

Params = Any

_TOGETHER = 256  # rows that go through a network at once, outside of training
_FEWEST_STEPS = 20  # between two looks at the held-out rows, which otherwise lie one pass over the rows apart
_LARGEST = float(np.finfo(np.float32).max)
_TIE = 1e-3  # of a loss, beside a share of wrong rows
_RATE = 1e-3  # of Adam, as most people leave it


class Trained(NamedTuple):
    """Networks at the step at which they were best on their held-out rows; one entry a network.

    - `outputs`: for all rows of `x`, those that were not learned among them.
    - `loss`: of minibatches, a mean over the last steps.
    - `held_score`: the smallest of the held-out rows, a loss; with softmax cross-entropy the share of wrong classes,
      where a thousandth of the loss decides between equals. `steps`: until then.
    - `diverged`: the training loss ended above that of the held-out rows before training, or was not finite.
    - `before`, `after`: parameters, for `net.apply`.
    """

    outputs: Float[np.ndarray, "networks rows outputs"]
    loss: Float[np.ndarray, " networks"]
    held_score: Float[np.ndarray, " networks"]
    steps: Int[np.ndarray, " networks"]
    diverged: Bool[np.ndarray, " networks"]
    before: tuple[Params, ...]
    after: tuple[Params, ...]


class Part(NamedTuple):
    """Places of rows, of which the first `size` count: padded, so that sets of many sizes share a program."""

    places: Int[Array | np.ndarray, " padded"]
    size: Int[Array | np.ndarray, ""]


class Plan(eqx.Module):
    """What the program of a network depends on."""

    net: AbstractLayer
    loss: AbstractLoss
    optimizer: Any
    width: int | None = eqx.field(static=True)
    parametrization: Parametrization = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def first(self, key: Array, rows: Example) -> Params:
        """The parameters before training."""
        return self.net.init(key, rows.x.shape[1:], width=self.width, parametrization=self.parametrization)

    def outputs(self, params: Params, rows: Example) -> Float[Array, "rows outputs"]:
        """For every row, a few at a time."""
        return lax.map(lambda one: self.net.apply(params, one), rows, batch_size=_TOGETHER)

    def held_out(self, params: Params, rows: Example, y: Array, part: Part) -> Float[Array, "2"]:
        """Means over the rows of a part: what is to be smallest, and the loss. A few rows at a time, and no others.

        Classes are told apart better while their cross-entropy rises already, so that what counts is the share that is
        wrong; the loss decides between equals.
        """
        together, counts = min(_TOGETHER, len(part.places)), isinstance(self.loss, SoftmaxCrossEntropy)

        def add(at: Array, total: Array) -> Array:
            places = lax.dynamic_slice_in_dim(part.places, at * together, together)
            outputs = jax.vmap(lambda one: self.net.apply(params, one))(jax.tree.map(lambda a: a[places], rows))
            losses = jax.vmap(self.loss)(outputs, y[places])
            labels = y[places] if y.ndim == 1 else y[places].argmax(-1)
            scores = (outputs.argmax(-1) != labels) + _TIE * losses if counts else losses
            known = at * together + jnp.arange(together) < part.size
            return total + jnp.sum(jnp.where(known, jnp.stack([scores, losses]), 0), 1)

        return lax.fori_loop(0, -(-part.size // together), add, jnp.zeros(2)) / part.size.astype(float)

    def batch_loss(self, params: Params, rows: Example, y: Array, key: Array) -> Float[Array, ""]:
        """Of one minibatch, with noise of its own for every row where the network has dropout."""
        noise = jr.split(key, self.batch_size)
        outputs = jax.vmap(lambda one, key: self.net.apply(params, one, key=key))(rows, noise)
        return jnp.mean(jax.vmap(self.loss)(outputs, y))


class State(NamedTuple):
    """Of a network while it trains; `loss`: a mean over the steps since the last look, 0 before the first."""

    params: Params
    memory: Any  # of the optimizer
    step: Int[Array, ""]
    loss: Float[Array, ""]
    best: Params
    best_score: Float[Array, ""]
    best_step: Int[Array, ""]
    first_loss: Float[Array, ""]  # of the held-out rows


@eqx.filter_jit
def _train(
    plan: Plan, rows: Example, y: Array, train: Part, held: Part, limits: Int[Array | np.ndarray, "2"], key: Array
) -> tuple[Params, State, Float[Array, "rows outputs"]]:
    """Parameters before training, the end, and the best outputs. `limits`: steps, and looks without a better one."""
    start, batches, zero = plan.first(key, rows), jr.fold_in(key, 1), jnp.zeros((), jnp.int32)
    between = jnp.maximum(-(-train.size // plan.batch_size), _FEWEST_STEPS)

    def step(at: Array, carry: tuple) -> tuple:
        params, memory, total = carry
        draw, noise = jr.split(jr.fold_in(batches, at))
        places = train.places[jr.randint(draw, (plan.batch_size,), 0, train.size)]
        batch = jax.tree.map(lambda a: a[places], rows)
        value, slope = jax.value_and_grad(plan.batch_loss)(params, batch, y[places], noise)
        change, memory = plan.optimizer.update(slope, memory, params)
        return jax.tree.map(jnp.add, params, change), memory, total + value

    def look(now: State) -> State:
        is_first = jnp.isinf(now.first_loss)
        end = now.step + jnp.where(is_first, 0, between)
        params, memory, total = lax.fori_loop(now.step, end, step, (now.params, now.memory, jnp.zeros(())))
        score, loss = plan.held_out(params, rows, y, held)
        old, new = (now.best, now.best_score, now.best_step), (params, score, end)
        best, best_score, best_step = jax.tree.map(lambda a, b: jnp.where(score < now.best_score, b, a), old, new)
        first = jnp.where(is_first, jnp.minimum(loss, _LARGEST), now.first_loss)
        return State(params, memory, end, total / between.astype(float), best, best_score, best_step, first)

    def goes_on(now: State) -> Array:
        waits = now.step - now.best_step < limits[1] * between
        return (now.step < limits[0]) & waits & jnp.isfinite(now.loss)

    infinite = jnp.full((), jnp.inf)
    begin = State(start, plan.optimizer.init(start), zero, jnp.zeros(()), start, infinite, zero, infinite)
    end = lax.while_loop(goes_on, look, begin)
    return start, end, plan.outputs(end.best, rows)


def train_networks(
    net: AbstractLayer,
    x: Any,
    y: Any,
    train: Sequence[Any],
    held: Sequence[Any],
    *,
    loss: Loss,
    optimizer: Any = None,
    width: int | None = 256,
    steps: int = 10_000,
    batch_size: int = 64,
    patience: int = 10,
    parametrization: Parametrization | str = Parametrization.MUP,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Trained:
    """Train finite networks, each on some of the rows, until it no longer becomes better on its held-out rows.

    One network after the other: each ends when it is done, and on a CPU nothing is gained by training several at once.
    Sizes are padded, so that all networks of a call, and most calls with the same network, optimizer object and shape
    of `x`, share one compiled program. In float32, whatever JAX's precision. Batches are drawn with replacement.

    For whoever asks what a network that people train would do: forecasts of networks, the width section of the report,
    whether features matter.

    Args:
        net: a network whose outputs are those of the loss, as `_walk.with_outputs` makes one.
        x: rows, or `Inputs`; scaled.
        y: targets of all rows, as the loss takes them; numbers of about unit variance.
        train: for each network, the places in `x` of the rows from which it learns.
        held: for each network, those that say when to stop; they may be the same as in `train`.
        loss: as in `everwide.training`: the mean over the rows of a batch is descended.
        optimizer: of optax; Adam with a rate of 0.001 by default. Programs are shared by calls with the same object.
        width: of every layer that leaves its own open.
        steps: at the most.
        batch_size: rows of a step.
        patience: looks at the held-out rows without a better one, after which training ends. One looks once
            a pass, and every 20 steps at the most.
        parametrization: "mup" is what frameworks do ("standard"), but that outputs start near 0: with the rates that
            people use it learned numbers with a third less error, and classes as well.
        seed: of the networks, which differ by their number.
        progress: called after every network.

    Returns:
        What became of them, `diverged` ones among them: see `Trained`.
    """
    rows, law = as_rows(x), as_loss(loss)
    targets, outputs = law.targets(y, None)
    if len(targets) != len(rows):
        raise InputError(f"y has {len(targets)} rows and x {len(rows)}: they must agree.")
    fitting, law_of = _fitting(net, rows, outputs, width), Parametrization(parametrization)
    plan = Plan(fitting, law, checked_optimizer(optimizer), width, law_of, whole(batch_size, "batch_size"))
    limits = np.asarray([whole(steps, "steps"), whole(patience, "patience")], np.int32)
    parts = [_part(places, len(targets), "train") for places in train]
    stops = [_part(places, len(targets), "held") for places in held]
    if len(parts) != len(stops) or not parts:
        raise InputError(f"train names {len(parts)} sets of rows and held {len(stops)}: one each for a network.")
    ends, begin = [], time.perf_counter()
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):  # which optax asks for
        data, labels = _padded(rows, targets)
        for number, (part, stop) in enumerate(zip(parts, stops, strict=True)):
            key = jr.fold_in(jr.key(seed), number)
            ends.append(_train(plan, data, labels, part, stop, limits, key))
            if progress is not None:
                progress(Progress(number + 1, len(parts), time.perf_counter() - begin))
    return _ended(ends, len(targets))


def _ended(ends: list[tuple[Params, State, Array]], n: int) -> Trained:
    """What became of all networks, on the host; without the rows that were padded."""
    starts, states, outputs = zip(*ends, strict=True)
    last = np.array([float(state.loss) for state in states])
    return Trained(
        outputs=np.stack([np.asarray(each)[:n] for each in outputs]),
        loss=last,
        held_score=np.array([float(state.best_score) for state in states]),
        steps=np.array([int(state.best_step) for state in states]),
        diverged=np.array([not float(one.loss) <= float(one.first_loss) for one in states]),  # as NaN has
        before=starts,
        after=tuple(state.best for state in states),
    )


@functools.cache
def adam(rate: float = _RATE, decay: float = 0.0) -> Any:
    """Adam of optax, with weight decay if it is asked for: one object for a rate, so that programs are shared."""
    try:
        import optax
    except ImportError as fault:
        raise InputError("Networks are trained by optax, which is not there: pip install 'everwide[train]'.") from fault
    return optax.adamw(rate, weight_decay=decay) if decay else optax.adam(rate)


def checked_optimizer(optimizer: Any) -> Any:
    """That of optax which was given, or Adam."""
    given = adam() if optimizer is None else optimizer
    if not callable(getattr(given, "init", None)) or not callable(getattr(given, "update", None)):
        raise InputError(f"optimizer={optimizer!r}: expected one of optax, such as optax.adam(1e-3).")
    return given


def _fitting(net: Any, rows: Rows, outputs: int, width: int | None) -> AbstractLayer:
    """The network, whose outputs for such rows are as many as the loss reads."""
    if not isinstance(net, AbstractLayer):
        raise InputError(f"Expected a network (everwide.Serial, everwide.Dense, ...), got {type(net).__name__}.")
    width = None if width is None else whole(width, "width")
    signal = net.describe(Signal(rows.x.shape[1:], width=width))
    if signal.shape != (outputs,):
        raise ArchitectureError(
            f"The network has outputs of shape {signal.shape}, and the targets ask for ({outputs},). End it with "
            f"Dense({outputs}); pool or flatten what has sites."
        )
    return net


def _part(places: Any, n: int, name: str) -> Part:
    """Places of rows, padded by the first of them."""
    index = np.asarray(places)
    if index.ndim != 1 or not index.size or index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= n:
        raise InputError(f"{name}={places!r}: expected the places of rows for each network, from 0 to {n - 1}.")
    padded = np.concatenate([index, np.full(max(_roomy(n) - len(index), 0), index[0])])
    return Part(padded.astype(np.int32), np.asarray(len(index), np.int32))


def _padded(rows: Rows, y: np.ndarray) -> tuple[Example, Array]:
    """Rows and targets on the device; the last ones are repeated."""
    size = _roomy(len(y))
    inputs = rows.cut(0, size)
    examples = Example(*jax.tree.map(jnp.asarray, (inputs.x, inputs.mask, inputs.graph)))
    return examples, jnp.asarray(y[np.minimum(np.arange(size), len(y) - 1)])


def _roomy(n: int) -> int:
    """The next power of two: few shapes, few programs."""
    return max(32, 1 << (n - 1).bit_length())
