"""What people have becomes a function of parameters and one example, and nothing about it changes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide.empirical._models import Model, TorchModel, as_model
from everwide.testing._draws import exact_for

pytestmark = pytest.mark.wide

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (4, 3))


def same(got, expected):
    return exact_for(jnp.asarray(expected).dtype).excess(got, expected) < 1


def test_a_function_is_itself():
    def f(params, x):
        return params["w"] @ x + params["scale"]

    model = as_model(f, {"w": np.ones((2, 3), np.float32), "scale": 2.0})
    assert model.f is f
    assert model.batched is None
    assert {k: v.shape for k, v in model.params.items()} == {"w": (2, 3), "scale": ()}
    assert as_model(model) is model


def test_a_callable_that_cannot_be_hashed_becomes_a_static_function():
    class Scaled(eqx.Module):
        factor: jax.Array

        def __call__(self, params, x):
            return self.factor * params * x.sum()

    model = as_model(Scaled(jnp.array(3.0)), jnp.array(2.0))
    assert hash(model.f) == hash(model.f)
    assert same(model.f(model.params, X[0]), 6 * X[0].sum())


def test_an_equinox_module_is_called_on_one_example():
    module = eqx.nn.MLP(3, 2, 4, 1, key=KEY)
    model = as_model(module)
    assert [leaf.shape for leaf in jax.tree.leaves(model.params)] == [(4, 3), (4,), (2, 4), (2,)]
    assert same(jax.vmap(model.f, (None, 0))(model.params, X), jax.vmap(module)(X))
    other = jax.tree.map(lambda p: 2 * p, model.params)
    assert same(model.f(other, X[0]), jax.tree.map(lambda p: 2 * p if eqx.is_array(p) else p, module)(X[0]))


def test_integers_in_an_equinox_module_are_constants():
    class Picked(eqx.Module):
        weight: jax.Array
        index: jax.Array

        def __call__(self, x):
            return self.weight[self.index] @ x

    model = as_model(Picked(jnp.ones((4, 3)), jnp.array([0, 2])))
    assert [leaf.shape for leaf in jax.tree.leaves(model.params)] == [(4, 3)]
    assert same(model.f(model.params, X[0]), jnp.full(2, X[0].sum()))


def test_a_module_is_compiled_once_while_it_is_trained():
    modules = [eqx.nn.Linear(3, 2, key=k) for k in jax.random.split(KEY)]
    first, second = (as_model(module) for module in modules)
    assert first.f == second.f
    assert hash(first.f) == hash(second.f)
    other = as_model(eqx.nn.Linear(3, 2, use_bias=False, key=KEY))
    assert first.f != other.f


def test_constants_of_a_module_are_compared_by_value():
    class Shifted(eqx.Module):
        weight: jax.Array
        shift: jax.Array

        def __call__(self, x):
            return self.weight @ x + self.shift.astype(x.dtype)

    one, two, three = (as_model(Shifted(jnp.ones(3), jnp.array(i))).f for i in (1, 1, 2))
    assert one == two
    assert one != three


def test_a_network_of_ours_with_masks():
    net = ew.Serial(ew.Conv((3,)), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(2))
    params = net.init(KEY, (5, 3), width=4)
    x = jax.random.normal(KEY, (2, 5, 3))
    mask = jnp.arange(5) < jnp.array([[5], [3]])
    model = as_model(net, params)
    assert model.f == as_model(net, params).f
    expected = jnp.stack([net.apply(params, ew.kernel.Example(a, m)) for a, m in zip(x, mask, strict=True)])
    assert same(jax.vmap(model.f, (None, 0))(model.params, ew.Inputs(x, mask)), expected)
    assert same(model.f(model.params, x[0]), net.apply(params, x[0]))


def test_outputs_of_our_networks_are_in_a_row():
    net = ew.Serial(ew.Conv((3,), width=2))
    model = as_model(net, net.init(KEY, (5, 3)))
    assert model.f(model.params, jnp.ones((5, 3))).shape == (10,)


def test_an_nnx_module_is_called_on_a_batch_of_one():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.conv, self.norm = nnx.Conv(1, 2, (2,), rngs=rngs), nnx.BatchNorm(2, rngs=rngs)
            self.out = nnx.Linear(6, 2, rngs=rngs)

        def __call__(self, x):
            assert x.ndim == 3  # a batch, or the convolution would not know its axes
            return self.out(nnx.relu(self.norm(self.conv(x))).reshape(len(x), -1))

    module = Net(nnx.Rngs(0))
    module.eval()
    model = as_model(module)
    x = X[..., None].astype(jnp.float32)
    assert len(jax.tree.leaves(model.params)) == 6
    assert same(jax.vmap(model.f, (None, 0))(model.params, x), module(x))
    assert same(model.batched(model.params, x), module(x))
    assert as_model(module).f == model.f


def test_an_nnx_module_must_return_a_batch():
    nnx = pytest.importorskip("flax.nnx")

    class Averaged(nnx.Module):
        def __init__(self):
            self.w = nnx.Param(jnp.ones(()))

        def __call__(self, x):
            return x.mean()

    model = as_model(Averaged())
    with pytest.raises(ValueError, match=r"returned an array of shape \(\)"):
        model.f(model.params, X[0])


def test_a_torch_module_is_kept():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2)
    assert as_model(module) == TorchModel(module)


@pytest.mark.parametrize(
    ("f", "params", "message"),
    [
        (lambda params, x: x, None, "pass its params"),
        (ew.Dense(2), None, "net.init"),
        (3, jnp.ones(2), "f is a int"),
        (lambda params, x: x, {"w": jnp.ones(2), "step": np.array(3)}, r"params\['step'\] is int"),
        (lambda params, x: x, {"w": jnp.ones(2), "name": "relu"}, r"params\['name'\] is"),
        (lambda params, x: x, jnp.ones(2, jnp.complex64), "complex64, expected real"),
    ],
)
def test_what_is_no_model_is_refused(f, params, message):
    with pytest.raises(ew.InputError, match=message):
        as_model(f, params)


def test_no_parameters_are_refused():
    with pytest.raises(ValueError, match="no parameters"):
        as_model(lambda params, x: x, {})


def test_a_linen_module_is_told_the_way_out():
    linen = pytest.importorskip("flax.linen")
    with pytest.raises(ew.InputError, match=r"module\.apply"):
        as_model(linen.Dense(2))


def test_other_libraries_are_not_imported():
    import subprocess
    import sys

    code = "import everwide.empirical._gradients as g, sys, jax.numpy as jnp; "
    code += "g.per_example_gradients(lambda p, x: p @ x, jnp.ones(3), jnp.ones((2, 3))); "
    code += "print({'torch', 'flax'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr


def test_a_model_is_a_triple():
    assert Model._fields == ("f", "params", "batched")
