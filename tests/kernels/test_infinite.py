"""The limit as a pure JAX function: gradients, edge cases, pickling, and the static plan."""

import itertools
import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import everwide as ew
from everwide._engine import Remembered
from everwide._kernels._infinite import _STATIC, Infinite

X64 = jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def relu_net(depth: int = 2, w_std: float = 1.4, b_std: float | None = 0.3) -> ew.Serial:
    layers = [layer for _ in range(depth) for layer in (ew.Dense(w_std=w_std, b_std=b_std), ew.Relu())]
    return ew.Serial(*layers, ew.Dense(1))


EDGE_NETS = {
    "relu": relu_net(),
    "relu without bias": relu_net(b_std=None),
    "leaky": ew.Serial(ew.Dense(), ew.LeakyRelu(0.1), ew.Dense(), ew.LeakyRelu(0.1), ew.Dense(1)),
    "erf": ew.Serial(ew.Dense(), ew.Erf(), ew.Dense(), ew.Erf(), ew.Dense(1)),
    "gelu": ew.Serial(ew.Dense(), ew.Gelu(), ew.Dense(1)),
    "residual": ew.Serial(ew.Dense(), ew.Residual(ew.Relu(), ew.Dense()), ew.Relu(), ew.Dense(1)),
    "normalized": ew.Serial(ew.Dense(b_std=0.1), ew.LayerNorm(), ew.Relu(), ew.Dense(1)),
}


@pytest.mark.parametrize("name", EDGE_NETS)
def test_zero_duplicate_and_antipodal_rows(name):
    x = np.array([[0.0, 0.0], [1.0, -2.0], [1.0, -2.0], [-1.0, 2.0], [1e-12, 1e-12], [1.0, -2.0 + 1e-7]])
    net = EDGE_NETS[name]
    k = ew.gram(net, x)
    for matrix in k:
        assert np.isfinite(matrix).all()
        np.testing.assert_allclose(matrix[1, 2], matrix[1, 1], rtol=1e-7)
        np.testing.assert_allclose(matrix[:, 1], matrix[:, 2], rtol=1e-7)
        assert np.linalg.eigvalsh(matrix)[0] > -1e-7 * np.abs(matrix).max()
    small = ew.gram(net, x.astype(np.float32))
    np.testing.assert_allclose(small.ntk, k.ntk, rtol=2e-5, atol=2e-6 * k.ntk.max())


@pytest.mark.parametrize("name", EDGE_NETS)
def test_gradients_are_finite_at_the_edges(name):
    x = jnp.array([[0.0, 0.0], [1.0, -2.0], [1.0, -2.0], [-1.0, 2.0]])

    def total(net: ew.Serial, x: jax.Array) -> jax.Array:
        block = Infinite(net, (2,)).block(ew.Inputs(x), ew.Inputs(x))
        return jnp.sum(block.ntk) + jnp.sum(block.nngp)

    for tree in jax.jit(jax.grad(total, (0, 1)))(EDGE_NETS[name], x):
        assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_tiny_and_huge_weights_only_rescale_a_relu_network(scale):
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    expected = ew.gram(relu_net(2, 1.0, None), x)
    k = ew.gram(relu_net(2, scale, None), x)
    np.testing.assert_allclose(k.nngp, expected.nngp * scale**4, rtol=1e-5)
    np.testing.assert_allclose(k.ntk, expected.ntk * scale**4, rtol=1e-5)


def test_one_row_one_feature_depth_one_hundred():
    x = np.array([[0.7]], np.float32)
    deep = ew.Serial(ew.Repeat(ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu()), 100), ew.Dense(1))
    k = ew.gram(deep, x)
    np.testing.assert_allclose(k.nngp, [[0.49]], rtol=1e-5)  # He initialization keeps the second moment
    np.testing.assert_allclose(k.ntk, [[101 * 0.49]], rtol=1e-5)  # and every layer adds it once


@pytest.mark.wide
def test_hyperparameter_gradients_against_differences():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 3)))

    def value(w_std, b_std) -> jax.Array:
        dense = lambda: ew.Dense(w_std=w_std, b_std=b_std)
        net = ew.Serial(dense(), ew.Relu(), dense(), ew.Erf(), dense())
        return jnp.sum(Infinite(net, (3,)).block(ew.Inputs(x[:2]), ew.Inputs(x[2:])).ntk)

    at = (jnp.asarray(1.2), jnp.asarray(0.4))
    found = jax.grad(value, (0, 1))(*at)
    step = 1e-5 if X64 else 1e-2
    for i in range(2):
        shift = [jnp.asarray(step if j == i else 0.0) for j in range(2)]
        ahead, behind = (value(*(a + s * d for a, d in zip(at, shift, strict=True))) for s in (1, -1))
        np.testing.assert_allclose(found[i], (ahead - behind) / (2 * step), rtol=1e-7 if X64 else 1e-2)


