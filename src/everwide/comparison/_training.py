"""Gradient descent at finite width, and in the limit."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from .._checks import InputError
from .._engine import Rows
from .._gram import ntk
from ..empirical import ntk_block
from ..kernel import Edges, Example, Inputs
from ..layers import AbstractLayer
from ..linearization import movement
from ..signal import Parametrization
from ..spectral import Spectrum, gradient_descent

Params = Any


class Trained(NamedTuple):
    """Networks of one width at the steps at which one looks; several seeds stack along the first axis."""

    train: Float[Array, "*seeds steps n outputs"]
    test: Float[Array, "*seeds steps m outputs"]
    kernel: Float[Array, "*seeds n_outputs n_outputs"]  # at the start; outputs follow each other within an example
    test_kernel: Float[Array, "*seeds m_outputs n_outputs"]
    kernel_change: Float[Array, "*seeds steps"]
    movement: Float[Array, "*seeds steps"]
    relative_movement: Float[Array, "*seeds steps"]


class Trainer(eqx.Module):
    """A network of one width and its data: gradient descent on the mean over rows of `1/2 |f - y|^2`."""

    net: AbstractLayer
    x: Example  # stacked
    y: Float[Array, "n outputs"]
    x_test: Example
    width: int = eqx.field(static=True)
    parametrization: Parametrization = eqx.field(static=True)

    def run(self, key: Array, rate: Float[Array, ""], lengths: Int[Array, " steps"]) -> Trained:
        """Train one network, and look after each of the `lengths`."""
        shape = self.x.x.shape[1:]
        start = self.net.init(key, shape, width=self.width, parametrization=self.parametrization)
        kernel = self._kernel(start, self.x)

        def descend(_: Any, params: Params) -> Params:
            return jax.tree.map(lambda p, g: p - rate.astype(p.dtype) * g, params, jax.grad(self._loss)(params))

        def stretch(params: Params, length: Array) -> tuple[Params, tuple]:
            params = lax.fori_loop(0, length, descend, params)
            outputs = (self._outputs(params, x) for x in (self.x, self.x_test))
            change = jnp.linalg.norm(self._kernel(params, self.x) - kernel) / jnp.linalg.norm(kernel)
            moved = movement(start, params)
            return params, (*outputs, change, moved.absolute, moved.relative)

        _, (train, test, change, moved, relative) = lax.scan(stretch, start, lengths)
        return Trained(train, test, kernel, self._kernel(start, self.x_test), change, moved, relative)

    def _loss(self, params: Params) -> Array:
        return jnp.mean(jnp.sum(jnp.square(self._outputs(params, self.x) - self.y), -1)) / 2

    def _outputs(self, params: Params, x: Example) -> Array:
        return jax.vmap(lambda one: self.net.apply(params, one))(x)

    def _kernel(self, params: Params, x: Example) -> Array:
        """The tangent kernel with the training rows, as a matrix."""
        blocks = ntk_block(self.net.apply, params, x, self.x)
        n1, n2, k, _ = blocks.shape
        return blocks.transpose(0, 2, 1, 3).reshape(n1 * k, n2 * k)


@eqx.filter_jit
def train(trainer: Trainer, keys: Array, rate: Float[Array, ""], lengths: Int[Array, " steps"]) -> Trained:
    """One network for every key."""
    return jax.vmap(lambda key: trainer.run(key, rate, lengths))(keys)


class Curves(NamedTuple):
    """Everything that was measured, each as `(widths, seeds, steps)`.

    - `loss_...`: the mean over the training examples of `1/2 |f - y|^2`: of the trained networks, of the infinitely
      wide network that starts from the same outputs, and of each network's own linearization.
    - `gap_...`: root mean square, over test examples and outputs, of the trained network minus the other.
    - `kernel_change`: `|T_t - T_0|_F / |T_0|_F` of the empirical tangent kernel of the training examples.
    - `movement`: `|theta_t - theta_0|`; `relative_movement`: over `|theta_0|`.
    """

    loss_finite: np.ndarray
    loss_infinite: np.ndarray
    loss_linearized: np.ndarray
    gap_infinite: np.ndarray
    gap_linearized: np.ndarray
    kernel_change: np.ndarray
    movement: np.ndarray
    relative_movement: np.ndarray


@dataclass(frozen=True)
class Problem:
    """A network, its data, and the steps at which one looks, from 0 on."""

    net: AbstractLayer
    x: Rows
    y: np.ndarray  # (n, outputs), float64
    x_test: Rows
    steps: tuple[int, ...]
    parametrization: Parametrization


class Limit(NamedTuple):
    """How the infinitely wide network learns, and its kernels of training and test with training examples."""

    spectrum: Spectrum
    rate: float
    kernel: np.ndarray
    test_kernel: np.ndarray


def limit_of(problem: Problem, width: int, rate: float | None) -> Limit:
    """The analytic kernels, in float64; in the standard parametrization they depend on the width."""
    law, x = problem.parametrization, _on_host(problem.x)
    fixed = width if law is Parametrization.STANDARD else None
    kernel = ntk(problem.net, x, parametrization=law, width=fixed)
    cross = ntk(problem.net, _on_host(problem.x_test), x, parametrization=law, width=fixed)
    spectrum = Spectrum.of(kernel, what="The tangent kernel of x")
    largest = float(spectrum.values[-1])
    if rate is None and largest <= 0:
        raise InputError("The tangent kernel of x is zero: all layers are frozen, or all inputs are. Pass rate=.")
    return Limit(spectrum, len(kernel) / largest if rate is None else rate, kernel, cross)


def _on_host(rows: Rows) -> Inputs:
    """The examples in float64, for analytic kernels."""
    graph = Edges(*rows.graph) if isinstance(rows.graph, tuple) else rows.graph
    return Inputs(rows.x.astype(np.float64), rows.mask, graph)


@np.errstate(over="ignore", invalid="ignore")  # networks may diverge, and the result says so
def measure(problem: Problem, limit: Limit, trained: Trained) -> tuple[Curves, np.ndarray, np.ndarray]:
    """Set trained networks of one width beside their limit and their linearizations.

    Curves `(seeds, steps)`, and test outputs after the last step, `(seeds, m, outputs)`, finite and infinite.
    """
    y, (train, test) = problem.y, (np.asarray(values, np.float64) for values in (trained.train, trained.test))
    residual = y - train[:, 0]  # (seeds, n, outputs)
    steps = gradient_descent(limit.rate, problem.steps)

    def at_limit(cross: np.ndarray) -> np.ndarray:
        return np.stack([cross @ limit.spectrum.apply(steps, r) for r in residual])

    linear = [
        np.concatenate([kernel, cross]) @ Spectrum.of(kernel).apply(steps, r.reshape(-1, 1), n=len(y))
        for kernel, cross, r in zip(np.asarray(trained.kernel), np.asarray(trained.test_kernel), residual, strict=True)
    ]
    linear_train = np.stack(linear)[:, :, : y.size].reshape(train.shape)
    linear_test = np.stack(linear)[:, :, y.size :].reshape(test.shape)
    start_train, start_test = train[:, :1], test[:, :1]
    infinite = start_test + at_limit(limit.test_kernel)
    curves = Curves(
        loss_finite=_loss(train - y),
        loss_infinite=_loss(start_train + at_limit(limit.kernel) - y),
        loss_linearized=_loss(start_train + linear_train - y),
        gap_infinite=_rms(test - infinite),
        gap_linearized=_rms(test - start_test - linear_test),
        kernel_change=np.asarray(trained.kernel_change, np.float64),
        movement=np.asarray(trained.movement, np.float64),
        relative_movement=np.asarray(trained.relative_movement, np.float64),
    )
    return curves, test[:, -1], infinite[:, -1]


def _loss(residual: np.ndarray) -> np.ndarray:
    return np.mean(np.sum(residual**2, -1), -1) / 2


def _rms(gap: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(gap**2, (-2, -1)))
