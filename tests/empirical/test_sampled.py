"""Kernels averaged over random networks: against single networks, against the limit, and against being stopped."""

import jax
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.empirical import Finite, Sampled, sample_kernel
from everwide.testing._draws import SAMPLED, exact_for, quick_jit

pytestmark = pytest.mark.once

NET = ew.Serial(ew.Dense(w_std=1.4, b_std=0.3), ew.Relu(), ew.Dense(2))
KEY = jr.key(3)
DTYPE = np.dtype(jax.numpy.zeros(()).dtype)
X = np.random.default_rng(0).standard_normal((5, 3)).astype(DTYPE)


def single_networks(net, x, draws, width) -> dict[str, np.ndarray]:
    """The kernels of the networks that are averaged, one by one."""
    shape = x.shape[1:]

    @quick_jit
    def one(i):
        params = net.init(jr.fold_in(KEY, i), shape, width=width)
        inputs = ew.Inputs(jax.numpy.asarray(x))
        return Finite(net, params, shape).block(inputs, inputs)

    blocks = [one(i) for i in range(draws)]
    return {field: np.stack([np.asarray(getattr(b, field), np.float64) for b in blocks]) for field in ("nngp", "ntk")}


@pytest.fixture(scope="module")
def found():
    return sample_kernel(NET, X, key=KEY, width=8, max_draws=40)


def test_means_and_errors_are_those_of_the_single_networks(found):
    draws = single_networks(NET, X, 40, 8)
    exact = exact_for(DTYPE)
    assert found.draws == 40
    for field in ("nngp", "ntk"):
        mean, error = getattr(found, field), getattr(found, f"{field}_error")
        assert mean.dtype == np.float64
        assert exact.excess(mean, draws[field].mean(0)) < 1
        assert exact.excess(error, draws[field].std(0, ddof=1) / np.sqrt(40)) < 1
        assert (mean == mean.T).all()


def test_the_kernel_function_is_the_same_mean(found):
    kernel = Sampled(NET, (3,), KEY, draws=40, width=8)
    run = quick_jit(lambda x: kernel.block(ew.Inputs(x), ew.Inputs(x[:2])))
    block = run(jax.numpy.asarray(X))
    assert exact_for(DTYPE).excess(block.ntk, found.ntk[:, :2]) < 1
    if np.float64 == DTYPE:  # in float32 the engine draws in float64
        k = ew.gram(kernel, X, tile=2)
        assert exact_for(DTYPE).excess(k.ntk, found.ntk) < 1
        assert exact_for(DTYPE).excess(k.nngp, found.nngp) < 1


def test_the_mean_is_that_of_the_limit():
    """With one hidden layer the mean over the draws is the limit at any width."""
    net = ew.Serial(ew.Dense(w_std=1.4, b_std=0.3), ew.Relu(), ew.Dense(8))
    found = sample_kernel(net, X, key=jr.key(0), width=16, max_draws=600)
    limit = ew.gram(net, X)
    assert SAMPLED.excess_of(found.nngp, found.nngp_error, limit.nngp) < 1
    assert SAMPLED.excess_of(found.ntk, found.ntk_error, limit.ntk) < 1


@pytest.mark.slow
def test_two_batches_in_tiles_and_few_at_once(monkeypatch):
    two = Sampled(NET, (3,), KEY, draws=2, width=8).tile_bytes(2, 2, DTYPE.itemsize)
    monkeypatch.setattr("everwide.empirical._sampled._WORKSPACE", two)
    seen = []
    small = sample_kernel(NET, X, key=KEY, width=8, max_draws=5, progress=seen.append)
    cross = sample_kernel(NET, X, X[:2], key=KEY, width=8, max_draws=5)
    assert len(seen) == 5  # one network at a time
    draws = single_networks(NET, X, 5, 8)
    exact = exact_for(DTYPE)
    assert exact.excess(small.ntk, draws["ntk"].mean(0)) < 1
    assert exact.excess(small.ntk_error, draws["ntk"].std(0, ddof=1) / np.sqrt(5)) < 1
    assert exact.excess(cross.ntk, small.ntk[:, :2]) < 1


