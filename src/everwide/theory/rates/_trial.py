"""The learning rate of the very network that will be trained, by trials of it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.optimize
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ..._checks import InputError, whole
from ..._losses import AbstractLoss, Loss, as_loss
from ...training import Mse
from ._noise import task_of

_STEP = 2**0.5  # between neighbouring rates
_LINE = range(-30, 21)  # powers of two at which the loss is read along the first step
_FURTHEST = 20  # neighbours from the best rate, or down from the first
_RECENT = 10  # a loss is the mean over the last tenth of the steps
_LEAST = 32
_OVERFLOW = 1e8  # times the first loss
_SPIKE = 10.0  # times the first loss
_FITTED = 0.01  # times the loss of the best constant: lower ones are as good


class Trial(NamedTuple):
    """A run: how far it went, its last loss (the mean over a tenth of its steps), and its highest, over the first."""

    rate: float
    steps: int
    loss: float
    peak: float


@dataclass(frozen=True)
class RecommendedRate:
    """What trials have shown. Made by `recommended_rate`."""

    rate: float
    warmup: int
    loss: float
    spike: float
    trains_to: float
    fails_from: float
    steps: int
    cost: int
    trials: tuple[Trial, ...]

    @property
    def diverges(self) -> float:
        """Between the highest rate that trained and the lowest above it that failed: their geometric mean."""
        return math.sqrt(self.trains_to * self.fails_from)

    def schedule(self, step: Any) -> Any:
        """The rate of a step, from 0: grows over the warm-up, then stays. For `optax.adam(best.schedule)`."""
        return self.rate * jnp.minimum((step + 1) / max(self.warmup, 1), 1.0)


def recommended_rate(
    f: Any,
    params: Any,
    x: Any,
    y: Any,
    optimizer: Any,
    *,
    steps: int,
    loss: Loss = Mse(),  # noqa: B008
    batch_size: int | None = None,
    warmup: int | None = None,
    seed: int = 0,
) -> RecommendedRate:
    """A learning rate for a network as it stands, and the rate from which it fails to train: by trials.

    No formula of the kernel knows where a finite network diverges (see `stable_rates`), so rates are tried. From the
    best along the first step they go up and down by factors of 2, then around the best of them by factors of 1.4, each
    to the end: a run that spikes early may win. Rates that spike high beside one that fails are taken last. That costs
    some fifteen trainings (`cost`); what it is worth beside a sweep of all rates is in `benchmarks/README.md`. Train
    with both, rate and warm-up: without it such a rate may fail.

    Args:
        f: the network, or any model, as in `everwide.empirical.as_model`.
        params: with which training will begin: width, parametrization and initialization are theirs.
        x: examples; a part of the rows will do.
        y: targets, as the loss has them.
        optimizer: a function of a learning rate or schedule, as optax has them: `optax.adam`, `optax.sgd`,
            `functools.partial(optax.sgd, momentum=0.9)`.
        steps: of the training that is planned. A longer one may want another rate.
        loss: a loss of `everwide.training`; its mean over rows is descended.
        batch_size: rows of a step, drawn anew for each; by default all.
        warmup: steps over which the rate grows in proportion; by default a tenth of `steps`.
        seed: of the batches.

    Returns:
        `rate` and `warmup`, to train with; `schedule`, both as optax takes them; `loss`: after `steps`, the mean over
        their last tenth; `spike`: the highest loss on the way, over the first; `trains_to`: the highest rate that
        trained, `fails_from`: its neighbour, which did not (it overflowed, or was no better in the end than where it
        began, or than the best constant), infinite where none failed; `diverges`: between them;
        `steps`, `cost`: steps of training that the trials took; `trials`: `rate`, `steps`, `loss` and `peak` of each.

    >>> import everwide as ew, jax, numpy as np, optax
    >>> from everwide.theory import rates
    >>> x = np.random.default_rng(0).normal(size=(40, 3))
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
    >>> params = net.init(jax.random.key(0), (3,), width=32)
    >>> best = rates.recommended_rate(net, params, x, x[:, 0], optax.sgd, steps=40)
    >>> best.rate < best.diverges, best.loss < 0.1
    (True, True)
    """
    length = whole(steps, "steps", _LEAST)
    ramp = length // 10 if warmup is None else whole(warmup, "warmup", 0)
    if not callable(optimizer):
        raise InputError(
            f"optimizer={optimizer!r}: expected a function of a learning rate, such as optax.adam, not what it returns."
        )
    law = as_loss(loss)
    task = task_of(f, params, x, y, law, batch_size)
    trials = _Trials(_Trainer(optimizer, ramp, task.batch_size, law, task.model, task.y, jr.key(seed)), length)
    near = trials.octaves(length)
    best = min(range(near - 2, near + 2), key=lambda place: trials.unsafe(place, length))
    limits = trials.limits(best, length // 2, length)
    rate, _, last, peak = trials.trial(best)
    return RecommendedRate(rate, ramp, last, peak, *limits, length, trials.cost, trials.trials())


class _State(NamedTuple):
    """A network on its way."""

    step: Int[Array, ""]
    params: PyTree
    memory: PyTree  # of the optimizer
    losses: Float[Array, " steps"]  # of the batch before each step; infinite where it never came to it


class _Trainer(eqx.Module):
    """A model, its data and its optimizer: everything but the rate."""

    optimizer: Callable[..., Any] = eqx.field(static=True)
    warmup: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    loss: AbstractLoss
    model: Any  # with its examples
    y: Array
    key: Array

    def mean_loss(self, params: PyTree, rows: Any = slice(None)) -> Float[Array, ""]:
        x, y = jax.tree.map(lambda a: a[rows], (self.model.x, self.y))
        return jnp.mean(jax.vmap(lambda a, target: self.loss(jnp.atleast_1d(self.model.f(params, a)), target))(x, y))

    def _slope(self, params: PyTree, step: Any) -> tuple[Array, PyTree]:
        n, rows = len(self.y), slice(None)
        if self.batch_size < n:
            rows = jr.choice(jr.fold_in(self.key, step), n, (self.batch_size,), replace=False)
        return jax.value_and_grad(self.mean_loss)(params, rows)

    @eqx.filter_jit
    def along(self, params: PyTree, rates: Float[Array, " rates"]) -> Float[Array, " rates"]:
        """The losses after a first step at these rates."""
        rule = self.optimizer(1.0)
        slope = self._slope(params, 0)[1]
        with jax.numpy_dtype_promotion("standard"):  # Adam of optax mixes its dtypes
            update, _ = rule.update(slope, rule.init(params), params)

        def after(rate: Array) -> Array:
            return self.mean_loss(jax.tree.map(lambda p, u: p + (rate * u).astype(p.dtype), params, update))

        return lax.map(after, rates)

    def begin(self, params: PyTree, steps: int) -> _State:
        """Before the first step."""
        memory = self.optimizer(lambda step: 0.0).init(params)
        return _State(jnp.asarray(0), params, memory, jnp.full(steps, jnp.inf))

    @eqx.filter_jit
    def go_on(self, state: _State, rate: Array, until: Array, most: Array) -> _State:
        """Train until a step, or until the loss is above `most`."""

        def schedule(step: Array) -> Array:
            return rate * jnp.minimum((step + 1) / max(self.warmup, 1), 1.0).astype(rate.dtype)

        rule = self.optimizer(schedule)

        def proceed(now: _State) -> Array:
            return (now.step < until) & ((now.step == 0) | (now.losses[now.step - 1] < most))

        def take(now: _State) -> _State:
            value, slope = self._slope(now.params, now.step)
            with jax.numpy_dtype_promotion("standard"):
                updates, memory = rule.update(slope, now.memory, now.params)
            params = jax.tree.map(lambda p, u: p + u.astype(p.dtype), now.params, updates)
            return _State(now.step + 1, params, memory, now.losses.at[now.step].set(value.astype(now.losses.dtype)))

        return lax.while_loop(proceed, take, state)


class _Trials:
    """Runs at the rates `unit * _STEP**place`, each as far as it was asked to go."""

    def __init__(self, trainer: _Trainer, steps: int):
        params = trainer.model.params
        self._trainer, self._begin, self.cost = trainer, trainer.begin(params, steps), 0
        self._first, self._unit = _first_step(trainer, params)
        self._most, self._bar = _OVERFLOW * self._first, min(self._first, _best_constant(trainer))
        self._states: dict[int, _State] = {}
        self._losses: dict[int, np.ndarray] = {}  # outlive the states

    def rate(self, place: int) -> float:
        return self._unit * _STEP**place

    def loss(self, place: int, until: int) -> float:
        """The mean over the last tenth of so many steps; infinite where the run did not come so far."""
        losses = self._losses.get(place, np.zeros(0))
        if len(losses) < until and not (losses[-1:] >= self._most).any() and np.isfinite(losses[-1:]).all():
            state = self._states.get(place, self._begin)
            dtype = state.losses.dtype
            rate, most = jnp.asarray(self.rate(place), dtype), jnp.asarray(self._most, dtype)
            now = self._trainer.go_on(state, rate, jnp.asarray(until, state.step.dtype), most)
            self.cost += int(now.step) - int(state.step)
            losses = self._losses[place] = np.asarray(now.losses)[: int(now.step)]
            self._states.pop(place, None)
            if until == int(now.step) < len(now.losses):  # it may go on
                self._states[place] = now
        recent = losses[until - max(1, until // _RECENT) : until]
        return float(recent.mean()) if len(losses) >= until and np.isfinite(recent).all() else math.inf

    def octaves(self, until: int) -> int:
        """The best place, over factors of two: up until three in succession fail, down until two are worse.

        Losses need not have one valley: above rates that lose there may be others that win.
        """
        places, failed, worse = [0], 0, 0
        while failed < 3 and places[-1] - self.best(places, until) < _FURTHEST:
            places.append(places[-1] + 2)
            failed = failed + 1 if self._fails(places[-1], until) else 0
        while worse < 2 and min(places) > -_FURTHEST:
            places.append(min(places) - 2)
            worse = 0 if self.best(places, until) == places[-1] else worse + 1
        return self.best(places, until)

    def best(self, places: Iterable[int], until: int) -> int:
        """The place of the lowest loss; of equal ones, the lowest rate."""
        return min(places, key=lambda place: (self.loss(place, until), place))

    def unsafe(self, place: int, until: int) -> tuple[bool, float, int]:
        """Whether it spikes high and a neighbour fails; the loss, the rate. What is lowest is best.

        Beside rates that fail, such a run may win once and lose when it is rounded otherwise.
        """
        here = self.loss(place, until)
        fails = self._fails(place - 1, until) or self._fails(place + 1, until)
        return fails and self.trial(place).peak > _SPIKE, max(here, _FITTED * self._bar), place

    def limits(self, best: int, early: int, until: int) -> tuple[float, float]:
        """Of neighbours above the best, one that trains and the next, which fails: sought early, decided at the end."""
        high = best + 1
        while not self._fails(high, early):
            high += 1
            if high - best > _FURTHEST:
                return self.rate(high - 1), math.inf
        low = high - 1
        while low > best and self._fails(low, until):
            low, high = low - 1, low
        while not self._fails(high, until) and high - best < _FURTHEST:
            low, high = high, high + 1
        return self.rate(low), self.rate(high)

    def _fails(self, place: int, until: int) -> bool:
        """Overflows, or is no better than the start; or than a constant, where any run is."""
        here = self.loss(place, until)
        arrived = [self.loss(other, until) for other, losses in self._losses.items() if len(losses) >= until]
        return not here < (self._bar if min(arrived, default=math.inf) < self._bar else self._first)

    def trial(self, place: int) -> Trial:
        losses = self._losses[place]
        steps = len(losses)
        return Trial(self.rate(place), steps, self.loss(place, steps), float(np.max(losses)) / self._first)

    def trials(self) -> tuple[Trial, ...]:
        """All runs, by rate."""
        return tuple(self.trial(place) for place in sorted(self._losses))


def _first_step(trainer: _Trainer, params: PyTree) -> tuple[float, float]:
    """The loss before it, and the best rate along it."""
    rates = np.array([0.0, *(2.0**power for power in _LINE)])
    losses = np.asarray(trainer.along(params, jnp.asarray(rates, jnp.result_type(float))), np.float64)
    first = float(losses[0])
    if not math.isfinite(first):
        raise InputError(f"The loss before training is {first}. Scale the inputs, or draw smaller weights.")
    best = int(np.argmin(np.where(np.isfinite(losses), losses, math.inf)))
    if best == 0:
        raise InputError(
            f"The first step of the optimizer lowers the loss, {first:.6g}, at no rate: the gradient is 0, all layers "
            "are frozen, or the network is at its best already."
        )
    return first, float(rates[best])


def _best_constant(trainer: _Trainer) -> float:
    """The lowest mean loss of outputs that do not depend on the example."""

    @jax.jit
    def mean(outputs: Float[Array, " k"]) -> tuple[Array, Array]:
        return jax.value_and_grad(lambda f: jnp.mean(jax.vmap(lambda target: trainer.loss(f, target))(trainer.y)))(
            outputs
        )

    def on_host(outputs: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = mean(jnp.asarray(outputs, trainer.model.dtype))
        return float(value), np.asarray(slope, np.float64)

    lowest = float(scipy.optimize.minimize(on_host, np.zeros(trainer.model.outputs), jac=True).fun)
    return lowest if math.isfinite(lowest) else math.inf
