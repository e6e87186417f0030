"""Self-attention with infinitely many heads.

Hron, Bahri, Sohl-Dickstein, Novak, "Infinite attention: NNGP and NTK for deep attention networks" (2020).
"""

import math
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array

from .._checks import Choice, whole
from .._trees import Hyper, like, positive, squared
from ..kernel import Covariance, Example, Kernel, same_site
from ..signal import ArchitectureError, Demand, Pairs, Parametrization, Signal
from ._affine import Affine, RandomAffine, fans_of, known_channels, known_limit
from ._base import AbstractLayer
from ._scores import Scores, like_rank, nonlinear_scores, rotary_mean, rotated, softmax_over, steps_between
from ._sites import needs_sites


class Mechanism(Choice):
    """What turns a score into a weight."""

    SOFTMAX = "softmax"
    IDENTITY = "identity"
    RELU = "relu"
    ABS = "abs"


class Scaling(Choice):
    """Scores are divided by the number of key channels (queries then equal keys), or by its square root."""

    LINEAR = "linear"
    SQRT = "sqrt"


class Position(eqx.Module):
    """Random positional embeddings, added to the channels or (with `channels`) put beside them.

    Two positions have the covariance `w_std^2 decay(sum_axis |p - q|^p_norm)`; `decay=None` makes them independent.
    Keys and queries see them; with `values=True` the values do too.

    >>> import everwide as ew
    >>> layer = ew.SelfAttention(position=ew.layers.Position(w_std=0.5))
    """

    w_std: Hyper = 1.0
    decay: Callable[[Array], Array] | None = eqx.field(static=True, default=None)
    p_norm: float = eqx.field(static=True, default=2.0)
    channels: int | None = eqx.field(static=True, default=None)
    values: bool = eqx.field(static=True, default=False)

    def covariance(self, sites: tuple[int, ...], dtype) -> Array:
        """`(P, P)` between all positions, before `w_std`."""
        places = jnp.stack(jnp.meshgrid(*(jnp.arange(s) for s in sites), indexing="ij"), -1).reshape(-1, len(sites))
        if self.decay is None:
            return jnp.eye(len(places), dtype=dtype)
        steps = jnp.abs(places[:, None] - places[None, :]).astype(dtype)
        return self.decay(jnp.sum(steps**self.p_norm, -1)).astype(dtype)

    def root(self, sites: tuple[int, ...], dtype) -> Array:
        """What makes independent vectors of positions have that covariance."""
        places = self.covariance(sites, dtype)
        return jnp.linalg.cholesky(places + 1e-6 * jnp.eye(len(places), dtype=dtype))

    def weights(self, channels: int | None, array: Array) -> tuple[Array | float, Array | float]:
        """Shares of the signal and of the embeddings in what keys and queries see."""
        variance = squared(self.w_std, array)
        if self.channels is None:
            return 1.0, variance
        assert channels is not None  # `describe` has looked
        total = channels + self.channels
        return channels / total, variance * (self.channels / total)


class AttentionParams(eqx.Module):
    """Weights of one attention layer; heads lead."""

    query: Affine
    key: Affine
    value: Affine
    out: Affine
    position: Affine | None


