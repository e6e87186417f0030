"""Recurrent layers with gates, for finite networks and for `Sampled`: their law along time is not known."""

import abc
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from .._trees import Hyper
from ..kernel import Example, Kernel
from ..signal import Demand, Signal
from ._affine import RandomAffine, fans_of, known_channels
from ._base import AbstractLayer
from ._recurrent import RecurrentParams
from ._sites import needs_sites
from ._unlimited import refuse_limit


class AbstractGates(AbstractLayer):
    """States along the one site axis, behind gates; they are zero before the first site, and after gaps."""

    width: int | None = eqx.field(static=True)
    input: RandomAffine
    state: RandomAffine

    def __init__(
        self,
        width: int | None = None,
        *,
        w_std: Hyper = 1.0,
        u_std: Hyper = 1.0,
        b_std: Hyper | None = None,
        b_state_std: Hyper | None = None,
        frozen: bool = False,
    ):
        self.width = width
        self.input = RandomAffine(u_std, b_std, frozen=frozen)
        self.state = RandomAffine(w_std, b_state_std, frozen=frozen)

    gates: eqx.AbstractClassVar[int]

    @abc.abstractmethod
    def start(self, size: int, like: Array) -> tuple[Array, ...]:
        """What is carried from site to site, before the first; the state comes first."""

    @abc.abstractmethod
    def update(self, carried: tuple[Array, ...], driven: Array, held: Array) -> tuple[Array, ...]:
        """The same after a site, from what the input and the state say to all gates."""

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal, 1)
        refuse_limit(self, signal)
        self.input.check(self, signal)
        return replace(signal.drawn(signal.sites, self.width), gaussian=False, centred=False)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.all_sites()

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        raise AssertionError("`describe` refuses it at infinite width")

    def sample(self, key: Array, signal: Signal) -> RecurrentParams:
        channels, out = known_channels(self, signal), known_channels(self, self.describe(signal))
        every = self.gates * out
        fans = replace(fans_of(signal, channels, every), feeds_hidden=True)
        first, second = jr.split(key)
        return RecurrentParams(
            self.input.draw(first, (channels, every), (every,), fans),
            self.state.draw(second, (out, every), (every,), replace(fans, fan_in=out, reads_hidden=True)),
        )

    def forward(self, params: RecurrentParams, example: Example) -> Example:
        read, held = self.input.held(params.input), self.state.held(params.state)
        driven = self.input.scaled(read, example.x @ read.weight)
        there = jnp.ones(len(driven), bool) if example.mask is None else example.mask

        def body(carried: tuple[Array, ...], now: tuple[Array, Array]) -> tuple[tuple[Array, ...], Array]:
            said = self.state.scaled(held, carried[0] @ held.weight)
            after = tuple(jnp.where(now[1], a, 0) for a in self.update(carried, now[0], said))
            return after, after[0]

        start = self.start(driven.shape[-1] // self.gates, driven)
        return example.with_values(jax.lax.scan(body, start, (driven, there))[1])


class Lstm(AbstractGates):
    """Long short-term memory along the one site axis; gives the states at all sites.

    - `w_std`, `u_std`, `b_std`: of the weights that read the state, of those that read the input, and of biases, for
      all gates; `b_state_std`: of second biases, beside the weights that read the state, as PyTorch has them.
    - `width`, `frozen`: as in `Dense`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.layers.Sampled(ew.layers.Lstm()), ew.layers.Index(-1), ew.Dense(1))

    Hochreiter, Schmidhuber, "Long short-term memory" (1997).
    """

    __init__ = AbstractGates.__init__
    gates: ClassVar[int] = 4

    def start(self, size: int, like: Array) -> tuple[Array, ...]:
        """State and cell."""
        return (jnp.zeros(size, like.dtype),) * 2

    def update(self, carried: tuple[Array, ...], driven: Array, held: Array) -> tuple[Array, ...]:
        """Forget, write and read the cell."""
        write, forget, new, read = jnp.split(driven + held, self.gates)
        cell = jax.nn.sigmoid(forget) * carried[1] + jax.nn.sigmoid(write) * jnp.tanh(new)
        return jax.nn.sigmoid(read) * jnp.tanh(cell), cell


class Gru(AbstractGates):
    """Gated recurrent units along the one site axis; gives the states at all sites. Arguments as in `Lstm`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.layers.Sampled(ew.layers.Gru()), ew.layers.Index(-1), ew.Dense(1))

    Cho et al., "Learning phrase representations using RNN encoder-decoder" (2014).
    """

    __init__ = AbstractGates.__init__
    gates: ClassVar[int] = 3

    def start(self, size: int, like: Array) -> tuple[Array, ...]:
        """The state."""
        return (jnp.zeros(size, like.dtype),)

    def update(self, carried: tuple[Array, ...], driven: Array, held: Array) -> tuple[Array, ...]:
        """A mean of the state and a new one, which reads as much of the state as another gate lets through."""
        (ask, keep, new), (ask_held, keep_held, new_held) = (jnp.split(a, self.gates) for a in (driven, held))
        kept = jax.nn.sigmoid(keep + keep_held)
        fresh = jnp.tanh(new + jax.nn.sigmoid(ask + ask_held) * new_held)
        return ((1 - kept) * fresh + kept * carried[0],)