def test_networks_and_kernels_pickle():
    net = ew.Serial(ew.Conv((3,), b_std=0.1), ew.Erf(), ew.SelfAttention(), ew.LayerNorm(), ew.Flatten(), ew.Dense(1))
    x = np.random.default_rng(0).standard_normal((3, 4, 2))
    again = pickle.loads(pickle.dumps(net))
    assert (ew.ntk(net, x) == ew.ntk(again, x)).all()
    kernel = pickle.loads(pickle.dumps(Infinite(net, (4, 2))))
    assert kernel.site_shape() == ()


PLANS = {
    "dense": (relu_net(3), (20,)),
    "pooled": (ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.Conv((3, 3)), ew.Relu(), ew.GlobalAvgPool()), (6, 6, 2)),
    "flat": (ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.Flatten(), ew.Dense(1)), (6, 6, 2)),
    "residual": (
        ew.Serial(ew.Conv((3,)), ew.Residual(ew.Relu(), ew.Conv((3,))), ew.AvgPool((2,)), ew.Relu(), ew.Flatten()),
        (12, 2),
    ),
    "attention": (ew.Serial(ew.Dense(), ew.SelfAttention(), ew.Relu(), ew.GlobalAvgPool()), (10, 2)),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_bounds_what_xla_allocates(name):
    net, shape = PLANS[name]
    kernel, n = Infinite(net, shape), 16
    x = ew.Inputs(jnp.ones((n, *shape), jnp.float32))
    spent = jax.jit(Infinite.block).lower(kernel, x, x).compile().memory_analysis().temp_size_in_bytes
    assert spent <= kernel.tile_bytes(n, n, 4) + 64 * 1024


def test_the_plan_tracks_all_sites_only_below_the_layer_that_needs_them():
    net = ew.Serial(
        ew.Conv((3,)),
        ew.Relu(),
        ew.AvgPool((2,)),
        ew.Conv((3,)),
        ew.Relu(),
        ew.Flatten(),
        ew.Dense(),
        ew.Relu(),
        ew.Dense(1),
    )
    plan = ew.explain(net, (8, 2))
    tracked = [(s.name, s.reads.cross.name, s.reads.own.name) for s in plan.steps]
    assert tracked[:3] == [(n, "ALL_SITES", "ALL_SITES") for n in ("Conv", "Relu", "AvgPool")]
    assert tracked[3:6] == [(n, "SAME_SITE", "SAME_SITE") for n in ("Conv", "Relu", "Flatten")]
    assert "all sites" in str(plan)
    assert plan.to_dict()["steps"][0]["tile_bytes"] > 0


def test_equal_examples_are_equal_in_float64():
    # Rounding of the products would part them by its square root: the smallest eigenvalues would be 1e-8, not 0.
    x = np.random.default_rng(0).normal(size=(20, 50))
    rows_twice = np.concatenate([x, x])
    ntk = ew.ntk(ew.Serial(ew.Dense(b_std=0.3), ew.Relu(), ew.Dense(1)), rows_twice)
    assert np.abs(np.linalg.eigvalsh(ntk)[:20]).max() < 1e-13 * ntk.max()
    near = ew.ntk(ew.Serial(ew.Dense(b_std=0.3), ew.Relu(), ew.Dense(1)), np.concatenate([x, x * (1 + 1e-6)]))
    assert np.abs(np.diagonal(near, 20) - np.diagonal(near)[:20]).min() > 0


