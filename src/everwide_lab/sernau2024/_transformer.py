"""A decoder-only transformer whose MLP blocks are features and a read-out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

Weights = Float[Array, "..."]
BIAS = 0.5  # standard deviation of the biases of features; their weights have 1 / sqrt(dim)


class Shape(eqx.Module):
    """The sizes of a model, all of them static."""

    vocabulary: int = eqx.field(static=True)
    layers: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    context: int = eqx.field(static=True)
    width: int = eqx.field(static=True)  # of the MLP blocks


class Norm(eqx.Module):
    """Layer normalization."""

    gain: Float[Array, " dim"]
    shift: Float[Array, " dim"]

    def __call__(self, x: Float[Array, "time dim"]) -> Float[Array, "time dim"]:
        centred = x - jnp.mean(x, -1, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5) * self.gain + self.shift


class Attention(eqx.Module):
    """Causal, with several heads."""

    inwards: Float[Array, "3 dim heads size"]
    outwards: Float[Array, "heads size dim"]

    def __call__(self, x: Float[Array, "time dim"]) -> Float[Array, "time dim"]:
        query, key, value = jnp.einsum("td,pdhe->pthe", x, self.inwards)
        scores = jnp.einsum("the,she->hts", query, key) * self.inwards.shape[-1] ** -0.5
        past = jnp.tril(jnp.ones(scores.shape[1:], bool))
        weights = jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-1)
        return jnp.einsum("hts,she,hed->td", weights, value, self.outwards)


class Features(eqx.Module):
    """`relu(W x + b)`: the part of an MLP block that a kernel keeps frozen."""

    weight: Float[Array, "dim width"]
    bias: Float[Array, " width"]

    def __call__(self, x: Float[Array, "time dim"]) -> Float[Array, "time width"]:
        return jax.nn.relu(x @ self.weight + self.bias)


class Mlp(eqx.Module):
    """`f = features . M / sqrt(width)`, with `M` zero at the start."""

    features: Features
    readout: Float[Array, "width dim"]

    def __call__(self, x: Float[Array, "time dim"]) -> Float[Array, "time dim"]:
        return self.features(x) @ self.readout * self.readout.shape[0] ** -0.5


class Block(eqx.Module):
    """Attention, then an MLP, each on the normalized stream and added to it."""

    before_attention: Norm
    attention: Attention
    before_mlp: Norm
    mlp: Mlp

    def __call__(self, x: Float[Array, "time dim"]) -> Float[Array, "time dim"]:
        x = self.attended(x)
        return x + self.mlp(self.before_mlp(x))

    def attended(self, x: Float[Array, "time dim"]) -> Float[Array, "time dim"]:
        """The stream between attention and MLP."""
        return x + self.attention(self.before_attention(x))


class Transformer(eqx.Module):
    """Logits of the next symbol at every position."""

    symbols: Float[Array, "vocabulary dim"]
    positions: Float[Array, "context dim"]
    blocks: tuple[Block, ...]
    last: Norm
    head: Float[Array, "dim vocabulary"]

    def __call__(self, text: Int[Array, " time"]) -> Float[Array, "time vocabulary"]:
        x = self.embedded(text)
        for block in self.blocks:
            x = block(x)
        return self.logits(x)

    def embedded(self, text: Int[Array, " time"]) -> Float[Array, "time dim"]:
        """The stream before the first block."""
        return self.symbols[text] + self.positions[: text.shape[0]]

    def logits(self, x: Float[Array, "time dim"]) -> Float[Array, "time vocabulary"]:
        """From the stream after the last one."""
        return self.last(x) @ self.head


def transformer(key: Array, shape: Shape) -> Transformer:
    """Draw one, in float32. All but the MLP blocks is the same at every width; read-outs and the head start at zero."""
    keys, dim = jr.split(key, shape.layers + 2), shape.dim
    return Transformer(
        symbols=_normal(keys[0], (shape.vocabulary, dim), 0.1),
        positions=_normal(keys[1], (shape.context, dim), 0.1),
        blocks=tuple(_block(k, shape) for k in keys[2:]),
        last=_norm(dim),
        head=jnp.zeros((dim, shape.vocabulary), jnp.float32),
    )


def cross_entropy(model: Transformer, windows: Int[Array, "batch time"]) -> Float[Array, ""]:
    """Mean over all symbols of the windows but the first, in nats."""
    return surprise(jax.vmap(model)(windows[:, :-1]), windows)


def surprise(logits: Float[Array, "batch time vocabulary"], windows: Int[Array, "batch longer"]) -> Float[Array, ""]:
    """The same, of logits that are known."""
    logs = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.mean(jnp.take_along_axis(logs, windows[:, 1:, None], axis=-1))


def _block(key: Array, shape: Shape) -> Block:
    inwards, outwards, weight, bias = jr.split(key, 4)
    dim, size = shape.dim, shape.dim // shape.heads
    attention = Attention(
        _normal(inwards, (3, dim, shape.heads, size), dim**-0.5),
        _normal(outwards, (shape.heads, size, dim), (2 * dim * shape.layers) ** -0.5),
    )
    features = Features(_normal(weight, (dim, shape.width), dim**-0.5), _normal(bias, (shape.width,), BIAS))
    return Block(_norm(dim), attention, _norm(dim), Mlp(features, jnp.zeros((shape.width, dim), jnp.float32)))


def _norm(dim: int) -> Norm:
    return Norm(jnp.ones(dim, jnp.float32), jnp.zeros(dim, jnp.float32))


def _normal(key: Array, shape: tuple[int, ...], size: float) -> Weights:
    return size * jr.normal(key, shape, jnp.float32)
