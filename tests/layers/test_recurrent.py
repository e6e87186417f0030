"""Tied weights along time and along depth, against networks that are simulated without the library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide.layers import Index, Recurrent, Tied
from everwide.testing._draws import SAMPLED

pytestmark = pytest.mark.once

LENGTH, CHANNELS = 5, 2
W, U, B = 1.3, 0.9, 0.4


def sequences(n=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, LENGTH, CHANNELS))


def simulated(x, lengths, width=300, draws=300):
    """States of random networks at all times, `(draws, n, time, width)`: a loop over time, in numpy."""
    rng = np.random.default_rng(1)
    out = np.zeros((draws, len(x), LENGTH, width))
    for d in range(draws):
        w, u = rng.normal(size=(width, width)) / width**0.5, rng.normal(size=(CHANNELS, width)) / CHANNELS**0.5
        b = rng.normal(size=width)
        for i, length in enumerate(lengths):
            h = np.zeros(width)
            for t in range(length):
                h = np.maximum(W * h @ w + U * x[i, t] @ u + B * b, 0)
                out[d, i, t] = h
    return out


def test_all_pairs_of_times_are_those_of_simulated_networks_of_different_lengths():
    x, lengths = sequences(), (5, 3, 4)
    states = simulated(x, lengths, width=200, draws=150)
    products = np.einsum("ditw,djsw->dijts", states, states) / states.shape[-1]
    mask = np.arange(LENGTH) < np.array(lengths)[:, None]
    net = ew.Serial(Recurrent(ew.Relu(), w_std=W, u_std=U, b_std=B))
    limit = ew.nngp(net, ew.Inputs(jnp.asarray(x, jnp.float32), jnp.asarray(mask)))
    assert limit.shape == (3, 3, LENGTH, LENGTH)
    assert SAMPLED.excess(products, limit) <= 1
    assert np.all(limit[1, 0, 3:] == 0)


def test_the_tangent_kernel_is_that_of_a_wide_network():
    """By automatic differentiation of a network that is a Python loop over time."""
    x = jnp.asarray(sequences(2), jnp.float32)
    width = 128

    def readout(params, sequence):
        w, u, b, v = params
        h = jnp.zeros(width)
        for t in range(LENGTH):
            h = jax.lax.erf(W * h @ w / width**0.5 + U * sequence[t] @ u / CHANNELS**0.5 + B * b)
        return h @ v / width**0.5

    @jax.jit
    @jax.vmap
    def kernel(key):
        shapes = (width, width), (CHANNELS, width), (width,), (width,)
        params = [jax.random.normal(k, s) for k, s in zip(jax.random.split(key, 4), shapes, strict=True)]
        rows = [jax.grad(readout)(params, one) for one in x]
        return jnp.array([[sum(jnp.vdot(a, b) for a, b in zip(p, q, strict=True)) for q in rows] for p in rows])

    net = ew.Serial(Recurrent(ew.Erf(), w_std=W, u_std=U, b_std=B), Index(-1), ew.Dense(1))
    drawn = np.asarray(kernel(jax.random.split(jax.random.key(0), 400)))
    assert SAMPLED.excess(drawn, ew.ntk(net, np.asarray(x))) <= 1
    assert drawn.std(0).max() / drawn.mean(0).max() < 0.3  # so that this can fail


def test_two_biases_are_one_of_their_joint_size():
    one, two = ({"b_std": 0.5}, {"b_std": 0.3, "b_state_std": 0.4})
    nets = [ew.Serial(Recurrent(ew.Erf(), w_std=W, u_std=U, **how), Index(-1), ew.Dense(1)) for how in (one, two)]
    for field in ("nngp", "ntk"):
        both = [getattr(ew.gram(net, sequences()), field) for net in nets]
        np.testing.assert_allclose(both[0], both[1], rtol=1e-6)


def test_sequences_that_are_filled_up_are_shorter_sequences():
    """On either side; the last state of all is at the last site where they are filled up on the left."""
    x = sequences()
    layer = Recurrent(ew.Erf(), w_std=W, u_std=U, b_std=B)
    short = ew.gram(ew.Serial(layer, Index(-1), ew.Dense(1)), x[:, :3])
    pad = np.full((len(x), 2, CHANNELS), 7.0)
    for filled, place in ((np.concatenate([x[:, :3], pad], 1), 2), (np.concatenate([pad, x[:, :3]], 1), -1)):
        mask = jnp.asarray((filled != 7.0).all(-1))
        both = ew.gram(ew.Serial(layer, Index(place), ew.Dense(1)), ew.Inputs(filled, mask))
        np.testing.assert_allclose(both.nngp, short.nngp, rtol=1e-9)
        np.testing.assert_allclose(both.ntk, short.ntk, rtol=1e-9)


def test_one_step_is_a_dense_layer_and_a_step_on_zeros_is_another():
    x = sequences()[:, :1]
    recurrent = ew.Serial(Recurrent(ew.Relu(), w_std=W, u_std=U, b_std=B), ew.Dense(1))
    dense = ew.Serial(ew.Dense(w_std=U, b_std=B), ew.Relu(), ew.Dense(1))
    for name in ("nngp", "ntk"):
        one, two = (getattr(ew.gram(net, x), name) for net in (recurrent, dense))
        np.testing.assert_allclose(one, two, rtol=1e-9)


def test_reversed_sequences_run_backwards():
    x = sequences()
    forth = ew.gram(ew.Serial(Recurrent(ew.Erf(), w_std=W, b_std=B), Index(-1), ew.Dense(1)), x[:, ::-1])
    back = ew.gram(ew.Serial(Recurrent(ew.Erf(), w_std=W, b_std=B, reverse=True), Index(0), ew.Dense(1)), x)
    np.testing.assert_allclose(forth.ntk, back.ntk, rtol=1e-9)


def test_equal_sites_alone_are_tracked_where_nobody_reads_more():
    net = ew.Serial(Recurrent(ew.Erf(), w_std=W), Index(-1), ew.Dense(1))
    plan = ew.explain(net, (LENGTH, CHANNELS))
    assert plan.steps[0].reads.cross.name == "SAME_SITE"
    pooled = ew.explain(ew.Serial(Recurrent(ew.Erf()), ew.GlobalAvgPool(), ew.Dense(1)), (LENGTH, CHANNELS))
    assert pooled.steps[0].reads.cross.name == "ALL_SITES"


def test_the_standard_parametrization_counts_what_each_weight_reads():
    """A step of fan-ins: the input's channels, and the width of the state."""
    x = sequences(2)
    net = ew.Serial(Recurrent(ew.Relu(), 64, w_std=W, u_std=U), Index(-1), ew.Dense(1, frozen=True))
    plain = ew.gram(net, x)
    standard = ew.gram(net, x, parametrization="standard")
    np.testing.assert_allclose(standard.nngp, plain.nngp, rtol=1e-9)
    assert np.all(np.diag(standard.ntk) > 10 * np.diag(plain.ntk))


