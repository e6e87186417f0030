"""`everwide rate` and `everwide forecast`: numbers that can be computed without them."""

import json

import numpy as np
import pytest

import everwide as ew
from everwide._problem import prepare
from everwide.cli._rate import _recommended as recommended
from everwide.cli._show import named_network
from everwide.report._sections import forecast as section
from everwide.report._sections import training
from everwide.report._study import answered
from everwide.tables import read_table

pytestmark = pytest.mark.once

SMALL = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1))


def test_the_largest_rate_is_two_rows_over_the_largest_eigenvalue(run, numbers, x):
    result = run("rate", numbers, "--net", "model.py:small", "--momentum", "0.5", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    largest = np.linalg.eigvalsh(ew.ntk(SMALL, (x - x.mean(axis=0)) / x.std(axis=0)))[-1]
    assert found["gradient_descent"] == pytest.approx(2 * len(x) / largest, rel=1e-6)
    assert found["momentum"] == pytest.approx(1.5 * found["gradient_descent"])
    assert found["fit_times"]["0.5"] < found["fit_times"]["0.99"]


@pytest.mark.parametrize(
    ("net", "said"),
    [("mlp", "mlp: 3 hidden dense layers, Relu"), ("model.py:small", "given network: Dense, Relu, Dense")],
)
def test_the_network_is_said_in_words(run, numbers, net, said):
    assert f"Network: {said}" in run("rate", numbers, "--net", net).stdout.replace("\n", " ")


def test_counts_are_numbers_where_one_says_so(run, tmp_path):
    (tmp_path / "counts.csv").write_text("x,y\n" + "".join(f"{i},{i % 4}\n" for i in range(40)))
    told = run("rate", "counts.csv", "--task", "regression", "--net", "model.py:small", "--json")
    assert json.loads(told.stdout)["task"] == "regression"


def test_samples_of_rows(run, numbers):
    few = json.loads(run("rate", numbers, "--net", "model.py:small", "--sample", "40", "--json").stdout)
    assert few["n"] == 40
    assert any("40 of 80 rows" in text for text in few["notes"])


@pytest.mark.parametrize("net", ["model.py:small", "auto"])
def test_command_line_and_report_agree(run, numbers, net, tmp_path):
    """One table, one network, one answer: rates, and errors with more rows."""
    asked = (numbers, "--net", net, "--quick", "--json")
    rate, forecast = (
        json.loads(run(*command).stdout) for command in (("rate", *asked), ("forecast", *asked, "--n", "160"))
    )
    table = read_table(tmp_path / numbers)
    problem = prepare(table, named_network(net, "auto"), quick=True)
    told = {one.key: answered(one, problem).to_dict()["numbers"] for one in (training.SECTION, section.SECTION)}
    assert told["training"]["rates"] == {name: rate[name] for name in told["training"]["rates"]}
    shown = told["forecast"]
    place = shown["n"].index(160)
    for name in ("error", "low", "high"):
        assert forecast["curve"][0][name] == pytest.approx(shown[name][place], rel=1e-12)
    assert forecast["trusted_to"] == shown["trusted_to"]


def test_rates_are_printed_and_notes_go_to_stderr(run, tmp_path):
    (tmp_path / "colours.csv").write_text(
        "a,b,y\n" + "".join(f"{i / 7},{'red' if i % 3 else 'blue'},{i**0.5}\n" for i in range(60))
    )
    result = run("rate", "colours.csv", "--net", "model.py:small")
    assert result.exit_code == 0, result.output
    assert "ADAM*" in result.stdout
    assert "note:" in result.stderr
    assert "note:" not in result.stdout


def test_what_is_said_of_rates_above_the_edge_depends_on_what_is_trained(run, numbers):
    """All layers: finite networks train there; the last one only: they diverge as the kernel does."""
    all_layers, last = (
        " ".join(run("rate", numbers, "--net", f"model.py:{net}").stdout.split()) for net in ("small", "readout")
    )
    assert "Its layers: Dense, Relu, Dense." in all_layers
    assert "above the edge their loss spikes" in all_layers
    assert "Dense (not trained), Relu, Dense." in last
    assert "diverge above nearly the same edge" in last
    assert "spikes" not in last


def test_a_trial_trains_a_network_of_that_width(run, numbers):
    command = ("rate", numbers, "--net", "model.py:small", "--trial", "sgd", "--width", "24", "--steps", "32")
    result = run(*command, "--json")
    assert result.exit_code == 0, result.output
    tried = json.loads(result.stdout)["trial"]
    assert tried["rate"] <= tried["trains_to"] < tried["fails_from"]
    assert "Tried at width 24 on 80 rows, ntk parametrization, sgd, 32 steps" in recommended(tried)
    assert run("rate", numbers, "--trial", "lion").exit_code == 2


@pytest.mark.parametrize("option", ["--width", "--steps"])
def test_what_belongs_to_a_trial_is_not_ignored_without_one(run, numbers, option):
    result = run("rate", numbers, option, "64")
    assert result.exit_code == 2
    assert "add --trial" in result.stderr


@pytest.fixture
def classes(tmp_path, x):
    np.savez(tmp_path / "classes.npz", X=x, y=np.where(x[:, 0] > 0, "up", "down"))
    return "classes.npz"


def test_a_forecast_for_numbers(run, numbers):
    command = ("forecast", numbers, "--net", "model.py:small", "--n", "200,100")
    result = run(*command, "--error", "0.05", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["n"] for row in found["curve"]] == [100, 200]
    assert found["curve"][0]["error"] > found["curve"][1]["error"]
    assert found["task"] == "regression"
    assert found["n_needed"]["0.5"] <= found["n_needed"]["0.9"]


def test_a_goal_may_be_an_accuracy_or_a_share_of_wrong_classes(run, classes):
    command = ("forecast", classes, "--net", "model.py:small", "--n", "100")
    found = [json.loads(run(*command, *goal, "--json").stdout) for goal in (("--accuracy", "0.9"), ("--error", "0.1"))]
    assert found[0]["n_needed"] == found[1]["n_needed"]
    assert 0.5 < found[0]["curve"][0]["accuracy"] <= 1


def test_warnings_are_notes(run, numbers):
    result = run("forecast", numbers, "--net", "model.py:small", "--n", "1000000000")
    assert result.exit_code == 0, result.output
    assert "pilot of 80 rows is trusted to" in result.stderr
    assert "ForecastWarning" not in result.stderr
    assert "1000000000" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--n", "many"), 2, "expected whole numbers above 0"),
        (("--accuracy", "0.9", "--error", "0.1"), 2, "choose one"),
        (("--accuracy", "0.9"), 2, "numbers have no accuracy"),
        (("--error", "-1"), 2, "expected a number above 0"),
        (("--target", "yy"), 1, "Did you mean y?"),
        (("--net", "cnn"), 1, "reads images"),
        (("--net", "mlpp"), 2, "Did you mean mlp?"),
        (("--sample", "20"), 1, "64"),
    ],
)
def test_faults(run, numbers, arguments, code, message):
    result = run("forecast", numbers, *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
