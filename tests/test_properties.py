"""Properties of random legal architectures: new ones in every run.

`make test` draws a few and prints the seed (`SEED=` repeats a run); what fails is kept in `.hypothesis` and comes first
in the next run. `make test-properties` draws many, for a night.
"""

import os
import time

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase, InMemoryExampleDatabase

import everwide as ew
from everwide.testing._check_layer import extrapolated
from everwide.testing._check_limit import Limit
from everwide.testing._draws import Sampled, cancelling_for, exact_for, sample_kernels
from rare_garbage import drop_programs

pytestmark = pytest.mark.once

HEAVY_TAILED = Sampled(8.0)  # entries of products and of deep networks, and new ones in every run
DTYPE = jnp.zeros(()).dtype
SITES, CHANNELS = 4, 3
STDS = st.sampled_from([0.7, 1.0, 1.3])
BIASES = st.sampled_from([None, 0.3])


FACTOR = int(os.environ.get("EVERWIDE_EXAMPLES", "1"))
SEED = int(os.environ.get("EVERWIDE_SEED") or time.time())
FAILURES = DirectoryBasedExampleDatabase(".hypothesis/examples")


def bounded(examples, **options):
    """So many examples, times what a night allows; a failure is not minimized, that takes minutes.

    `--hypothesis-seed` would keep no failures, and the profile that Hypothesis loads where CI is set draws nothing new.
    """
    chosen = {"derandomize": False, "database": FAILURES} | options
    bounds = settings(
        max_examples=examples * FACTOR,
        deadline=None,
        print_blob=True,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        **chosen,
    )
    return lambda test: bounds(test if chosen["derandomize"] else seed(SEED)(test))  # `seed` forgets the database


def activation(draw):
    makers = [ew.Relu, ew.Erf, lambda: ew.LeakyRelu(0.3), ew.Gelu, lambda: ew.activations.Sin(1.0, 0.8, 0.4)]
    return draw(st.sampled_from(makers))()


def affine(draw):
    return ew.Dense(w_std=draw(STDS), b_std=draw(BIASES))


def hidden(draw):
    """Nonlinear and Gaussian again: what a branch ends with."""
    return ew.Serial(activation(draw), affine(draw))


def convolution(draw, kind):
    padding = draw(st.sampled_from(["SAME", "CIRCULAR"]))
    return kind((draw(st.integers(2, 3)),), padding=padding, w_std=draw(STDS), b_std=draw(BIASES))


# Parts of a network that take a Gaussian signal to a Gaussian signal and keep its sites.
ANYWHERE = {
    "hidden": hidden,
    "residual": lambda draw: ew.Residual(hidden(draw)),
    "sum": lambda draw: ew.Sum(hidden(draw), hidden(draw)),
    "product": lambda draw: ew.Serial(ew.Product(ew.Identity(), hidden(draw)), affine(draw)),
    "norm": lambda draw: ew.Serial(draw(st.sampled_from([ew.LayerNorm, ew.layers.RmsNorm]))(), hidden(draw)),
    "repeat": lambda draw: ew.Repeat(hidden(draw), draw(st.integers(1, 3))),
    "means meet": lambda draw: ew.Serial(
        ew.Sum(activation(draw), ew.Serial(affine(draw), activation(draw))), affine(draw)
    ),
}
ON_SITES = {
    "conv": lambda draw: ew.Serial(activation(draw), convolution(draw, ew.Conv)),
    "local": lambda draw: ew.Serial(activation(draw), convolution(draw, ew.layers.ConvLocal)),
    "pool": lambda draw: ew.Serial(activation(draw), ew.AvgPool((2,), strides=1, padding="SAME"), affine(draw)),
    "attention": lambda draw: ew.Residual(ew.SelfAttention(heads=24)),
}
# Its branches have a fixed share of the channels, so that samples do not grow with the width.
FIXED = {
    "concat": lambda draw: ew.Serial(ew.Concat(ew.Dense(8), ew.Serial(activation(draw), ew.Dense(24))), affine(draw)),
}
READS = {
    "pooled": ew.GlobalAvgPool,
    "flat": ew.Flatten,
    "all sites": ew.Identity,
    "last site": lambda: ew.layers.Index(-1),
}


