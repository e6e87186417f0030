"""MLP-Mixers as people write them in JAX, with transposes between places and channels."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flax import nnx

import everwide as ew
from everwide._walk import walk
from everwide.testing._draws import SAMPLED
from everwide.translation._mix import Mix
from everwide.translation._weights import NORMAL, TRUNCATED, UNIFORM
from translation.draws import both_kernels, drawn, equinox_kernels, nnx_kernels, require_agreement, rows

pytestmark = pytest.mark.once
OUTPUTS, PLACES, HIDDEN = 256, 3, 5


class FlaxMixer(nnx.Module):
    """One block, its axes swapped before the first pair of linear maps and behind it."""

    def __init__(self, width, rngs):
        self.embed, self.head = nnx.Linear(24, width, rngs=rngs), nnx.Linear(width, OUTPUTS, rngs=rngs)
        self.norm1, self.norm2 = (nnx.LayerNorm(width, use_scale=False, use_bias=False, rngs=rngs) for _ in range(2))
        self.mix1, self.mix2 = nnx.Linear(PLACES, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, PLACES, rngs=rngs)
        self.up, self.down = nnx.Linear(width, 2 * width, rngs=rngs), nnx.Linear(2 * width, width, rngs=rngs)

    def __call__(self, x):
        x = self.embed(x)
        y = jnp.swapaxes(self.norm1(x), 1, 2)
        x = x + jnp.swapaxes(self.mix2(nnx.gelu(self.mix1(y))), 1, 2)
        x = x + self.down(nnx.gelu(self.up(self.norm2(x))))
        return self.head(x.mean(1))


class EquinoxMixer(eqx.Module):
    """The same, by `jax.vmap` over channels and over places, as in the examples of Equinox."""

    embed: eqx.nn.Conv2d
    mix: eqx.nn.MLP
    channels: eqx.nn.MLP
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, width, key):
        a, b, c, d = jr.split(key, 4)
        self.embed = eqx.nn.Conv2d(3, width, 2, stride=2, key=a)
        self.mix = eqx.nn.MLP(4, 4, HIDDEN, 1, jax.nn.gelu, key=b)
        self.channels = eqx.nn.MLP(width, width, width, 1, jax.nn.gelu, key=c)
        self.norm1 = eqx.nn.LayerNorm((width, 4), use_weight=False, use_bias=False)
        self.norm2 = eqx.nn.LayerNorm((4, width), use_weight=False, use_bias=False)
        self.head = eqx.nn.Linear(width, OUTPUTS, key=d)

    def __call__(self, x):
        x = self.embed(x)
        x = x.reshape(x.shape[0], -1)
        x = x + jax.vmap(self.mix)(self.norm1(x))
        x = x.T
        x = x + jax.vmap(self.channels)(self.norm2(x))
        return self.head(x.mean(0))


class Linear(eqx.Module):
    """Only weights over places, behind and before those over channels."""

    embed: eqx.nn.Linear
    mix: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, width, key):
        a, b, c = jr.split(key, 3)
        self.embed, self.mix = eqx.nn.Linear(24, width, key=a), eqx.nn.Linear(PLACES, HIDDEN, key=b)
        self.head = eqx.nn.Linear(width, OUTPUTS, key=c)

    def __call__(self, x):
        x = jax.vmap(self.embed)(x)
        x = jax.nn.relu(jax.vmap(self.mix, in_axes=1, out_axes=1)(x))
        return self.head(x.mean(0))


CASES = {
    "nnx": (lambda width: FlaxMixer(width, nnx.Rngs(0)), (PLACES, 24), nnx_kernels(FlaxMixer, 100)),
    "equinox": (lambda width: EquinoxMixer(width, jr.key(0)), (3, 4, 4), equinox_kernels(EquinoxMixer, 100)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_mixers(name):
    make, shape, kernels = CASES[name]
    require_agreement(make, shape, kernels, draws=64)


@pytest.mark.parametrize("name", CASES)
def test_mixers_are_read(name):
    make, shape, _ = CASES[name]
    limit = ew.from_module(make(8), shape)
    mixes = [visit.layer for visit in walk(limit.net) if isinstance(visit.layer, Mix)]
    places = shape[0] if name == "nnx" else 4
    assert [one.places.width for one in mixes] == [HIDDEN, places]
    assert {one.law.name for one in mixes} == {"truncated normal" if name == "nnx" else "uniform"}
    mixed = [row for row in limit.rows if row.layer.startswith("Mix")]
    assert {str(row.outcome) for row in mixed} == {"sampled"}
    assert all("stay random" in row.note for row in mixed)


def test_weights_over_places_beside_draws():
    """Of a module of one such layer: kernels over its draws, within standard errors."""
    x = rows((PLACES, 24), n=2)
    limit = ew.from_module(Linear(64, jr.key(0)), (PLACES, 24))
    truth = ew.gram(limit.net, x, parametrization=limit.parametrization, draws=500)

    def one(key):
        params, static = eqx.partition(Linear(64, key), eqx.is_inexact_array)
        return both_kernels(lambda p, a: eqx.combine(p, static)(a), params, jnp.asarray(x))

    for name, kernels in zip(("nngp", "ntk"), drawn(one, 800), strict=True):
        exact, error = (np.asarray(getattr(a, name), np.float64) for a in (truth, truth.error))
        own = np.asarray(kernels, np.float64)
        both = np.hypot(own.std(0) / np.sqrt(len(own)), error)
        assert SAMPLED.excess_of(own.mean(0), both, exact) <= 1, name
        assert both.max() < 0.04 * exact.max()


@pytest.mark.parametrize("convolved", [False, True])
def test_the_axis_over_which_vmap_runs_is_not_that_of_the_layer(convolved):
    """Shapes alone would not tell: a square map of places is not one of channels, nor is a convolution of them."""

    class Square(eqx.Module):
        first: eqx.nn.Linear
        second: eqx.Module

        def __call__(self, x):
            x = jax.vmap(self.first)(x)
            return self.second(x) if convolved else jax.vmap(self.second, in_axes=1, out_axes=1)(x)

    second = eqx.nn.Conv1d(6, 6, 1, key=jr.key(1)) if convolved else eqx.nn.Linear(6, 6, key=jr.key(1))
    limit = ew.from_module(Square(eqx.nn.Linear(6, 6, key=jr.key(0)), second), (6, 6))
    assert [row.layer.partition("(")[0] for row in limit.rows] == ["Dense", "Mix"]


@pytest.mark.parametrize("name", ["normal", "uniform", "truncated normal"])
def test_laws_are_drawn(name):
    """Variance 1, the largest number and the fourth moment, which tells them apart."""
    law = {one.name: one for one in (NORMAL, UNIFORM, TRUNCATED)}[name]
    x = np.asarray(law.draw(jr.key(0), (100_000,)), np.float64)
    for power, expected in ((1, 0), (2, 1), (4, law.kurtosis)):
        assert SAMPLED.excess(x**power, expected) <= 1
    assert np.abs(x).max() <= law.largest * (1 + 1e-6)
