"""One run: a transformer, an arm, a width, a seed. Many steps in one compiled call."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, UInt8

from everwide import InputError

from .._training import State, begin, compiled, descend
from ._arms import Arm, Rates, Rest, optimizer
from ._setting import Setting
from ._text import Corpus
from ._transformer import Transformer, cross_entropy, transformer

_CHUNK = 250  # steps between two looks at the clock, the keyboard and the loss
_WARMING = 0.05  # the share of the steps in which rates rise


class Losses(NamedTuple):
    """Cross-entropies in nats a symbol; infinite where a run has diverged."""

    train: float  # mean over the last chunk of steps
    validation: float
    test: float


def run(
    setting: Setting,
    corpus: Corpus,
    arm: Arm,
    width: int,
    seed: int,
    rates: Rates,
    steps: int,
    watch: Callable[[float], None],
) -> Losses:
    """Train and measure. Data, their order and the first parameters depend on the seed, not on the arm."""
    model = transformer(jr.key(seed), setting.shape(corpus.vocabulary, width))
    state = begin(model, rule(arm, setting.rest, (1.0, 1.0, 1.0), model, 1.0))
    text = jnp.asarray(corpus.train.symbols)
    starts = batches(seed, steps, setting, len(corpus.train.symbols))
    numbers = jnp.asarray(rates, jnp.float32)
    total, train = jnp.asarray(steps, jnp.float32), math.inf
    for chunk in np.split(starts, range(_CHUNK, steps, _CHUNK)):
        state = advance(state, text, jnp.asarray(chunk), numbers, total, setting.context, arm, setting.rest)
        train = float(state.total) / len(chunk)
        watch(int(state.steps) / steps)
        if not math.isfinite(train):
            return Losses(math.inf, math.inf, math.inf)
    held_out = (windows(part.symbols, setting) for part in (corpus.validation, corpus.test))
    return Losses(train, *(finite(float(_measure(state.params, part))) for part in held_out))


def batches(seed: int, steps: int, setting: Setting, length: int) -> Int[np.ndarray, "steps batch"]:
    """Where the windows of every step begin."""
    last = length - setting.context - 1
    if last < 1:
        raise InputError(f"The training text has {length} symbols, fewer than context={setting.context} needs.")
    return np.random.default_rng([seed, 1]).integers(0, last, (steps, setting.batch), dtype=np.int32)


def windows(symbols: UInt8[np.ndarray, " length"], setting: Setting) -> Int[np.ndarray, "n batch time"]:
    """Windows that do not overlap, spread evenly over the text; in batches."""
    size = setting.context + 1
    count = min(setting.test_windows, len(symbols) // size)
    if count < 1:
        raise InputError(f"A held-out text has {len(symbols)} symbols, fewer than one window of {size}.")
    batch = min(64, count)
    count -= count % batch
    begins = np.linspace(0, len(symbols) - size, count).astype(int)
    return symbols[begins[:, None] + np.arange(size)].astype(np.int32).reshape(-1, batch, size)


def rule(arm: Arm, rest: Rest, rates: Any, model: Transformer, total: Any) -> Any:
    """How a model is trained in `total` steps."""
    width = model.blocks[0].mlp.readout.shape[0]
    return optimizer(arm, rest, rates, width, lambda step: schedule(_float32(step) / total))


def _float32(number: Any) -> Float[Array, ""]:
    return jnp.asarray(number, jnp.float32)


@compiled
def advance(
    state: State, text: Array, starts: Array, rates: Array, total: Array, context: int, arm: Arm, rest: Rest
) -> State:
    """A step for each row of `starts`, where its windows begin."""
    first = state.steps

    def loss(model: Transformer, step: Array) -> Array:
        start = starts[step - first]
        seen = text[start[:, None] + jnp.arange(context + 1, dtype=jnp.int32)].astype(jnp.int32)
        return cross_entropy(model, seen)

    return descend(loss, rule(arm, rest, rates, state.params, total), state, len(starts))


def schedule(progress: Float[Array, ""]) -> Float[Array, ""]:
    """The share of the rates at some point of a run, from 0 to 1: a short rise, then a cosine down to zero."""
    rising = (progress + 1e-3) / _WARMING
    falling = 0.5 + 0.5 * jnp.cos(math.pi * (progress - _WARMING) / (1 - _WARMING))
    return jnp.where(progress < _WARMING, jnp.minimum(rising, 1), falling)


@compiled
def _measure(model: Transformer, parts: Int[Array, "n batch time"]) -> Float[Array, ""]:
    return jnp.mean(lax.map(lambda batch: cross_entropy(model, batch), jnp.asarray(parts)))


def finite(loss: float) -> float:
    """Infinite where it is no number."""
    return loss if math.isfinite(loss) else math.inf
