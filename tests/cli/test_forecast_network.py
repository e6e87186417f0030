"""`everwide forecast --of network`: what Python says, in the units of the table."""

import json

import numpy as np
import pytest

import everwide.forecasting as fc
from everwide._problem import prepare
from everwide._walk import unfrozen, walk
from everwide.cli._show import named_network
from everwide.tables import read_table

pytestmark = [pytest.mark.once, pytest.mark.as_users]


@pytest.mark.slow
def test_numbers_are_those_of_python_and_all_layers_are_trained(run, numbers, tmp_path):
    command = ("forecast", numbers, "--net", "model.py:readout", "--n", "200", "--of", "network", "--width", "8")
    result = run(*command, "--error", "0.1", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    problem = prepare(read_table(tmp_path / numbers), named_network("model.py:readout", "auto"))
    net = unfrozen(problem.net)
    assert not any(affine.frozen for at in walk(net) for affine in at.layer.weights().values())
    curve = fc.forecast(net, problem.x, problem.y[:, 0], [200], of="network", width=8)
    for name in ("error", "low", "high", "kernel_error"):
        assert found["curve"][0][name] == pytest.approx(problem.unit**2 * getattr(curve, name)[0], rel=1e-5)
    assert found["advice"] == curve.advice()
    assert found["unit"] == "mean squared error"
    assert found["n_needed"]["0.5"] == curve.samples_needed(0.1 / problem.unit**2)


@pytest.mark.slow
def test_a_forecast_of_networks_is_printed(run, tmp_path, x):
    np.savez(tmp_path / "classes.npz", X=x, y=np.where(x[:, 0] > 0, "up", "down"))
    result = run("forecast", "classes.npz", "--net", "model.py:small", "--n", "200", "--of", "network", "--width", "8")
    assert result.exit_code == 0, result.output
    assert "network is better" in result.stdout
    assert "times that of its kernel" in " ".join(result.stdout.split())


def test_only_kernels_and_networks_are_forecast(run, numbers):
    result = run("forecast", numbers, "--of", "forest")
    assert result.exit_code == 2
    assert "expected kernel or network" in result.stderr
    result = run("forecast", numbers, "--width", "64")
    assert result.exit_code == 2
    assert "a kernel has no width" in result.stderr
