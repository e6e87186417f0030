"""Containers that the library has never seen: they say what their parts are, and every rule reads them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide._walk import walk, with_outputs
from everwide.layers import Parts, step
from everwide.optim import learning_rates, scale_by_parametrization
from everwide.signal import ArchitectureError
from everwide.theory import rates
from everwide.theory.criticality import propagate
from everwide.theory.regions import expected_regions, line_regions

pytestmark = pytest.mark.once


class Pipe(ew.layers.AbstractLayer):
    """Two layers one after the other, written by a user."""

    first: ew.layers.AbstractLayer
    then: ew.layers.AbstractLayer

    def parts(self):
        return Parts((self.first, self.then), "chain")

    def describe(self, signal):
        middle = replace(self.first.describe(signal.at(0)), path=signal.path)
        return replace(self.then.describe(middle.at(1)), path=signal.path)

    def demand(self, wanted):
        return self.first.demand(self.then.demand(wanted))

    def sample(self, key, signal):
        middle = replace(self.first.describe(signal.at(0)), path=signal.path)
        return self.first.sample(jr.fold_in(key, 0), signal.at(0)), self.then.sample(jr.fold_in(key, 1), middle.at(1))

    def forward(self, params, example):
        return self.then.forward(params[1], self.first.forward(params[0], example))

    def propagate(self, k, wanted):
        return step(self.then, step(self.first, k, self.then.demand(wanted)), wanted)


class Secret(ew.layers.AbstractLayer):
    """A container that joins its part in a way of its own."""

    inner: ew.layers.AbstractLayer

    def parts(self):
        return Parts((self.inner,), "braid")

    def describe(self, signal):
        return self.inner.describe(signal)

    def demand(self, wanted):
        return self.inner.demand(wanted)

    def sample(self, key, signal):
        return (self.inner.sample(key, signal),)

    def forward(self, params, example):
        return self.inner.forward(params[0], example)

    def propagate(self, k, wanted):
        return self.inner.propagate(k, wanted)


def piped(width=None, w_std=1.3, b_std=0.4):
    hidden = Pipe(ew.Dense(width, w_std=w_std, b_std=b_std), ew.Relu())
    return ew.Serial(Pipe(hidden, hidden), ew.Dense(1))


def plain(width=None, w_std=1.3, b_std=0.4):
    hidden = ew.Serial(ew.Dense(width, w_std=w_std, b_std=b_std), ew.Relu())
    return ew.Serial(ew.Serial(hidden, hidden), ew.Dense(1))


def test_the_walk_names_places_and_counts_repetitions():
    net = ew.Serial(ew.Dense(), ew.Repeat(ew.Residual(ew.Relu(), ew.Dense()), 3))
    visits = walk(net)
    assert [(v.place, v.times) for v in visits if v.layer.weights()] == [
        ("Serial[0] Dense", 1),
        ("Serial[1] Repeat[0] Sum[1] Serial[1] Dense", 3),
    ]


def test_weights_are_those_of_a_layer_itself():
    attention = ew.SelfAttention(w_value_std=2.0, b_std=0.5)
    assert {name: affine.w_std for name, affine in attention.weights().items()} == {
        "query": 1.0,
        "key": 1.0,
        "value": 2.0,
        "out": 1.0,
    }
    assert attention.weights()["out"].b_std == 0.5
    assert [a.w_std for a in ew.Conv((3,), w_std=1.5).weights().values()] == [1.5]
    assert ew.Relu().weights() == piped().weights() == {}


def test_explain_shows_the_parts_of_a_container():
    steps = ew.explain(piped(), (3,)).steps
    assert [(s.name, s.depth) for s in steps] == [
        ("Pipe", 0),
        ("Pipe", 1),
        ("Dense", 2),
        ("Relu", 2),
        ("Pipe", 1),
        ("Dense", 2),
        ("Relu", 2),
        ("Dense", 0),
    ]
    assert steps[6].before.shape == (None,)
    assert [s.name for s in ew.explain(Secret(ew.Dense(2)), (3,)).steps] == ["Secret"]


def test_critical_tunes_a_container_and_keeps_its_type():
    tuned, expected = piped().critical(), plain().critical()
    assert isinstance(tuned.layers[0], Pipe)
    stds = lambda net: [(a.w_std, a.b_std) for v in walk(net) for a in v.layer.weights().values()]
    assert stds(tuned) == stds(expected)
    assert stds(tuned)[1][0] ** 2 == pytest.approx(2.0)
    np.testing.assert_allclose(propagate(tuned).variance, propagate(expected).variance, rtol=1e-12)


def test_rates_and_kernels_of_a_container_are_those_of_its_chain():
    x = np.random.default_rng(0).normal(size=(6, 3))
    np.testing.assert_allclose(ew.ntk(piped(), x), ew.ntk(plain(), x), rtol=1e-6)
    assert rates.stable_rates(piped(), x).gradient_descent == pytest.approx(
        rates.stable_rates(plain(), x).gradient_descent, rel=1e-6
    )


def test_linear_regions_of_a_container_are_those_of_its_chain():
    x1, x2 = np.array([-1.0, 0.3, 0.2]), np.array([1.0, 0.1, -0.4])
    assert expected_regions(piped(20), x1, x2).count == pytest.approx(expected_regions(plain(20), x1, x2).count)
    net, params = piped(8), piped(8).init(jr.key(0), (3,))
    times = np.linspace(0, 1, 4001)
    outputs = np.asarray(jax.vmap(lambda t: net.apply(params, jnp.asarray(x1 + t * (x2 - x1))))(jnp.asarray(times)))
    pieces = line_regions(net, params, x1, x2)
    ends = np.concatenate([[0.0], pieces.breakpoints, [1.0]])
    np.testing.assert_allclose(np.interp(times, ends, pieces.values[:, 0]), outputs[:, 0], atol=2e-5)


def test_learning_rates_of_a_container_are_those_of_its_chain():
    key = jr.key(0)
    nets = piped(8), plain(8)
    params = [net.init(key, (3,), parametrization="mup") for net in nets]
    given, expected = (learning_rates(net, p, "adam") for net, p in zip(nets, params, strict=True))
    assert jax.tree.leaves(given) == jax.tree.leaves(expected)
    ones = jax.tree.map(jnp.ones_like, params[0])
    chain = scale_by_parametrization(nets[0], "adam")
    moved, _ = chain.update(ones, chain.init(params[0]))
    np.testing.assert_allclose(moved[0][1][0].weight, given[0][1][0].weight, rtol=1e-6)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda net: net.critical(), "Serial\\[1\\] Secret cannot be made critical: it joins its parts by 'braid'"),
        (lambda net: expected_regions(net, [0.0], [1.0], width=3), "Serial\\[1\\] Secret cannot be cut .*'braid'"),
        (lambda net: with_outputs(net, 2), "Serial\\[1\\] Secret cannot be given 2 outputs"),
    ],
)
def test_what_a_rule_does_not_know_is_refused_with_its_place(rule, message):
    with pytest.raises(ArchitectureError, match=message):
        rule(ew.Serial(ew.Dense(), Secret(ew.Dense())))


def test_a_network_is_given_another_number_of_outputs():
    net = ew.Serial(ew.Dense(), Pipe(ew.Relu(), ew.Dense(10, w_std=1.5, b_std=0.2, frozen=True)))
    other = with_outputs(net, 1)
    assert ew.explain(other, (3,)).steps[-1].after.shape == (1,)
    affine = other.layers[1].then.affine
    assert (affine.w_std, affine.b_std, affine.frozen) == (1.5, 0.2, True)


def test_networks_with_dropout_are_found_inside_containers():
    net = ew.Serial(Pipe(ew.Dense(), ew.Dropout(0.1)), ew.Dense(1))
    with pytest.raises(ArchitectureError, match="Dropout"):
        ew.compare(net, np.ones((4, 2)), np.ones(4), [8])
