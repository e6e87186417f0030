"""Networks of one kind, trained by gradient descent at many rates; what the loss and the curvature did on the way."""

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from everwide import Dense, InputError, Relu, Serial, Tanh
from everwide.empirical import ntk_block
from everwide.layers import AbstractLayer

from .._sample import Sample, split
from .._training import Params, compiled

ENOUGH = 0.01  # of the first loss: where training ends
LOST = 1e4  # times the first loss: diverged
SHOWN = 40  # losses that are kept, for the figure
_RISE = 1e-4  # by which a loss must rise to count, relative: rounding does less


class Kind(NamedTuple):
    """An activation and a number of hidden layers."""

    activation: str
    hidden_layers: int

    def net(self) -> Serial:
        """Without biases, at critical initialization; one output."""
        gain, functions = {"linear": (1.0, ()), "tanh": (1.0, (Tanh(),)), "relu": (2**0.5, (Relu(),))}[self.activation]
        hidden = (Dense(w_std=gain), *functions)
        return Serial(*hidden * self.hidden_layers, Dense(1))

    def __str__(self) -> str:
        return f"{self.activation}, {self.hidden_layers} hidden"


class End(enum.StrEnum):
    """How a run ended."""

    LEARNED = "learned"
    STUCK = "stuck"  # dead units, or steps used up above half of the first loss
    SLOW = "slow"  # steps used up below it
    DIVERGED = "diverged"


def digits(n: int) -> Sample:
    """Digits, as rows of unit mean square, below five (+1) or not (-1). Half of the rest chooses, half measures."""
    from sklearn.datasets import load_digits

    images, kinds = (np.asarray(part) for part in load_digits(return_X_y=True))
    if not 2 <= n <= len(images) // 2:
        raise InputError(f"n={n!r}: expected 2 to {len(images) // 2}, half of the {len(images)} digits.")
    order = np.random.default_rng(0).permutation(len(images))
    x = images[order] - images[order[:n]].mean(0)
    x = x / np.sqrt(np.mean(x**2, 1, keepdims=True))
    y = np.where(kinds[order] < 5, 1.0, -1.0)
    return split(x, y, n, (len(x) - n) // 2)


class Runs(NamedTuple):
    """Of one kind and width, `(seeds, multiples)` each. A multiple is the rate times the curvature at the start.

    - `losses`: the first `SHOWN` of them. `peak`: the largest loss over the first. `peak_step`: where. `rises`: steps
      after which the loss was higher. `last`: the last loss over the first. `steps`: taken.
    - `curvature`, `curvature_end`: largest eigenvalue of the tangent kernel over the number of rows.
    - `validation`, `test`: shares of rows on the wrong side.
    """

    losses: np.ndarray
    peak: np.ndarray
    peak_step: np.ndarray
    rises: np.ndarray
    last: np.ndarray
    steps: np.ndarray
    curvature: np.ndarray
    curvature_end: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    def ends(self) -> np.ndarray:
        """How each run ended."""
        finite = np.isfinite(self.last) & (self.last < LOST) & np.isfinite(self.curvature_end)
        kinds = [~finite, self.last <= ENOUGH, self.last > 0.5]
        return np.select(kinds, [End.DIVERGED, End.LEARNED, End.STUCK], End.SLOW)


class Course(NamedTuple):
    """A run under way."""

    params: Params
    gradient: Params
    step: Int[Array, ""]
    loss: Float[Array, ""]
    losses: Float[Array, " shown"]
    peak: Float[Array, ""]
    peak_step: Int[Array, ""]
    rises: Int[Array, ""]


class Descent(eqx.Module):
    """Full-batch gradient descent on half the mean square."""

    net: AbstractLayer
    data: Sample
    steps: Array
    width: int = eqx.field(static=True)

    def outputs(self, params: Params, x: Any) -> Float[Array, " n"]:
        """Of every row."""
        return jax.vmap(self.net.apply, (None, 0))(params, x)[:, 0]

    def loss(self, params: Params) -> Float[Array, ""]:
        """On the training rows."""
        return jnp.mean(jnp.square(self.outputs(params, self.data.x) - self.data.y)) / 2

    def curvature(self, params: Params) -> Float[Array, ""]:
        """Largest eigenvalue of the tangent kernel over the number of rows; not a number where a run has diverged."""
        x = jnp.asarray(self.data.x)
        kernel = ntk_block(self.net.apply, params, x, x, "trace")
        return jnp.linalg.eigvalsh(kernel)[-1] / len(x)

    def run(self, key: Array, multiple: Float[Array, ""]) -> tuple[Array, ...]:
        """One network at one rate: the fields of `Runs`."""
        start = self.net.init(key, self.data.x.shape[1:], width=self.width)
        curvature = self.curvature(start)
        end = self._descended(start, multiple / curvature)
        first = self.loss(start)
        sides = (
            jnp.mean(self.outputs(end.params, x) * y <= 0, dtype=first.dtype)
            for x, y in ((self.data.x_validation, self.data.y_validation), (self.data.x_test, self.data.y_test))
        )
        numbers = (end.losses, end.peak / first, end.peak_step, end.rises, end.loss / first, end.step)
        return *numbers, curvature, self.curvature(end.params), *sides

    def _descended(self, start: Params, rate: Array) -> Course:
        slope = jax.value_and_grad(self.loss)
        first, gradient = slope(start)

        def unfinished(here: Course) -> Array:
            return (here.step < self.steps) & (here.loss > ENOUGH * first) & (here.loss < LOST * first)

        def step(here: Course) -> Course:
            params = jax.tree.map(lambda p, g: p - rate * g, here.params, here.gradient)
            (loss, gradient), now = slope(params), here.step + 1
            losses = here.losses.at[now].set(loss / first, mode="drop")
            higher, rose = loss > here.peak, loss > (1 + _RISE) * here.loss
            peak, peak_step = jnp.maximum(here.peak, loss), jnp.where(higher, now, here.peak_step)
            return Course(params, gradient, now, loss, losses, peak, peak_step, here.rises + rose.astype(jnp.int32))

        shown, zero = jnp.full(SHOWN, jnp.nan, first.dtype).at[0].set(1), jnp.zeros((), jnp.int32)
        return lax.while_loop(unfinished, step, Course(start, gradient, zero, first, shown, first, zero, zero))


@compiled
def _swept(descent: Descent, keys: Array, multiples: Array) -> Any:
    """One after the other: runs that diverge end early, and wait for nobody."""
    return lax.map(lambda one: descent.run(*one), (keys, multiples))


def sweep(kind: Kind, data: Sample, width: int, multiples: Sequence[float], seeds: int, steps: int) -> Runs:
    """Every seed at every multiple; a seed draws the same network at every rate."""
    dtype = jax.dtypes.canonicalize_dtype(np.float64)
    here = Sample(*(jnp.asarray(part, dtype) for part in data))
    keys = jnp.repeat(jr.split(jr.key(width), seeds), len(multiples), axis=0)
    grid = jnp.tile(jnp.asarray(multiples, dtype), seeds)
    found = _swept(Descent(kind.net(), here, jnp.asarray(steps), width), keys, grid)
    shaped = (np.asarray(part).reshape(seeds, len(multiples), *part.shape[1:]) for part in found)
    return Runs(*shaped)
