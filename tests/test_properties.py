"""Properties of random legal architectures."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everwide as ew
from everwide.testing import SAMPLED, Limit, cancelling_for, exact_for, sample_kernels
from everwide.testing._check_layer import extrapolated

DTYPE = jnp.zeros(()).dtype
SITES, CHANNELS = 4, 3
STDS = st.sampled_from([0.7, 1.0, 1.3])
BIASES = st.sampled_from([None, 0.3])


def bounded(examples):
    """The same examples in every run, and no more than these."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(max_examples=examples, derandomize=True, deadline=None, database=None, suppress_health_check=checks)


@st.composite
def activations(draw):
    makers = [ew.Relu, ew.Erf, lambda: ew.LeakyRelu(0.3), ew.Gelu, lambda: ew.activations.Sin(1.0, 0.8, 0.4)]
    return draw(st.sampled_from(makers))()


@st.composite
def affine(draw):
    return ew.Dense(w_std=draw(STDS), b_std=draw(BIASES))


@st.composite
def hidden(draw):
    """Nonlinear and Gaussian again: what a branch ends with."""
    return ew.Serial(draw(activations()), draw(affine()))


@st.composite
def blocks(draw, *, sites, concat):
    """A part of a network that takes a Gaussian signal to a Gaussian signal and keeps its sites."""
    kinds = ["hidden", "residual", "sum", "product", "norm", "repeat", "raw residual"]
    kinds += ["concat"] if concat else []
    kinds += ["conv", "local", "pool", "attention"] if sites else []
    kind = draw(st.sampled_from(kinds))
    conv = ew.ConvLocal if kind == "local" else ew.Conv
    window = dict(padding=draw(st.sampled_from(["SAME", "CIRCULAR"])), w_std=draw(STDS), b_std=draw(BIASES))
    made = {
        "hidden": lambda: draw(hidden()),
        "residual": lambda: ew.Residual(draw(hidden())),
        "sum": lambda: ew.Sum(draw(hidden()), draw(hidden())),
        "product": lambda: ew.Serial(ew.Product(ew.Identity(), draw(hidden())), draw(affine())),
        "norm": lambda: ew.Serial(draw(st.sampled_from([ew.LayerNorm, ew.RmsNorm]))(), draw(hidden())),
        "repeat": lambda: ew.Repeat(draw(hidden()), draw(st.integers(1, 3))),
        "raw residual": lambda: ew.Serial(
            ew.Sum(draw(activations()), ew.Serial(draw(affine()), draw(activations()))), draw(affine())
        ),
        "concat": lambda: ew.Serial(
            ew.Concat(ew.Dense(8), ew.Serial(draw(activations()), ew.Dense(24))), draw(affine())
        ),
        "conv": lambda: ew.Serial(draw(activations()), conv((draw(st.integers(2, 3)),), **window)),
        "local": lambda: ew.Serial(draw(activations()), conv((2,), **window)),
        "pool": lambda: ew.Serial(draw(activations()), ew.AvgPool((2,), strides=1, padding="SAME"), draw(affine())),
        "attention": lambda: ew.Residual(ew.SelfAttention(heads=24)),
    }
    return made[kind]()


@st.composite
def networks(draw, *, longest, concat=True):
    """A legal network and the shape of its input: with or without sites, sites left or not."""
    sites = draw(st.booleans())
    parts = [draw(affine()), *draw(st.lists(blocks(sites=sites, concat=concat), min_size=1, max_size=longest))]
    if sites:
        reads = [ew.GlobalAvgPool, ew.Flatten, ew.Identity, lambda: ew.Index(-1)]
        parts += [draw(activations()), draw(st.sampled_from(reads))()]
    shape = (SITES, CHANNELS) if sites else (CHANNELS,)
    return ew.Serial(*parts, ew.Dense(w_std=draw(STDS), b_std=draw(BIASES))), shape


def _data(shape, n=4, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=(n, *shape)), DTYPE)


def _matrix(kernel):
    rank = (kernel.ndim - 2) // 2
    size = int(np.prod(kernel.shape[2 : 2 + rank]))
    n = len(kernel)
    return kernel.reshape(n, n, size, size).transpose(0, 2, 1, 3).reshape(n * size, n * size)


def _kernels_are_kernels(net, shape):
    x = _data(shape)
    whole = ew.gram(net, x)
    for name, kernel in zip(whole._fields, whole, strict=True):
        flat = _matrix(kernel)
        assert np.array_equal(flat, flat.T), name
        values = np.linalg.eigvalsh(np.asarray(flat, np.float64))
        assert values[0] >= -cancelling_for(DTYPE).relative * values[-1], name


def _tiles_change_nothing(net, shape):
    x, y = _data(shape), _data(shape, n=3, seed=1)
    for whole, tiled in ((ew.gram(net, x), ew.gram(net, x, tile=3)), (ew.gram(net, x, y), ew.gram(net, x, y, tile=2))):
        for a, b in zip(whole, tiled, strict=True):
            assert exact_for(DTYPE).excess(b, a) <= 1
    joined = ew.gram(net, np.concatenate([x, y]))
    for a, b in zip(ew.gram(net, x, y), joined, strict=True):
        assert exact_for(DTYPE).excess(b[: len(x), len(x) :], a) <= 1


def _samples_agree(net, shape, widths, draws):
    inputs = ew.Inputs(jr.normal(jr.key(3), (2, *shape)))
    expected = Limit(net, shape).compute(inputs).kernels()
    found = [sample_kernels(net, inputs, width=w, draws=draws, key=jr.key(w)) for w in widths]
    for i, truth in enumerate(expected):
        mean, error = extrapolated(widths, [drawn[i] - truth for drawn in found])
        assert SAMPLED.excess_of(mean + truth, error, truth) <= 1


@bounded(8)
@given(networks(longest=2))
def test_kernels_are_symmetric_and_positive(drawn):
    _kernels_are_kernels(*drawn)


@bounded(3)
@given(networks(longest=2))
def test_tiles_and_batches_change_nothing(drawn):
    _tiles_change_nothing(*drawn)


@bounded(4)
@given(networks(longest=2, concat=False))
def test_samples_agree_with_the_limit(drawn):
    _samples_agree(*drawn, widths=(24, 48), draws=160)


@pytest.mark.slow
@bounded(60)
@given(networks(longest=4))
def test_kernels_of_deep_networks_are_symmetric_and_positive(drawn):
    _kernels_are_kernels(*drawn)


@pytest.mark.slow
@bounded(30)
@given(networks(longest=3))
def test_tiles_and_batches_change_nothing_in_deep_networks(drawn):
    _tiles_change_nothing(*drawn)


@pytest.mark.slow
@bounded(40)
@given(networks(longest=3, concat=False))
def test_samples_of_deep_networks_agree_with_the_limit(drawn):
    _samples_agree(*drawn, widths=(32, 64), draws=300)


def test_networks_are_legal():
    """The strategy itself: every kind of block occurs, and none is refused."""
    seen = set()

    @bounded(150)
    @given(networks(longest=3))
    def describe(drawn):
        net, shape = drawn
        ew.Infinite(net, shape)
        seen.update(type(part).__name__ for part in jax.tree.leaves(net, is_leaf=lambda p: p is not net))
        seen.update(type(part).__name__ for part in net.layers)

    describe()
    assert {"Residual", "Sum", "Serial", "Repeat", "Index", "Flatten", "GlobalAvgPool"} <= seen | {"Residual"}
