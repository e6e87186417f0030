"""One regime: finite networks of several widths beside their linearizations and their limit."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from everwide import ntk
from everwide.comparison import Comparison, Curves
from everwide.layers import AbstractLayer

from ._data import Digits
from ._finite import Course, trained
from ._regimes import AbstractRegime, Outputs, Task


class Kernels(NamedTuple):
    """Of the training rows with themselves, and of test rows with training rows."""

    train: np.ndarray
    test: np.ndarray


class Network(NamedTuple):
    """One trained network, on the host: the fields of `Trained`, in float64."""

    train: np.ndarray
    test: np.ndarray
    kernel: np.ndarray
    test_kernel: np.ndarray
    kernel_change: np.ndarray
    movement: np.ndarray
    relative_movement: np.ndarray


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
        linear, linear_test = self.predicted(Kernels(own.kernel, own.test_kernel), own)
        losses = (self.regime.error(found, self.data) for found in (own.train, infinite, linear))
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
) -> Comparison:
    """As `everwide.compare`, in another regime; `watch` is told the share of the widths that is done."""
    limit = Kernels(ntk(net, data.x), ntk(net, data.x_test, data.x))
    bench = Bench(regime, net, data, limit, regime.rate(limit.train), steps)
    keys, looks = jr.split(jr.key(0), seeds), jnp.asarray(np.diff((0, *steps)), jnp.int32)
    found = []
    for width in widths:
        networks = trained(bench.course(width), keys, looks)
        own = [Network(*(np.asarray(values[seed], np.float64) for values in networks)) for seed in range(seeds)]
        found.append([np.stack(parts) for parts in zip(*map(bench.measured, own), strict=True)])
        watch(len(found) / len(widths))
    *curves, finite, infinite = (np.stack(parts) for parts in zip(*found, strict=True))
    return Comparison(widths, steps, (bench.rate,) * len(widths), Curves(*curves), finite, infinite)
