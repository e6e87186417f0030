"""JAX modules that do more than their layers show, and masks: read as they compute, or refused."""

import inspect
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flax import nnx

import everwide as ew
from everwide import ArchitectureError
from everwide._walk import walk
from everwide.layers import Index
from translation.draws import equinox_kernels, nnx_kernels, require_agreement_at

pytestmark = pytest.mark.once
KEY = jr.key(0)


class Flax(nnx.Module):
    """A module around a function of its layers and its input."""

    def __init__(self, fn, **layers):
        rngs = nnx.Rngs(0)
        self.fn = nnx.static(fn)
        self.first, self.last = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)
        for name, layer in layers.items():
            setattr(self, name, layer)

    def __call__(self, x):
        return self.fn(self, x)


class Equinox(eqx.Module):
    """The same of Equinox."""

    layers: dict
    fn: object = eqx.field(static=True)

    def __init__(self, fn, **layers):
        self.fn = fn
        first, last = eqx.nn.Linear(6, 8, key=KEY), eqx.nn.Linear(8, 2, key=KEY)
        self.layers = {"first": first, "last": last, **layers}

    def __call__(self, x):
        return self.fn(self.layers, x)


def attend():
    return nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0))


def both_ways():
    one, two = (nnx.RNN(nnx.GRUCell(6, 8, rngs=nnx.Rngs(i))) for i in range(2))
    return nnx.Bidirectional(one, two)


def masked(mask):
    return Flax(lambda m, x: m.attend(m.first(x), mask=mask(x)), attend=attend())


def heads(**options):
    attention = eqx.nn.MultiheadAttention(2, 8, key=KEY)

    def run(m, x):
        x = jax.vmap(m["first"])(x)
        return m["attend"](x, x, x, **options)

    return Equinox(run, attend=attention)


def scaled(layer):
    return jax.tree.map(lambda a: 2 * a if eqx.is_array(a) else a, layer)


def doubled(m, x):
    m.first.kernel[...] = 2 * m.first.kernel[...]
    return m.last(m.first(x))


class Doubled(eqx.nn.Linear):
    """Another call than that of the layer it is named after."""

    def __call__(self, x, *, key=None):
        return 2 * super().__call__(x)


class Halved(nnx.Linear):
    """The same of Flax."""

    def __call__(self, inputs):
        return super().__call__(inputs) / 2


def many(x):
    """A layer for each place, or all of them for every signal."""
    layers = eqx.filter_vmap(lambda key: eqx.nn.Linear(6, 8, key=key))(jr.split(KEY, 5))
    axes = (eqx.if_array(0), x)
    return Equinox(lambda m, x: eqx.filter_vmap(lambda own, one: own(one), in_axes=axes)(m["m"], x), m=layers)


