"""Tangent features: their inner products are the tangent kernel, up to the noise of a random projection."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
import everwide.empirical as emp

KEY, DIM = jax.random.key(0), 4096


def mlp(params, x):
    return jnp.tanh(jnp.tanh(x @ params["w"] + params["b"]) @ params["v"] + params["c"])


def mlp_params(key=KEY):
    w, v = (jax.random.normal(k, s) for k, s in zip(jax.random.split(key), ((3, 20), (20, 2)), strict=True))
    return {"w": w, "b": jnp.ones(20), "v": v / 4, "c": jnp.zeros(2)}


def rows(n=6):
    return np.random.default_rng(0).normal(size=(n, 3)).astype(jnp.result_type(float))


def close(kernel, exact):
    """Within the noise of 4096 projections: products of two signs have a few times the variance of one."""
    size = np.sqrt(np.abs(np.diagonal(exact)))
    assert np.abs(kernel - exact).max() < 12 / DIM**0.5 * size.max() ** 2


def test_inner_products_are_the_tangent_kernel():
    params, x = mlp_params(), rows()
    features = emp.tangent_features(mlp, params, x, KEY, DIM)
    assert features.shape == (6, 2, DIM)
    exact = ew.empirical_ntk(mlp, params, x)
    close(features.reshape(12, DIM) @ features.reshape(12, DIM).T, exact.transpose(0, 2, 1, 3).reshape(12, 12))
    trace = emp.tangent_features(mlp, params, x, KEY, DIM, outputs="trace")
    close(trace @ trace.T, ew.empirical_ntk(mlp, params, x, outputs="trace"))


def test_they_are_unbiased():
    params, x = mlp_params(), rows(3)
    exact = ew.empirical_ntk(mlp, params, x, outputs="trace")
    some = [emp.tangent_features(mlp, params, x, jax.random.key(i), 64, outputs="trace") for i in range(200)]
    kernels = np.array([f @ f.T for f in some])
    error = kernels.std(0) / 200**0.5
    assert (np.abs(kernels.mean(0) - exact) / error).max() < 4


def test_weights_are_combinations_of_outputs():
    params, x = mlp_params(), rows()
    weights = np.random.default_rng(1).normal(size=(6, 2))
    full = emp.tangent_features(mlp, params, x, KEY, 32)
    some = emp.tangent_features(mlp, params, x, KEY, 32, weights=weights)
    np.testing.assert_allclose(some, np.einsum("nks,nk->ns", full, weights), rtol=1e-4, atol=1e-5)


def test_a_pool_may_be_projected_in_parts():
    params, x = mlp_params(), rows(7)
    whole = emp.tangent_features(mlp, params, x, KEY, 16, memory=100_000)
    parts = [emp.tangent_features(mlp, params, some, KEY, 16) for some in (x[:3], x[3:])]
    np.testing.assert_allclose(whole, np.concatenate(parts), rtol=1e-4, atol=1e-5)


def test_the_last_layer_alone():
    def linear_readout(params, x):
        return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"] + params["c"]

    params, x = mlp_params(), rows()
    features = emp.tangent_features(linear_readout, params, x, KEY, DIM, last=True, outputs="trace")
    hidden = np.tanh(x @ np.asarray(params["w"]) + 1)
    close(features @ features.T, hidden @ hidden.T + 1)


def test_convolutions_and_lookups():
    net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.Flatten(), ew.Dense(2))
    params = net.init(KEY, (5, 5, 1), width=6)
    images = np.random.default_rng(2).normal(size=(4, 5, 5, 1)).astype(jnp.result_type(float))
    features = emp.tangent_features(net, params, images, KEY, DIM, outputs="trace")
    close(features @ features.T, ew.empirical_ntk(net, params, images, outputs="trace"))

    def words(params, tokens):
        return jnp.tanh(params["table"][tokens]).mean(0) @ params["v"]

    table = jax.random.normal(KEY, (7, 5))
    tokens = np.array([[0, 1, 2], [2, 2, 6], [5, 4, 3]])
    params = {"table": table, "v": jnp.ones((5, 2))}
    features = emp.tangent_features(words, params, tokens, KEY, DIM, outputs="trace")
    close(features @ features.T, ew.empirical_ntk(words, params, tokens, outputs="trace"))


def test_outputs_are_those_of_the_model():
    params, x = mlp_params(), rows(5)
    np.testing.assert_allclose(emp.evaluate(mlp, params, x, memory=200), jax.vmap(mlp, (None, 0))(params, x), rtol=1e-5)


def test_torch_modules_have_tangent_features():
    torch = pytest.importorskip("torch", reason="PyTorch: make test-torch installs it.")
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).eval()
    x = rows().astype(np.float32)
    features = emp.tangent_features(module, None, x, KEY, DIM, outputs="trace")
    close(features @ features.T, ew.empirical_ntk(module, None, x, outputs="trace"))
    np.testing.assert_allclose(emp.evaluate(module, None, x), module(torch.tensor(x)).detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": "sum"}, "'full' or 'trace'"),
        ({"weights": np.ones((2, 2))}, "weights have shape"),
        ({"dim": 0}, "dim=0"),
    ],
)
def test_what_cannot_be_used_is_refused(options, message):
    with pytest.raises(ew.InputError, match=message):
        emp.tangent_features(mlp, mlp_params(), rows(), KEY, **({"dim": 4} | options))
