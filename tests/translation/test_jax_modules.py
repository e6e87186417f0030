"""Flax NNX and Equinox modules: the kernels of their own initializations are those of the translation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flax import nnx

import everwide as ew
from everwide import activations as act
from everwide._walk import walk
from translation.draws import equinox_kernels, nnx_kernels, require_agreement, require_agreement_at, rows

pytestmark = pytest.mark.once
OUTPUTS = 256


class Mlp(eqx.Module):
    """Dense layers, an activation that is written out, and a scaled residual sum."""

    layers: list

    def __init__(self, width, key):
        sizes = [(48, width), (width, width), (width, width), (width, OUTPUTS)]
        self.layers = [eqx.nn.Linear(a, b, key=k) for (a, b), k in zip(sizes, jr.split(key, 4), strict=True)]

    def __call__(self, x):
        h = self.layers[0](x)
        h = h + 1.5 * self.layers[1](h * 0.5 * (1 + jax.lax.erf(h / 2**0.5)))
        return self.layers[3](jax.nn.relu(self.layers[2](jax.lax.erf(h))))


class Tokens(eqx.Module):
    """A normalized block over tokens, by `jax.vmap`, read at their mean."""

    embed: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, width, key):
        a, b, c, d = jr.split(key, 4)
        self.embed = eqx.nn.Linear(24, width, key=a)
        self.norm = eqx.nn.LayerNorm(width)
        self.up = eqx.nn.Linear(width, 2 * width, key=b)
        self.down = eqx.nn.Linear(2 * width, width, key=c)
        self.head = eqx.nn.Linear(width, OUTPUTS, use_bias=False, key=d)

    def __call__(self, x):
        h = jax.vmap(self.embed)(x)
        h = h + jax.vmap(self.down)(jax.nn.relu(jax.vmap(self.up)(jax.vmap(self.norm)(h))))
        return self.head(jnp.mean(h, 0))


class Vision(eqx.Module):
    """Channels first: convolutions with strides and padding, pooling, flattened."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    pool: eqx.nn.AvgPool2d
    head: eqx.nn.Linear

    def __init__(self, width, key):
        a, b, c = jr.split(key, 3)
        self.first = eqx.nn.Conv2d(3, width, 3, padding=1, key=a)
        self.second = eqx.nn.Conv2d(width, width, (3, 2), stride=(2, 1), key=b)
        self.pool = eqx.nn.AvgPool2d(2, 2)
        self.head = eqx.nn.Linear(width * 1 * 3, OUTPUTS, key=c)

    def __call__(self, x):
        return self.head(self.pool(jax.nn.relu(self.second(jax.nn.relu(self.first(x))))).reshape(-1))


class Residual(nnx.Module):
    """Pre-activation blocks with and without normalization, channels last, pooled over all places."""

    def __init__(self, width, rngs):
        self.first = nnx.Conv(3, width, (3, 3), rngs=rngs)
        self.norm = nnx.GroupNorm(width, num_groups=2, rngs=rngs)
        self.blocks = nnx.List([nnx.Conv(width, width, (3, 3), padding="SAME", rngs=rngs) for _ in range(2)])
        self.head = nnx.Linear(width, OUTPUTS, rngs=rngs)

    def __call__(self, x):
        x = self.first(x)
        x = x + self.blocks[0](nnx.relu(self.norm(x)))
        x = x + self.blocks[1](nnx.relu(x))
        return self.head(jnp.mean(nnx.leaky_relu(x, 0.2), (1, 2)))


class Dense(nnx.Module):
    """A dense block: every layer reads all before it, side by side."""

    def __init__(self, width, rngs):
        self.layers = nnx.List([nnx.Linear(n, m, rngs=rngs) for n, m in self.sizes(width)])

    @staticmethod
    def sizes(width):
        return (40, width), (width, width), (2 * width, width), (3 * width, OUTPUTS)

    def __call__(self, x):
        parts = [self.layers[0](x)]
        for layer in self.layers[1:]:
            new = layer(nnx.relu(jnp.concatenate(parts, -1)))
            parts.append(new)
        return new


