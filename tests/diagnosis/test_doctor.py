"""A doctor beside small training runs: what it measures, what it costs, and what it says."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everwide.diagnosis as dg
from everwide import InputError
from everwide.diagnosis import _doctor
from everwide.diagnosis._events import Watch
from everwide.diagnosis._optimizers import Optimizer, read_state
from everwide.diagnosis._patients import chart_of
from everwide.diagnosis._records import Findings, _alignment
from everwide.diagnosis._verdict import Run
from everwide.linearization import label_alignment
from everwide.training import Mse, SoftmaxCrossEntropy

LOSS = SoftmaxCrossEntropy()
CLASSES = 4


def mlp(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def init(seed=0, widths=(6, 16, 16, CLASSES)):
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise(widths)
    return [{"w": jnp.asarray(rng.normal(size=(n, m)) * (2 / n) ** 0.5, float), "b": jnp.zeros(m)} for n, m in pairs]


def rows(n=32, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6))
    return x, np.argmax(x[:, :CLASSES] + 0.1 * rng.normal(size=(n, CLASSES)), 1)


def mean_loss(params, x, y, f=mlp, loss=LOSS):
    return jnp.mean(jax.vmap(loss)(jax.vmap(f, (None, 0))(params, jnp.asarray(x, float)), jnp.asarray(y)))


def train(doctor, optimizer, params, steps=40, mask=None, told=True, data=None):
    x, y = data or rows()
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        value, slope = jax.value_and_grad(mean_loss)(params, x, y)
        change, state = optimizer.update(slope, state, params)
        change = change if mask is None else jax.tree.map(lambda c, m: c * m, change, mask)
        return optax.apply_updates(params, change), state, value

    for _ in range(steps):
        with jax.numpy_dtype_promotion("standard"):  # optax mixes them
            params, state, value = step(params, state)
        doctor(params, state, value=value if told else None)
    return params, state


def doctor(**options):
    return dg.Doctor(mlp, LOSS, **({"probe": rows(), "budget": 0.9, "batch_size": 32} | options))


@pytest.fixture(autouse=True)
def at_every_second_step(request, monkeypatch):
    """A clock has no say in what is measured, except where the cost is tested."""
    if request.cls is not TestCost:
        monkeypatch.setattr(dg.Doctor, "_affordable", lambda self: True)
        monkeypatch.setattr(dg.Doctor, "_spaced", lambda self: 0)
        monkeypatch.setattr(_doctor, "_SHARES", dict.fromkeys(("curve", "kernel", "readout"), np.inf))  # no clock


def brute_hessian(params, x, y):
    flat, unflatten = jax.flatten_util.ravel_pytree(params)
    return np.asarray(jax.hessian(lambda v: mean_loss(unflatten(v), x, y))(flat), np.float64)


def norm(tree):
    return np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))


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


class TestVerdicts:
    def test_a_healthy_run(self):
        watcher = doctor()
        train(watcher, optax.sgd(0.1), init(), 60)
        assert watcher.verdict().healthy
        assert "Healthy after" in str(watcher.verdict())
        assert "kinks" in str(watcher.verdict())  # rectifiers, said once

    def test_a_rate_over_the_edge(self):
        watcher = doctor()
        train(watcher, optax.sgd(3.0), init(), 12)
        cause = watcher.verdict().causes[0]
        assert cause.name == "rate too large"
        assert "edge of stability" in cause.evidence

    def test_a_frozen_layer(self):
        mask = jax.tree.map(lambda _: 1.0, init())
        mask[1] = {"w": 0.0, "b": 0.0}
        watcher = doctor()
        train(watcher, optax.sgd(0.1), init(), 12, mask=mask)
        cause = watcher.verdict().causes[0]
        assert cause.name == "frozen layer"
        assert cause.evidence.startswith("1 never moved")

    def test_dead_units(self):
        params = init()
        params[1]["b"] = params[1]["b"] - 100.0
        watcher = doctor()
        train(watcher, optax.sgd(0.1), params, 12)
        assert watcher.verdict().causes[0].name == "dead units"

    def test_one_layer_too_large(self):
        params = init(widths=(6, 16, 16, 16, CLASSES))
        params[2]["w"] = 12 * params[2]["w"]
        watcher = doctor()
        train(watcher, optax.sgd(1e-3), params, 12)
        cause = watcher.verdict().causes[0]
        assert cause.name == "initialization"
        assert "weights of 2" in cause.evidence

    def test_inputs_that_are_not_scaled(self):
        x, y = rows()
        watcher = doctor(probe=(200 * x, y))
        train(watcher, optax.sgd(1e-6), init(), 6, data=(200 * x, y))
        assert watcher.verdict().causes[0].name == "inputs not scaled"

    def test_a_rate_that_is_far_too_small(self):
        watcher = doctor()
        train(watcher, optax.sgd(1e-4), init(), 40)
        assert watcher.verdict().causes[0].name == "rate too small"

    def test_from_the_log_alone(self, tmp_path):
        watcher = doctor(log=tmp_path / "run.jsonl")
        train(watcher, optax.sgd(3.0), init(), 12)
        said = watcher.verdict()
        assert dg.read_run(tmp_path / "run.jsonl").verdict() == said

    def test_notes_say_what_was_announced(self):
        figures = {"announced": {"ratio": 2.0}, "plateau": {"value": 1.0, "halves in": 500.0, "escapes in": 80.0}}
        events = [{"record": "event", "step": 7, "name": name, "figures": f} for name, f in figures.items()]
        notes = Run({}, (*events, {"record": "vitals", "step": 9, "value": 0.99})).verdict().notes
        assert "2 times the edge of stability at step 7" in notes[0]
        assert "0.25 times the rate" in notes[0]
        assert "halve in 5e+02 steps" in notes[1]
        assert "factor of 2.7 in 80 steps" in notes[1]
        over = [{"record": "event", "step": 8, "name": "catapult"}, {"record": "vitals", "step": 9, "value": 0.5}]
        assert not [note for note in Run({}, (*events, *over)).verdict().notes if "version" not in note]

    def test_a_spike_is_announced_until_curvature_is_low_again(self):
        findings, said = Findings(chart_of(init(), rows_are_units=False), {}, None, np.zeros(4)), []
        for step, ratio in enumerate([0.5, 0.8, 1.2, 3.0, 0.3, 0.8, 0.4, 0.2, 0.3, 1.1]):
            vitals = {"record": "vitals", "value": 1.0, "gradient": 1.0}
            said += findings._events(step, [vitals, {"record": "curvature", "ratio": ratio}], Optimizer("gd"))
        assert [(e["step"], e["name"]) for e in said] == [(2, "announced"), (7, "catapult"), (9, "announced")]
        assert said[1]["figures"] == {"before": 3.0, "after": 0.2}


class TestBadInput:
    def test_what_is_not_finite_is_recorded(self):
        watcher, params = doctor(), init()
        for _ in range(4):
            watcher(params, value=2.0)
        broken = jax.tree.map(lambda p: p * jnp.nan, params)
        for _ in range(4):
            watcher(broken, value=float("nan"))
        assert "non-finite" in [e["name"] for e in watcher.run.of("event")]
        assert "not finite" in str(watcher.verdict())

    def test_parameters_that_change_their_shape(self):
        watcher = doctor()
        watcher(init())
        with pytest.raises(InputError, match="other shapes"):
            watcher(init(widths=(6, 8, 8, CLASSES)))

    def test_complex_parameters(self):
        watcher = dg.Doctor(lambda p, x: jnp.real(p @ x), Mse(), probe=(np.ones((8, 3)), np.ones(8)))
        with pytest.raises(InputError, match="complex"):
            watcher(jnp.ones(3, complex))

    def test_a_probe_of_one_class(self):
        x, _ = rows()
        watcher = doctor(probe=(x, np.zeros(32, int)))
        train(watcher, optax.sgd(0.1), init(), 6)
        assert "one class only" in str(watcher.verdict())

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"probe": 3}, "a pair"),
            ({"budget": 0.0}, "budget"),
            ({"budget": 2.0}, "budget"),
            ({"batch_size": 0}, "batch_size"),
            ({"rate": -1.0}, "rate"),
        ],
    )
    def test_arguments(self, options, message):
        with pytest.raises(InputError, match=message):
            doctor(**options)

    def test_rows_that_do_not_agree(self):
        watcher = doctor(probe=(rows()[0], np.zeros(3, int)))
        with pytest.raises(InputError, match="must agree"):
            watcher(init())

    def test_nothing_recorded(self):
        with pytest.raises(InputError, match="Nothing was recorded"):
            doctor().verdict()

    def test_a_log_goes_on_where_it_ended(self, tmp_path):
        path = tmp_path / "run.jsonl"
        train(doctor(log=path), optax.sgd(0.1), init(), 6)
        before = dg.read_run(path).records[-1]["step"]
        watcher = doctor(log=path)
        train(watcher, optax.sgd(0.1), init(), 6)
        records = dg.read_run(path).records
        assert [r["step"] for r in records] == sorted(r["step"] for r in records)
        assert records[-1]["step"] > before
        assert "resumed" in [r.get("name") for r in records]

    def test_the_log_of_another_model(self, tmp_path):
        path = tmp_path / "run.jsonl"
        train(doctor(log=path), optax.sgd(0.1), init(), 4)
        with pytest.raises(InputError, match="another run"):
            doctor(log=path)(init(widths=(6, 8, CLASSES)))


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


def test_labels_that_stay_wrong_are_seen_by_the_course_alone():
    facts = {"loss": "SoftmaxCrossEntropy", "outputs": 4, "classes": [8, 8, 8, 8]}
    look = {"record": "vitals", "step": 10, "value": 1.0, "gradient": 1.0, "accuracy": 0.7, "near": 0.1}
    look |= {"quantiles": [0.1, 0.2, 0.5, 1.5, 3.0], "surprising": [3, 4]}
    for loss, names in ((0.8, ["wrong labels"]), (0.3, [])):
        told = {"mean": 0.2, "largest": 1.0, "first": 1.4, "peak": 11, "course": [[11, 0.9], [20, loss], [40, 0.1]]}
        later = look | {"step": 400, "value": 0.01, "accuracy": 1.0, "near": 0.0, "told": told}
        later |= {"quantiles": [0.0] * 5}
        assert [cause.name for cause in Run(facts, (look, later)).verdict().causes] == names


def test_states_that_say_nothing_are_plain_descent():
    assert read_state(None, [(3,)]).kind == "gd"
    assert read_state(optax.sgd(0.1).init(jnp.zeros(3)), [(3,)]).kind == "gd"
    assert read_state(optax.adam(0.1).init(jnp.zeros(3)), [(4,)]).kind == "gd"  # moments of something else
