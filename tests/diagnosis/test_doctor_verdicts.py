"""What a doctor says after small training runs, and to bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everwide.diagnosis as dg
from diagnosis.small_runs import CLASSES, LOSS, at_every_second_step, doctor, init, mlp, rows, train
from everwide import InputError
from everwide.diagnosis._optimizers import Optimizer, read_state
from everwide.diagnosis._patients import chart_of
from everwide.diagnosis._records import Findings
from everwide.diagnosis._verdict import Run
from everwide.training import Mse


@pytest.fixture(autouse=True)
def no_clock(monkeypatch):
    at_every_second_step(monkeypatch)


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

    def test_curvature_of_frozen_layers_is_not_felt(self):
        rules = {"on": optax.sgd(0.1), "off": optax.set_to_zero()}
        watcher, params = doctor(), init()
        params, _ = train(watcher, optax.multi_transform(rules, ["off", "off", "on"]), params, 30)
        (frozen,) = watcher.verdict().causes
        assert (frozen.name, "(85 % of the parameters)" in frozen.evidence) == ("frozen layer", True)  # of both
        last = watcher.run.of("curvature")[-1]
        assert (last["groups"]["0"], last["groups"]["1"]) == (0, 0)
        x, y = rows()
        operator = dg.hessian(mlp, params, x, y, loss=LOSS).block("2")
        np.testing.assert_allclose(last["sharpness"], operator.leading(1).values[0], rtol=0.05)

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

    def test_parameters_of_another_type(self):
        watcher, params = doctor(), init()
        watcher(params)
        params[1]["w"] = params[1]["w"].astype(jnp.bfloat16)
        with pytest.raises(InputError, match=r"The parameter 1\.w is bfloat16, expected float"):
            watcher(params)

    def test_labels_that_the_model_has_no_output_for(self):
        with pytest.raises(InputError, match="an output for each"):
            doctor(probe=(rows()[0], rows()[1] + 1))(init())

    def test_a_log_in_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(InputError, match="there is no folder"):
            doctor(log=tmp_path / "none" / "run.jsonl")
        with pytest.raises(InputError, match="is a folder"):
            doctor(log=tmp_path)

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

    @pytest.mark.parametrize(("rows", "words"), [(np.full((4, 6), "a"), "text"), (np.zeros((0, 6)), "empty")])
    def test_inputs_that_are_no_numbers(self, rows, words):
        with pytest.raises(InputError, match=words):
            doctor(probe=(rows, np.zeros(len(rows), int)))(init())

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


@pytest.mark.parametrize(
    ("surprise", "loss", "names"),
    [(3.0, 0.8, ["wrong labels"]), (3.0, 0.3, []), (1.6, 0.7, []), (1.6, 0.9, ["wrong labels"])],
    ids=["stay", "learned", "slowly_learned", "never_sure"],
)
def test_labels_that_stay_wrong_are_seen_by_the_course_alone(surprise, loss, names):
    facts = {"loss": "SoftmaxCrossEntropy", "outputs": 4, "classes": [8, 8, 8, 8]}
    look = {"record": "vitals", "step": 10, "value": 1.0, "gradient": 1.0, "accuracy": 0.7, "near": 0.1}
    look |= {"quantiles": [0.1, 0.2, 0.5, 1.5, surprise], "surprising": [3, 4]}
    told = {"mean": 0.2, "largest": 1.0, "first": 1.4, "peak": 11, "course": [[11, 0.9], [20, loss], [40, 0.1]]}
    later = look | {"step": 400, "value": 0.01, "accuracy": 1.0, "near": 0.0, "told": told}
    later |= {"quantiles": [0.0] * 5}
    assert [cause.name for cause in Run(facts, (look, later)).verdict().causes] == names


@pytest.mark.parametrize(("growth", "dead", "names"), [(4.0, 0.5, []), (4.0, 0.7, ["rate too large"]), (2.0, 0.7, [])])
def test_weights_that_grow_while_most_units_die(growth, dead, names):
    facts = {"loss": "Mse", "optimizer": "adam", "outputs": 1, "groups": {"layer": 9}}
    group = {"gain": 1.0, "gradient": 1.0, "update": 0.1, "dead": 0.0}
    looks = [
        {"record": "vitals", "step": step, "value": 1.0, "gradient": 1.0, "update": 0.1, "weights": weights}
        | {"rate": 0.1, "groups": {"layer": group | {"dead": share}}, "shrinking": 0.0, "far": None, "start": None}
        for step, weights, share in ((0, 1.0, 0.0), (300, growth, 0.2), (500, growth, dead))
    ]
    assert [cause.name for cause in Run(facts, tuple(looks)).verdict().causes] == names


def test_states_that_say_nothing_are_plain_descent():
    assert read_state(None, [(3,)]).kind == "gd"
    assert read_state(optax.sgd(0.1).init(jnp.zeros(3)), [(3,)]).kind == "gd"
    assert read_state(optax.adam(0.1).init(jnp.zeros(3)), [(4,)]).kind == "gd"  # moments of something else


@pytest.mark.parametrize("labels", [["a", "b", "b"], [{"w": "a", "b": "b"}, "b", "a"]], ids=["layers", "leaves"])
def test_moments_that_are_kept_apart_are_joined(labels):
    params = init()
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]

    def seen(optimizer):
        with jax.numpy_dtype_promotion("standard"):
            return read_state(optimizer.update(params, optimizer.init(params))[1], shapes)

    apart = seen(optax.multi_transform(dict.fromkeys("ab", optax.adam(0.1)), labels))
    together = seen(optax.adam(0.1))
    assert (apart.kind, apart.seen, apart.b2) == ("adam", 1, 0.999)
    for one, other in zip(apart.first + apart.second, together.first + together.second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_where_adam_moves_some_parameters_only_its_edge_is_not_known():
    watcher = doctor()
    rules = {"a": optax.adam(0.01), "b": optax.sgd(0.01)}
    train(watcher, optax.multi_transform(rules, ["a", "a", "b"]), init(), 30)
    assert watcher.run.facts["optimizer"] == "part"
    assert not watcher.run.of("curvature")
    assert {v["rate"] for v in watcher.run.of("vitals")} == {None}
    assert "second moments of some parameters only" in str(watcher.verdict())


@pytest.mark.parametrize("masked", [False, True], ids=["labelled", "masked"])
def test_where_all_others_are_frozen_adam_is_known(masked):
    adam, off = optax.adam(1e-5), optax.set_to_zero()
    if masked:
        optimizer = optax.chain(optax.masked(adam, [False, True, True]), optax.masked(off, [True, False, False]))
    else:
        optimizer = optax.multi_transform({"on": adam, "off": off}, ["off", "on", "on"])
    watcher = doctor()
    train(watcher, optimizer, init(), 30)
    np.testing.assert_allclose(watcher.run.series("vitals", "rate")[1], 1e-5, rtol=1e-3)
    last = watcher.run.of("curvature")[-1]
    assert last["groups"]["0"] == 0 < last["sharpness"]
    assert [cause.name for cause in watcher.verdict().causes] == ["frozen layer", "rate too small"]
    assert "second moments" not in str(watcher.verdict())