def test_threads_may_ask_for_many_networks_at_once():
    """More networks than are remembered, from eight threads: nothing is lost, and everybody gets its own answer."""
    nets = [relu_net(depth, b_std=None) for depth in range(1, 5)]
    kernels = [Infinite(nets[i % 4], (3 + i,)) for i in range(160)]
    expected = [(2 * (1 + i % 4) + 1, 3 + i) for i in range(160)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            plans = list(pool.map(lambda kernel: kernel._static(), kernels))
            assert [(len(plan.steps), plan.steps[0].before.channels) for plan in plans] == expected
    assert len(_STATIC._results) == 64


def test_threads_that_push_each_others_plans_out_get_the_same_kernels(monkeypatch):
    """Six networks and room for two of their plans: every thread loses and makes them all the time."""
    memory = Remembered(2)
    monkeypatch.setattr("everwide._kernels._infinite._STATIC", memory)
    x = np.random.default_rng(0).normal(size=(3, 2))
    nets = [relu_net(depth, b_std=b_std) for depth in (1, 2, 3) for b_std in (None, 0.3)]
    alone = [ew.gram(net, x).ntk for net in nets]

    def ask(i):
        return ew.gram(nets[i % len(nets)], x).ntk, len(memory._results)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(96)))
    for i, (ntk, remembered) in enumerate(answers):
        np.testing.assert_array_equal(ntk, alone[i % len(nets)])
        assert remembered <= 2


def test_what_is_remembered_is_made_once_for_all_threads():
    memory, gate = Remembered(2), threading.Barrier(4)

    def make():
        gate.wait(5)  # all four are on their way before the first is done
        return object()

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: memory.get("a", make), range(4)))
    assert len(set(map(id, results))) == 1
    assert memory.get("b", object) is memory.get("b", object)
    memory.get("c", object)
    assert memory.get("a", object) is not results[0]  # the oldest went


def test_parameters_are_counted():
    """`P = sum (n_l + 1) n_{l+1}` with biases; queries that equal keys count once, repetitions as often as they are."""
    widths = [3, 7, 5, 2]
    layers = [layer for n in widths[1:] for layer in (ew.Dense(n, b_std=0.1), ew.Relu())]
    plan = ew.explain(ew.Serial(*layers[:-1]), (3,))
    assert plan.parameters == sum((n + 1) * m for n, m in itertools.pairwise(widths))
    assert f"has {plan.parameters} parameters" in str(plan)
    assert plan.to_dict()["parameters"] == plan.parameters
    attention = ew.SelfAttention(heads=2, key_width=3, value_width=5)
    net = ew.Serial(ew.Dense(), attention, ew.GlobalAvgPool(), ew.Dense(1))
    assert ew.explain(net, (4, 6), width=8).parameters == 6 * 8 + 2 * 8 * 3 + 2 * 8 * 5 + 2 * 5 * 8 + 8
    assert ew.explain(net, (4, 6)).parameters is None
    deep = ew.Serial(ew.Dense(), ew.Repeat(ew.Serial(ew.Dense(b_std=1.0), ew.Relu()), 4), ew.Dense(1))
    assert ew.explain(deep, (3,), width=8).parameters == 3 * 8 + 4 * (8 + 1) * 8 + 8


def test_a_plan_looks_at_each_layer_a_few_times(monkeypatch):
    """Networks of 200 layers are planned in a fraction of a second: work grows with the layers, not their square."""
    calls = {"describe": 0, "sample": 0}

    def counted(name):
        original = getattr(ew.Dense, name)

        def call(self, *args):
            calls[name] += 1
            return original(self, *args)

        return call

    for name in calls:
        monkeypatch.setattr(ew.Dense, name, counted(name))
    block = ew.Residual(ew.Relu(), ew.Dense(8))
    net = ew.Serial(ew.Dense(8), *[layer for _ in range(50) for layer in (ew.Dense(8), block, ew.Relu())], ew.Dense(1))
    plan = ew.explain(net, (3,))
    assert plan.parameters == 3 * 8 + 100 * 64 + 8
    assert plan.to_dict()["parameters"] == plan.parameters
    assert calls["describe"] <= 5 * 102 + 10
    assert calls["sample"] == 3  # as many as there are different ones


@pytest.mark.parametrize("widths", [(96, 384), (384, 96)])
def test_the_narrower_width_alone_must_be_large(widths):
    """Tangent kernels of 40 finite networks, wide before narrow and the other way round, have one limit.

    Arora et al., "On exact computation with an infinitely wide neural net" (2019), theorem 3.1.
    """
    first, second = widths
    net = ew.Serial(ew.Dense(first, w_std=1.4), ew.Relu(), ew.Dense(second, w_std=1.4), ew.Relu(), ew.Dense(1))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3)))

    @jax.jit
    @jax.vmap
    def tangent_kernel(key):
        params = net.init(key, (3,))
        grads = jax.vmap(lambda one: jax.grad(lambda p: net.apply(p, one)[0])(params))(x)
        return sum(jnp.tensordot(g.reshape(2, -1), g.reshape(2, -1), (1, 1)) for g in jax.tree.leaves(grads))

    draws = np.asarray(tangent_kernel(jax.random.split(jax.random.key(1), 40)), np.float64)
    limit, error = ew.ntk(net, np.asarray(x)), draws.std(0, ddof=1) / 40**0.5
    assert (error < 0.05 * limit[0, 0]).all()
    assert np.abs((draws.mean(0) - limit) / error).max() < 4