class Branches(nnx.Module):
    """Two windows side by side, batch normalization as before training, average pooling."""

    def __init__(self, width, rngs):
        self.narrow = nnx.Conv(4, width, (3,), padding="VALID", rngs=rngs)
        self.wide = nnx.Conv(4, width, (5,), padding=((1, 1),), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(2 * width, use_running_average=True, epsilon=0.3, rngs=rngs)
        self.head = nnx.Linear(2 * 2 * width, OUTPUTS, rngs=rngs)

    def __call__(self, x):
        h = nnx.relu(jnp.concatenate([self.narrow(x), self.wide(x)], -1))
        h = nnx.avg_pool(self.norm(h), (4,), strides=(4,))
        return self.head(h.reshape(h.shape[0], -1))


class Pooled(eqx.Module):
    """The largest numbers in windows, and groups of channels."""

    first: eqx.nn.Conv1d
    pool: eqx.nn.MaxPool1d
    grouped: eqx.nn.Conv1d
    norm: eqx.nn.GroupNorm
    head: eqx.nn.Linear

    def __init__(self, width, key):
        a, b, c = jr.split(key, 3)
        self.first = eqx.nn.Conv1d(4, width, 3, key=a)
        self.pool = eqx.nn.MaxPool1d(2, 2)
        self.grouped = eqx.nn.Conv1d(width, width, 2, groups=4, key=b)
        self.norm = eqx.nn.GroupNorm(2, width, channelwise_affine=False)
        self.head = eqx.nn.Linear(2 * width, OUTPUTS, key=c)

    def __call__(self, x):
        x = self.grouped(self.pool(jax.nn.relu(self.first(x))))
        return self.head(jax.nn.relu(self.norm(x)).reshape(-1))


class Words(eqx.Module):
    """Tokens, by `jax.vmap`, read at their mean."""

    embed: eqx.nn.Embedding
    hidden: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, width, key):
        a, b, c = jr.split(key, 3)
        self.embed = eqx.nn.Embedding(VOCABULARY, width, key=a)
        self.hidden = eqx.nn.Linear(width, width, key=b)
        self.head = eqx.nn.Linear(width, OUTPUTS, key=c)

    def __call__(self, x):
        h = jax.vmap(self.hidden)(jax.vmap(self.embed)(x))
        return self.head(jnp.mean(jax.nn.relu(h), 0))


class Depthwise(nnx.Module):
    """Filters of single channels, statistics of single channels, the largest numbers in windows."""

    def __init__(self, width, rngs):
        self.first = nnx.Conv(4, width, (1,), rngs=rngs)
        self.filters = nnx.Conv(width, width, (3,), feature_group_count=width, rngs=rngs)
        self.mix = nnx.Linear(width, width, rngs=rngs)
        self.norm = nnx.InstanceNorm(width, use_scale=False, use_bias=False, epsilon=0.1, rngs=rngs)
        self.head = nnx.Linear(2 * width, OUTPUTS, rngs=rngs)

    def __call__(self, x):
        x = self.norm(self.mix(nnx.relu(self.filters(self.first(x)))))
        return self.head(nnx.max_pool(nnx.relu(x), (2,), strides=(2,)).reshape(x.shape[0], -1))


