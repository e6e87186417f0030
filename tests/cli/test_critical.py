"""`everwide critical`: known initializations."""

import json
import math

import pytest

pytestmark = pytest.mark.once


def test_relu_is_that_of_he(run):
    found = json.loads(run("critical", "relu", "--json").stdout)
    assert found["kind"] == "scale-invariant"
    assert found["w_std"] == pytest.approx(math.sqrt(2))
    assert found["b_std"] == 0
    assert found["depth_scale"] is None  # infinite


@pytest.mark.parametrize("name", ["gelu", "GELU", "Gelu()"])
def test_names_in_any_case(run, name):
    result = run("critical", name)
    assert result.exit_code == 0, result.output
    assert "half-stable" in result.stdout
    assert "1.408" in result.stdout  # the root of 1.983 (Roberts, Yaida, Hanin 2022)


def test_no_critical_point_is_an_answer(run):
    result = run("critical", "softplus")
    assert result.exit_code == 0
    assert "Softplus() has no critical point" in result.stdout
    assert "w_std" not in json.loads(run("critical", "softplus", "--json").stdout)


def test_an_activation_in_a_file(run):
    assert json.loads(run("critical", "model.py:tanh", "--json").stdout)["kind"] == "K*=0"


def test_a_network_gets_the_variances_of_its_activation(run):
    result = run("critical", "model.py:deep", "--input", "3", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert len(found["weights"]) >= 3
    for row in found["weights"][1:]:
        assert row["w_std"] ** 2 == pytest.approx(1.983058, abs=1e-5)
        assert row["b_std"] ** 2 == pytest.approx(0.172922, abs=1e-5)
    before, after = found["signals"]
    assert after["variance"] == pytest.approx(3.561553, abs=1e-4)
    assert before["variance"] < 0.5
    assert "w_std" in run("critical", "model.py:deep").stdout


@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("reluu", 2, "Did you mean Relu?"),
        ("xyzzy", 2, "Known: Abs, "),
        ("nowhere.py:net", 2, "there is no file 'nowhere.py'"),
        ("model.py:illegal", 0, ""),
        ("model.py:build", 2, "is a function"),
    ],
)
def test_bad_names(run, what, code, message):
    result = run("critical", what)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_signals_are_not_followed_through_an_activation(run):
    result = run("critical", "gelu", "--input", "3")
    assert result.exit_code == 2
    assert "through a network" in result.stderr
