"""Modules of Equinox in a file, where networks may be named; those of PyTorch and Flax take the same way."""

import json

import numpy as np
import pytest

import everwide as ew

pytestmark = pytest.mark.once

OWN = """
import equinox as eqx, jax

key = jax.random.key(0)
mlp = eqx.nn.MLP(3, 1, 32, 2, key=key)
moved = eqx.tree_at(lambda m: m.layers[0].weight, mlp, mlp.layers[0].weight + 1.0)

class Vision(eqx.Module):
    conv: eqx.nn.Conv2d
    head: eqx.nn.Linear

    def __call__(self, x):
        return self.head(jax.nn.relu(self.conv(x)).mean((1, 2)))

vision = Vision(eqx.nn.Conv2d(2, 8, 3, key=key), eqx.nn.Linear(8, 1, key=key))
"""


@pytest.fixture
def own(run, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return run


@pytest.mark.parametrize("shape", ["2,6,5", "6,5,2"])
def test_explain_has_the_table_of_the_translation(own, shape):
    """The order of axes may be the module's or ours."""
    result = own("explain", "own.py:vision", "--input", shape, "--json")
    assert result.exit_code == 0, result.output
    known = json.loads(result.stdout)
    assert known["input_shape"] == [6, 5, 2]
    assert [row["outcome"] for row in known["translation"]["rows"]][:1] == ["changed"]
    assert known["translation"]["framework"] == "Equinox"


def test_explain_prints_the_table(own):
    result = own("explain", "own.py:mlp", "--input", "3")
    assert result.exit_code == 0, result.output
    assert "layers[0]" in result.stdout
    assert "1 has a stated change" in " ".join(result.stdout.split())


def test_gram_is_that_of_the_translation(own, numbers, x):
    result = own("gram", numbers, "own.py:mlp", "--target", "y", "-o", "K.npy", "--which", "nngp")
    assert result.exit_code == 0, result.output
    assert "note: 5 layers of MLP (Equinox)" in result.stderr
    import equinox as eqx
    import jax

    limit = ew.from_module(eqx.nn.MLP(3, 1, 32, 2, key=jax.random.key(0)), (3,))
    np.testing.assert_allclose(np.load("K.npy"), ew.nngp(limit.net, x), rtol=1e-10)


def test_gram_reads_images_channels_last(own, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 6, 5, 2))
    np.savez(tmp_path / "images.npz", x=x, y=np.arange(4.0))
    result = own("gram", "images.npz", "own.py:vision", "-o", "K.npy")
    assert result.exit_code == 0, result.output
    assert np.load("K.npy").shape == (4, 4)


def test_critical_needs_a_shape(own):
    result = own("critical", "own.py:mlp")
    assert result.exit_code == 2
    assert "a module is read for examples of a shape" in " ".join(result.stderr.replace("│", " ").split())
    result = own("critical", "own.py:mlp", "--input", "3", "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["weights"]) == 3


def test_rates_and_forecasts(own, numbers):
    for command in ("rate", "forecast"):
        result = own(command, numbers, "--target", "y", "--net", "own.py:mlp", "--quick", "--json")
        assert result.exit_code == 0, result.output
        assert "given network" in json.loads(result.stdout)["network"]


SUBJECTS = {
    "explain": ("--input", "3", "--json"),
    "critical": ("--input", "3", "--json"),
    "gram": ("--target", "y", "-o", "K.npy"),
}


@pytest.mark.parametrize("command", SUBJECTS)
def test_a_network_is_an_option_where_it_may_be_an_argument(own, numbers, command):
    before, after = [command, numbers] if command == "gram" else [command], SUBJECTS[command]
    answers = []
    for named in (["own.py:mlp"], ["--net", "own.py:mlp"]):
        result = own(*before, *named, *after)
        assert result.exit_code == 0, result.output
        answers.append(np.load("K.npy").tolist() if command == "gram" else json.loads(result.stdout))
    assert answers[0] == answers[1]
    for named, message in ((["own.py:mlp", "--net", "mlp"], "named twice"), ([], "missing: name it")):
        result = own(*before, *named, *after)
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.replace("│", " ").split())


def test_critical_reads_networks_by_name_where_their_shape_is_known(own):
    result = own("critical", "--net", "mlp", "--input", "3", "--json")
    assert result.exit_code == 0, result.output
    assert {row["layer"] for row in json.loads(result.stdout)["weights"]} == {"Dense"}
    result = own("critical", "--net", "mlp")
    assert result.exit_code == 2
    assert "made for examples of a shape" in " ".join(result.stderr.replace("│", " ").split())


def test_trained_modules_exit_with_1(own):
    result = own("explain", "own.py:moved", "--input", "3")
    assert result.exit_code == 1
    assert "trained, or initialized otherwise" in result.stderr
    assert "Traceback" not in result.stderr
