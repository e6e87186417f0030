"""Tied weights: the same ones at every step of a sequence, or of a chain of layers."""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from .._trees import Hyper, name
from ..kernel import Covariance, Example, Kernel, same_site
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._affine import Affine, RandomAffine, fans_of, known_channels
from ._base import AbstractLayer, Params, Parts, demand_inside, step
from ._sites import needs_sites

_READ = Demand(Pairs.SAME_SITE, Pairs.SAME_SITE)


class RecurrentParams(eqx.Module):
    """Weights that read the sequence, and weights that read the state before."""

    input: Affine
    state: Affine


class _Path(NamedTuple):
    """What recurs along time: second moments before the activation and after it, and means."""

    before: Array
    after: Array
    tangent: Array | None
    mean: Array


class _Walk(NamedTuple):
    """Pairs of times that are reached together: `(step, offset)`, and where to find `(time, time)` among them."""

    left: np.ndarray
    right: np.ndarray
    pairs: Pairs

    @classmethod
    def over(cls, length: int, pairs: Pairs) -> "_Walk":
        """Offsets between all times, or none. Around a circle, so that no pair is walked twice."""
        away = np.arange(length) if pairs is Pairs.ALL_SITES else np.zeros(1, int)
        right, left = np.broadcast_arrays(np.arange(length)[:, None], (np.arange(length)[:, None] + away) % length)
        return cls(left, right, pairs)

    @property
    def begins(self) -> np.ndarray:
        """Where one of both is at its first time: nothing came before."""
        return (self.left == 0) | (self.right == 0)

    def skewed(self, a: Array) -> Array:
        """`(time, time, ...)` or `(time, ...)` by step and offset."""
        return a[self.left, self.right] if self.pairs is Pairs.ALL_SITES else a[self.left]

    def straight(self, a: Array) -> Array:
        """Back again."""
        if self.pairs is not Pairs.ALL_SITES:
            return a[:, 0]
        length = len(self.left)
        one, two = np.meshgrid(np.arange(length), np.arange(length), indexing="ij")
        return a[two, (one - two) % length]


