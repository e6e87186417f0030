"""Layers whose limit is not known, sampled inside a network whose other layers are exact."""

import math
from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from .._checks import whole
from .._trees import Hyper, like, name
from ..gaussian import safe_reciprocal
from ..kernel import Covariance, Example, Kernel
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._affine import Affine, known_limit
from ._base import AbstractFixed, AbstractLayer, Dense, Params, Parts
from ._conv import Conv, ConvTranspose
from ._gates import AbstractGates
from ._recurrent import Recurrent

_ROUNDING = 30  # units of it, relative to the largest variance, that are added so that a covariance can be factorized


class _Drawn(NamedTuple):
    """What one example becomes: values and their change along a random direction, `(sites, channels)`, and its mask."""

    values: Array
    change: Array
    mask: Array | None


class Sampled(AbstractLayer):
    """A layer without a known limit: Gaussian signals are drawn from their exact law, the layer acts on them.

    For every pair of examples, `width` channels of the signal below are drawn from its joint law over all sites, the
    layer is applied to them, and the rest of the network goes on with the second moments of what comes out. Tangent
    kernels are pushed through derivatives of the layer along random directions. `gram` does so several times, and gives
    means with their standard errors (`error`); what is left is a bias of the order of 1 / width.

    - `layer`: or several, in `Serial`. They must read a Gaussian signal: begin right behind a `Dense` or `Conv` layer,
      so that activations, `MaxPool` and whatever else follows until the next weights are inside; or with weights that
      read all channels (`Lstm`, `Dense`), which see no more of a signal than its second moments. In it, any activation
      may follow any layer. Noise (dropout) is off.
    - `width`: channels of a draw.

    >>> import everwide as ew
    >>> pooled = ew.layers.Sampled(ew.Serial(ew.Relu(), ew.layers.MaxPool((2, 2))))
    >>> net = ew.Serial(ew.Conv((3, 3)), pooled, ew.Flatten(), ew.Dense(1))
    >>> [step.name for step in ew.explain(net, (8, 8, 3)).steps if step.is_sampled]
    ['Sampled']
    """

    layer: AbstractLayer
    width: int = eqx.field(static=True)

    def __init__(self, layer: AbstractLayer, *, width: int = 256):
        self.layer = layer
        self.width = whole(width, "Sampled: width")

    @property
    def reads_moments(self) -> bool:
        """Whether fresh weights read all channels before anything else does: then any signal may come before."""
        return _mixes(self.layer)

    def parts(self) -> Parts:
        return Parts((self.layer,), "sampled")

    def describe(self, signal: Signal) -> Signal:
        if not signal.gaussian and not signal.concrete and not self.reads_moments:
            raise ArchitectureError(
                f"Sampled({name(self.layer)}) draws its input from a Gaussian law, and the signal before it has none: "
                "it is the raw input, the output of a nonlinearity, or mixes channels of different laws. Let it begin "
                "behind a Dense or Conv layer, with all that follows inside."
            )
        out = self.layer.describe(self._inside(signal))
        weighted = jax.eval_shape(lambda key: self.layer.sample(key, self._inside(signal)), jr.key(0))
        if jax.tree.leaves(weighted):
            known_limit(self, signal)
        channels = None if signal.channels is None else out.channels
        law = replace(out, readouts=signal.readouts, concrete=signal.concrete, width=signal.width, sampled=True)
        return law.reshaped(out.sites, channels)

    def _inside(self, signal: Signal) -> Signal:
        """The same signal, of a finite network."""
        inside = signal.at(0).reshaped(signal.sites, self.width if signal.channels is None else signal.channels)
        readouts = frozenset[tuple[int, ...]]() if signal.readouts is None else signal.readouts
        width = self.width if signal.width is None else signal.width
        return replace(inside, concrete=True, readouts=readouts, width=width)

    def demand(self, wanted: Demand) -> Demand:
        return Demand(Pairs.ALL_SITES, Pairs.ALL_SITES)

    def sample(self, key: Array, signal: Signal) -> Params:
        return self.layer.sample(key, self._inside(signal))

    def forward(self, params: Params, example: Example) -> Example:
        return replace(self.layer.forward(params, replace(example, key=None)), key=example.key)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        assert k.key is not None
        drawn = Signal((*k.sites, None), gaussian=True, parametrization=k.parametrization)
        own_signal = self._inside(replace(drawn, width=k.width).reshaped(k.sites, k.channels))
        draw = _Draw.of(self.layer, self._inside(drawn), own_signal, k)
        own = {1: draw.alone(k.full1, k.mask1)}
        own[2] = own[1] if k.cross.same else draw.alone(k.full2, k.mask2)
        rank = len(draw.sites)
        size = {i: jnp.sqrt(_variances(one)) for i, one in own.items()}

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            nngp, ntk = (own[i].nngp, own[i].ntk) if c.same else draw.together(k, c, size[i], size[j])
            pairs = Pairs.ALL_SITES if rank else Pairs.SAME_SITE
            shaped = [None if a is None else a.reshape(*draw.sites * 2, *a.shape[2:]) for a in (nngp, ntk)]
            assert shaped[0] is not None
            return Covariance(shaped[0], None if c.ntk is None else shaped[1], pairs=pairs, same=c.same)

        means = [own[i].mean.reshape(*draw.sites, *own[i].mean.shape[1:]) for i in (1, 2)]
        masks = [None if m is None else m.reshape(*draw.sites, *m.shape[1:]) for m in (own[1].mask, own[2].mask)]
        out = replace(k.each_with(rule), mean1=means[0], mean2=means[1], mask1=masks[0], mask2=masks[1])
        channels = None if k.channels is None else self.layer.describe(own_signal).channels
        out = replace(out, sites=draw.sites, channels=channels, estimated=True)
        return out.restrict(Demand(max(wanted.cross, Pairs.SAME_SITE), wanted.own)).masked()


