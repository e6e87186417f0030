"""Finite networks against predictions; where a network is linear in its parameters, all three must agree."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

import everwide as ew
from everwide.cli import app
from everwide_lab.lee2019._compare import compare_in
from everwide_lab.lee2019._regimes import CrossEntropy, SquaredLossWithMomentum, digits

pytestmark = pytest.mark.once

STEPS = (0, 1, 3, 40)


@pytest.mark.parametrize(
    "regime",
    [SquaredLossWithMomentum(), pytest.param(CrossEntropy(), marks=pytest.mark.slow)],
    ids=lambda r: type(r).__name__,
)
def test_a_linear_network_is_its_linearization_and_its_limit(regime):
    data, shares = digits(5), []
    net = ew.Serial(ew.Dense(2, w_std=1.5, b_std=0.3))
    found = compare_in(regime, net, data, widths=(8,), steps=STEPS, seeds=2, watch=shares.append)
    curves = found.curves
    assert np.abs(np.diff(curves.loss_finite, axis=-1)).min() > 1e-3  # they learn at every look
    np.testing.assert_allclose(curves.loss_infinite, curves.loss_finite, rtol=1e-4)
    np.testing.assert_allclose(curves.loss_linearized, curves.loss_finite, rtol=1e-4)
    assert max(curves.gap_infinite.max(), curves.gap_linearized.max()) < 1e-4
    assert curves.kernel_change.max() < 1e-5
    np.testing.assert_allclose(found.finite, found.infinite, atol=1e-4)
    assert shares == [1.0]


def test_errors_are_means_over_the_rows():
    data = digits(3)
    outputs = np.random.default_rng(0).normal(size=(4, 3, 2))
    chances = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    expected = [-np.mean([np.log(look[row, data.labels[row]]) for row in range(3)]) for look in chances]
    np.testing.assert_allclose(CrossEntropy().error(outputs, data), expected)
    wrong = outputs.copy()
    wrong[:, np.arange(3), data.labels] -= 0.5
    wrong[:, np.arange(3), 1 - data.labels] += 0.5
    np.testing.assert_allclose(SquaredLossWithMomentum().error(outputs, data), (wrong**2).mean((1, 2)))


def test_digits_are_of_unit_length_and_not_shared():
    data = digits(20)
    np.testing.assert_allclose(np.linalg.norm(np.concatenate([data.x, data.x_test]), axis=1), 1)
    assert len(np.unique(np.concatenate([data.x, data.x_test]), axis=0)) == 40
    assert set(data.labels) == {0, 1}
    np.testing.assert_array_equal(data.targets.argmax(1), data.labels)


def test_too_many_images_are_refused():
    with pytest.raises(ew.InputError, match="n=1000: expected 2 to"):
        digits(1000)


@pytest.mark.slow  # three networks, each compiled with its tangent kernels
def test_the_command_line_writes_table_figure_and_claims(tmp_path):
    arguments = ["reproduce", "lee2019", "--quick", "--widths", "8", "--steps", "4", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "written to" in result.stdout
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    regimes = ("gradient descent", "momentum", "cross-entropy")
    assert [(row["regime"], row["width"]) for row in rows] == [(r, w) for r in regimes for w in ("8", "exponent")]
    assert all(0 < float(row["gap_infinite"]) < 10 for row in rows[::2])
    assert "Undecided" in (tmp_path / "results.md").read_text()  # one width has no exponent
    assert (tmp_path / "figure.png").stat().st_size > 1000
