"""The command line: answers, exit codes, and messages without tracebacks."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import train_test_split
from typer.testing import CliRunner

from everwide.cli import app, digits_report

pytestmark = pytest.mark.once

MODEL = """
import everwide as ew

net = ew.Serial(ew.Conv((3, 3), w_std=2**0.5), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(10))
illegal = ew.Serial(ew.Relu(), ew.Dense(1))

def build():
    return net
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in a folder with a model."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_explain_prints_every_layer(run):
    result = run("explain", "model.py:net", "--input", "8,8,3")
    assert result.exit_code == 0, result.output
    for layer in ("Conv", "GlobalAvgPool", "Dense"):
        assert layer in result.stdout


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
        ("model.py:nett", "8,8,3", "does not define 'nett'. Networks in it: illegal, net."),
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


def test_report_as_json(run):
    result = run("report", "--depth", "1", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["depth"], found["train"], found["test"]) == (1, 1347, 450)


def test_report_as_table(run):
    result = run("report", "--depth", "1")
    assert result.exit_code == 0, result.output
    assert "NTK" in result.stdout
    assert "%" in result.stdout


def test_infinite_networks_beat_a_linear_model_on_digits():
    found = digits_report(depth=2, seed=1)
    images, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, labels, test_size=0.25, random_state=1, stratify=labels)
    linear = RidgeClassifier(alpha=1e-3).fit(x, y).score(x_test, y_test)
    margin = 3 * np.sqrt(linear * (1 - linear) / len(y_test))  # three standard errors of the linear model's accuracy
    assert min(found.ntk, found.nngp) > linear + margin


def test_version_is_the_installed_one(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("everwide")


def in_fresh_python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_runs_as_a_module():
    done = in_fresh_python("-m", "everwide", "--help")
    assert done.returncode == 0, done.stderr
    assert "explain" in done.stdout


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_says_what_to_install(missing):
    hide = f"import sys; sys.modules['{missing}'] = None; sys.argv[1:] = ['report', '--depth', '1']"
    done = in_fresh_python("-c", f"{hide}; from everwide.__main__ import main; main()")
    assert done.returncode == 1
    assert "pip install 'everwide[cli]'" in done.stderr
    assert missing in done.stderr
    assert "Traceback" not in done.stderr


def test_does_not_hide_other_missing_modules():
    hide = "import sys; import everwide; sys.modules['importlib.metadata'] = None"
    done = in_fresh_python("-c", f"{hide}; from everwide.__main__ import main; main()")
    assert done.returncode == 1
    assert "everwide[cli]" not in done.stderr
