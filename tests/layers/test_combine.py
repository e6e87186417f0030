"""Combinators against what they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew

pytestmark = pytest.mark.as_users

X = np.random.default_rng(0).standard_normal((5, 3))


def hidden(**options) -> ew.Serial:
    return ew.Serial(ew.Dense(w_std=1.3, b_std=0.4, **options), ew.Relu())


@pytest.mark.wide
def test_repeat_is_the_unrolled_network():
    for times in (1, 2, 3, 7):
        rolled = ew.Serial(ew.Repeat(hidden(), times), ew.Dense(1))
        unrolled = ew.Serial(*(hidden() for _ in range(times)), ew.Dense(1))
        for mine, other in zip(ew.gram(rolled, X), ew.gram(unrolled, X), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-12)


@pytest.mark.wide
def test_repeat_with_sites_is_the_unrolled_network():
    x = np.random.default_rng(0).standard_normal((3, 6, 2))
    block = ew.Serial(ew.Conv((3,), b_std=0.2), ew.Relu())
    for readout in (ew.Flatten(), ew.GlobalAvgPool()):
        rolled = ew.Serial(ew.Repeat(block, 4), readout, ew.Dense(1))
        unrolled = ew.Serial(*[block] * 4, readout, ew.Dense(1))
        np.testing.assert_allclose(ew.ntk(rolled, x), ew.ntk(unrolled, x), rtol=1e-12)


def test_a_repeated_finite_network_has_fresh_weights_each_time():
    net = ew.Repeat(hidden(), 4)
    first, rest = net.init(jax.random.key(0), (3,), width=3)
    weights = [first[0].weight, *rest[0].weight]
    assert len({float(w[0, 0]) for w in weights}) == 4
    x = jnp.asarray(X[0])
    by_hand = x
    for i in range(4):
        params = first if i == 0 else jax.tree.map(lambda leaf, i=i: leaf[i - 1], rest)
        by_hand = hidden().apply(params, by_hand)
    np.testing.assert_allclose(net.apply((first, rest), x), by_hand, rtol=1e-5)


def test_means_of_two_non_gaussian_branches_meet():
    """`E[(r + s)(r' + s')]` for independent ReLU and absolute-value features, by two-dimensional quadrature."""
    net = ew.Sum(ew.Serial(ew.Dense(), ew.Relu()), ew.Serial(ew.Dense(), ew.activations.Abs()))
    k = ew.gram(net, X)
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    cov = X @ X.T / 3
    std = np.sqrt(np.diag(cov))
    one = lambda f: np.array([np.sum(weights * f(s * nodes)) for s in std])
    relu, size = one(lambda u: np.maximum(u, 0)), one(np.abs)
    alone = ew.gram(net.branches[0], X).nngp + ew.gram(net.branches[1], X).nngp
    np.testing.assert_allclose(k.nngp, alone + np.outer(relu, size) + np.outer(size, relu), rtol=2e-3)
    np.testing.assert_allclose(k.ntk, sum(ew.gram(b, X).ntk for b in net.branches), rtol=1e-12)


def test_a_residual_from_the_raw_input_adds_its_products():
    net = ew.Residual(hidden(), ew.Dense(3, w_std=0.7))
    branch = ew.gram(ew.Serial(hidden(), ew.Dense(3, w_std=0.7)), X)
    np.testing.assert_allclose(ew.gram(net, X).nngp, branch.nngp + X @ X.T / 3, rtol=1e-12)
    np.testing.assert_allclose(ew.gram(net, X).ntk, branch.ntk, rtol=1e-12)


def test_frozen_layers_add_nothing():
    frozen = ew.Serial(ew.Dense(b_std=0.3, frozen=True), ew.Relu(), ew.Dense(1))
    k = ew.gram(frozen, X)
    np.testing.assert_allclose(k.ntk, k.nngp, rtol=1e-12)  # only the readout learns
    none = ew.Serial(ew.Dense(b_std=0.3, frozen=True), ew.Relu(), ew.Dense(1, frozen=True))
    assert (ew.gram(none, X).ntk == 0).all()


def test_concatenation_along_sites_is_block_diagonal_for_centred_branches():
    x = np.random.default_rng(0).standard_normal((2, 3, 2))
    net = ew.Concat(ew.Dense(w_std=1.1), ew.Dense(w_std=0.6, b_std=0.5), axis=0)
    k = ew.gram(net, x)
    assert k.nngp.shape == (2, 2, 6, 6)
    np.testing.assert_allclose(k.nngp[:, :, :3, :3], ew.gram(net.branches[0], x).nngp, rtol=1e-12)
    np.testing.assert_allclose(k.ntk[:, :, 3:, 3:], ew.gram(net.branches[1], x).ntk, rtol=1e-12)
    assert (k.nngp[:, :, :3, 3:] == 0).all()


def test_standard_parametrization_counts_the_fan_in():
    """`T = fan_in K + w^2 T + 1`, layer by layer."""
    net = ew.Serial(ew.Dense(16, w_std=1.2, b_std=0.3), ew.Relu(), ew.Dense(1, w_std=0.9))
    cov = X @ X.T / 3
    features = ew.gram(ew.Serial(ew.Dense(w_std=1.2, b_std=0.3), ew.Relu()), X)
    slope = features.ntk / ew.gram(ew.Dense(w_std=1.2, b_std=0.3), X).ntk
    expected = 16 * features.nngp + 0.9**2 * slope * (3 * cov + 1)
    np.testing.assert_allclose(ew.ntk(net, X, parametrization="standard"), expected, rtol=1e-10)


@pytest.mark.once
@pytest.mark.parametrize("merge", [ew.Sum, ew.Product])
def test_channels_of_other_laws_meet_those_of_one_law_or_none_of_means(merge):
    """Against draws: of one branch channels have two laws. Two such branches may be added where all are centred."""
    both = ew.Concat(ew.Dense(48, w_std=0.5), ew.Dense(48, w_std=2.0))
    other = both if merge is ew.Sum else ew.Serial(ew.Dense(96), ew.Relu())
    net = ew.Serial(merge(both, other), ew.Dense(64))
    x = X[:3].astype(np.float32)

    @jax.vmap
    def draws(key):
        params = net.init(key, (3,))
        return jax.vmap(lambda row: net.apply(params, row))(x)

    out = np.asarray(jax.jit(draws)(jax.random.split(jax.random.key(1), 600)), np.float64)
    drawn = np.einsum("dic,djc->dij", out, out) / out.shape[-1]
    error = drawn.std(0) / len(drawn) ** 0.5
    np.testing.assert_array_less(np.abs(drawn.mean(0) - ew.nngp(net, x)), 4 * error)
    assert error.max() < 0.05 * np.abs(drawn.mean(0)).max()
