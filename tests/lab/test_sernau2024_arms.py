"""Every arm moves what it should, and nothing else; read-outs take the steps of their definitions."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from everwide_lab._training import begin
from everwide_lab.sernau2024 import Arm, Rates, Rest, Setting
from everwide_lab.sernau2024._arms import Role, roles
from everwide_lab.sernau2024._infinite import LIMITS, FeaturesKernel, run_infinite
from everwide_lab.sernau2024._text import text_file
from everwide_lab.sernau2024._train import advance, batches, rule, run, schedule, windows
from everwide_lab.sernau2024._transformer import Shape, cross_entropy, transformer

pytestmark = [pytest.mark.once, pytest.mark.slow]  # models are float32 in either precision

SHAPE = Shape(vocabulary=11, layers=1, heads=2, dim=8, context=6, width=12)
TEXT = np.random.default_rng(0).integers(0, 11, 200).astype(np.uint8)
RATES, STEPS = Rates(0.2, 0.01, 0.003), 10
STARTS = np.random.default_rng(1).integers(0, 190, (STEPS, 3)).astype(np.int32)


@pytest.fixture(scope="module", params=list(Arm), ids=lambda arm: arm.name)
def course(request):
    """An arm, and its model before and after each of the first three steps of ten."""
    arm, model = request.param, transformer(jr.key(0), SHAPE)
    return arm, trained(model, arm, Rest.ADAM)


def trained(model, arm, rest):
    state = begin(model, rule(arm, rest, (1.0, 1.0, 1.0), model, 1.0))
    rates, total = jnp.asarray(RATES, jnp.float32), jnp.asarray(STEPS, jnp.float32)
    models = [model]
    for step in range(3):
        start = jnp.asarray(STARTS[step : step + 1])
        state = advance(state, jnp.asarray(TEXT), start, rates, total, SHAPE.context, arm, rest)
        models.append(state.params)
    return models


def moved(before, after):
    """For each role: has each of its parameters moved?"""
    found = {role: [] for role in Role}
    labels = jax.tree.leaves(roles(before))
    for role, old, new in zip(labels, jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        found[role].append(bool(np.any(np.asarray(old) != np.asarray(new))))
    return found


def test_only_features_are_frozen_and_only_in_frozen_arms(course):
    arm, models = course
    found = moved(models[0], models[-1])
    assert found[Role.FEATURES] == [not arm.frozen] * 2
    assert found[Role.READOUT] == [arm is not Arm.STILL]
    unused = 2 if arm is Arm.STILL else 0  # gain and shift before a block that does nothing
    assert found[Role.REST].count(False) == unused


gradients = jax.jit(jax.grad(cross_entropy))


def gradient_of_readout(model, start):
    seen = TEXT[start[:, None] + np.arange(SHAPE.context + 1)].astype(np.int32)
    return np.asarray(gradients(model, jnp.asarray(seen)).blocks[0].mlp.readout, np.float64)


def test_read_outs_take_the_steps_of_the_definition(course):
    """Sernau 2024, definitions 1 and 2, written out in numpy for three steps."""
    arm, models = course
    here, m, v, trace = np.zeros((SHAPE.width, SHAPE.dim)), 0.0, 0.0, 0.0
    for t in (1, 2, 3):
        g = gradient_of_readout(models[t - 1], STARTS[t - 1])
        rate = RATES.readout * float(schedule(jnp.asarray((t - 1) / STEPS, jnp.float32)))
        square = np.mean(g**2, 0, keepdims=True) if arm is Arm.FROZEN_ADAM_STAR else g**2
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * square
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) / np.sqrt(SHAPE.width)
        trace = 0.9 * trace + g
        plain = {Arm.FROZEN_SGD: g, Arm.FROZEN_MOMENTUM: trace, Arm.STILL: 0 * g}
        here = here - rate * plain.get(arm, step)
        size = np.abs(here).max()
        np.testing.assert_allclose(models[t].blocks[0].mlp.readout, here, rtol=1e-3, atol=1e-4 * size)


@pytest.mark.parametrize("rest", [Rest.SGD, Rest.MOMENTUM])
def test_the_rest_takes_the_steps_that_it_is_told(rest):
    models, trace = trained(transformer(jr.key(0), SHAPE), Arm.STILL, rest), 0.0
    for t in (1, 2, 3):
        seen = TEXT[STARTS[t - 1][:, None] + np.arange(SHAPE.context + 1)].astype(np.int32)
        g = np.asarray(gradients(models[t - 1], jnp.asarray(seen)).head, np.float64)
        trace = g + (0.9 * trace if rest is Rest.MOMENTUM else 0.0)
        rate = RATES.rest * float(schedule(jnp.asarray((t - 1) / STEPS, jnp.float32)))
        np.testing.assert_allclose(models[t].head, models[t - 1].head - rate * trace, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("arm", LIMITS, ids=lambda arm: arm.name)
def test_kernels_of_features_train_as_the_features_do(arm, tmp_path):
    """A layer of kernels whose kernel has a finite width is that of the transformer, step by step."""
    file = tmp_path / "text.txt"
    file.write_bytes(bytes(np.random.default_rng(0).choice(list(b"abcdefgh\n"), 12_000).tolist()))
    corpus, width = text_file(file), 16
    setting = replace(Setting.quick(), context=6, batch=2, steps=5, rest=Rest.SGD)
    rates = Rates({Arm.FROZEN_SGD: 30.0, Arm.FROZEN_MOMENTUM: 10.0, Arm.FROZEN_ADAM_STAR: 0.5}[arm], 1.0)
    features = transformer(jr.key(3), setting.shape(corpus.vocabulary, width)).blocks[0].mlp.features
    finite = run(setting, corpus, arm, width, 3, rates, setting.steps, lambda _: None)
    kernel = run_infinite(
        setting, corpus, arm, 3, rates, lambda _: None, lambda x1, x2: features(x1) @ features(x2).T / width
    )
    still = run(setting, corpus, Arm.STILL, width, 3, rates, setting.steps, lambda _: None)
    np.testing.assert_allclose(kernel, finite, rtol=2e-5)
    assert abs(still.test - finite.test) > 1e-3  # read-outs have moved


def test_the_kernel_is_that_of_many_features():
    shape, kernel = with_sizes(layers=1, width=200_000), FeaturesKernel(SHAPE.dim)
    features = transformer(jr.key(0), shape).blocks[0].mlp.features
    x1, x2 = jr.normal(jr.key(1), (3, SHAPE.dim), jnp.float32), jr.normal(jr.key(2), (4, SHAPE.dim), jnp.float32)
    np.testing.assert_allclose(kernel(x1, x2), features(x1) @ features(x2).T / shape.width, rtol=0.02)


def test_pieces_change_nothing(monkeypatch):
    kernel = FeaturesKernel(SHAPE.dim)
    x1, x2 = jr.normal(jr.key(1), (3, SHAPE.dim), jnp.float32), jr.normal(jr.key(2), (8, SHAPE.dim), jnp.float32)
    whole, slope = kernel(x1, x2), jax.grad(lambda x: jnp.sum(kernel(x, x2) ** 2))(x1)
    monkeypatch.setattr("everwide_lab.sernau2024._infinite._PIECE", 4)
    np.testing.assert_allclose(kernel(x1, x2), whole, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(kernel(x, x2) ** 2))(x1), slope, rtol=1e-5)


def with_sizes(*, layers, width):
    return Shape(SHAPE.vocabulary, layers, SHAPE.heads, SHAPE.dim, SHAPE.context, width)


def test_every_block_has_features_and_a_read_out():
    labels = jax.tree.leaves(roles(transformer(jr.key(0), with_sizes(layers=3, width=5))))
    assert labels.count(Role.FEATURES) == 6
    assert labels.count(Role.READOUT) == 3


def test_all_but_the_mlp_blocks_starts_alike_at_every_width():
    narrow, wide = (transformer(jr.key(3), with_sizes(layers=2, width=width)) for width in (4, 32))
    for old, new in zip(narrow.blocks, wide.blocks, strict=True):
        np.testing.assert_array_equal(old.attention.inwards, new.attention.inwards)
    np.testing.assert_array_equal(narrow.symbols, wide.symbols)


def test_attention_never_looks_ahead():
    model = transformer(jr.key(0), SHAPE)
    model = eqx.tree_at(lambda m: m.head, model, jr.normal(jr.key(1), model.head.shape, jnp.float32))
    text = jnp.asarray(TEXT[:6].astype(np.int32))
    other = text.at[4].set((text[4] + 1) % 11)
    before, after = model(text), model(other)
    np.testing.assert_array_equal(before[:4], after[:4])
    assert np.abs(np.asarray(before[4:] - after[4:])).max(-1).min() > 0


def test_the_order_of_data_depends_on_the_seed_alone():
    setting = Setting.quick()
    np.testing.assert_array_equal(batches(1, 5, setting, 100), batches(1, 9, setting, 100)[:5])
    assert np.any(batches(1, 5, setting, 100) != batches(2, 5, setting, 100))
    assert batches(0, 50, setting, 20).max() + setting.context + 1 <= 20


def test_windows_do_not_overlap():
    setting = Setting.quick()
    symbols = np.arange(250).astype(np.uint8)  # fewer bytes than 16 windows of 17: 14 fit
    found = windows(symbols, setting)
    assert found.shape == (1, 14, 17)
    assert np.diff(found[0, :, 0]).min() >= 17
    assert (found[0, 0, 0], found[0, -1, -1]) == (0, 249)


def test_rates_rise_and_fall():
    shares = [float(schedule(jnp.asarray(progress, jnp.float32))) for progress in (0.0, 0.04, 0.05, 0.5, 1.0)]
    assert 0 < shares[0] < shares[1] < shares[2] == 1.0
    assert shares[2] > shares[3] > shares[4]
    assert abs(shares[4]) < 1e-6
