"""Embeddings: of tokens, which are equal or not, and of the places where they stand."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import whole
from .._trees import Hyper
from ..kernel import Covariance, Example, Kernel, outer
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._affine import Affine, RandomAffine, fans_of, known_channels
from ._attention import Position
from ._base import AbstractLayer
from ._sites import needs_sites


class Embedding(AbstractLayer):
    """A random vector for every token of a vocabulary: `K(s, t) = w_std^2` where two tokens are equal, else zero.

    The first layer of a network whose inputs are whole numbers, `(*sites, 1)`: arrays of integers, or of floats that
    hold them. Numbers that are no tokens of the vocabulary are an error at run time.

    - `vocabulary`: how many tokens there are, `0 ... vocabulary - 1`.
    - `width`, `w_std`, `speed`, `frozen`: as in `Dense`; there is no sum over inputs, so no `sqrt(fan_in)` either.

    >>> import everwide as ew, numpy as np
    >>> net = ew.Serial(ew.layers.Embedding(100), ew.GlobalAvgPool(), ew.Dense(1))
    >>> tokens = np.array([[3, 5, 3, 8], [3, 5, 9, 9]])[..., None]
    >>> float(ew.nngp(net, tokens)[0, 1])  # three of sixteen pairs are equal
    0.1875
    """

    vocabulary: int = eqx.field(static=True)
    width: int | None = eqx.field(static=True)
    affine: RandomAffine

    def __init__(
        self,
        vocabulary: int,
        width: int | None = None,
        *,
        w_std: Hyper = 1.0,
        speed: Hyper = 1.0,
        frozen: bool = False,
    ):
        self.vocabulary = whole(vocabulary, "Embedding: vocabulary")
        self.width = width
        self.affine = RandomAffine(w_std, speed=speed, frozen=frozen)

    def describe(self, signal: Signal) -> Signal:
        if not signal.is_data or signal.gaussian or signal.channels != 1:
            what = f"a signal of the shape {signal.shape}" + ("" if signal.is_data else " that other layers have made")
            raise ArchitectureError(
                f"Embedding reads tokens, one whole number at each site, and its input is {what}. Put it first, and "
                "pass tokens of the shape (n, *sites, 1): tokens[..., None]."
            )
        self.affine.check(self, signal)
        return signal.drawn(signal.sites, self.width)

    def demand(self, wanted: Demand) -> Demand:
        return replace(wanted, data=True)

    def sample(self, key: Array, signal: Signal) -> Affine:
        out = known_channels(self, self.describe(signal))
        return self.affine.draw(key, (self.vocabulary, out), (out,), fans_of(signal, 1, out))

    def forward(self, params: Affine, example: Example) -> Example:
        params = self.affine.held(params)
        tokens = self._checked(example.x[..., 0], example.mask)
        return example.with_values(self.affine.scaled(params, params.weight[tokens.astype(jnp.int32)]))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        assert k.data1 is not None and k.data2 is not None
        channel = (slice(None),) * k.rank + (0,)
        tokens = {1: self._checked(k.data1[channel], k.mask1), 2: self._checked(k.data2[channel], k.mask2)}

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            equal = outer(tokens[i], tokens[j], k.rank, c.pairs, jnp.equal).astype(c.nngp.dtype)
            ntk = None if c.ntk is None else jnp.zeros_like(equal)
            apart = None if k.rank or c.same else 2 * (1 - equal)
            return replace(c, nngp=equal, ntk=ntk, minus=apart, plus=None)

        k = self.affine.propagate(k.each_with(rule), lambda cov, _: cov, 1)
        return k.with_channels(self.width).masked()

    def _checked(self, tokens: Array, mask: Array | None) -> Array:
        """The tokens, zero where there are none; an error at run time where one is not of the vocabulary."""
        tokens = tokens if mask is None else jnp.where(mask, tokens, 0)
        bad = (tokens != jnp.floor(tokens)) | (tokens < 0) | (tokens >= self.vocabulary)
        return eqx.error_if(
            tokens,
            jnp.any(bad),
            f"Embedding(vocabulary={self.vocabulary}) got a number that is no token: expected whole numbers from 0 to "
            f"{self.vocabulary - 1}. Mask the sites that hold none.",
        )


class PositionEmbedding(AbstractLayer):
    """A random vector for every place, whatever stands there: a branch to be added to what is there.

    Two places have the covariance `w_std^2 decay(distance^2)`, and none where there is no `decay`.

    - `length`: the most sites for which there are vectors; `None` is any number.
    - `decay`, `w_std`: as in `Position`. `width`, `speed`, `frozen`: as in `Dense`.

    >>> import everwide as ew
    >>> first = ew.Sum(ew.layers.Embedding(100), ew.layers.PositionEmbedding(length=64, w_std=0.5))
    >>> net = ew.Serial(first, ew.SelfAttention(causal=True), ew.layers.Index(-1), ew.Dense(1))
    """

    width: int | None = eqx.field(static=True)
    length: int | None = eqx.field(static=True)
    decay: Callable[[Array], Array] | None = eqx.field(static=True)
    affine: RandomAffine

    def __init__(
        self,
        width: int | None = None,
        *,
        length: int | None = None,
        w_std: Hyper = 1.0,
        decay: Callable[[Array], Array] | None = None,
        speed: Hyper = 1.0,
        frozen: bool = False,
    ):
        self.width, self.decay = width, decay
        self.length = None if length is None else whole(length, "PositionEmbedding: length")
        self.affine = RandomAffine(w_std, speed=speed, frozen=frozen)

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal)
        self.affine.check(self, signal)
        longest = max(signal.sites)
        if self.length is not None and longest > self.length:
            raise ArchitectureError(
                f"PositionEmbedding(length={self.length}) has no vector for site {self.length} of an input of shape "
                f"{signal.shape}. Shorten the sequences, or raise the length to {longest}."
            )
        return signal.drawn(signal.sites, self.width)

    def demand(self, wanted: Demand) -> Demand:
        return Demand(wanted.cross, wanted.own)  # shapes alone

    def sample(self, key: Array, signal: Signal) -> Affine:
        out = known_channels(self, self.describe(signal))
        sites = signal.sites if self.length is None else (self.length,) * len(signal.sites)
        return self.affine.draw(key, (*sites, out), (out,), replace(fans_of(signal, 1, out), reads_hidden=False))

    def forward(self, params: Affine, example: Example) -> Example:
        params = self.affine.held(params)
        sites = example.x.shape[:-1]
        vectors = params.weight[tuple(slice(n) for n in sites)]
        if self.decay is not None:
            root = self._law.root(sites, vectors.dtype)
            vectors = (root @ vectors.reshape(len(root), -1)).reshape(vectors.shape)
        return example.with_values(self.affine.scaled(params, vectors))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        places = self._law.covariance(k.sites, k.cross.nngp.dtype)

        def rule(c: Covariance) -> Covariance:
            every = places.reshape(*k.sites, *k.sites) if c.pairs is Pairs.ALL_SITES else places[0, 0]
            shape = c.nngp.shape
            every = every.reshape(*every.shape, *(1,) * (len(shape) - every.ndim))
            nngp = jnp.broadcast_to(every, shape)
            return replace(c, nngp=nngp, ntk=None if c.ntk is None else jnp.zeros_like(nngp), minus=None, plus=None)

        k = self.affine.propagate(k.each(rule), lambda cov, _: cov, 1)
        return k.with_channels(self.width).masked()

    @property
    def _law(self) -> Position:
        return Position(decay=self.decay)