class _Own(NamedTuple):
    """Estimates for every example with itself, sites first, examples last."""

    nngp: Array
    ntk: Array | None
    mean: Array
    mask: Array | None


def _variances(own: _Own) -> Array:
    return jnp.moveaxis(jnp.diagonal(own.nngp), -1, 0)


class _Draw(NamedTuple):
    """The random numbers of one layer, the same for all examples: weights, signals, and directions of both."""

    layer: AbstractLayer
    inside: Signal
    params: Params
    direction: Params
    signal: Array  # (2, P, width)
    along: Array  # (P, width)
    sites: tuple[int, ...]

    @classmethod
    def of(cls, layer: AbstractLayer, inside: Signal, own: Signal, k: Kernel) -> "_Draw":
        """For the kernel that comes in; `inside` has the channels that are drawn, `own` those of the network."""
        assert k.key is not None and inside.channels is not None
        weights, moves, signals, along = jr.split(k.key, 4)
        dtype, size = k.cross.nngp.dtype, math.prod(k.sites)
        params = jax.tree.map(lambda a: a.astype(dtype), layer.sample(weights, inside))
        leaves, structure = jax.tree.flatten(params)
        keys = jr.split(moves, max(len(leaves), 1))
        moved = [jr.normal(key, leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=False)]
        direction = structure.unflatten(moved)
        if inside.parametrization.in_weights:
            direction = _as_many(direction, jax.eval_shape(lambda key: layer.sample(key, own), weights))
        shape = size, inside.channels
        draws = jr.normal(signals, (2, *shape), dtype), jr.normal(along, shape, dtype)
        return cls(layer, inside, params, direction, *draws, layer.describe(inside).sites)

    def alone(self, c: Covariance, mask: Array | None) -> _Own:
        """Every example with itself: `c` is over all pairs of sites, whatever examples follow."""
        covs, shape = self._flat(c.nngp)
        tangents = None if c.ntk is None else self._flat(c.ntk)[0]
        masks = None if mask is None else mask.reshape(len(self.along), -1).T

        def one(work: tuple[Array, Array | None, Array | None]) -> tuple:
            cov, tangent, there = work
            root = _root(cov)
            change = jnp.zeros_like(self.along) if tangent is None else _root(tangent) @ self.along
            out = self._run(root @ self.signal[0], change, there)
            channels = out.values.shape[-1]
            ntk = None if tangent is None else out.change @ out.change.T / channels
            return out.values @ out.values.T / channels, ntk, jnp.mean(out.values, -1), out.mask

        nngp, ntk, mean, there = jax.lax.map(one, (covs, tangents, masks))
        optional = [None if a is None else _trailing(a, shape) for a in (ntk, there)]
        return _Own(_trailing(nngp, shape), optional[0], _trailing(mean, shape), optional[1])

    def together(self, k: Kernel, c: Covariance, size1: Array, size2: Array) -> tuple[Array, Array | None]:
        """Every example of one batch with every one of the other, in units of their own sizes."""
        n1, n2 = c.nngp.shape[-2:]
        first, second = (self._flat(own.nngp)[0] for own in (k.full1, k.full2))
        masks = [None if m is None else m.reshape(len(self.along), -1).T for m in (k.mask1, k.mask2)]
        sizes = [jnp.moveaxis(s, 0, -1).reshape(-1, len(s)) for s in (size1, size2)]
        cross, _ = self._flat(c.nngp)
        tangent = jnp.zeros_like(cross) if c.ntk is None else self._flat(c.ntk)[0]

        def pair(at: Array) -> tuple[Array, Array]:
            i, j = at // n2, at % n2
            there = [None if m is None else m[row] for m, row in zip(masks, (i, j), strict=True)]
            block = jnp.block([[first[i], cross[at]], [cross[at].T, second[j]]])
            root = _nearest_root(block) if k.estimated else _root(block)
            values = root @ jnp.concatenate(list(self.signal))
            left, right = _halves(tangent[at])
            one = self._run(values[: len(values) // 2], left @ self.along, there[0])
            two = self._run(values[len(values) // 2 :], right @ self.along, there[1])
            channels = one.values.shape[-1]
            nngp = one.values @ two.values.T / channels
            scale1, scale2 = sizes[0][i] * safe_reciprocal(_size(one)), sizes[1][j] * safe_reciprocal(_size(two))
            return scale1[:, None] * nngp * scale2, one.change @ two.change.T / channels

        nngp, ntk = jax.lax.map(pair, jnp.arange(n1 * n2), batch_size=min(n1 * n2, 16))
        return _trailing(nngp, (n1, n2)), None if c.ntk is None else _trailing(ntk, (n1, n2))

    def _flat(self, cov: Array) -> tuple[Array, tuple[int, ...]]:
        """`(examples, P, P)`, and the shape of the examples."""
        size, shape = len(self.along), cov.shape[2 * len(self.inside.sites) :]
        return jnp.moveaxis(cov.reshape(size, size, -1), -1, 0), shape

    def _run(self, values: Array, change: Array, mask: Array | None) -> _Drawn:
        """The layer at `values`, and how fast it moves as they and all weights do."""
        shape = (*self.inside.sites, values.shape[-1])
        there = None if mask is None else mask.reshape(self.inside.sites)

        def apply(params: Params, x: Array) -> tuple[Array, Array | None]:
            out = self.layer.forward(params, Example(x.reshape(shape), there))
            return out.x.reshape(-1, out.x.shape[-1]), None if out.mask is None else out.mask.reshape(-1)

        def numbers(params: Params, x: Array) -> Array:
            return apply(params, x)[0]

        y, moved = jax.jvp(numbers, (self.params, values), (self.direction, change))
        return _Drawn(y, moved, apply(self.params, values)[1])


def _as_many(direction: Params, own: Params) -> Params:
    """Where weights carry their size, all of them move alike: so they do as much as those of the network, its own."""

    def one(drawn: Affine, there: Affine) -> Affine:
        more = math.sqrt(there.fans.fan_in / drawn.fans.fan_in)
        return Affine(drawn.weight * jnp.asarray(more, drawn.weight.dtype), drawn.bias, drawn.fans)

    return jax.tree.map(one, direction, own, is_leaf=lambda part: isinstance(part, Affine))


def _mixes(layer: AbstractLayer) -> bool:
    """Whether of a signal it sees the second moments only."""
    parts = layer.parts()
    if parts.is_chain:
        return bool(parts.layers) and _mixes(parts.layers[0])
    if parts.is_known:
        return all(map(_mixes, parts.layers))
    return isinstance(layer, Dense | Conv | ConvTranspose | Recurrent | AbstractGates)


def _size(drawn: _Drawn) -> Array:
    return jnp.sqrt(jnp.mean(drawn.values**2, -1))


def _trailing(a: Array, shape: tuple[int, ...]) -> Array:
    """Examples, which lead, as trailing axes."""
    return jnp.moveaxis(a, 0, -1).reshape(*a.shape[1:], *shape)


def _root(cov: Array) -> Array:
    """`L` with `L L^T = cov`, for a covariance that may be singular."""
    top = jnp.max(jnp.diagonal(cov))
    tiny = _ROUNDING * len(cov) * jnp.finfo(cov.dtype).eps * top + jnp.finfo(cov.dtype).tiny
    return jnp.linalg.cholesky(cov + tiny * jnp.eye(len(cov), dtype=cov.dtype))


def _nearest_root(cov: Array) -> Array:
    """The same for the nearest covariance, where one that is estimated is none: much slower."""
    values, vectors = jnp.linalg.eigh((cov + cov.T) / 2)
    return vectors * jnp.sqrt(jnp.maximum(values, 0))


def _halves(tangent: Array) -> tuple[Array, Array]:
    """`A` and `B` with `A B^T` the tangent kernel of two examples, as small as they can be."""
    left, size, right = jnp.linalg.svd(tangent)
    root = jnp.sqrt(size)
    return left * root, right.T * root


class StochasticDepth(AbstractFixed):
    """Drop a whole branch for an example with probability `rate`, and divide it by `1 - rate` otherwise.

    A finite network drops only when `apply` gets a `key`. The limit is that of training: which branches an example
    keeps is drawn, everything else is exact, and `gram` has means over draws with their standard errors.

    >>> import everwide as ew
    >>> block = ew.Residual(ew.Relu(), ew.Dense(), ew.layers.StochasticDepth(0.2))
    >>> net = ew.Serial(ew.Dense(), block, block, ew.Relu(), ew.Dense(1))

    Huang, Sun, Liu, Sedra, Weinberger, "Deep networks with stochastic depth" (2016).
    """

    rate: Hyper

    def describe(self, signal: Signal) -> Signal:
        if isinstance(self.rate, int | float) and not 0 <= self.rate < 1:
            raise ArchitectureError(
                f"StochasticDepth(rate={self.rate!r}): expected the probability of dropping, at least 0 and below 1."
            )
        return replace(signal, sampled=True)

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def forward(self, params: Params, example: Example) -> Example:
        if example.key is None:
            return example
        return example.with_values(example.x * self._factors(example.key, (), example.x))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        assert k.key is not None
        first, second = jr.split(k.key)
        if k.cross.same:
            second = first
        factors = {1: self._factors(first, _examples(k, 1), k.cross.nngp)}
        factors[2] = self._factors(second, _examples(k, 2), k.cross.nngp)

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            scaled = c.scaled(factors[i] * factors[j])
            return replace(scaled, minus=None, plus=None)  # of examples that are no longer of one size

        return k.each_with(rule).means_with(lambda m, i: m * factors[i])

    def _factors(self, key: Array, shape: tuple[int, ...], array: Array) -> Array:
        keep = 1 - like(self.rate, array)
        return jnp.where(jr.bernoulli(key, keep, shape), 1 / keep, 0).astype(array.dtype)


def _examples(k: Kernel, batch: int) -> tuple[int, ...]:
    """How the examples of a batch trail."""
    if k.cross.same:
        return k.cross.nngp.shape[-1:]
    n1, n2 = k.cross.nngp.shape[-2:]
    return (n1, 1) if batch == 1 else (1, n2)
