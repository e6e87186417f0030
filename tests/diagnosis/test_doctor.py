"""A doctor beside small training runs: what it measures, and what it costs."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everwide.diagnosis as dg
from diagnosis.small_runs import (
    LOSS,
    at_every_second_step,
    brute_hessian,
    doctor,
    init,
    mean_loss,
    mlp,
    norm,
    rows,
    train,
)
from everwide import InputError
from everwide.diagnosis import _doctor
from everwide.diagnosis._events import Watch
from everwide.diagnosis._patients import chart_of
from everwide.diagnosis._records import Findings, _alignment
from everwide.linearization import label_alignment
from everwide.training import Mse


@pytest.fixture(autouse=True)
def no_clock(request, monkeypatch):
    """Except where the cost is tested."""
    if request.cls is not TestCost:
        at_every_second_step(monkeypatch)


class TestMeasures:
    def test_sharpness_is_the_largest_eigenvalue(self):
        watcher = doctor(rate=1e-7)
        params, _ = train(watcher, optax.sgd(1e-7), init(), 40)  # it stays where it is, and the vector converges
        largest = np.linalg.eigvalsh(brute_hessian(params, *rows()))[-1]
        last = watcher.run.of("curvature")[-1]
        np.testing.assert_allclose(last["sharpness"], largest, rtol=0.01)
        np.testing.assert_allclose(last["edge"], 2 / 1e-7, rtol=1e-5)
        np.testing.assert_allclose(sum(last["groups"].values()), 1, rtol=1e-4)

    def test_with_adam_it_is_preconditioned(self):
        watcher = doctor(rate=1e-9)
        params, state = train(watcher, optax.adam(1e-9), init(), 60)
        count, flat = 60, np.asarray(jax.flatten_util.ravel_pytree(state[0].nu)[0], np.float64)
        scale = (1 - 0.9**count) * (np.sqrt(flat / (1 - 0.999**count)) + 1e-8)
        matrix = brute_hessian(params, *rows()) / np.sqrt(np.outer(scale, scale))
        last = watcher.run.of("curvature")[-1]
        np.testing.assert_allclose(last["preconditioned"], np.linalg.eigvalsh(matrix)[-1], rtol=0.05)
        np.testing.assert_allclose(last["edge"], 38 / 1e-9, rtol=1e-5)

    @pytest.mark.parametrize(
        "optimizer",
        [
            optax.sgd(0.02),
            optax.sgd(0.02, momentum=0.9),
            optax.adam(0.02),
            optax.rmsprop(0.02),
            optax.inject_hyperparams(optax.adam)(learning_rate=0.02),
            optax.chain(optax.clip_by_global_norm(100.0), optax.adamw(0.02, weight_decay=1e-6)),
        ],
        ids=["sgd", "momentum", "adam", "rmsprop", "told", "chain"],
    )
    def test_the_rate_is_read_or_measured(self, optimizer):
        watcher = doctor()
        train(watcher, optimizer, init(), 12)
        np.testing.assert_allclose(watcher.run.of("vitals")[-1]["rate"], 0.02, rtol=0.02)

    def test_noise_is_that_of_single_rows(self):
        from everwide.theory.rates import gradient_noise

        watcher, data = doctor(probe=rows(32, 3)), rows(32, 3)
        params = init()
        watcher(params)
        watcher(params)
        truth = gradient_noise(mlp, params, jnp.asarray(data[0], float), data[1], loss=LOSS)
        measured = watcher.run.of("noise")[0]
        np.testing.assert_allclose(measured["spread"], truth.trace, rtol=0.35)  # four parts estimate it

    def test_losses_gradients_and_updates(self):
        watcher, data = doctor(), rows()
        params, new = init(), jax.tree.map(lambda p: 1.01 * p, init())
        watcher(params)
        watcher(new)
        vitals = watcher.run.of("vitals")[0]
        value, slope = jax.value_and_grad(mean_loss)(params, *data)
        np.testing.assert_allclose(vitals["value"], value, rtol=1e-4)
        np.testing.assert_allclose(vitals["gradient"], norm(slope), rtol=1e-4)
        np.testing.assert_allclose(vitals["update"], 0.01 * norm(params), rtol=1e-3)
        np.testing.assert_allclose(vitals["after"], mean_loss(new, *data), rtol=1e-4)
        np.testing.assert_allclose(
            vitals["groups"]["0"]["gain"], jnp.sqrt(jnp.mean(params[0]["w"] ** 2) * 6), rtol=1e-4
        )

    @pytest.mark.slow
    def test_a_plateau_and_how_the_spectrum_leaves_it(self):
        x, rate = np.linspace(-1.7, 1.7, 16), 0.02
        product = lambda w, x: jnp.atleast_1d(w[0] * w[1] * x)
        watcher, w = dg.Doctor(product, Mse(), probe=(x, x), rate=rate), jnp.array([1e-6, 1e-6])
        for _ in range(260):
            watcher(w)
            w = w + rate * jnp.mean(x**2) * (1 - w[0] * w[1]) * w[::-1]  # descent, by hand
        plateau = next(e for e in watcher.run.of("event") if e["name"] == "plateau")
        assert plateau["step"] >= 100
        np.testing.assert_allclose(plateau["figures"]["escapes in"], 1 / (rate * np.mean(x**2)), rtol=1e-3)
        np.testing.assert_allclose(np.log(w[0] / 1e-6) / 260, rate * np.mean(x**2), rtol=0.02)  # and so it does

    def test_one_plateau_is_one_event(self):
        findings = Findings(chart_of(init(), rows_are_units=False), {}, None, np.zeros(4))
        losses = [3.0] * 10 + [2.0, 1.0, 0.5] + [0.5] * 20 + [0.01] * 60
        events = [
            (step, findings._plateau(step, {"value": value, "descent": -0.001}))
            for step, value in zip(range(0, 20 * len(losses), 20), losses, strict=True)
        ]
        assert [(step, e[0]["figures"]["value"]) for step, e in events if e] == [(100, 3.0), (340, 0.5)]
        assert findings._plateau(10**4, {"value": np.nan, "descent": 0.0}) == []

    def test_alignment_is_that_of_the_labels(self):
        rng = np.random.default_rng(0)
        half, labels, values = rng.normal(size=(8, 20)), np.array([0, 1, 2, 0, 1, 2, 0, 1, 9]), rng.normal(size=(9, 2))
        kernel = half @ half.T
        for targets, y in ((labels, np.eye(3)[labels[:8]]), (values, values[:8])):
            truth = label_alignment(jnp.asarray(kernel, float), jnp.asarray(y, float)).centred
            np.testing.assert_allclose(_alignment(kernel, targets), truth, rtol=1e-4)
        assert _alignment(kernel, np.zeros(8, int)) is None  # one class says nothing

    def test_collapse_of_the_last_layer(self):
        x, y = rows()
        watcher = doctor()
        params, _ = train(watcher, optax.adam(0.03), init(), 81)
        last = watcher.run.of("collapse")[-1]
        params = [{name: np.asarray(value, np.float64) for name, value in layer.items()} for layer in params]
        features = x
        for layer in params[:-1]:
            features = np.maximum(features @ layer["w"] + layer["b"], 0)
        truth = dg.neural_collapse(features, y, params[-1]["w"].T, biases=params[-1]["b"])
        assert last["within"] == pytest.approx(truth.within, rel=0.2)  # a step later
        assert last["angles"] == pytest.approx(truth.angles, rel=0.1)
        assert last["duality"] == pytest.approx(truth.duality, rel=0.1)
        assert watcher.run.of("kernel")[-1]["alignment"] is not None


class TestWriter:
    def test_what_is_measured_is_written_at_once(self):
        sent = []
        board = SimpleNamespace(add_scalar=lambda name, value, step: sent.append((name, value, step)))
        watcher = doctor(also=board)
        for _ in range(4):
            watcher(init())
        steps = [(step, value) for name, value, step in sent if name == "everwide/vitals/value"]
        assert steps == [(v["step"], v["value"]) for v in watcher.run.of("vitals")]
        assert len(steps) == 2

    def test_it_is_looked_at_first(self):
        with pytest.raises(InputError, match="expected a SummaryWriter"):
            doctor(also=[])


class TestCost:
    def test_it_stays_within_its_budget(self, monkeypatch):
        now = [0.0]

        class Clock:
            @staticmethod
            def perf_counter():
                now[0] += 2e-4  # whatever is timed takes so long
                return now[0]

            @staticmethod
            def process_time():
                return now[0]

        monkeypatch.setattr(_doctor, "time", Clock)
        watcher, params = doctor(budget=0.02), init()
        shares = []
        for _ in range(3000):
            now[0] += 1e-3  # a step of the training
            watcher(params)
            shares.append(watcher.cost.spent / max(now[0], 1e-9))
        assert len(watcher.run.of("vitals")) > 10
        assert max(shares[1500:]) <= 0.021  # after the first second, which may be paid in advance
        assert watcher.cost.share <= 0.02
        assert "s for compiling" in str(watcher.cost)

    def test_a_delay_by_other_programs_is_not_its_own(self, monkeypatch):
        monkeypatch.setattr(_doctor, "time", SimpleNamespace(perf_counter=lambda: 5.0, process_time=lambda: 2.0))
        assert _doctor._since((1.0, 1.0), on_host=True) == 1.0
        assert _doctor._since((1.0, 1.0), on_host=False) == 4.0  # a device may have computed meanwhile

    def test_looks_do_not_come_in_a_row_after_a_pause(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(_doctor, "time", SimpleNamespace(perf_counter=lambda: now[0]))
        watcher = doctor(budget=0.01)
        watcher.cost.start, watcher._took, now[0], watcher._step = 0.0, {"pulse": 0.1}, 1000.0, 2000
        assert watcher._spaced() == 2010  # half of what the budget pays for: it catches up slowly
        watcher._took, now[0], watcher._step = {"pulse": 0.01}, 0.5, 50
        assert watcher._spaced() == 150  # and in the beginning no later than it pays

    def test_most_calls_only_count(self):
        watcher, params = doctor(budget=1e-4), init()
        for _ in range(50):
            watcher(params, value=1.0)
        assert len(watcher.run.of("vitals")) == 1


def test_the_course_of_losses_between_two_looks():
    watch, losses = Watch(), 1 / np.arange(1.0, 101.0)
    watch.waiting = losses[:10].tolist()
    watch.look(9)
    watch.waiting = losses[10:].tolist()
    told, _ = watch.look(99)
    starts, means = zip(*told["course"], strict=True)
    assert starts[0] == 10
    assert np.all(np.diff(starts) <= 0.4 * np.array(starts[:-1]))
    ends = [*starts[1:], 100]
    np.testing.assert_allclose(means, [losses[a:b].mean() for a, b in zip(starts, ends, strict=True)])


def test_losses_that_are_not_finite_are_counted():
    watch = Watch()
    watch.waiting = [1.0, float("nan"), float("inf")]
    told, _ = watch.look(2)
    assert (told["largest"], told["broken"]) == (1.0, [2, 1])
    watch.waiting = [float("nan")]
    told, _ = watch.look(3)
    assert (told["mean"], told["count"], told["broken"]) == (None, 1, [1, 3])


@pytest.mark.parametrize(
    ("model", "value", "words"),
    [
        (lambda w, x: (w @ x, 1.0), None, "the model returned"),
        (lambda w, x: jnp.argmax(w * x), None, "the model returned"),
        (lambda w, x: jax.lax.complex(w @ x, w @ x), None, "complex"),
        (lambda w, x: w @ x, "text", "value is a str"),
        (lambda w, x: w @ x, np.ones(3), "value is a ndarray"),
        (lambda w, x: w @ x, {}, "value is a dict"),
    ],
)
def test_what_is_no_loss_or_no_output_is_named(model, value, words):
    watcher = dg.Doctor(model, Mse(), probe=(np.ones((8, 3)), np.arange(8.0)))
    visit = lambda: [watcher(jnp.ones(3), value=value) for _ in range(2)]
    with pytest.raises(InputError, match=words):
        visit()


@pytest.mark.wide
@pytest.mark.parametrize(("of_x", "of_y", "name"), [(1e200, 1, "inputs not scaled"), (1, 1e200, "targets not scaled")])
def test_squares_that_are_too_large_for_floats(of_x, of_y, name):
    x = np.random.default_rng(0).normal(size=(8, 3))
    watcher = dg.Doctor(lambda w, x: w @ x, Mse(), probe=(of_x * x, of_y * np.arange(8.0)))
    for _ in range(2):
        watcher(jnp.ones(3))
    assert watcher.verdict().causes[0].name == name
