"""What cannot be read gets a sentence with its place, the reason and the way out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flax import nnx

import everwide as ew
from everwide import ArchitectureError, InputError

pytestmark = pytest.mark.once
KEY = jr.key(0)


class Calls(nnx.Module):
    """A module around a function of its input and two layers."""

    def __init__(self, fn, width=8):
        rngs = nnx.Rngs(0)
        self.fn = nnx.static(fn)
        self.first, self.last = nnx.Linear(6, width, rngs=rngs), nnx.Linear(width, 2, rngs=rngs)

    def __call__(self, x):
        return self.fn(self, x)


def branch_on_values(m, x):
    return m.first(x) if x.sum() > 0 else m.first(-x)


CALLS = {
    "control flow": (branch_on_values, r"cannot be read without its data \(TracerBoolConversionError\).*empirical_ntk"),
    "a softmax": (lambda m, x: nnx.softmax(m.last(nnx.relu(m.first(x)))), "softmax.*leave.*to the loss"),
    "weights by hand": (lambda m, x: m.first(x) @ jnp.ones((8, 2)), "multiplies by weights that belong to no layer"),
    "an array of its own": (lambda m, x: m.first(x) * jnp.arange(8.0), r"an array of shape \(7, 8\)|an array of shape"),
    "a function of the data": (lambda m, x: m.first(jnp.tanh(x)), "function of the raw input.*do it to the data"),
    "activations of sums": (
        lambda m, x: m.last(nnx.relu(nnx.relu(m.first(x)) + m.first(x) * 0 + 1.0)),
        "has the weights of first|needs a Gaussian",
    ),
    "tied weights": (lambda m, x: m.last(nnx.relu(m.first(x)) + jnp.tanh(m.first(x))), "has the weights of first"),
    "the mean of the batch": (lambda m, x: m.last(m.first(x) - m.first(x).mean(0)), "mean over the examples"),
    "the mean of the channels": (lambda m, x: m.first(x).mean(-1), "mean over the channels"),
    "a loop": (lambda m, x: jax.lax.scan(lambda c, _: (m.first(x)[:, :6], None), x, None, length=2)[0], "scan"),
    "another shape": (lambda m, x: m.last(x), r"does not take an array of the shape \(7, 6\)"),
    "a sequence longer than the positions": (
        lambda m, x: m.first(x[:, None] * jnp.ones((1, 5, 1))) + jnp.ones((4, 8)),
        r"does not take an array of the shape \(7, 6\).*Incompatible shapes",
    ),
    "two results": (lambda m, x: (m.first(x), x), "returns 2 arrays"),
    "a constant": (lambda m, x: jnp.ones((7, 2)), "do not depend on its input"),
    "two signals in a maximum": (
        lambda m, x: m.last(jnp.maximum(m.first(x), m.last(m.first(x)) @ jnp.ones((2, 8)))),
        "multiplies by weights|max of two different signals",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_have_no_limit(name):
    fn, message = CALLS[name]
    with pytest.raises(ArchitectureError, match=f"(?s){message}"):
        ew.from_module(Calls(fn), (6,))


ARGUMENTS = {
    "a class": (lambda: ew.from_module(eqx.nn.MLP, (3,)), "the class MLP. Make an instance"),
    "a function": (lambda: ew.from_module(jnp.tanh, (3,)), "A function has no layers"),
    "a network of ours": (lambda: ew.from_module(ew.Dense(3), (3,)), "network of everwide already"),
    "no shape": (lambda: ew.from_module(mlp(), ()), r"input_shape=\(\)"),
    "a size of 0": (lambda: ew.from_module(mlp(), (0,)), "size=0: expected a whole number"),
    "another word": (lambda: ew.from_module(mlp(), (3,), variances="mine"), "not a valid Variances.*'checked'"),
    "a place that is not there": (
        lambda: ew.from_module(mlp(), (3,), instead={"layers[9]": ew.Identity()}),
        r"there is no 'layers\[9\]' in the module.*Linear",
    ),
}


def mlp(width=16):
    return eqx.nn.MLP(3, 1, width, 2, key=KEY)


def test_a_single_output_may_be_a_number():
    heads = {
        "a place": Calls(lambda m, x: m.one(nnx.relu(m.first(x)))[:, 0]),
        "squeeze": Calls(lambda m, x: m.one(nnx.relu(m.first(x))).squeeze(-1)),
    }
    for head in heads.values():
        head.one = nnx.Linear(8, 1, rngs=nnx.Rngs(1))
        limit = ew.from_module(head, (6,))
        assert ew.nngp(limit.net, np.eye(6)[:2]).shape == (2, 2)
    one = ew.from_module(eqx.nn.Sequential([mlp(), eqx.nn.Lambda(lambda y: y[0])]), (3,))
    assert one.net == ew.from_module(mlp(), (3,)).net
    assert ew.from_module(eqx.nn.Sequential([mlp(), eqx.nn.Lambda(jnp.squeeze)]), (3,)).net == one.net


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_cannot_be_used(name):
    call, message = ARGUMENTS[name]
    with pytest.raises(InputError, match=f"(?s){message}"):
        call()


def test_a_circular_window_may_be_given_in_numbers():
    numbers, same = (
        eqx.nn.Conv2d(3, 4, 3, padding=padding, padding_mode="CIRCULAR", key=KEY) for padding in (1, "SAME")
    )
    limits = [ew.from_module(eqx.nn.Sequential([one]), (3, 5, 5)).net for one in (numbers, same)]
    assert limits[0] == limits[1]


def test_trained_weights_are_seen():
    """A step of gradient descent moves single weights beyond what is drawn; so do other variances, and biases."""
    module = eqx.nn.MLP(3, 1, 64, 2, key=KEY)
    shifted = eqx.tree_at(lambda m: m.layers[1].weight, module, module.layers[1].weight + 0.01)
    larger = eqx.tree_at(lambda m: m.layers[1].weight, module, module.layers[1].weight * 0.8)
    for trained in (shifted, larger):
        with pytest.raises(ArchitectureError, match=r"(?s)layers\[1\].weight.*about initialization.*empirical_ntk"):
            ew.from_module(trained, (3,))
    assert ew.from_module(larger, (3,), variances="framework").net == ew.from_module(module, (3,)).net
    measured = ew.from_module(larger, (3,), variances="measured").net.layers[2].affine.w_std
    np.testing.assert_allclose(measured**2, 64 * np.mean(np.asarray(larger.layers[1].weight) ** 2), rtol=1e-5)
    zeros = nnx.Linear(16, 2, kernel_init=nnx.initializers.zeros, rngs=nnx.Rngs(0))
    with pytest.raises(ArchitectureError, match="weight is 0 everywhere"):  # few numbers: their variance would not tell
        ew.from_module(zeros, (16,))
    flax = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    flax.bias[...] = flax.bias[...] + 1e-3
    with pytest.raises(ArchitectureError, match="bias"):
        ew.from_module(flax, (4,))


def test_untrained_weights_are_never_taken_for_trained():
    """A false alarm in a million layers is what six standard errors allow."""
    for seed in range(50):
        ew.from_module(eqx.nn.Linear(5, 7, key=jr.key(seed)), (5,))


def test_what_stands_instead():
    """By the kind or by the place, a layer or a function of the module's own."""

    class Pooled(eqx.Module):
        conv: eqx.nn.Conv2d
        pool: eqx.nn.MaxPool2d
        head: eqx.nn.Linear

        def __call__(self, x):
            return self.head(self.pool(jax.nn.relu(self.conv(x))).reshape(-1))

    pool = eqx.nn.MaxPool2d(2, 2)
    module = Pooled(eqx.nn.Conv2d(1, 4, 3, padding=1, key=KEY), pool, eqx.nn.Linear(4 * 9, 2, key=KEY))
    (row,) = [row for row in ew.from_module(module, (1, 6, 6)).rows if row.place == "pool"]
    assert str(row.outcome) == "sampled"
    assert "AvgPool((2, 2))" in row.note
    by_kind = ew.from_module(module, (1, 6, 6), instead={"MaxPool2d": lambda m: ew.AvgPool(m.kernel_size)})
    by_place = ew.from_module(module, (1, 6, 6), instead={"pool": ew.AvgPool((2, 2))})
    assert by_kind.net == by_place.net
    assert ew.AvgPool((2, 2)) in by_kind.net.layers
    assert [row.note for row in by_kind.rows if row.place == "pool"] == ["instead of MaxPool2d, as asked for"]
    with pytest.raises(ArchitectureError, match=r"pool .*makes the shape \(4, 3, 3\).*makes \(4, 6, 6\)"):
        ew.from_module(module, (1, 6, 6), instead={"pool": ew.Identity()})