@pytest.mark.parametrize("pairs", [0, 3, 60])
def test_rows_that_are_nearly_parallel_keep_their_angles_in_float32(pairs):
    """Few in a tile, or many, go ways of their own: the angle is the root of what rounding would lose."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 100, 40)).astype(np.float32)
    some = rng.choice(100, (2, pairs))
    z[some[1]] = x[some[0]] + 1e-4 * rng.normal(size=(pairs, 40))
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(), ew.Relu(), ew.Dense(1))
    single = ew.gram(net, x, z)
    double = ew.gram(net, x.astype(np.float64), z.astype(np.float64))
    np.testing.assert_allclose(single.ntk, double.ntk, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(single.nngp, double.nngp, rtol=2e-6, atol=1e-6)


def relu_tangent(x, z, depth):
    """Of ReLU networks without biases, in arbitrary precision, entry by entry."""
    with mp.workdps(40):
        a, b, c = (2 * mp.fdot(map(float, p), map(float, q)) / len(x) for p, q in ((x, x), (z, z), (x, z)))
        tangent, size = c, mp.sqrt(a * b)
        for _ in range(depth):
            cosine = max(min(c / size, mp.mpf(1)), mp.mpf(-1))
            angle = mp.acos(cosine)
            c = size * (mp.sin(angle) + (mp.pi - angle) * cosine) / mp.pi
            tangent = tangent * (mp.pi - angle) / mp.pi + c
        return float(tangent), float(size)


@pytest.mark.once
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("ratio", [1.0003, 1.05, 10.0, -2.0])
def test_parallel_rows_of_other_lengths_keep_their_angles_in_float32(ratio, own):
    """Their distance is mostly the difference of lengths, whose rounding once was taken for an angle of 1e-4."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 6)).astype(np.float32)
    x[3] = 0  # no direction at all
    tilts = np.array([0.0, 1e-6, 1e-4, 0.0])[:, None]
    z = (ratio * (x + tilts * rng.normal(size=x.shape))).astype(np.float32)
    hidden = ew.Dense(w_std=2**0.5)
    net = ew.Serial(hidden, ew.Relu(), hidden, ew.Relu(), ew.Dense(1, w_std=2**0.5))
    found = ew.ntk(net, np.concatenate([x, z]))[:4, 4:] if own else ew.ntk(net, x, z)
    assert found.dtype == np.float32
    for i, j in np.ndindex(3, 3):
        exact, size = relu_tangent(x[i], z[j], 2)
        assert abs(found[i, j] - exact) < 5e-7 * size
    assert not found[3].any()
    assert not found[:, 3].any()


@pytest.mark.once
@pytest.mark.parametrize("speeds", [(0.0, 1.0), (0.0, 0.0), (0.5, 1.0)])
def test_parallel_rows_of_other_lengths_keep_their_angles_where_layers_are_frozen(speeds):
    rows = np.random.default_rng(0).normal(size=(6, 50))
    x = np.concatenate([rows * length for length in (1, 1.7, 3.1)]).astype(np.float32)
    hidden = [layer for speed in speeds for layer in (ew.Dense(w_std=2**0.5, speed=speed), ew.Relu())]
    net = ew.Serial(*hidden, ew.Dense(1))
    np.testing.assert_allclose(ew.ntk(net, x), ew.ntk(net, x.astype(np.float64)), rtol=2e-6)


@pytest.mark.once
@pytest.mark.parametrize("channels", [1, 7, 8, 19, 784])
def test_sums_of_squares_miss_no_channel(channels):
    x = np.random.default_rng(0).normal(size=(3, channels))
    exact = [math.fsum(row**2) / channels for row in x]
    np.testing.assert_allclose(ew.diagonal(ew.Dense(w_std=1.0), x).nngp, exact, rtol=1e-15)