def network(draw, *, longest, open_width=False):
    """A legal network, the shape of its input, and the names of its parts."""
    drop_programs()
    sites = draw(st.booleans())
    parts = ANYWHERE | (ON_SITES if sites else {}) | ({} if open_width else FIXED)
    names = draw(st.lists(st.sampled_from(sorted(parts)), min_size=1, max_size=longest))
    layers = [affine(draw), *(parts[name](draw) for name in names)]
    if sites:
        names.append(draw(st.sampled_from(sorted(READS))))
        layers += [activation(draw), READS[names[-1]]()]
    return ew.Serial(*layers, affine(draw)), (SITES, CHANNELS) if sites else (CHANNELS,), names


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
    for name, kernel in zip(("nngp", "ntk"), whole, strict=True):
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
    expected = Limit(net, shape).truth(inputs)[:2]
    found = [sample_kernels(net, inputs, width=w, draws=draws, key=jr.key(w)) for w in widths]
    for i, truth in enumerate(expected):
        mean, error = extrapolated(widths, [drawn[i] - truth for drawn in found])
        assert HEAVY_TAILED.excess_of(mean + truth, error, truth) <= 1


@bounded(3)
@given(st.data())
def test_kernels_are_symmetric_and_positive(data):
    net, shape, _ = network(data.draw, longest=2)
    _kernels_are_kernels(net, shape)


@bounded(2)
@given(st.data())
def test_tiles_and_batches_change_nothing(data):
    net, shape, _ = network(data.draw, longest=2)
    _tiles_change_nothing(net, shape)


@bounded(2)
@given(st.data())
def test_samples_agree_with_the_limit(data):
    net, shape, _ = network(data.draw, longest=2, open_width=True)
    _samples_agree(net, shape, widths=(24, 48), draws=160)


@pytest.mark.slow
@bounded(60)
@given(st.data())
def test_kernels_of_deep_networks_are_symmetric_and_positive(data):
    net, shape, _ = network(data.draw, longest=4)
    _kernels_are_kernels(net, shape)


@pytest.mark.slow
@bounded(30)
@given(st.data())
def test_tiles_and_batches_change_nothing_in_deep_networks(data):
    net, shape, _ = network(data.draw, longest=3)
    _tiles_change_nothing(net, shape)


@pytest.mark.slow
@bounded(40)
@given(st.data())
def test_samples_of_deep_networks_agree_with_the_limit(data):
    net, shape, _ = network(data.draw, longest=3, open_width=True)
    _samples_agree(net, shape, widths=(32, 64), draws=300)


def test_networks_are_legal_and_of_every_kind():
    seen = set()

    @bounded(150, derandomize=True, database=None)  # about the strategy itself
    @given(st.data())
    def describe(data):
        net, shape, names = network(data.draw, longest=3)
        assert ew.Infinite(net, shape).output().gaussian
        seen.update(names)

    describe()
    assert seen == set(ANYWHERE | ON_SITES | FIXED | READS)


def draws_of(kept, **options):
    """What a property is shown, until one example is refused."""
    shown = []

    @bounded(20, database=kept, **options)
    @given(st.integers(0, 10**9))
    def property_of(number):
        shown.append(number)
        assert number < 10

    with pytest.raises(AssertionError):
        property_of()
    return shown


def test_a_failure_is_saved_and_comes_first(monkeypatch):
    kept = InMemoryExampleDatabase()
    refused = draws_of(kept)[-1]
    monkeypatch.setitem(globals(), "SEED", SEED + 1)
    assert draws_of(kept)[0] == refused


def test_another_seed_draws_other_examples_and_the_same_one_the_same(monkeypatch):
    once, again = draws_of(InMemoryExampleDatabase()), draws_of(InMemoryExampleDatabase())
    assert once == again
    monkeypatch.setitem(globals(), "SEED", SEED + 1)
    assert draws_of(InMemoryExampleDatabase()) != once