def test_modes_of_equinox():
    class Normed(eqx.Module):
        first: eqx.nn.Linear
        drop: eqx.nn.Dropout
        norm: eqx.nn.BatchNorm
        last: eqx.nn.Linear

        def __call__(self, x, state, key=None):
            h = self.drop(jax.nn.relu(self.first(x)), key=key)
            h, state = self.norm(h, state)
            return self.last(h), state

    def make():
        norm = eqx.nn.BatchNorm(8, "batch", mode="batch")
        return Normed(eqx.nn.Linear(3, 8, key=KEY), eqx.nn.Dropout(0.25), norm, eqx.nn.Linear(8, 1, key=KEY))

    with pytest.raises(ArchitectureError, match="statistics of the batch"):
        ew.from_module(make(), (3,))
    quiet = ew.from_module(eqx.nn.inference_mode(make()), (3,))
    assert [type(layer).__name__ for layer in quiet.net.layers] == ["Dense", "Relu", "Scale", "Dense"]
    noisy = ew.from_module(make(), (3,), instead={"BatchNorm": ew.LayerNorm()})
    assert ew.Dropout(0.25) in noisy.net.layers


def test_the_table_can_be_printed_and_kept():
    limit = ew.from_module(mlp(), (3,))
    text = str(limit)
    assert "layers[0]" in text
    assert "5 layers of MLP (Equinox)" in text
    kept = limit.to_dict()
    assert kept["rows"][0]["outcome"] == "changed"
    assert "1/3" in kept["rows"][0]["note"]
    assert kept["parametrization"] == "standard"


def test_complex_weights_are_refused_with_the_sentence_of_complex_inputs():
    module = eqx.nn.Linear(4, 3, dtype=jnp.complex64, key=KEY)
    sentence = r"weight is complex \(complex64\). Complex data not supported"
    with jax.numpy_dtype_promotion("standard"), pytest.raises(InputError, match=sentence):
        ew.from_module(module, (4,), variances="framework")
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match=sentence):
        ew.from_module(torch.nn.Sequential(torch.nn.Linear(4, 3, dtype=torch.complex64)), (4,))