class Squeeze(nnx.Module):
    """Squeeze and excitation: means over all sites, which the product repeats; the law of it is not known."""

    def __init__(self, width, rngs):
        self.first, self.second = (nnx.Conv(n, width, (3, 3), rngs=rngs) for n in (3, width))
        self.down, self.up = nnx.Linear(width, width // 2, rngs=rngs), nnx.Linear(width // 2, width, rngs=rngs)
        self.head = nnx.Linear(width, OUTPUTS, rngs=rngs)

    def weigh(self, x):
        return x * nnx.sigmoid(self.up(nnx.relu(self.down(x.mean((1, 2))))))[:, None, None, :]

    def __call__(self, x):
        x = self.second(nnx.relu(self.first(x)))
        return self.head(nnx.relu(self.weigh(x)).mean((1, 2)))


class Text(nnx.Module):
    """Windows of two sizes over tokens, and the largest number of each over the sequence."""

    def __init__(self, width, rngs):
        self.embed, self.head = nnx.Embed(VOCABULARY, width, rngs=rngs), nnx.Linear(2 * width, OUTPUTS, rngs=rngs)
        self.windows = nnx.List([nnx.Conv(width, width, (n,), padding="VALID", rngs=rngs) for n in (2, 3)])

    def __call__(self, x):
        x = self.embed(x) * self.embed.features**0.5
        return self.head(jnp.concatenate([nnx.relu(one(x)).max(1) for one in self.windows], -1))


class Excited(eqx.Module):
    """The same of Equinox: a layer is asked for its size, and activations are functions of one's own."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    weigh: eqx.nn.MLP
    head: eqx.nn.Linear

    def __init__(self, width, key):
        a, b, c, d = jr.split(key, 4)
        self.first = eqx.nn.Conv2d(3, width, 2, use_bias=False, key=a)
        self.second = eqx.nn.Conv2d(width, width, 2, use_bias=False, key=b)
        ends = {"activation": lambda x: x * jnp.tanh(x), "final_activation": lambda x: 1 / (1 + jnp.exp(-x))}
        self.weigh = eqx.nn.MLP(width, width, width // 2, 1, use_bias=False, use_final_bias=False, key=c, **ends)
        self.head = eqx.nn.Linear(width, OUTPUTS, use_bias=False, key=d)

    def __call__(self, x):
        x = self.second(jax.nn.relu(self.first(x)))
        scale = self.weigh(x.mean((1, 2))).reshape(self.second.out_channels, 1, 1)
        return self.head((x * scale).mean((1, 2)))


class Sequences(nnx.Module):
    """Tokens, and layers that are recurrent."""

    def __init__(self, width, rngs):
        self.embed = nnx.Embed(VOCABULARY, width, rngs=rngs)
        self.simple = nnx.RNN(nnx.SimpleCell(width, width, rngs=rngs), reverse=True, keep_order=True)
        self.head = nnx.Linear(width, OUTPUTS, rngs=rngs)

    def __call__(self, x):
        return self.head(self.simple(self.embed(x) * self.embed.features**0.5)[:, 0])


class Gates(nnx.Module):
    """Gated units of both kinds."""

    def __init__(self, width, rngs):
        self.lstm = nnx.RNN(nnx.OptimizedLSTMCell(24, width, rngs=rngs))
        self.gru = nnx.RNN(nnx.GRUCell(width, width, rngs=rngs))
        self.head = nnx.Linear(width, OUTPUTS, rngs=rngs)

    def __call__(self, x):
        return self.head(self.gru(self.lstm(x)).mean(1))


VOCABULARY = 5
EQUINOX = {
    "mlp": (Mlp, (48,), 100, ["Dense", "Gelu", "Scale", "Sum"]),
    "tokens": (Tokens, (5, 24), 100, ["LayerNorm", "GlobalAvgPool"]),
    "vision": (Vision, (3, 7, 7), 100, ["Conv", "AvgPool", "Flatten"]),
    "words": (Words, (6,), 100, ["Embedding"]),
    "excited": (Excited, (3, 4, 4), 100, ["Everywhere", "Product", "Elementwise"]),
    "pooled": (Pooled, (4, 8), 100, ["Sampled", "MaxPool", "ConvGrouped", "LayerNorm"]),
}
NNX = {
    "residual": (Residual, (6, 6, 3), 100, ["Conv", "LayerNorm", "Sum", "GlobalAvgPool"]),
    "dense": (Dense, (40,), 100, ["Concat", "Relu"]),
    "branches": (Branches, (10, 4), 100, ["Concat", "AvgPool"]),
    "words": (Sequences, (4,), 100, ["Embedding", "Recurrent"]),
    "depthwise": (Depthwise, (4, 4), 100, ["Sampled", "ConvDepthwise", "InstanceNorm", "MaxPool"]),
    "text": (Text, (5,), 100, ["Sampled", "Embedding", "MaxPool"]),
    "gates": (Gates, (3, 24), 100, ["Sampled", "Lstm", "Gru"]),
}


def cases(found, slow):
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in found]


def asked(name, layers):
    """What the comparison must know of a module: its tokens, and how often what is sampled is drawn."""
    return {"tokens": VOCABULARY if name in ("words", "text") else 0, "draws": 32 if "Sampled" in layers else None}


@pytest.mark.parametrize("name", cases(EQUINOX, {"vision", "words", "pooled", "tokens", "excited"}))
def test_equinox(name):
    kind, shape, draws, layers = EQUINOX[name]
    require_layers(ew.from_module(kind(8, jr.key(0)), shape), layers)
    kernels = equinox_kernels(kind, draws)
    require_agreement(lambda width: kind(width, jr.key(0)), shape, kernels, **asked(name, layers))


@pytest.mark.parametrize("name", cases(NNX, {"branches", "residual", "words", "depthwise", "gates", "text"}))
def test_nnx(name):
    kind, shape, draws, layers = NNX[name]
    with jax.numpy_dtype_promotion("standard"):  # which nnx.avg_pool needs
        require_layers(ew.from_module(kind(8, nnx.Rngs(0)), shape), layers)
        kernels = nnx_kernels(kind, draws)
        require_agreement(lambda width: kind(width, nnx.Rngs(0)), shape, kernels, **asked(name, layers))


@pytest.mark.slow
def test_squeeze_and_excitation():
    def make(width):
        return Squeeze(width, nnx.Rngs(0))

    require_layers(ew.from_module(make(8), (3, 3, 3)), ["Sampled", "Everywhere", "Product"])
    require_agreement_at(make, (3, 3, 3), nnx_kernels(Squeeze, 500), draws=300)


def require_layers(limit, names):
    """The network has these layers: the module was read, not only its outputs met."""
    found = {type(visit.layer).__name__ for visit in walk(limit.net)}
    assert set(names) <= found, (names, found)


@pytest.mark.slow
def test_another_variance_is_seen():
    """The comparison fails where weights are 1.15 times as large: it is sharp enough to tell initializations apart."""
    kernels = equinox_kernels(lambda width, key: larger(Mlp(width, key)), 100)
    with pytest.raises(AssertionError):
        require_agreement(lambda width: Mlp(width, jr.key(0)), (48,), kernels)


def larger(module):
    return eqx.tree_at(lambda m: m.layers[2].weight, module, module.layers[2].weight * 1.15)


def test_a_finite_sample_has_the_size_of_the_module():
    limit = ew.from_module(Residual(16, nnx.Rngs(0)), (6, 6, 3))
    params = limit.net.init(jr.key(0), limit.input_shape)
    ours = sum(leaf.size for leaf in jax.tree.leaves(params))
    own = nnx.state(Residual(16, nnx.Rngs(0)), nnx.Param)
    norms = 2 * 16  # scale and shift, which the limit does not train
    assert ours == sum(leaf.size for leaf in jax.tree.leaves(own)) - norms


def test_channels_first_become_channels_last():
    limit = ew.from_module(Vision(8, jr.key(0)), (3, 7, 7))
    assert limit.input_shape == (7, 7, 3)
    x = rows((3, 7, 7))
    np.testing.assert_array_equal(limit.examples(x), np.moveaxis(x, 1, -1))
    with pytest.raises(ew.InputError, match="expected a batch of examples"):
        limit.examples(x[0])


def test_activations_are_recognized_by_their_values():
    """What jax.nn writes out in single operations is one of ours, with its moments in closed form."""
    known = {
        jax.nn.relu: act.Relu(),
        jax.nn.gelu: None,  # the approximation with tanh is no closed form
        lambda x: jax.nn.gelu(x, approximate=False): act.Gelu(),
        jax.nn.silu: act.Silu(),
        jax.nn.sigmoid: act.Sigmoid(),
        jnp.tanh: act.Tanh(),
        jax.nn.softplus: act.Softplus(),
        jax.nn.elu: act.Elu(),
        jax.nn.selu: act.Selu(),
        jax.nn.relu6: act.Relu6(),
        jax.nn.leaky_relu: act.LeakyRelu(0.01),
        jnp.abs: act.Abs(),
        jnp.sin: act.Sin(),
    }
    for fn, expected in known.items():
        module = eqx.nn.MLP(4, 1, 8, 1, activation=fn, key=jr.key(0))
        layer = ew.from_module(module, (4,)).net.layers[1]
        x = jnp.linspace(-2.0, 2.0, 9)
        np.testing.assert_allclose(layer(x), fn(x), rtol=1e-5, atol=1e-6)
        assert expected is None or layer == expected
