"""The same transformer with MLP blocks of infinite width: kernels in place of features and read-outs, exact."""

import math
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

from everwide import Dense, Infinite, InputError, Inputs, Relu, Serial
from everwide.training import SGD, AdamStar, KernelLayer

from .._training import compiled
from ._arms import B1, B2, EPS, MOMENTUM, Arm, Rates, Rest, optimizer
from ._setting import Setting
from ._text import Corpus
from ._train import Losses, batches, finite, schedule, windows
from ._transformer import BIAS, Transformer, surprise, transformer

LIMITS = (Arm.FROZEN_SGD, Arm.FROZEN_MOMENTUM, Arm.FROZEN_ADAM_STAR)  # arms that are a rule for functions
_STAGE = 100  # steps for which a layer gets room: it computes with all of its room
_PIECE = 2048  # rows of a layer that are looked at together: what fits into a cache

KernelFn = Callable[[Any, Any], Any]


class Falling(eqx.Module):
    """A rate that follows the schedule of all runs; its numbers are traced."""

    rate: Float[Array, ""]
    total: Float[Array, ""]

    def __call__(self, step: Any) -> Float[Array, ""]:
        return self.rate * schedule(jnp.asarray(step, jnp.float32) / self.total)


class Course(NamedTuple):
    """A run under way: all but the MLP blocks, what its optimizer remembers, one layer for each block."""

    model: Any  # a Transformer: optax knows no modules as trees
    memory: Any
    layers: tuple[KernelLayer, ...]
    steps: Int[Array, ""]
    total: Float[Array, ""]  # of the losses of a stage


class FeaturesKernel(eqx.Module):
    """Of the features of an MLP block: the mean of their products over all that could be drawn.

    It is computed for some columns after the other, forwards and backwards, so that nothing leaves the cache.
    """

    limit: Infinite

    def __init__(self, dim: int):
        self.limit = Infinite(Serial(Dense(w_std=1.0, b_std=BIAS), Relu(), Dense(1)), (dim,))

    def __call__(self, x1: Float[Array, "n1 dim"], x2: Float[Array, "n2 dim"]) -> Float[Array, "n1 n2"]:
        if len(x2) <= _PIECE or len(x2) % _PIECE:
            return self._block(x1, x2)
        pieces = x2.reshape(-1, _PIECE, x2.shape[-1])
        columns = lax.map(lambda piece: jax.checkpoint(self._block)(x1, piece), pieces)
        return jnp.moveaxis(columns, 0, 1).reshape(len(x1), len(x2))

    def _block(self, x1: Array, x2: Array) -> Array:
        return self.limit.block(Inputs(x1), Inputs(x2)).nngp


def rule(arm: Arm, rate: float, steps: int) -> SGD | AdamStar:
    """Of the functions that the MLP blocks are."""
    falling = Falling(jnp.asarray(rate, jnp.float32), jnp.asarray(steps, jnp.float32))
    if arm not in LIMITS:
        raise InputError(f"{arm.value!r} has no limit of infinite width: expected one of {', '.join(LIMITS)}.")
    if arm is Arm.FROZEN_ADAM_STAR:
        return AdamStar(falling, B1, B2, EPS)
    return SGD(falling, MOMENTUM if arm is Arm.FROZEN_MOMENTUM else 0.0)


def run_infinite(
    setting: Setting,
    corpus: Corpus,
    arm: Arm,
    seed: int,
    rates: Rates,
    watch: Callable[[float], None],
    kernel: KernelFn | None = None,
) -> Losses:
    """Train and measure, as `run` does at a finite width: with the same data, order and first parameters.

    `kernel`: another one than that of infinitely many features, `k(x1, x2) -> (n1, n2)`.
    """
    course = begun(setting, corpus, arm, seed, rates, kernel)
    text, total = jnp.asarray(corpus.train.symbols), jnp.asarray(setting.steps, jnp.float32)
    starts = batches(seed, setting.steps, setting, len(corpus.train.symbols))
    rate, train = jnp.asarray(rates.rest, jnp.float32), math.inf
    for stage in np.split(starts, range(_STAGE, setting.steps, _STAGE)):
        course = _with_room(course, stage.size * setting.context)
        course = advance_infinite(course, text, jnp.asarray(stage), rate, total, setting.context, setting.rest)
        train = float(course.total) / len(stage)
        watch(int(course.steps) / setting.steps)
        if not math.isfinite(train):
            return Losses(math.inf, math.inf, math.inf)
    held_out = (windows(part.symbols, setting).reshape(-1, setting.context + 1) for part in corpus[1:3])
    return Losses(train, *(finite(float(_measure(course, _batched(part, setting.batch)))) for part in held_out))


