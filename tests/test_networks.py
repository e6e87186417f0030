"""Finite networks, trained: against least squares, against each other, and on what cannot be learned."""

import jax
import numpy as np
import optax
import pytest

import everwide as ew
import everwide.training as tr
from everwide._networks import adam, train_networks

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
LINE = X @ [1.0, -1.0, 0.5, 0.0] + 0.3 * RNG.normal(size=120)
CLASSES = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
DEEP = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1, b_std=0.1))
READS = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(3))
ALL, FEW = np.arange(80), np.arange(80, 120)


def test_a_linear_network_ends_at_least_squares():
    """Rows are drawn with replacement: the noise of steps stays, as small as the last rates."""
    rate = optax.exponential_decay(0.05, 100, 0.5)
    found = train_networks(ew.Dense(1), X, LINE, [ALL], [ALL], loss=tr.Mse(), optimizer=optax.adam(rate), patience=500)
    solution = np.linalg.lstsq(X[ALL], LINE[ALL], rcond=None)[0]
    np.testing.assert_allclose(found.outputs[0][:, 0], X @ solution, atol=2e-2)
    np.testing.assert_allclose(found.held_score[0], np.mean((X[ALL] @ solution - LINE[ALL]) ** 2) / 2, rtol=1e-3)


def test_held_out_rows_say_when_to_stop():
    noise = np.random.default_rng(1).normal(size=120)
    free, stopped = (
        train_networks(DEEP, X, noise, [ALL], [held], loss=tr.Mse(), width=128, steps=2000) for held in (ALL, FEW)
    )
    assert stopped.steps[0] < 200 < free.steps[0]
    assert free.loss[0] < 0.1
    errors = [np.mean((one.outputs[0][FEW, 0] - noise[FEW]) ** 2) / 2 for one in (stopped, free)]
    assert errors[0] == pytest.approx(stopped.held_score[0], rel=1e-4)
    assert errors[0] < errors[1]


def test_classes_are_stopped_by_their_errors():
    """Where a quarter of the labels is noise, the loss would stop long before the errors do."""
    flipped = np.where(
        np.random.default_rng(1).uniform(size=120) < 0.25, 1 - (X[:, 0] * X[:, 1] > 0), X[:, 0] * X[:, 1] > 0
    )
    net, loss = ew.Serial(READS.layers[0], ew.Relu(), ew.Dense(2)), tr.SoftmaxCrossEntropy()
    found = train_networks(net, X, flipped.astype(int), [ALL], [FEW], loss=loss, width=128, steps=1000)
    wrong = np.mean(found.outputs[0][FEW].argmax(1) != flipped[FEW])
    assert wrong < found.held_score[0] < wrong + 0.01


def test_outputs_are_those_of_the_parameters_and_networks_differ():
    found = train_networks(
        READS, X, CLASSES, [ALL, ALL], [FEW, FEW], loss=tr.SoftmaxCrossEntropy(), width=16, steps=400
    )
    with jax.enable_x64(False):
        again = jax.vmap(lambda one: READS.apply(found.after[1], one))(X.astype(np.float32))
    np.testing.assert_allclose(found.outputs[1], again, atol=1e-5)
    assert np.abs(found.outputs[0] - found.outputs[1]).max() > 0.1
    assert np.mean(found.outputs[0][FEW].argmax(1) == CLASSES[FEW]) > 0.7
    assert found.outputs.dtype == np.float32
    assert not found.diverged.any()


def test_how_rows_are_padded_does_not_matter():
    """Other rows behind those that are named change nothing, nor does their number."""
    options = {"loss": tr.Mse(), "width": 16, "steps": 200}
    few = train_networks(DEEP, X[:90], LINE[:90], [np.arange(70)], [np.arange(70, 80)], **options)
    all_ = train_networks(DEEP, X, LINE, [np.arange(70)], [np.arange(70, 80)], **options)
    np.testing.assert_allclose(few.outputs[0], all_.outputs[0][:90], atol=1e-5)


def test_networks_that_diverge_are_named_and_the_others_go_on():
    wild = np.where(np.arange(120) < 40, 1e30, LINE)
    found = train_networks(
        DEEP,
        X,
        wild,
        [np.arange(40), np.arange(40, 80)],
        [FEW, FEW],
        loss=tr.Mse(),
        width=16,
        optimizer=optax.sgd(0.05),
        steps=200,
    )
    assert found.diverged.tolist() == [True, False]
    assert np.isfinite(found.outputs).all()
    fast = train_networks(DEEP, X, LINE, [ALL], [FEW], loss=tr.Mse(), width=16, optimizer=optax.adam(10.0), steps=200)
    assert fast.diverged[0]


def test_dropout_is_active_in_training_only():
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dropout(0.5), ew.Dense(1))
    found = train_networks(net, X, LINE, [ALL], [FEW], loss=tr.Mse(), width=32, steps=300)
    with jax.enable_x64(False):
        quiet = jax.vmap(lambda one: net.apply(found.after[0], one))(X.astype(np.float32))
    np.testing.assert_allclose(found.outputs[0], quiet, atol=1e-5)
    assert found.loss[0] > 1.5 * np.mean((found.outputs[0][ALL, 0] - LINE[ALL]) ** 2) / 2


def test_progress_and_one_optimizer_for_a_rate():
    seen = []
    train_networks(DEEP, X, LINE, [ALL] * 2, [FEW] * 2, loss=tr.Mse(), width=16, steps=20, progress=seen.append)
    assert [(one.done, one.total) for one in seen] == [(1, 2), (2, 2)]
    assert adam() is adam()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": [[0, 500]]}, "from 0 to 119"),
        ({"train": [[]]}, "from 0 to 119"),
        ({"train": []}, "one each for a network"),
        ({"held": [FEW, FEW]}, "one each for a network"),
        ({"y": LINE[:50]}, "they must agree"),
        ({"optimizer": "adam"}, "one of optax"),
        ({"net": ew.Dense(2)}, "ask for"),
        ({"steps": 0}, "steps=0"),
        ({"width": -1}, "width=-1"),
    ],
)
def test_what_cannot_be_trained_is_refused(change, message):
    asked = {"net": DEEP, "x": X, "y": LINE, "train": [ALL], "held": [FEW], "loss": tr.Mse()} | change
    with pytest.raises(ValueError, match=message):
        train_networks(**asked)