SEQUENCE = (5, 6)
TRI = jnp.tri(5, dtype=bool)
REFUSED = {
    "a layer for each place": (many(0), SEQUENCE, "vmap runs over its weights"),
    "many layers of one signal": (many(None), (6,), "vmap runs over its weights"),
    "groups of each place": (
        Equinox(lambda m, x: jax.vmap(lambda one: m["g"](m["first"](one)))(x), g=eqx.nn.GroupNorm(2, 8)),
        SEQUENCE,
        "vmap runs it over sites",
    ),
    "channels of each example": (
        Flax(lambda m, x: jax.vmap(m.n)(m.first(x)), n=nnx.InstanceNorm(8, rngs=nnx.Rngs(0))),
        (4, 5, 6),
        "vmap runs it over sites",
    ),
    "a call of its own": (Equinox(lambda m, x: m["d"](x), d=Doubled(6, 2, key=KEY)), (6,), "__call__ of its own"),
    "a call of its own, of Flax": (Flax(lambda m, x: m.h(x), h=Halved(6, 2, rngs=nnx.Rngs(0))), (6,), "of its own"),
    "weights beside weights": (
        Flax(lambda m, x: m.r(x), r=nnx.LoRALinear(6, 2, lora_rank=2, rngs=nnx.Rngs(0))),
        (6,),
        "LoRALinear is not known here",
    ),
    "a mask of a normalization": (
        Flax(lambda m, x: m.n(m.first(x), mask=jnp.arange(8) < 3), n=nnx.LayerNorm(8, rngs=nnx.Rngs(0))),
        (6,),
        "LayerNorm is called with a mask",
    ),
    "other attention": (
        Flax(
            lambda m, x: m.o(m.first(x)),
            o=nnx.MultiHeadAttention(2, 8, decode=False, attention_fn=lambda q, k, v, **_: v, rngs=nnx.Rngs(0)),
        ),
        SEQUENCE,
        "attention_fn of its own",
    ),
    "truth values": (Flax(lambda m, x: m.last(m.first(x).astype(bool).astype(float))), (6,), "or to truth values"),
    "stopped": (Flax(lambda m, x: m.last(jax.lax.stop_gradient(m.first(x)))), (6,), "stops gradients.*frozen=True"),
    "stopped weights": (
        Equinox(lambda m, x: m["last"](jax.lax.stop_gradient(m["first"])(x))),
        (6,),
        "first.*stops gradients",
    ),
    "other weights": (Equinox(lambda m, x: m["last"](scaled(m["first"])(x))), (6,), "weights are changed where it is"),
    "other weights of Flax": (Flax(doubled), (6,), "weights are changed where it is called"),
    "whole numbers": (Flax(lambda m, x: m.last(m.first(x).astype(int).astype(float))), (6,), "rounds a signal"),
    "noise in a call": (
        Flax(
            lambda m, x: m.d(m.first(x), deterministic=False), d=nnx.Dropout(0.5, deterministic=True, rngs=nnx.Rngs(0))
        ),
        (6,),
        "Dropout is called with deterministic=False.*module.train",
    ),
    "statistics in a call": (
        Flax(
            lambda m, x: m.n(m.first(x), use_running_average=False),
            n=nnx.BatchNorm(8, use_running_average=True, rngs=nnx.Rngs(0)),
        ),
        (6,),
        "BatchNorm is called with use_running_average=False",
    ),
    "noise in a call of Equinox": (
        Equinox(lambda m, x: m["d"](m["first"](x), key=KEY, inference=False), d=eqx.nn.Dropout(0.5, inference=True)),
        (6,),
        "Dropout is called with inference=False.*inference_mode",
    ),
    "attention that is used twice": (
        Flax(lambda m, x: m.attend(m.attend(m.first(x))), attend=attend()),
        SEQUENCE,
        "has the weights of attend",
    ),
    "another mask": (masked(lambda x: jnp.eye(5, dtype=bool)), SEQUENCE, "of masks, the causal one is read"),
    "a mask of the input": (masked(lambda x: x[:, None, None, :, 0] > 0), SEQUENCE, "mask depends on the input"),
    "two directions": (
        Flax(lambda m, x: m.both(x), both=both_ways()),
        SEQUENCE,
        "both .Bidirectional.*instead=",
    ),
    "a loop over a cell": (
        Equinox(
            lambda m, x: jax.lax.scan(lambda c, one: (m["c"](one, c), c), jnp.zeros(m["c"].hidden_size), x)[0],
            c=eqx.nn.GRUCell(6, 8, key=KEY),
        ),
        SEQUENCE,
        "control flow .scan. is not read",
    ),
    "all results of a loop": (
        Flax(lambda m, x: sum(jax.lax.scan(lambda c, one: (c + one, 2 * one), jnp.zeros((5, 8)), m.first(x)))),
        SEQUENCE,
        "control flow .scan. is not read",
    ),
    "another mask of Equinox": (heads(mask=TRI.T), SEQUENCE, "of masks, the causal one is read"),
    "heads that are processed": (
        heads(process_heads=lambda q, k, v: (2 * q, k, v)),
        SEQUENCE,
        "a signal by a signal",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_modules_that_do_more_than_they_show(name):
    module, shape, message = REFUSED[name]
    with jax.numpy_dtype_promotion("standard"), pytest.raises(ArchitectureError, match=f"(?s){message}"):
        ew.from_module(module, shape)


def test_a_number_is_one_channel():
    one, two = (ew.from_module(eqx.nn.MLP(6, out, 8, 1, key=KEY), (6,)) for out in ("scalar", 1))
    assert one.net == two.net


def test_layers_are_called_by_the_names_of_their_arguments():
    module = Flax(lambda m, x: m.attend(inputs_q=m.first(inputs=x)), attend=attend())
    assert [row.place for row in ew.from_module(module, SEQUENCE).rows] == ["first", "attend"]


def test_parameters_that_begin_as_one_number_are_not_trained_here():
    """A factor, a shift of 0 and a single number are said to be changed, as in PyTorch."""
    module = Equinox(
        lambda m, x: m["last"](m["one"] * (m["factor"] * m["first"](x) + m["shift"])),
        factor=jnp.full(8, 0.5),
        shift=jnp.zeros(8),
        one=jnp.asarray(3.0),
    )
    rows = [row for row in ew.from_module(module, (6,)).rows if row.place == "a parameter"]
    assert [row.layer for row in rows] == ["Scale(0.5)", "Identity", "Scale(3)"]
    assert all(str(row.outcome) == "changed" and "before training" in row.note for row in rows)


@pytest.mark.parametrize("framework", ["Flax", "Equinox"])
def test_windows_over_some_of_the_sites(framework):
    """Of rows of an image: further axes in front of those of a window are each by themselves."""
    if framework == "Flax":
        conv = nnx.Conv(8, 8, (3,), strides=2, rngs=nnx.Rngs(0))
        module = Flax(lambda m, x: m.c(m.first(x)), c=conv)
    else:
        conv, pool = eqx.nn.Conv1d(8, 8, 3, stride=2, key=KEY), eqx.nn.AdaptiveAvgPool1d(1)
        rows = lambda m, one: m["p"](m["c"](jax.vmap(m["first"])(one).T))
        module = Equinox(lambda m, x: jax.vmap(lambda one: rows(m, one))(x), c=conv, p=pool)
    limit = ew.from_module(module, (4, 7, 6))
    assert limit.rows[1].layer.startswith("Conv((1, 3), 8")
    x, one = np.asarray(jr.normal(KEY, (2, 4, 7, 6))), ew.from_module(module, (1, 7, 6))
    whole_and_alone = (limit.net, 2, x), (one.net, 0, x[:, 2:3])
    third, alone = (ew.gram(ew.Serial(net, Index(i, 0)), rows) for net, i, rows in whole_and_alone)
    np.testing.assert_allclose(third.nngp, alone.nngp, rtol=1e-4)


def test_a_call_without_noise_has_none():
    quiet = Equinox(lambda m, x: m["last"](m["d"](m["first"](x), inference=True)), d=eqx.nn.Dropout(0.5))
    assert [type(layer).__name__ for layer in ew.from_module(quiet, (6,)).net.layers] == ["Dense", "Dense"]


def test_numbers_of_another_precision_are_read():
    """Convolutions take those of their weights alone."""
    with jax.enable_x64(True):
        conv = eqx.nn.Conv1d(3, 8, 2, dtype=jnp.float64, key=KEY)
        limit = ew.from_module(eqx.nn.Sequential([conv, eqx.nn.Lambda(jnp.ravel)]), (3, 5))
    assert [type(layer).__name__ for layer in limit.net.layers] == ["Conv", "Flatten"]


def held_together(m, x):
    x = m["first"](x)
    return m["last"](jax.lax.optimization_barrier((x, jnp.sin(x)))[1])


def test_each_of_several_results_is_itself():
    layers = ew.from_module(Equinox(held_together), (6,)).net.layers
    assert [type(layer).__name__ for layer in layers] == ["Dense", "Sin", "Dense"]


CAUSAL = {
    "a mask of Flax": (masked(lambda x: nnx.make_causal_mask(jnp.ones(x.shape[:2]))), True),
    "a mask of shapes": (masked(lambda x: nnx.make_causal_mask(x[..., 0])), True),
    "a mask of numbers": (masked(lambda x: TRI), True),
    "all": (masked(lambda x: jnp.ones((5, 5), bool)), False),
    "of Equinox": (heads(mask=TRI), True),
    "of all heads of Equinox": (heads(mask=jnp.broadcast_to(TRI, (2, 5, 5))), True),
    "none of Equinox": (heads(), False),
}
if "is_causal" in inspect.signature(nnx.MultiHeadAttention.__call__).parameters:  # of later versions
    CAUSAL["by name"] = Flax(lambda m, x: m.attend(m.first(x), is_causal=True), attend=attend()), True


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_masks_are_read(name):
    module, causal = CAUSAL[name]
    with jax.numpy_dtype_promotion("standard"):
        limit = ew.from_module(module, SEQUENCE)
    assert [v.layer.causal for v in walk(limit.net) if isinstance(v.layer, ew.SelfAttention)] == [causal]


class Decoder(nnx.Module):
    """A causal block without its skip, read at its second token: it sees two of three, which are nearly independent."""

    def __init__(self, width, rngs, causal=True):
        self.embed, self.head = nnx.Linear(24, width, rngs=rngs), nnx.Linear(width, 256, rngs=rngs)
        self.norm = nnx.LayerNorm(width, use_scale=False, use_bias=False, rngs=rngs)
        self.attend, self.causal = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs), causal

    def __call__(self, x):
        x = self.norm(self.embed(x))
        return self.head(self.attend(x, mask=nnx.make_causal_mask(x[..., 0]) if self.causal else None)[:, 1])


class CausalHeads(eqx.Module):
    """The same of Equinox."""

    embed: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    attend: eqx.nn.MultiheadAttention
    head: eqx.nn.Linear
    causal: bool = eqx.field(static=True)

    def __init__(self, width, key, causal=True):
        a, b, c = jr.split(key, 3)
        self.embed, self.head = eqx.nn.Linear(24, width, key=a), eqx.nn.Linear(width, 256, use_bias=False, key=b)
        self.norm = eqx.nn.LayerNorm(width, use_weight=False, use_bias=False)
        self.attend, self.causal = eqx.nn.MultiheadAttention(4, width, key=c), causal

    def __call__(self, x):
        x = jax.vmap(self.norm)(jax.vmap(self.embed)(x))
        return self.head(self.attend(x, x, x, mask=jnp.tri(len(x), dtype=bool) if self.causal else None)[1])


BLOCKS = {
    "nnx": (lambda width: Decoder(width, nnx.Rngs(0)), Decoder, nnx_kernels),
    "equinox": (lambda width: CausalHeads(width, KEY), CausalHeads, equinox_kernels),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_causal_blocks(name):
    """Draws without the mask are told from those with it."""
    make, kind, kernels = BLOCKS[name]
    with jax.numpy_dtype_promotion("standard"):
        require_agreement_at(make, (3, 24), kernels(kind, 500), draws=300)
        with pytest.raises(AssertionError):
            require_agreement_at(make, (3, 24), kernels(partial(kind, causal=False), 100), draws=100)
