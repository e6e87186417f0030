"""Attention, learned positions, tokens and gates of JAX modules, beside their own initializations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from flax import nnx

import everwide as ew
from everwide._walk import walk
from translation.draws import equinox_kernels, nnx_kernels, require_agreement

pytestmark = pytest.mark.once
OUTPUTS = 256


def unit(key, *shape):
    """Random numbers whose mean square is 1 in every draw: it is what the translation takes from the module."""
    x = jr.normal(key, shape)
    return x / jnp.sqrt(jnp.mean(x**2))


class Attentive(nnx.Module):
    """A vision transformer of one block: a token of its own, learned positions, attention."""

    def __init__(self, width, rngs):
        self.embed = nnx.Linear(24, width, rngs=rngs)
        self.token = nnx.Param(unit(rngs.params(), 1, 1, width))
        self.positions = nnx.Param(unit(rngs.params(), 1, 4, width))
        self.norm = nnx.LayerNorm(width, use_scale=False, use_bias=False, rngs=rngs)
        self.attend = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.head = nnx.Linear(width, OUTPUTS, rngs=rngs)

    def __call__(self, x):
        x = self.embed(x)
        token = jnp.broadcast_to(self.token[...], (x.shape[0], 1, x.shape[2]))
        x = jnp.concatenate([token, x], 1) + self.positions[...]
        return self.head((x + self.attend(self.norm(x)))[:, 0])


class Positions(nnx.Module):
    """Positions from a table that counts, and halves of one linear map."""

    def __init__(self, width, rngs):
        self.embed, self.positions = nnx.Linear(24, width, rngs=rngs), nnx.Embed(9, width, rngs=rngs)
        self.both, self.head = nnx.Linear(width, 2 * width, rngs=rngs), nnx.Linear(width, OUTPUTS, rngs=rngs)

    def __call__(self, x):
        x = self.embed(x) + self.positions(jnp.arange(x.shape[1]))
        return self.head(nnx.glu(self.both(x))).mean(1)


class Heads(eqx.Module):
    """Positions and attention of Equinox."""

    embed: eqx.nn.Linear
    positions: jax.Array
    attend: eqx.nn.MultiheadAttention
    head: eqx.nn.Linear

    def __init__(self, width, key):
        a, b, c, d = jr.split(key, 4)
        self.embed, self.positions = eqx.nn.Linear(24, width, key=a), unit(b, 3, width)
        self.attend = eqx.nn.MultiheadAttention(4, width, use_output_bias=True, key=c)
        self.head = eqx.nn.Linear(width, OUTPUTS, key=d)

    def __call__(self, x):
        x = jax.vmap(self.embed)(x) + self.positions
        return self.head(jnp.mean(x + self.attend(x, x, x), 0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Attentive, Positions])
def test_nnx(kind):
    sampled = 32 if kind is Attentive else None
    require_agreement(lambda width: kind(width, nnx.Rngs(0)), (3, 24), nnx_kernels(kind, 100), draws=sampled)


@pytest.mark.slow
def test_equinox():
    require_agreement(lambda width: Heads(width, jr.key(0)), (3, 24), equinox_kernels(Heads, 100), draws=32)


@pytest.mark.parametrize(
    ("module", "layers"),
    [
        (Attentive(8, nnx.Rngs(0)), {"SelfAttention", "Sampled", "PositionEmbedding", "Concat"}),
        (Positions(8, nnx.Rngs(0)), {"PositionEmbedding", "Part", "Product"}),
        (Heads(8, jr.key(0)), {"SelfAttention", "Sampled", "PositionEmbedding"}),
    ],
)
def test_layers(module, layers):
    limit = ew.from_module(module, (3, 24))
    assert layers <= {type(visit.layer).__name__ for visit in walk(limit.net)}


def test_sequences_longer_than_the_positions_are_refused():
    with pytest.raises(ew.ArchitectureError, match="positions has vectors for 9 places, and the input has 10"):
        ew.from_module(Positions(8, nnx.Rngs(0)), (10, 24))
