"""One regime: finite networks of several widths beside their linearizations and their limit."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from everwide import ntk
from everwide.empirical import ntk_block
from everwide.layers import AbstractLayer
from everwide.linearization import movement

from .._training import Params, State, begin, compiled, descend
from ._regimes import AbstractRegime, Digits, Outputs, Task


class Kernels(NamedTuple):
    """Of the training rows with themselves, and of test rows with training rows."""

    train: Any
    test: Any


class Network(NamedTuple):
    """One trained network: outputs and changes at every look, and tangent kernels `(n, n, k, k)` at the start."""

    train: Any
    test: Any
    kernels: Kernels
    kernel_change: Any
    movement: Any
    relative_movement: Any


class Curves(NamedTuple):
    """As the curves of `everwide.compare`: each `(widths, seeds, steps)`."""

    loss_finite: np.ndarray
    loss_infinite: np.ndarray
    loss_linearized: np.ndarray
    gap_infinite: np.ndarray
    gap_linearized: np.ndarray
    kernel_change: np.ndarray
    movement: np.ndarray
    relative_movement: np.ndarray


class Measured(NamedTuple):
    """The learning rate, the curves, and outputs on the test rows after the last step: `(widths, seeds, rows, k)`."""

    rate: float
    curves: Curves
    finite: np.ndarray
    infinite: np.ndarray


class Course(eqx.Module):
    """A network, its data, and gradient descent with momentum on the mean of a loss over the rows."""

    net: AbstractLayer
    x: Float[Array, "n channels"]
    y: Array
    x_test: Float[Array, "m channels"]
    loss: Callable[[Any, Any], Any]
    rate: Float[Array, ""]
    momentum: Float[Array, ""]
    width: int = eqx.field(static=True)

    def run(self, key: Array, lengths: Int[Array, " looks"]) -> Network:
        """Train one network, and look after each of the `lengths`."""
        start = self.net.init(key, self.x.shape[1:], width=self.width)
        kernels = Kernels(*(ntk_block(self.net.apply, start, x, self.x) for x in (self.x, self.x_test)))
        rule = optax.sgd(self.rate, self.momentum)

        def stretch(state: State, length: Array) -> tuple[State, tuple]:
            state = descend(self._mean_loss, rule, state, length)
            change = ntk_block(self.net.apply, state.params, self.x, self.x) - kernels.train
            moved = movement(start, state.params)
            seen = (self._outputs(state.params, x) for x in (self.x, self.x_test))
            relative = jnp.linalg.norm(change.ravel()) / jnp.linalg.norm(kernels.train.ravel())
            return state, (*seen, relative, moved.absolute, moved.relative)

        _, (train, test, *changes) = lax.scan(stretch, begin(start, rule), lengths)
        return Network(train, test, kernels, *changes)

    def _mean_loss(self, params: Params, step: Array) -> Array:
        return jnp.mean(jax.vmap(self.loss)(self._outputs(params, self.x), self.y))

    def _outputs(self, params: Params, x: Float[Array, "rows channels"]) -> Float[Array, "rows outputs"]:
        return jax.vmap(lambda one: self.net.apply(params, one))(x)


@compiled
def trained(course: Course, keys: Array, lengths: Int[Array, " looks"]) -> Network:
    """One network for every key."""
    return jax.vmap(lambda key: course.run(key, lengths))(keys)


class Bench(NamedTuple):
    """What is the same for all networks of a regime; `steps` are those at which one looks, from 0 on."""

    regime: AbstractRegime
    net: AbstractLayer
    data: Digits
    limit: Kernels
    rate: float
    steps: tuple[int, ...]

    def course(self, width: int) -> Course:
        """How networks of that width are trained."""
        dtype, regime = jnp.result_type(float), self.regime
        targets = regime.targets(self.data)
        y = jnp.asarray(targets, dtype if targets.dtype.kind == "f" else jnp.int32)
        x, x_test = (jnp.asarray(part, dtype) for part in (self.data.x, self.data.x_test))
        rate, momentum = (jnp.asarray(number, dtype) for number in (self.rate, regime.momentum))
        return Course(self.net, x, y, x_test, regime.loss, rate, momentum, width)

    def predicted(self, kernels: Kernels, own: Network) -> tuple[Outputs, Outputs]:
        """What a fixed kernel makes of the network's first outputs: on training and on test rows."""
        start, start_test = own.train[0], own.test[0]
        task = Task(self.data, start, np.concatenate([start, start_test]), self.rate, self.steps)
        both = self.regime.predict(kernels.train, np.concatenate(kernels), task)
        return both[:, : len(start)], both[:, len(start) :]

    def measured(self, own: Network) -> list[np.ndarray]:
        """Curves of one network, then its test outputs and those of the limit after the last step."""
        infinite, infinite_test = self.predicted(self.limit, own)
        linear, linear_test = self.predicted(own.kernels, own)
        losses = (self.regime.error(outputs, self.data) for outputs in (own.train, infinite, linear))
        gaps = (np.sqrt(np.mean((own.test - other) ** 2, (-2, -1))) for other in (infinite_test, linear_test))
        return [*losses, *gaps, own.kernel_change, own.movement, own.relative_movement, own.test[-1], infinite_test[-1]]


def compare_in(
    regime: AbstractRegime,
    net: AbstractLayer,
    data: Digits,
    *,
    widths: tuple[int, ...],
    steps: tuple[int, ...],
    seeds: int,
    watch: Callable[[float], None],
) -> Measured:
    """As `everwide.compare`, in another regime; `watch` is told the share of the widths that is done."""
    limit = Kernels(ntk(net, data.x), ntk(net, data.x_test, data.x))
    bench = Bench(regime, net, data, limit, regime.rate(limit.train), steps)
    keys, looks = jr.split(jr.key(0), seeds), jnp.asarray(np.diff((0, *steps)), jnp.int32)
    by_width = []
    for width in widths:
        networks = jax.tree.map(
            lambda values: np.asarray(values, np.float64), trained(bench.course(width), keys, looks)
        )
        own = (jax.tree.map(lambda values, seed=seed: values[seed], networks) for seed in range(seeds))
        by_width.append([np.stack(parts) for parts in zip(*map(bench.measured, own), strict=True)])
        watch(len(by_width) / len(widths))
    *curves, finite, infinite = (np.stack(parts) for parts in zip(*by_width, strict=True))
    return Measured(bench.rate, Curves(*curves), finite, infinite)
