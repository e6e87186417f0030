"""The page of a training run: its verdict, what was recorded, and nothing that was not."""

import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everwide import InputError
from everwide.diagnosis import Doctor, read_run
from everwide.report import study_run
from everwide.report._runs.records import by_group, finite, series, short
from everwide.training import Mse
from report.report_tables import FORMULA, IMAGE, SCRIPT
from report.run_logs import FakeCause, FakeRun, facts, records, vitals, write
from report.test_page import Reader, walk

pytestmark = pytest.mark.once
KEYS = ["loss", "edge", "layers", "noise", "kernel", "collapse", "cost"]
OF = {"vitals": {"loss", "layers", "cost"}, "curvature": {"edge"}, "noise": {"noise"}, "kernel": {"kernel"}}
OF |= {"collapse": {"collapse"}, "event": {"loss"}}


@pytest.fixture(scope="module")
def read(run_page):
    reader = Reader()
    reader.feed(run_page[0].read_text("utf-8"))
    return reader


def fact(study, section: str, label: str):
    return next(one for one in study.sections[section].text.facts if one.label == label)


def test_every_part_is_there(watched, read):
    assert list(watched.sections) == KEYS
    assert [attrs["id"] for tag, attrs in read.tags if tag == "section"] == KEYS
    assert sum(tag == "svg" for tag, _ in read.tags) == len(KEYS)
    assert all(one.meaning.endswith((".", "?")) for key in KEYS for one in watched.sections[key].text.facts)


def test_the_verdict_comes_first(watched, read):
    text = read.text
    places = [text.index(part) for part in ("It is over the edge.", "Take 0.02.", "It is slow.", "Wait.")]
    assert places == sorted(places)
    assert places[-1] < text.index("The model has kinks.") < text.index("How training went")
    assert watched.title == SCRIPT


def test_hostile_names_are_text_and_nothing_is_fetched(run_page, read):
    text = run_page[0].read_text("utf-8")
    tags = {tag for tag, _ in read.tags}
    assert tags & {"script", "img", "iframe", "object", "embed", "link", "form", "base"} == set()
    assert [name for _, attrs in read.tags for name in attrs if name.startswith("on")] == []
    for name in (SCRIPT, IMAGE, FORMULA):
        assert name in read.text
        assert name not in text
    assert [one for one in re.findall(r'(?:src|href)="([^"]*)"', text) if not one.startswith("#")] == []
    assert len(read.ids) == len(set(read.ids))
    assert set(re.findall(r"url\(#([^)]+)\)", text) + re.findall(r'href="#([^"]+)"', text)) <= set(read.ids)


def test_a_page_loads_itself_again_only_when_asked_to(read):
    assert [attrs for _, attrs in read.tags if attrs.get("http-equiv") == "refresh"] == []
    reader = Reader()
    reader.feed(study_run(FakeRun()).html(refresh=7))
    assert [attrs["content"] for _, attrs in reader.tags if attrs.get("http-equiv") == "refresh"] == ["7"]
    assert "every 7 seconds" in reader.text


def test_the_numbers_are_finite_json(watched, run_page):
    numbers = json.loads(run_page[1].read_text("utf-8"), parse_constant=lambda name: pytest.fail(name))
    assert numbers == watched.to_dict()
    assert all(math.isfinite(leaf) for leaf in walk(numbers) if isinstance(leaf, float))
    assert numbers["verdict"]["causes"][1]["remedy"] == "Wait."
    assert numbers["sections"]["edge"]["numbers"]["ratio"]["values"][0] == pytest.approx(0.2)


@pytest.mark.parametrize("kind", OF)
def test_a_section_is_shown_where_its_records_are(kind):
    only = tuple(record for record in records() if record["record"] == kind)
    study = study_run(FakeRun(records=only))
    assert set(study.sections) == OF[kind]
    assert study.measured == (kind == "vitals")


