"""From graphs to combinators, without any framework: functions put together, branches, axes."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flax import nnx

import everwide as ew
from everwide import ArchitectureError
from everwide import activations as act
from everwide._walk import walk
from everwide.translation._formula import Formula, layer_of
from everwide.translation._layout import Untranslatable, start

pytestmark = pytest.mark.once


class Net(eqx.Module):
    """Four layers and a function of them."""

    layers: list
    fn: callable = eqx.field(static=True)

    def __init__(self, fn, sizes=((4, 8), (8, 8), (8, 8), (8, 8))):
        self.layers = [eqx.nn.Linear(a, b, key=jr.key(i)) for i, (a, b) in enumerate(sizes)]
        self.fn = fn

    def __call__(self, x):
        return self.fn(self.layers, x)


def nested(layers, x):
    """A branch inside a branch, and a skip over both."""
    a, b, c, d = layers
    h = a(x)
    inner = b(jax.nn.relu(h))
    inner = inner + c(jax.nn.silu(inner))
    return d(jax.nn.relu(h - inner))


def crossing(layers, x):
    """A value that is read inside a branch, and beside it: no chain of branches has it once."""
    a, b, c, d = layers
    h = a(x)
    one = b(jax.nn.relu(h))
    two = c(jax.nn.relu(one))
    return d(jax.nn.relu(one + two + h))


def reads_twice(layers, x):
    a, b, c, d = layers
    h = a(x)
    return d(jax.nn.relu(b(jax.nn.relu(h)))) + c(jax.nn.relu(h)) * 2.0


@pytest.mark.parametrize("fn", [pytest.param(nested, marks=pytest.mark.slow), crossing, reads_twice])
def test_branches_have_the_kernel_of_their_recursion(fn):
    """Against the recursion on numbers, in which every value is computed once: `K` of a sum is the sum of `K`s."""
    limit = ew.from_module(Net(fn), (4,))
    x = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(ew.nngp(limit.net, x), recursion(fn, x), rtol=1e-6)


class Cov:
    """Second moments of a Gaussian, or of what a function made of one."""

    def __init__(self, k):
        self.k = k

    def __add__(self, other):
        return Cov(self.k + other.k)

    __sub__ = __add__  # the sign of an independent branch does not matter

    def __mul__(self, factor):
        return Cov(factor**2 * self.k)


def recursion(fn, x):
    """Layers are affine maps of moments; activations by `ew.nngp` of one layer, on a root of `k`."""

    def linear(size):
        return lambda c: Cov(c.k / 3 + 1 / (3 * size))

    def dual(layer):
        def apply(c):
            root = np.linalg.cholesky(c.k + 1e-13 * np.eye(len(c.k)))
            return Cov(ew.nngp(ew.Serial(ew.Dense(w_std=len(root) ** 0.5), layer), root))

        return apply

    layers = [linear(4), linear(8), linear(8), linear(8)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.nn, "relu", dual(ew.Relu()))
        patch.setattr(jax.nn, "silu", dual(ew.Silu()))
        return fn(layers, Cov(x @ x.T / 4)).k


def test_dense_blocks_grow_by_one_layer_at_a_time():
    """Every layer reads all before it; written out as branches that would be 2^12 layers."""

    def fn(layers, x):
        parts = [layers[0](x)]
        for layer in layers[1:]:
            parts.append(layer(jax.nn.relu(jnp.concatenate(parts))))
        return parts[-1]

    limit = ew.from_module(Net(fn, [(4, 8), *((8 * n, 8) for n in range(1, 12))]), (4,))
    dense = [visit for visit in walk(limit.net) if type(visit.layer).__name__ == "Dense"]
    assert len(dense) == 12


def test_branches_that_share_draws_are_sampled():
    def fn(layers, x):
        h = layers[0](x)
        return layers[1](jax.nn.relu(h)) + layers[2](h) * jax.nn.relu(h)  # weights of its own hide what came before

    def shared(layers, x):
        h = layers[0](x)
        return jax.nn.relu(h) * (h + layers[1](h))

    limit = ew.from_module(Net(shared), (4,))
    assert [str(row.outcome) for row in limit.rows].count("sampled") == 4  # all but the first layer
    assert [type(layer).__name__ for layer in limit.net.layers] == ["Dense", "Sampled"]
    limit = ew.from_module(Net(fn), (4,))
    assert "Product" in {type(visit.layer).__name__ for visit in walk(limit.net)}


class Dense(nnx.Module):
    """Branches side by side, normalized as before training, and then an activation: the layers of a DenseNet."""

    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(16, use_running_average=True, epsilon=3.0, rngs=rngs)
        self.last = nnx.Linear(16, 2, rngs=rngs)

    def __call__(self, x):
        h = self.first(x)
        return self.last(nnx.relu(self.norm(jnp.concatenate([h, self.second(nnx.relu(h))], -1))))


def test_a_constant_factor_between_a_concatenation_and_an_activation_is_exact():
    limit = ew.from_module(Dense(nnx.Rngs(0)), (4,))
    assert {str(row.outcome) for row in limit.rows} <= {"exact", "changed"}
    assert act.TwoSlope(0.0, 0.5) in [visit.layer for visit in walk(limit.net)]
    params = limit.net.init(jax.random.key(0), (4,))
    assert limit.net.apply(params, jnp.ones(4)).shape == (2,)


def test_formulas_are_equal_by_their_steps():
    one, other = (Formula.joined("mul", (None, None), [Formula(), sigmoid()]) for _ in range(2))
    assert one == other
    assert pickle.loads(pickle.dumps(one)) == one
    assert layer_of(one) == act.Silu()
    x = jnp.linspace(-2.0, 2.0, 5)
    np.testing.assert_allclose(one(x), x * jax.nn.sigmoid(x), rtol=1e-6)


def sigmoid():
    return Formula.joined("logistic", (None,), [Formula()])


def step(name, *numbers):
    return Formula.joined(name, (None, *numbers), [Formula()])


def test_formulas_become_layers():
    assert layer_of(step("mul", 0.5)) == ew.layers.Scale(0.5)
    assert layer_of(step("mul", 1.0)) == ew.Identity()
    assert layer_of(step("leaky_relu", 0.3)) == ew.LeakyRelu(0.3)
    assert layer_of(step("clip", -2.0, 3.0)) == act.PiecewiseLinear((-2.0, 3.0), (0.0, 1.0, 0.0))
    assert layer_of(step("elu", 0.7)) == act.Elu(0.7)
    doubled = Formula.joined("mul", (None, 2.0), [step("relu")])
    assert layer_of(doubled) == act.TwoSlope(0.0, 2.0)
    hard = layer_of(step("hard_swish"))
    assert set(hard.kinks) == {-3.0, 3.0}


def test_bends_outside_of_the_grid_are_seen():
    assert layer_of(step("clip", 0.0, 20.0)) == act.PiecewiseLinear((0.0, 20.0), (0.0, 1.0, 0.0))
    assert layer_of(step("clip", -10.0, 10.0)) == act.PiecewiseLinear((-10.0, 10.0), (0.0, 1.0, 0.0))
    clipped = layer_of(Formula.joined("min", (None, 10.0), [step("softplus")]))
    np.testing.assert_allclose(clipped.kinks, [np.log(np.expm1(10.0))], rtol=1e-6)
    assert isinstance(layer_of(Formula.joined("mul", (None, 1e-6), [step("tanh")])), ew.Elementwise)
    assert layer_of(step("exp")) == act.Exp()  # which overflows there


def test_kinks_are_where_a_step_bends_and_not_the_numbers_it_compares_with():
    shifted = Formula.joined("relu", (None,), [step("add", 1.0)])
    line = Formula.joined("add", (None, 0.5), [step("mul", 0.2)])
    twice = Formula.joined("relu", (None,), [Formula.joined("sub", (None, 0.5), [step("relu")])])
    largest = Formula.joined("max", (None, None), [Formula(), Formula.joined("mul", (None, None), [Formula()] * 2)])
    assert layer_of(shifted).kinks == (-1.0,)
    assert layer_of(Formula.joined("clip", (None, 0.0, 1.0), [line])).kinks == (-2.5, 2.5)
    assert layer_of(twice).kinks == (0.0, 0.5)
    assert layer_of(largest).kinks == (0.0, 1.0)
    assert layer_of(Formula.joined("clip", (None, 0.0, 6.0), [step("mul", 3.0)])).kinks == (0.0, 2.0)
    assert layer_of(Formula.joined("hard_sigmoid", (None,), [step("mul", 2.0)])).kinks == (-1.5, 1.5)


def test_moments_that_are_not_reliable_are_told_in_a_sentence():
    quick = ew.Elementwise(Formula.joined("sin", (None,), [step("mul", 300.0)]))
    with pytest.raises(ArchitectureError, match=r"^The Gaussian moments of .*name its kinks[^\n]*$"):
        ew.nngp(ew.Serial(ew.Dense(), quick, ew.Dense(1)), np.eye(3))


def test_axes_are_moved_and_merged():
    image = start((3, 6, 5), channels=0, batched=True)
    assert image.shape == (6, 5, 3)
    assert image.described(7) == (7, 3, 6, 5)
    tokens = image.regrouped((7, 3, 30), 7).permuted((0, 2, 1))
    assert tokens.described(7) == (7, 30, 3)
    assert tokens.groups == (("n",), ("0", "1"), ("c",))
    assert tokens.regrouped((210, 3), 7).groups == (("n", "0", "1"), ("c",))
    assert tokens.regrouped((210, 3), 7).regrouped((7, 6, 5, 3), 7).groups == (("n",), ("0",), ("1",), ("c",))
    with pytest.raises(Untranslatable, match="cuts an axis into pieces"):
        image.regrouped((7, 3, 3, 2, 5), 7)
