"""`check_layer` lets the right ones pass and names what is wrong with the others."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.layers import AbstractLayer
from everwide.testing import ConformanceError, check_layer
from everwide.testing._check_layer import example_inputs
from everwide.testing._draws import sample_kernels

pytestmark = pytest.mark.once


class Doubled(AbstractLayer):
    """`2 x`, with one fault at a time."""

    fault: str = eqx.field(static=True, default="none")
    factor: float = 2.0

    def describe(self, signal):
        return signal

    def demand(self, wanted):
        return wanted

    def sample(self, key, signal):
        return ()

    def forward(self, params, example):
        noise = 0.0 if self.fault != "mask" else 1.0
        return replace(example, x=self.factor * example.x + noise * (example.mask is not None))

    def propagate(self, k, wanted):
        square = self.factor**2 * (1.2 if self.fault == "limit" else 1.0)
        out = k.each(lambda c: c.scaled(square)).means(lambda m: self.factor * m)
        if self.fault == "asymmetric":
            twist = 1 + 0.01 * jnp.arange(k.cross.nngp.shape[-1], dtype=k.cross.nngp.dtype)
            return replace(out, cross=out.cross.scaled(twist))
        if self.fault == "indefinite":
            return replace(out, cross=replace(out.cross, ntk=-20 * out.cross.ntk))
        if self.fault == "gradient":
            return out.each(lambda c: c.scaled(jnp.sqrt(jnp.abs(jnp.asarray(self.factor, c.nngp.dtype) - 2) ** 2) + 1))
        return out


def test_a_layer_of_your_own():
    report = check_layer(Doubled(), (3,), widths=(12, 48), draws=100)
    assert report.sampled <= 1


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("limit", "sampled networks, extrapolated to infinite width"),
        ("asymmetric", "transposed"),
        ("indefinite", "positive semidefinite"),
        ("gradient", "gradient"),
    ],
)
def test_faults_are_named(fault, complaint):
    with pytest.raises(ConformanceError, match=complaint):
        check_layer(Doubled(fault), (3,), widths=(12, 48), draws=100)


def test_faulty_masks_are_named():
    with pytest.raises(ConformanceError, match="mask of sites that all exist"):
        check_layer(Doubled("mask"), (4, 2), widths=(12, 48), draws=100)


@pytest.mark.slow
def test_a_network_that_does_not_converge():
    """Ten channels whatever the width: the deviation stays."""
    with pytest.raises(ConformanceError, match=r"extrapolated|falls like"):
        check_layer(ew.Serial(ew.Relu(), ew.Dense(3), ew.Relu()), (3,), widths=(12, 48), draws=150)


def test_examples_lack_some_sites():
    inputs = example_inputs(jr.key(0), (4, 3, 2))
    assert inputs.mask is not None
    assert inputs.mask[0].all()
    assert not inputs.mask[1].all()
    assert example_inputs(jr.key(0), (5,)).mask is None


def test_draws_are_independent_and_reproducible():
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense())
    inputs = ew.Inputs(jr.normal(jr.key(0), (2, 3)))
    one, two = (sample_kernels(net, inputs, width=8, draws=8, key=jr.key(1)) for _ in range(2))
    assert np.array_equal(one.ntk, two.ntk)
    assert len(np.unique(one.ntk[:, 0, 0])) == 8