def test_what_is_said_is_what_was_recorded():
    study = study_run(FakeRun(records=tuple(records())))
    assert fact(study, "loss", "Loss on the probe").value == "0.095"
    assert "It was 2.35 at step 0." in fact(study, "loss", "Loss on the probe").meaning
    assert "Rows 3, 17, 44 of the probe" in fact(study, "loss", "Rows that stay surprising").meaning
    assert "above 1 since step 250" in fact(study, "edge", "Sharpness over the edge, at step 590").meaning
    assert fact(study, "edge", "Layer with most curvature").value == "readout"
    assert fact(study, "layers", "Most dead units").value == "_hidden"
    scale = fact(study, "noise", "Noise scale, at step 580")
    assert scale.value == "210 rows"
    assert "1.8 times as large as the signal" in scale.meaning  # sqrt(208 / 64)
    assert fact(study, "cost", "Share of the time").value == f"{100 * 1.063 / 59.1:.2f}\u202f%"
    assert study.lead.startswith("Seen up to step 590: 10\u202f000 parameters in 4 layers")


@pytest.mark.parametrize(
    ("ratio", "said"), [(0.1, "the edge is at 10 times the rate"), (0.9, "just below"), (2, "Above 1")]
)
def test_the_edge_is_near_far_or_crossed(ratio, said):
    curve = {"record": "curvature", "step": 5, "sharpness": ratio, "edge": 1.0, "ratio": ratio}
    study = study_run(FakeRun(records=(curve,)))
    assert said in fact(study, "edge", "Sharpness over the edge, at step 5").meaning


def test_a_layer_that_stands_still_is_named():
    lines = [vitals(step, 1.0) for step in range(4)]
    for line in lines:
        line["groups"]["1"]["update"] = 0.0
    assert fact(study_run(FakeRun(records=tuple(lines))), "layers", "Layers that stand still").value == "1"


def test_rows_are_surprising_only_while_some_are_wrong():
    lines = [vitals(step, 1.0) | {"accuracy": 1 - 2 / 128} for step in range(6)]
    assert study_run(FakeRun(records=tuple(lines))).sections["loss"].result.surprising == (3, 17)
    learned = tuple(line | {"accuracy": 1.0} for line in lines)
    assert study_run(FakeRun(records=learned)).sections["loss"].result.surprising == ()
    assert study_run(FakeRun(records=tuple(lines[:4]))).sections["loss"].result.surprising == ()


def test_a_loss_that_is_not_finite_is_said():
    lines = [vitals(0, 1.0), *(vitals(step, 1.0) | {"value": None} for step in (1, 2))]
    warnings = study_run(FakeRun(records=tuple(lines))).sections["loss"].text.warnings
    assert warnings == ("The loss of the probe is not finite from step 1 on.",)
    assert study_run(FakeRun(records=tuple(lines[::-1]))).sections["loss"].text.warnings == ()


def test_nothing_is_healthy_before_it_is_measured():
    study = study_run(FakeRun())
    assert (study.title, study.sections, study.to_dict()["verdict"]["healthy"]) == (
        "Nothing was measured yet",
        {},
        None,
    )
    assert "calls for a change" not in study.html()
    healthy = study_run(FakeRun(records=(vitals(0, 1.0),)))
    assert healthy.title == "Healthy so far"
    assert healthy.to_dict()["verdict"]["healthy"] is True


STRANGE = {
    "no figures": {"record": "vitals", "step": 0},
    "nulls": {"record": "vitals", "step": 3, "value": None, "groups": None, "told": None},
    "other types": {"record": "vitals", "step": 1, "value": "x", "groups": {"a": 3}, "told": 4, "surprising": [None]},
    "an event without a name": {"record": "event", "step": 2},
    "an unknown kind": {"record": "strange", "step": 1},
    "overflow": {"record": "curvature", "step": 1, "sharpness": 1e308, "edge": 10**400, "groups": {"a": None}},
    "a long run": {"record": "vitals", "step": 10**30, "value": -1.0, "cost": 1, "seconds": 0},
    "zeros": {"record": "vitals", "step": 4, "value": 0.0, "groups": {"0": {"rms": 0.0, "update": 0.0}}},
}