@pytest.mark.parametrize("inside", [ew.Dense(), ew.Serial(ew.Relu(), ew.Dense()), ew.GlobalAvgPool()])
def test_what_is_no_activation_is_refused(inside):
    with pytest.raises(ew.ArchitectureError, match="expected an activation"):
        ew.explain(Recurrent(inside), (LENGTH, CHANNELS))


def test_recurrence_needs_one_axis_of_time():
    with pytest.raises(ew.ArchitectureError, match="1 site axes"):
        ew.explain(Recurrent(ew.Erf()), (4, 4, 2))


def test_tied_layers_have_the_kernels_of_fresh_ones_and_one_set_of_weights():
    layer = ew.Serial(ew.Relu(), ew.Dense(w_std=1.3, b_std=0.3))
    tied = ew.Serial(ew.Dense(), Tied(layer, 3), ew.Dense(1))
    fresh = ew.Serial(ew.Dense(), ew.Repeat(layer, 3), ew.Dense(1))
    x = sequences()[:, 0]
    np.testing.assert_allclose(ew.gram(tied, x).ntk, ew.gram(fresh, x).ntk, rtol=1e-12)
    leaves = jax.tree.leaves(tied.init(jax.random.key(0), (2,), width=8))
    assert sorted(leaf.size for leaf in leaves) == [8, 8, 16, 64]


def test_a_tied_skip_is_refused():
    with pytest.raises(ew.ArchitectureError, match="share randomness"):
        ew.explain(ew.Serial(ew.Dense(), Tied(ew.Residual(ew.Relu(), ew.Dense()), 3), ew.Dense(1)), (3,))
    with pytest.raises(ew.ArchitectureError, match="cannot read what it gives"):
        ew.explain(Tied(ew.Serial(ew.Dense(5), ew.Relu()), 2), (3,))