def test_a_run_that_was_stopped_goes_on(found):
    first = sample_kernel(NET, X, key=KEY, width=8, max_draws=31)
    assert first.draws == 31
    seen = []
    rest = sample_kernel(NET, X, key=KEY, width=8, max_draws=40, resume=first, progress=seen.append)
    assert [(p.done, p.total) for p in seen] == [(40, 40)]
    assert rest.draws == 40
    for field in ("nngp", "ntk", "nngp_error", "ntk_error"):
        assert exact_for(DTYPE).excess(getattr(rest, field), getattr(found, field)) < 1


def test_it_stops_when_it_is_precise():
    relative = lambda k: max((k.nngp_error.max() / k.nngp.max()), (k.ntk_error.max() / k.ntk.max()))
    seen = []
    found = sample_kernel(NET, X, key=KEY, width=8, max_draws=5000, tolerance=0.08, progress=seen.append)
    assert found.draws < 5000
    assert relative(found) <= 0.08
    before = seen[-2].done if len(seen) > 1 else 0
    assert before < 16 or relative(sample_kernel(NET, X, key=KEY, width=8, max_draws=before)) > 0.08
    assert sample_kernel(NET, X, key=KEY, width=8, max_draws=20, tolerance=1e-6).draws == 20


@pytest.mark.slow
def test_sites_that_are_left_are_kept():
    net = ew.Serial(ew.Conv((2,)), ew.Relu(), ew.Conv((2,), width=2))
    x = np.random.default_rng(0).standard_normal((3, 4, 2)).astype(DTYPE)
    found = sample_kernel(net, x, key=KEY, width=4, max_draws=4)
    same = sample_kernel(net, x, key=KEY, width=4, max_draws=4, pairs=ew.signal.Pairs.SAME_SITE)
    draws = single_networks(net, x, 4, 4)["ntk"].mean(0)
    assert exact_for(DTYPE).excess(found.ntk, draws) < 1
    assert exact_for(DTYPE).excess(same.ntk, np.einsum("ijaa->ija", draws)) < 1
    assert (found.ntk == found.ntk.transpose(1, 0, 3, 2)).all()


@pytest.mark.slow
def test_masks_count():
    net = ew.Serial(ew.Conv((2,)), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((2, 4, 2)), DTYPE)
    mask = np.array([[True, True, False, False], [True] * 4])
    plain, masked = (sample_kernel(net, ew.Inputs(x, m), key=KEY, width=4, max_draws=2) for m in (None, mask))
    assert not np.allclose(masked.ntk[0, 0], plain.ntk[0, 0])
    assert exact_for(DTYPE).excess(masked.ntk[1, 1], plain.ntk[1, 1]) < 1


@pytest.mark.slow
def test_the_parametrization_is_that_of_the_networks(found):
    field = sample_kernel(NET, X, key=KEY, width=8, max_draws=40, parametrization="mean_field")
    assert exact_for(DTYPE).excess(field.nngp, found.nngp / 8) < 1  # readouts are divided by 8, not by its root


FAULTS = {
    "negative width": (
        lambda: sample_kernel(NET, X, key=KEY, width=-2),
        "width=-2: expected a whole number, 1 or more",
    ),
    "one draw": (lambda: sample_kernel(NET, X, key=KEY, width=8, max_draws=1), "max_draws=1.*at least 2.*Finite"),
    "one draw of the function": (lambda: Sampled(NET, (3,), KEY, draws=1, width=8), "draws=1: expected at least 2"),
    "no width": (lambda: sample_kernel(NET, X, key=KEY, max_draws=4), "Pass width="),
    "no width of the function": (lambda: Sampled(NET, (3,), KEY, draws=2), "Pass width="),
    "no tolerance": (lambda: sample_kernel(NET, X, key=KEY, width=8, tolerance=0.0), "tolerance=0.0"),
    "not a number": (lambda: sample_kernel(NET, X * np.nan, key=KEY, width=8), "not finite"),
    "another result": (
        lambda: sample_kernel(
            NET, X[:2], key=KEY, width=8, resume=sample_kernel(NET, X, key=KEY, width=8, max_draws=2)
        ),
        r"resume holds kernels of shape \(5, 5\), the data ask for \(2, 2\)",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name):
    call, message = FAULTS[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_memory_is_counted_before_it_is_spent():
    with pytest.raises(ew.MemoryBudgetError, match="gradients of 1 and 1 examples"):
        sample_kernel(NET, X, key=KEY, width=100_000, memory=10_000)