@pytest.mark.parametrize("record", STRANGE.values(), ids=STRANGE)
def test_strange_records_do_no_harm(record):
    study = study_run(FakeRun(records=(record, record)))
    assert study.html().count("<section") == len(study.sections)


def test_many_layers_with_any_name_have_a_page():
    names = ("a$x_1$", "_x", "\u5c42", "bad\x00\x1b\ud800", "block.3.attention.query.kernel", *map(str, range(7)))
    page = study_run(FakeRun(facts(names), tuple(records(5, names)))).html()
    page.encode("utf-8")
    assert "bad\ufffd\ufffd\ufffd" in page
    assert "others" in page
    assert short("block.3.attention.query.kernel") == "\u2026ention.query.kernel"


def test_one_look_at_a_kernel_is_no_change():
    looks = [{"record": "kernel", "step": step, "velocity": change} for step, change in ((0, -1e-16), (8, 0.3))]
    assert study_run(FakeRun(records=(looks[0],))).sections == {}
    fact_of_two = fact(study_run(FakeRun(records=tuple(looks))), "kernel", "The tangent kernel changed by")
    assert fact_of_two.value == "30\u202f%"
    assert "Features move" in fact_of_two.meaning


def test_logs_are_read_and_shown(tmp_path):
    study = study_run(read_run(write(tmp_path / "run.jsonl", records())))
    assert list(study.sections) == KEYS


def test_what_a_doctor_writes_is_shown(tmp_path):
    x, f = jax.random.normal(jax.random.key(0), (32, 3)), lambda w, row: w @ row
    y, w = x[:, 0], jnp.zeros(3)
    doctor = Doctor(f, Mse(), probe=(x, y), budget=0.9, log=tmp_path / "run.jsonl", batch_size=32, rate=0.1)
    for _ in range(30):
        doctor(w)
        w = w - jnp.asarray(0.1, w.dtype) * x.T @ (x @ w - y) / len(y)
    study = study_run(doctor.run)
    assert {"loss", "edge", "layers", "cost"} <= set(study.sections)
    assert study.to_dict() == study_run(read_run(tmp_path / "run.jsonl")).to_dict()
    assert study.sections["loss"].result.value.values[0] == pytest.approx(float(jnp.mean(y**2) / 2), rel=1e-4)
    largest = float(jnp.linalg.eigvalsh(x.T @ x / 32)[-1])
    assert study.sections["edge"].result.ratio.last == pytest.approx(largest / (2 / 0.1), rel=0.05)
    study.html()


def test_what_is_no_run_is_refused():
    with pytest.raises(InputError, match=r"run is a str, expected what everwide\.diagnosis\.read_run"):
        study_run("run.jsonl")


def test_figures_are_collected_where_they_are():
    lines = (
        {"record": "vitals", "step": 1, "x": 2},
        {"record": "vitals", "step": 2, "x": None, "groups": {"a": {"u": 1}}},
    )
    run = FakeRun(records=lines)
    assert np.array_equal(series(run, "vitals", "x"), ([1], [2]))
    assert by_group(run, "vitals", "u")["a"].last == 1
    assert [finite(value) for value in (True, "1", math.nan, 10**400, 3)] == [None, None, None, None, 3.0]


def test_pages_are_replaced_whole(tmp_path):
    page, numbers = study_run(FakeRun()).write(tmp_path / "new" / "run.html")
    assert sorted(tmp_path.rglob("*")) == sorted([page.parent, page, numbers])
    with pytest.raises(InputError, match=r"Use \.html"):
        study_run(FakeRun()).write(tmp_path / "run.json")


def test_causes_are_sentences():
    study = study_run(FakeRun(records=(vitals(0, 1.0),), causes=(FakeCause("rate too large", "it jumped", "take 1."),)))
    assert (study.title, *study.causes[0]) == ("Rate too large", "Rate too large", "It jumped.", "Take 1.")