def begun(setting: Setting, corpus: Corpus, arm: Arm, seed: int, rates: Rates, kernel: KernelFn | None) -> Course:
    """Before the first step. The MLP of the model is there in name only: it is not used, and does not move."""
    model = transformer(jr.key(seed), setting.shape(corpus.vocabulary, 1))
    layer = KernelLayer(
        FeaturesKernel(setting.dim) if kernel is None else kernel,
        rule(arm, rates.readout, setting.steps),
        input_shape=(setting.dim,),
        outputs=setting.dim,
        capacity=1,
        dtype=np.float32,
    )
    memory, zero = _rest(setting.rest, 1.0, 1.0).init(model), jnp.zeros((), jnp.float32)
    return Course(model, memory, (layer,) * setting.layers, jnp.zeros((), jnp.int32), zero)


def _with_room(course: Course, more: int) -> Course:
    """For the rows of a stage, in whole pieces."""
    needed = int(course.layers[0].size) + more
    capacity = needed if needed <= _PIECE else -(-needed // _PIECE) * _PIECE
    return course._replace(layers=tuple(layer.grown(capacity) for layer in course.layers))


def _rest(rest: Rest, rate: Any, total: Any) -> Any:
    """Of all but the MLP blocks: as in the arm whose blocks stand still."""
    return optimizer(
        Arm.STILL, rest, (0.0, rate, 0.0), 1, lambda step: schedule(jnp.asarray(step, jnp.float32) / total)
    )


def _outputs(
    model: Transformer, taps: tuple[Array, ...], layers: tuple[KernelLayer, ...], text: Int[Array, "batch time"]
) -> tuple[Float[Array, "batch time vocabulary"], tuple[Array, ...]]:
    """Logits, and the rows that every layer has seen."""
    x, seen = jax.vmap(model.embedded)(text), []
    for block, layer, tap in zip(model.blocks, layers, taps, strict=True):
        x = jax.vmap(block.attended)(x)
        rows = jax.vmap(block.before_mlp)(x).reshape(-1, x.shape[-1])
        x = x + layer(rows, tap).reshape(x.shape)
        seen.append(rows)
    return jax.vmap(model.logits)(x), tuple(seen)


@compiled
def advance_infinite(
    course: Course, text: Array, starts: Array, rate: Array, total: Array, context: int, rest: Rest
) -> Course:
    """A step for each row of `starts`, where its windows begin."""
    descent = _rest(rest, rate, total)
    zeros = tuple(layer.tap(starts.shape[1] * context) for layer in course.layers)

    def loss(model: Transformer, taps: tuple[Array, ...], layers: tuple[KernelLayer, ...], windows: Array) -> Any:
        logits, seen = _outputs(model, taps, layers, windows[:, :-1])
        return surprise(logits, windows), seen

    def step(here: Course, start: Array) -> tuple[Course, None]:
        windows = text[start[:, None] + jnp.arange(context + 1, dtype=jnp.int32)].astype(jnp.int32)
        (value, seen), (slope, cotangents) = jax.value_and_grad(loss, (0, 1), has_aux=True)(
            here.model, zeros, here.layers, windows
        )
        updates, memory = descent.update(slope, here.memory, here.model)
        model = optax.apply_updates(here.model, updates)
        layers = tuple(layer.update(*one) for layer, *one in zip(here.layers, seen, cotangents, strict=True))
        return Course(model, memory, layers, here.steps + 1, here.total + value), None

    return lax.scan(step, course._replace(total=jnp.zeros_like(course.total)), starts)[0]


def _batched(windows: Int[np.ndarray, "n longer"], batch: int) -> Int[np.ndarray, "batches batch longer"]:
    """In batches as in training; the few windows that are left over are not looked at."""
    size = min(batch, len(windows))
    return windows[: len(windows) // size * size].reshape(-1, size, windows.shape[1])


@compiled
def _measure(course: Course, parts: Int[Array, "n batch longer"]) -> Float[Array, ""]:
    def one(windows: Array) -> Array:
        taps = tuple(layer.tap(windows.shape[0] * (windows.shape[1] - 1)) for layer in course.layers)
        return surprise(_outputs(course.model, taps, course.layers, windows[:, :-1])[0], windows)

    return jnp.mean(lax.map(one, jnp.asarray(parts)))
