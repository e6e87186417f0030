"""`everwide explain`, and networks in files: answers, exit codes, and messages without tracebacks."""

import json
import sys

import pytest
from typer.testing import CliRunner

from everwide.cli import app

pytestmark = pytest.mark.once

MODEL = "import everwide as ew\nnet = ew.Dense(3)"


def test_explain_prints_every_layer(run):
    result = run("explain", "model.py:net", "--input", "8,8,3")
    assert result.exit_code == 0, result.output
    for layer in ("Conv", "GlobalAvgPool", "Dense"):
        assert layer in result.stdout


@pytest.mark.parametrize("columns", ["40", "80"])
def test_no_line_is_wider_than_the_terminal(run, columns):
    run("explain", "model.py:net", "--input", "8,8,3")  # the model is written
    result = CliRunner(env={"COLUMNS": columns, "NO_COLOR": "1"}).invoke(
        app, ["explain", "model.py:net", "--input", "8,8,3"]
    )
    table = result.stdout.partition("A tile of")[0]
    assert table
    assert max(map(len, table.splitlines())) <= int(columns)
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet"])
def test_presets_have_names(run, name):
    result = run("explain", name, "--input", "8,8,1", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["input_shape"] == [8, 8, 1]


def test_a_preset_that_cannot_read_such_examples_exits_with_1(run):
    result = run("explain", "cnn", "--input", "8")
    assert result.exit_code == 1
    assert "reads images" in result.stderr


def test_explain_prints_json(run):
    result = run("explain", "model.py:net", "--input", "8,8,3", "--json")
    assert result.exit_code == 0, result.output
    assert isinstance(json.loads(result.stdout), dict)


def test_explain_passes_its_options_on(run):
    narrow, wide = (
        run("explain", "model.py:net", "--input", "8,8,3", "--parametrization", "standard", "--width", width, "--json")
        for width in ("16", "4096")
    )
    assert narrow.exit_code == wide.exit_code == 0
    assert narrow.stdout != wide.stdout
    assert "16" in narrow.stdout
    assert "4096" in wide.stdout


@pytest.mark.parametrize(
    ("target", "shape", "message"),
    [
        ("nowhere.py:net", "8,8,3", "there is no file 'nowhere.py'"),
        ("model.py", "8,8,3", "such as model.py:net"),
        ("model.py:", "8,8,3", "such as model.py:net"),
        ("model.py:nett", "8,8,3", "does not define 'nett'. Networks in it: deep, illegal, net, readout, small, tanh."),
        ("model.py:build", "8,8,3", "'build' in model.py is a function, not a network"),
        ("model.py:ew", "8,8,3", "'ew' in model.py is a module, not a network"),
        ("model.py:net", "8,eight,3", "'8,eight,3' is not a shape"),
        ("model.py:net", "8,,3", "'8,,3' is not a shape"),
        ("model.py:net", "8,0,3", "'8,0,3' is not a shape"),
        ("model.py:net", "", "'' is not a shape"),
    ],
)
def test_faults_of_usage_exit_with_2(run, target, shape, message):
    result = run("explain", target, "--input", shape)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_options_exit_with_2(run):
    assert run("explain", "model.py:net").exit_code == 2
    assert run("explain", "model.py:net", "--input", "8,8,3", "--width", "0").exit_code == 2
    assert run("explain", "model.py:net", "--input", "8,8,3", "--parametrization", "maximal").exit_code == 2
    assert run("fly").exit_code == 2


def test_a_file_without_a_python_name_exits_with_2(run, tmp_path):
    (tmp_path / "model.txt").write_text(MODEL)
    result = run("explain", "model.txt:net", "--input", "3")
    assert result.exit_code == 2
    assert "ends in .py" in result.stderr


def test_faults_of_the_network_exit_with_1(run):
    result = run("explain", "model.py:illegal", "--input", "8,8,3")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "Put a Dense or Conv layer before it." in result.stderr
    wrong_axes = run("explain", "model.py:net", "--input", "8,3")
    assert wrong_axes.exit_code == 1
    assert "site axes" in wrong_axes.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n\nraise RuntimeError('no data')", ":3 raised RuntimeError: no data"),
        ("import nothing_of_that_name", ":1 raised ModuleNotFoundError"),
        ("x = 1\nnet = (", ":2 raised SyntaxError"),
        ("import sys; sys.exit(3)", "ended the program when it was imported (exit code 3)"),
    ],
)
def test_faults_of_the_file_exit_with_1(run, tmp_path, text, message):
    (tmp_path / "broken.py").write_text(text)
    result = run("explain", "broken.py:net", "--input", "3")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_may_import_its_neighbours_and_leaves_no_trace(run, tmp_path):
    (tmp_path / "neighbour_of_model.py").write_text("import everwide as ew\nlast = ew.Dense(7)")
    (tmp_path / "json.py").write_text(
        "import everwide as ew\nfrom neighbour_of_model import last\nnet = ew.Serial(last)"
    )
    path = list(sys.path)
    result = run("explain", "json.py:net", "--input", "3", "--json")
    assert result.exit_code == 0, result.output
    assert "7" in result.stdout
    assert sys.path == path
    assert sys.modules["json"] is json