class SelfAttention(AbstractLayer):
    """Every site looks at every other, through infinitely many heads.

    - `mechanism`: softmax, identity, relu or abs of the scores. `scaling`: linear (`1/d`, queries equal keys) or sqrt.
      Softmax with sqrt scaling has no known limit.
    - `position`: positional embeddings. `causal`: a site sees only itself and those before it (in row-major order).
    - `rotary`: the base of rotary positions (10000 in the paper): queries and keys are turned by their places, and
      scores of places `t` apart are multiplied by `(Ci(t) - Ci(t / base)) / log(base)`. `relative`: a fixed function of
      `q - p` that is added to the scores of all heads. Both need linear scaling and one site axis.
    - `heads`, `key_width`, `value_width`, `width`: sizes of a finite sample; `None` takes the width of the network.
      `key_heads`: so many of keys and values, each for a group of queries (grouped-query attention); the limit is the
      same, because heads of a group have output weights of their own.

    >>> import everwide as ew
    >>> block = ew.Residual(ew.SelfAttention(causal=True))
    >>> net = ew.Serial(ew.Dense(), block, ew.LayerNorm(), ew.Gelu(), ew.GlobalAvgPool(), ew.Dense(1))

    Su et al., "RoFormer: enhanced transformer with rotary position embedding" (2021); Ainslie et al., "GQA: training
    generalized multi-query transformer models from multi-head checkpoints" (2023).
    """

    width: int | None = eqx.field(static=True, default=None)
    mechanism: Mechanism = eqx.field(static=True, kw_only=True, converter=Mechanism, default="softmax")
    scaling: Scaling = eqx.field(static=True, kw_only=True, converter=Scaling, default="linear")
    w_query_std: Hyper = eqx.field(kw_only=True, default=1.0)
    w_key_std: Hyper = eqx.field(kw_only=True, default=1.0)
    w_value_std: Hyper = eqx.field(kw_only=True, default=1.0)
    w_out_std: Hyper = eqx.field(kw_only=True, default=1.0)
    b_std: Hyper | None = eqx.field(kw_only=True, default=None)
    position: Position | None = eqx.field(kw_only=True, default=None)
    causal: bool = eqx.field(static=True, kw_only=True, default=False)
    frozen: bool = eqx.field(static=True, kw_only=True, default=False)
    heads: int | None = eqx.field(static=True, kw_only=True, default=None)
    key_width: int | None = eqx.field(static=True, kw_only=True, default=None)
    value_width: int | None = eqx.field(static=True, kw_only=True, default=None)
    key_heads: int | None = eqx.field(static=True, kw_only=True, default=None)
    rotary: float | None = eqx.field(static=True, kw_only=True, default=None)
    relative: Callable[[Array], Array] | None = eqx.field(static=True, kw_only=True, default=None)

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal)
        for field in ("w_query_std", "w_key_std", "w_value_std", "w_out_std", "b_std"):
            positive(self, field, getattr(self, field))
        known_limit(self, signal)
        if signal.infinite and signal.parametrization is not Parametrization.NTK:
            raise ArchitectureError(
                "The limit of SelfAttention is known in the ntk parametrization only. Use parametrization='ntk', or "
                "sample a finite network with net.init."
            )
        if self.scaling is Scaling.SQRT and self.mechanism is Mechanism.SOFTMAX and signal.infinite:
            raise ArchitectureError(
                "SelfAttention(mechanism='softmax', scaling='sqrt') has no known limit: the scores stay random. "
                "Use scaling='linear', or the mechanism identity, relu or abs."
            )
        if self._has_distances and (self.scaling is Scaling.SQRT or len(signal.sites) != 1):
            raise ArchitectureError(
                "SelfAttention(rotary=..., relative=...) is known with scaling='linear' over one site axis, got "
                f"scaling='{self.scaling}' and an input of shape {signal.shape}. Position(...) is known with all."
            )
        if self.rotary is not None and not self.rotary > 1:
            raise ArchitectureError(f"SelfAttention(rotary={self.rotary!r}): expected a base above 1, such as 10000.")
        if self.position is not None and self.position.channels is not None and signal.channels is None:
            raise ArchitectureError(
                "SelfAttention with Position(channels=...) weighs the embeddings by the number of input channels, "
                "which is open. Give the layer before it a width."
            )
        return signal.drawn(signal.sites, self.width)

    def demand(self, wanted: Demand) -> Demand:
        if self.scaling is Scaling.SQRT and self.mechanism is Mechanism.IDENTITY:
            return wanted.all_sites()
        return Demand(Pairs.ALL_SITES, Pairs.ALL_SITES)  # weights are read off each example's own covariance

    def weights(self) -> dict[str, RandomAffine]:
        """The random maps of which the layer consists, as they are called in its parameters."""

        def plain(w_std):
            return RandomAffine(w_std, frozen=self.frozen)

        shared = (self.w_query_std * self.w_key_std) ** 0.5  # queries equal keys: each has its part of their product
        linear = self.scaling is Scaling.LINEAR
        maps = {
            "query": plain(shared if linear else self.w_query_std),
            "key": plain(shared if linear else self.w_key_std),
            "value": plain(self.w_value_std),
            "out": RandomAffine(self.w_out_std, self.b_std, frozen=self.frozen),
        }
        return maps if self.position is None else maps | {"position": plain(self.position.w_std)}

    def sample(self, key: Array, signal: Signal) -> AttentionParams:
        channels, out = known_channels(self, signal), known_channels(self, self.describe(signal))
        default = out if signal.width is None else signal.width
        given = {field: getattr(self, field) for field in ("heads", "key_width", "value_width")}
        heads, keys, values = (default if n is None else whole(n, field) for field, n in given.items())
        groups = heads if self.key_heads is None else whole(self.key_heads, "key_heads")
        if heads % groups or (self.rotary is not None and keys % 2):
            raise ArchitectureError(
                f"SelfAttention has {heads} heads for {groups} of keys and values, and {keys} channels of keys: heads "
                "must be a multiple of key_heads, and rotary positions turn pairs of channels."
            )
        beside = 0 if self.position is None or self.position.channels is None else self.position.channels
        seen = channels + beside
        valued = seen if self.position is not None and self.position.values else channels
        last = fans_of(signal, heads * values, out)

        def inner(n_in, n_out):
            return replace(last, fan_in=n_in, fan_out=n_out, feeds_hidden=True)

        drawn = {
            "query": ((heads, seen, keys), inner(seen, heads * keys)),
            "key": ((groups, seen, keys), inner(seen, groups * keys)),
            "value": ((groups, valued, values), inner(valued, groups * values)),
            "out": ((heads, values, out), replace(last, reads_hidden=True)),
            "position": ((math.prod(signal.sites), beside or channels), replace(inner(1, seen), reads_hidden=False)),
        }
        keyed = dict(zip(drawn, jr.split(key, len(drawn)), strict=True))
        params = {n: affine.draw(keyed[n], drawn[n][0], (out,), drawn[n][1]) for n, affine in self.weights().items()}
        query = params["key"] if self.scaling is Scaling.LINEAR else params["query"]
        return AttentionParams(query, params["key"], params["value"], params["out"], params.get("position"))

    def forward(self, params: AttentionParams, example: Example) -> Example:
        params = lax.stop_gradient(params) if self.frozen else params
        sites, affines = example.x.shape[:-1], self.weights()
        x = example.x.reshape(-1, example.x.shape[-1])
        mask = None if example.mask is None else example.mask.reshape(-1)
        seen = self._with_positions(params, x, sites, mask)
        plain = self.position is None or not self.position.values
        query = params.key if self.scaling is Scaling.LINEAR else params.query

        heads = len(params.out.weight)

        def per_head(n, a, p):
            made = affines[n].scaled(p, jnp.einsum("pc,hcd->hpd", a, p.weight))
            return jnp.repeat(made, heads // len(made), 0)

        queries, keys = (self._turned(per_head(n, seen, p)) for n, p in (("query", query), ("key", params.key)))
        values = per_head("value", x if plain else seen, params.value)
        power = 1.0 if self.scaling is Scaling.LINEAR else 0.5
        scores = jnp.einsum("hpd,hqd->hpq", queries, keys) / keys.shape[-1] ** power
        scores = scores if self.relative is None else scores + self.relative(steps_between(len(x), x.dtype))
        weights = self._weigh(scores, self._allowed(len(x), mask), keys=-1)
        read = jnp.einsum("hpq,hqv->hpv", weights, values)
        y = affines["out"].scaled(params.out, jnp.einsum("hpv,hvo->po", read, params.out.weight))
        return example.with_values(y.reshape(*sites, -1))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        flat = _flattened(k)
        out = self._linear(flat) if self.scaling is Scaling.LINEAR else self._sqrt(flat)
        return _unflattened(out, k).centred().with_channels(self.width).masked()

    def _linear(self, k: Kernel) -> Kernel:
        """Scores do not fluctuate: they are the own covariances, and gradients pass through the values alone."""
        size = math.prod(k.sites)
        weights = {}
        for i, full, mask in ((1, k.full1, k.mask1), (2, k.full2, k.mask2)):
            seen, _ = self._seen(k, full, i, i)
            allowed = like_rank(self._allowed(size, mask), seen)
            weights[i] = self._weigh(self._apart(self._scale_scores(seen)), allowed, keys=1)

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            value, tangent = self._valued(k, c, i, j)

            def average(a):
                return jnp.einsum("pq...,qr...,sr...->ps...", weights[i], a, weights[j])

            gain = self._gain(value)
            nngp = gain * average(value)
            ntk = None if tangent is None else gain * average(tangent) + self._trained(2 * nngp)
            return self._biased(c, nngp, ntk)

        return k.each_with(rule)

    def _sqrt(self, k: Kernel) -> Kernel:
        """Scores are Gaussian with covariance `seen(p, p') seen(q, q')`, and are trained."""
        size = math.prod(k.sites)
        allowed = {1: self._allowed(size, k.mask1), 2: self._allowed(size, k.mask2)}

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            value, tangent = self._valued(k, c, i, j)
            seen, seen_tangent = self._seen(k, c, i, j)
            score2 = (like(self.w_query_std, value) * like(self.w_key_std, value)) ** 2
            scores = Scores(seen, seen_tangent, value, tangent, allowed[i], allowed[j], score2, self.frozen)
            if self.mechanism is Mechanism.IDENTITY:
                nngp, ntk = scores.identity()
            else:
                full = {1: k.full1, 2: k.full2}
                var1, var2 = (same_site(self._seen(k, full[n], n, n)[0], 1) for n in (i, j))
                nngp, ntk = nonlinear_scores(scores, var1, var2, even=self.mechanism is Mechanism.ABS)
            gain = self._gain(value)
            ntk = None if ntk is None else gain * ntk + self._trained(2 * gain * nngp)
            return self._biased(c, gain * nngp, ntk)

        return k.each_with(rule)

    def _gain(self, array: Array) -> Array | float:
        return (like(self.w_value_std, array) * like(self.w_out_std, array)) ** 2

    def _trained(self, added: Array) -> Array | float:
        """What value and output weights add to the tangent kernel."""
        return 0.0 if self.frozen else added

    def _biased(self, c: Covariance, nngp: Array, ntk: Array | None) -> Covariance:
        b2 = 0.0 if self.b_std is None else squared(self.b_std, nngp)
        ntk = None if ntk is None else ntk + (0.0 if self.frozen else b2)
        return replace(c, nngp=nngp + b2, ntk=ntk, minus=None, plus=None)

    def _seen(self, k: Kernel, c: Covariance, i: int, j: int) -> tuple[Array, Array | None]:
        """Second moments of what keys and queries see, with positional embeddings; embeddings are trained."""
        if self.position is None:
            return c.nngp, c.ntk
        signal, embedding = self.position.weights(k.channels, c.nngp)
        mask = {1: k.mask1, 2: k.mask2}
        places = self.position.covariance(k.sites, c.nngp.dtype)
        places = places.reshape(*places.shape, *(1,) * (c.nngp.ndim - 2))
        left, right = mask[i], mask[j]
        if left is not None and right is not None:
            places = jnp.where(left[:, None] & right[None, :], places, 0)
        learned = 0.0 if self.frozen else embedding * places
        return signal * c.nngp + embedding * places, None if c.ntk is None else signal * c.ntk + learned

    def _valued(self, k: Kernel, c: Covariance, i: int, j: int) -> tuple[Array, Array | None]:
        """Second moments of what the values see."""
        plain = self.position is None or not self.position.values
        return (c.nngp, c.ntk) if plain else self._seen(k, c, i, j)

    def _scale_scores(self, scores: Array) -> Array:
        return scores * (like(self.w_query_std, scores) * like(self.w_key_std, scores))

    @property
    def _has_distances(self) -> bool:
        return self.rotary is not None or self.relative is not None

    def _apart(self, scores: Array) -> Array:
        """Scores `(P, P, *examples)` in the limit, as the distances of their places change them."""
        size = len(scores)
        if self.rotary is not None:
            scores = scores * like_rank(rotary_mean(size, self.rotary, scores.dtype), scores)
        if self.relative is not None:
            scores = scores + like_rank(self.relative(steps_between(size, scores.dtype)), scores)
        return scores

    def _turned(self, heads: Array) -> Array:
        """Queries or keys `(heads, P, channels)`, pairs of channels turned by their places."""
        return heads if self.rotary is None else rotated(heads, self.rotary)

    def _allowed(self, size: int, mask: Array | None) -> Array:
        """`(P, P, *examples)`: may site `p` look at site `q`?"""
        allowed = jnp.tril(jnp.ones((size, size), bool)) if self.causal else jnp.ones((size, size), bool)
        if mask is None:
            return allowed
        return allowed.reshape(size, size, *(1,) * (mask.ndim - 1)) & mask[None]

    def _weigh(self, scores: Array, allowed: Array, *, keys: int) -> Array:
        """Weights of all keys (axis `keys`) for each query."""
        if self.mechanism is Mechanism.SOFTMAX:
            return softmax_over(scores, allowed, keys)
        shape = {Mechanism.IDENTITY: lambda s: s, Mechanism.RELU: jax.nn.relu, Mechanism.ABS: jnp.abs}
        return jnp.where(allowed, shape[self.mechanism](scores), 0)

    def _with_positions(self, params: AttentionParams, x: Array, sites: tuple[int, ...], mask: Array | None) -> Array:
        """What keys and queries see at finite width."""
        if self.position is None or params.position is None:
            return x
        root = self.position.root(sites, x.dtype)
        embedding = self.weights()["position"].scaled(params.position, root @ params.position.weight.astype(x.dtype))
        embedding = embedding if mask is None else jnp.where(mask[:, None], embedding, 0)
        return x + embedding if self.position.channels is None else jnp.concatenate([x, embedding], -1)


def _flattened(k: Kernel) -> Kernel:
    """All site axes as one; `sites` keeps their shape for the positions."""
    size = math.prod(k.sites)

    def pairs(a, _):
        return a.reshape(size, size, *a.shape[2 * k.rank :])

    return k.each(lambda c: c.map(pairs)).masks(lambda m: m.reshape(size, *m.shape[k.rank :]))


def _unflattened(flat: Kernel, k: Kernel) -> Kernel:
    def pairs(a, _):
        return a.reshape(*k.sites, *k.sites, *a.shape[2:])

    return replace(flat.each(lambda c: c.map(pairs)), mask1=k.mask1, mask2=k.mask2)
