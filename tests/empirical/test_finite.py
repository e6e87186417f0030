"""Kernels of one finite network against Jacobians by hand, and through the engine."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.empirical import Finite
from everwide.testing._draws import exact_for, quick_jit

pytestmark = pytest.mark.wide

WIDTH = 5


def brute_force(net, params, inputs: ew.Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Both kernels `(n, n, places, places)` from outputs and their full Jacobian, entry by entry."""
    each = [jax.tree.map(lambda a, i=i: a[i], inputs) for i in range(len(inputs.x))]
    run = lambda p: jnp.stack([net.apply(p, ew.kernel.Example(e.x, e.mask, e.graph)) for e in each])
    y, jacobian = quick_jit(lambda p: (run(p), jax.jacrev(run)(p) if jax.tree.leaves(p) else ()))(params)
    rows = [np.asarray(j).reshape(y.size, -1) for j in jax.tree.leaves(jacobian)]
    tangent = sum((r @ r.T for r in rows), np.zeros((y.size, y.size)))
    n, channels = len(y), y.shape[-1]
    places = y.size // (n * channels)
    tangent = tangent.reshape(n, places, channels, n, places, channels)
    flat = np.asarray(y).reshape(n, places, channels)
    return np.einsum("iac,jbc->ijab", flat, flat) / channels, np.einsum("iacjbc->ijab", tangent) / channels


MASK = jnp.array([[True, True, True, True], [True, True, False, False], [True, False, True, True]])
CASES = {
    "mlp": (ew.Serial(ew.Dense(b_std=0.3), ew.Relu(), ew.Dense(3, b_std=0.1)), (2,), "ntk", None),
    "frozen": (ew.Serial(ew.Dense(frozen=True), ew.Erf(), ew.Dense(), ew.Relu(), ew.Dense(1)), (2,), "standard", None),
    "speeds": (ew.Serial(ew.Dense(speed=0.3), ew.Erf(), ew.Dense(2, b_std=0.2, speed=4.0)), (2,), "standard", None),
    "nothing learns": (ew.Serial(ew.Dense(frozen=True), ew.Erf()), (2,), "ntk", None),
    "conv": (ew.Serial(ew.Conv((2,), b_std=0.2), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(2)), (4, 2), "mup", MASK),
    "sites": (ew.Serial(ew.Conv((2,)), ew.Relu(), ew.Conv((2,), width=2)), (4, 2), "mean_field", MASK),
    "two site axes": (ew.Serial(ew.Conv((2, 2)), ew.Relu(), ew.Conv((2, 2), width=2)), (2, 3, 2), "ntk", None),
    "attention": (ew.Serial(ew.SelfAttention(heads=2), ew.Relu(), ew.Flatten(), ew.Dense(1)), (3, 2), "ntk", None),
    "no parameters": (ew.Identity(), (2,), "ntk", None),
}


HEAVY = ("attention", "sites")  # to compile


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in HEAVY else n for n in CASES])
def test_kernels_are_those_of_the_full_jacobian(name):
    net, shape, law, mask = CASES[name]
    inputs = ew.Inputs(jr.normal(jr.key(1), (3, *shape)), mask)

    @quick_jit
    def both(inputs):
        params = net.init(jr.key(0), shape, width=WIDTH, parametrization=law)
        kernel, same = Finite(net, params, shape), Finite(net, params, shape, pairs=ew.signal.Pairs.SAME_SITE)
        other = jax.tree.map(lambda a: a[:2], inputs)
        whole = kernel.block(inputs, inputs)
        return params, whole, kernel.block(inputs, other), kernel.diagonal(inputs), same.block(inputs, inputs)

    params, whole, part, diagonal, same = both(inputs)
    exact = exact_for(inputs.x.dtype)
    for field, expected in zip(("nngp", "ntk"), brute_force(net, params, inputs), strict=True):
        read = lambda block, field=field: np.asarray(getattr(block, field))
        sites = Finite(net, params, shape).site_shape()
        assert exact.excess(read(whole), expected.reshape(3, 3, *sites)) < 1
        assert exact.excess(read(part), expected[:, :2].reshape(3, 2, *sites)) < 1
        assert exact.excess(read(diagonal), expected[np.arange(3), np.arange(3)].reshape(3, *sites)) < 1
        equal = np.einsum("ijaa->ija", expected).reshape(3, 3, *sites[: len(sites) // 2])
        assert exact.excess(read(same), equal) < 1


@pytest.mark.slow
def test_the_engine_takes_a_finite_network_tile_by_tile():
    net, shape, law, _ = CASES["mlp"]
    params = net.init(jr.key(0), shape, width=WIDTH, parametrization=law)
    x = np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32)
    kernel = Finite(net, params, shape)
    whole, tiled = ew.gram(kernel, x), ew.gram(kernel, x, tile=3)
    nngp, ntk = brute_force(net, jax.tree.map(lambda p: p.astype(jnp.float32), params), ew.Inputs(jnp.asarray(x)))
    for found in (whole, tiled):
        assert found.ntk.dtype == np.float32
        assert exact_for(np.float32).excess(found.nngp, nngp[:, :, 0, 0]) < 1
        assert exact_for(np.float32).excess(found.ntk, ntk[:, :, 0, 0]) < 1
    assert exact_for(np.float32).excess(ew.ntk(kernel, x, x[:2]), ntk[:, :2, 0, 0]) < 1


def test_graphs_come_with_the_examples():
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.Aggregate(), ew.GlobalAvgPool(), ew.Dense(1))
    params = net.init(jr.key(0), (4, 2), width=3)
    inputs = ew.Inputs(jr.normal(jr.key(1), (3, 4, 2)), graph=jr.normal(jr.key(2), (3, 4, 4)))
    found = ew.gram(Finite(net, params, (4, 2)), inputs)
    nngp, ntk = brute_force(net, params, inputs)
    exact = exact_for(inputs.x.dtype)
    assert exact.excess(found.nngp, nngp[:, :, 0, 0]) < 1
    assert exact.excess(found.ntk, ntk[:, :, 0, 0]) < 1


def test_tiles_shrink_with_the_parameters():
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    kernel = lambda width: Finite(net, jax.eval_shape(lambda: net.init(jr.key(0), (2,), width=width)), (2,))
    assert kernel(8).examples_per_tile(4) > kernel(1 << 20).examples_per_tile(4) >= 1
    assert kernel(64).tile_bytes(10, 10, 8) == 2 * kernel(64).tile_bytes(10, 10, 4)


def test_branches_of_open_width_need_the_width():
    net = ew.Serial(ew.Concat(ew.Dense(), ew.Dense()), ew.Dense(1))
    params = net.init(jr.key(0), (2,), width=3)
    with pytest.raises(ew.ArchitectureError, match="Give the last layer of every branch a width"):
        Finite(net, params, (2,))
    x = ew.Inputs(jnp.ones((1, 2)))
    assert jax.eval_shape(Finite(net, params, (2,), width=3).block, x, x).ntk.shape == (1, 1)