class Recurrent(AbstractLayer):
    """`h[t] = activation(W h[t - 1] + U x[t] + b)` along the one site axis, with the same weights at all times.

    Gives the states at all times. `h` is zero before the first one, and at sites that a mask says do not exist: the
    state begins anew after them. So sequences of different lengths may be filled up on either side; on the left, the
    last site holds the last state of all of them (`Index(-1)`).

    - `activation`: what acts on each site by itself and has no weights.
    - `w_std`: of `W`, the state's; `u_std`, `b_std`: of `U`, the input's, and of the biases; scaled as in
      `Dense`. `b_state_std`: of second biases, which PyTorch adds to `W h`.
    - `reverse`: from the last time to the first; a sum of both is a bidirectional network.
    - `width`, `frozen`: as in `Dense`.

    Before the activation, `K(t, t') = u_std^2 K_x(t, t') + b_std^2 + w_std^2 V(t - 1, t' - 1)` with `V` the second
    moments after it, and `T(t, t') = K(t, t') + u_std^2 T_x(t, t') + w_std^2 V'(t - 1, t' - 1) T(t - 1, t' - 1)`.

    >>> import everwide as ew
    >>> last = ew.Serial(ew.layers.Recurrent(ew.Erf(), w_std=0.9, b_std=0.1), ew.layers.Index(-1), ew.Dense(1))

    Alemohammad, Wang, Balestriero, Baraniuk, "The recurrent neural tangent kernel" (2021).
    """

    activation: AbstractLayer
    width: int | None = eqx.field(static=True)
    input: RandomAffine
    state: RandomAffine
    reverse: bool = eqx.field(static=True)

    def __init__(
        self,
        activation: AbstractLayer,
        width: int | None = None,
        *,
        w_std: Hyper = 1.0,
        u_std: Hyper = 1.0,
        b_std: Hyper | None = None,
        b_state_std: Hyper | None = None,
        reverse: bool = False,
        frozen: bool = False,
    ):
        self.activation, self.width, self.reverse = activation, width, reverse
        self.input = RandomAffine(u_std, b_std, frozen=frozen)
        self.state = RandomAffine(w_std, b_state_std, frozen=frozen)

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal, 1)
        self.input.check(self, signal)
        state = signal.drawn(signal.sites, self.width)
        self.state.check(self, state)
        out = self.activation.describe(state)
        alone = not self.activation.parts().layers and not self.activation.weights()
        kept = (out.sites, out.channels) == (state.sites, state.channels)
        if not (alone and kept and self.activation.demand(_READ) == _READ):
            raise ArchitectureError(
                f"Recurrent({name(self.activation)}): expected an activation, a layer without weights that acts on "
                "each site by itself, such as Erf() or Tanh()."
            )
        return out

    def demand(self, wanted: Demand) -> Demand:
        return wanted.with_variances()  # both times of a pair move together

    def sample(self, key: Array, signal: Signal) -> RecurrentParams:
        out = known_channels(self, self.describe(signal))
        channels = known_channels(self, signal)
        fans = replace(fans_of(signal, channels, out), feeds_hidden=True)
        first, second = jr.split(key)
        return RecurrentParams(
            self.input.draw(first, (channels, out), (out,), fans),
            self.state.draw(second, (out, out), (out,), replace(fans, fan_in=out, reads_hidden=True)),
        )

    def forward(self, params: RecurrentParams, example: Example) -> Example:
        read, held = self.input.held(params.input), self.state.held(params.state)
        driven = self.input.scaled(read, example.x @ read.weight)
        there = jnp.ones(len(driven), bool) if example.mask is None else example.mask

        def body(state: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            before = now[0] + self.state.scaled(held, state @ held.weight)
            after = jnp.where(now[1], self.activation.forward((), Example(before)).x, 0)
            return after, after

        start = jnp.zeros_like(driven[0])
        return example.with_values(jax.lax.scan(body, start, (driven, there), reverse=self.reverse)[1])

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        k = self.input.propagate(_turned(k) if self.reverse else k, lambda cov, _: cov, k.channels)
        own = {1: self._alone(k, k.full1, k.mask1)}
        own[2] = own[1] if k.cross.same else self._alone(k, k.full2, k.mask2)

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            if c.same and c.pairs is Pairs.SAME_SITE:
                return replace(c, nngp=own[i].after, ntk=own[i].tangent)
            path = self._together(k, c, own[i].before, own[j].before, (i, j))
            if not c.same:
                return replace(c, nngp=path.after, ntk=path.tangent)
            eye = jnp.eye(len(path.after), dtype=bool).reshape(*path.after.shape[:2], *(1,) * (path.after.ndim - 2))
            tangent = None if path.tangent is None else _where(eye, own[i].tangent, path.tangent)
            return replace(c, nngp=_where(eye, own[i].after, path.after), ntk=tangent)

        out = replace(k.each_with(rule), mean1=own[1].mean, mean2=own[2].mean)
        out = out.with_channels(self.width).masked()
        return _turned(out) if self.reverse else out

    def _alone(self, k: Kernel, c: Covariance, mask: Array | None) -> _Path:
        """One time with itself, of one example with itself."""
        nngp = c.variances(1)
        ntk = c.ntk if c.ntk is None or c.pairs is Pairs.SAME_SITE else same_site(c.ntk, 1)
        driven = replace(c, nngp=nngp[:, None], ntk=None if ntk is None else ntk[:, None], pairs=Pairs.SAME_SITE)
        masks = None if mask is None else mask[:, None]
        path = self._along(k, driven, None, None, (masks, masks), np.arange(len(nngp))[:, None] == 0)
        return _Path(*(None if a is None else a[:, 0] for a in path))  # pyright: ignore[reportArgumentType]

    def _together(self, k: Kernel, c: Covariance, var1: Array, var2: Array, who: tuple[int, int]) -> _Path:
        """Two examples, or two times of one."""
        walk = _Walk.over(k.sites[0], c.pairs)
        masks = {1: k.mask1, 2: k.mask2}
        left, right = masks[who[0]], masks[who[1]]
        skewed = (None if left is None else left[walk.left], None if right is None else right[walk.right])
        ntk = None if c.ntk is None else walk.skewed(c.ntk)
        driven = Covariance(walk.skewed(c.nngp), ntk)
        path = self._along(k, driven, var1[walk.left], var2[walk.right], skewed, walk.begins)
        return _Path(*(None if a is None else walk.straight(a) for a in path))  # pyright: ignore[reportArgumentType]

    def _along(
        self,
        k: Kernel,
        driven: Covariance,
        var1: Array | None,
        var2: Array | None,
        masks: tuple[Array | None, Array | None],
        begins: np.ndarray,
    ) -> _Path:
        """Steps lead, then offsets; `var1` and `var2` are variances before the activation, unless both are the same."""
        offsets, width = driven.nngp.shape[1], k.width if self.width is None else self.width
        facts = Kernel(
            Covariance(driven.nngp[0], None), None, None, sites=(offsets,), channels=width, width=k.width,
            parametrization=k.parametrization,
        )  # fmt: skip

        def own(var: Array | None) -> Covariance | None:
            return None if var is None else Covariance(var, None, same=True)

        def body(state: tuple[Array, Array | None], now: tuple) -> tuple[tuple[Array, Array | None], _Path]:
            first, drive, tangent, left, right, mask1, mask2 = now
            nngp, ntk = (None if a is None else jnp.where(first, 0, a) for a in state)
            assert nngp is not None
            before = replace(facts, cross=Covariance(nngp, ntk, same=driven.same))
            held = self.state.propagate(before, lambda cov, _: cov, width).cross
            cov = replace(held, nngp=held.nngp + drive, ntk=None if held.ntk is None else held.ntk + tangent)
            read = replace(facts, cross=cov, own1=own(left), own2=own(right), mask1=mask1, mask2=mask2)
            out = step(self.activation, read, _READ)
            after = out.cross.nngp, out.cross.ntk
            return after, _Path(cov.nngp, *after, out.mean1)  # pyright: ignore[reportArgumentType]

        start = jnp.zeros_like(driven.nngp[0]), None if driven.ntk is None else jnp.zeros_like(driven.nngp[0])
        first = jnp.asarray(begins.reshape(*begins.shape, *(1,) * (driven.nngp.ndim - 2)))
        return jax.lax.scan(body, start, (first, driven.nngp, driven.ntk, var1, var2, *masks))[1]


def _where(eye: Array, diagonal: Array | None, other: Array) -> Array:
    assert diagonal is not None
    return jnp.where(eye, diagonal[:, None], other)


def _turned(k: Kernel) -> Kernel:
    """Time runs backwards."""

    def turn(a: Array, pairs: Pairs) -> Array:
        return jnp.flip(a, (0, 1) if pairs is Pairs.ALL_SITES else 0)

    return k.each(lambda c: c.map(turn)).means(lambda m: jnp.flip(m, 0)).masks(lambda m: jnp.flip(m, 0))


class Tied(AbstractLayer):
    """A layer that keeps its shape, `times` over, with the same weights each time.

    At infinite width both kernels are those of fresh weights (`Repeat`), because what a layer gives is independent of
    what it gave before. That holds only where nothing of a pass is left beside the weights of the next one: sums with
    an earlier signal (skips) show the same draws twice, and are refused.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.layers.Tied(ew.Serial(ew.Relu(), ew.Dense(w_std=2**0.5)), 3), ew.Dense(1))

    Yang, "Tensor programs II: neural tangent kernel for any architecture" (2020).
    """

    layer: AbstractLayer
    times: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not isinstance(self.times, int) or self.times < 1:
            raise ArchitectureError(f"Tied(times={self.times!r}): expected at least 1. Leave the layer out instead.")

    def parts(self) -> Parts:
        return Parts((self.layer,), "tied", self.times)

    def describe(self, signal: Signal) -> Signal:
        inside = signal.at(0)
        for passed in range(self.times):
            out = replace(self.layer.describe(inside), path=inside.path)
            if passed and (out.shape, out.gaussian) != (inside.shape, inside.gaussian):
                raise ArchitectureError(
                    f"Tied needs a layer whose output can be its input, but {name(self.layer)} maps {inside.shape} to "
                    f"{out.shape}. Take the layers that change shape or law out of it."
                )
            if out.channels != signal.channels:
                raise ArchitectureError(
                    f"Tied: {name(self.layer)} reads {signal.channels} channels and gives {out.channels}, so that it "
                    "cannot read what it gives. Put a Dense layer of that width before it."
                )
            inside = out
        return replace(inside, path=signal.path)

    def demand(self, wanted: Demand) -> Demand:
        inside = demand_inside(self.layer, self.times, wanted)
        return inside if self.times == 1 else self.layer.demand(inside)

    def sample(self, key: Array, signal: Signal) -> Params:
        return self.layer.sample(key, signal.at(0))

    def forward(self, params: Params, example: Example) -> Example:
        for passed in range(self.times):
            example = replace(self.layer.forward(params, example.at(passed)), key=example.key)
        return example

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        inside = demand_inside(self.layer, self.times, wanted)
        for _ in range(self.times - 1):
            k = step(self.layer, k, inside).restrict(inside)
        return step(self.layer, k, wanted)
