"""What the section on training says of rates, for networks that are trained whole and for read-outs."""

import dataclasses

import numpy as np
import pytest

import everwide as ew
from everwide._problem import prepare
from everwide.report._sections import training
from everwide.report._study import answered
from everwide.tables import read_table

pytestmark = pytest.mark.once


@pytest.mark.parametrize("frozen", [False, True])
def test_finite_networks_train_above_the_edge_unless_only_the_last_layer_learns(tmp_path, frozen):
    x = np.random.default_rng(0).normal(size=(70, 3))
    table = np.column_stack([x, np.abs(x[:, 0])])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,c,y", comments="")
    net = ew.Serial(ew.Dense(w_std=2**0.5, frozen=frozen), ew.Relu(), ew.Dense(1))
    problem = prepare(read_table(tmp_path / "t.csv"), net, quick=True)
    result = training.training(problem)
    text = training.SECTION.describe(problem, result).facts[0].meaning
    low, high = result.rates.diverges
    assert (low == high == result.rates.gradient_descent) == frozen
    assert ("only the last layer" in text) == frozen
    assert ("spike there and then train" in text) == (not frozen)
    assert "Above it training diverges" not in text
    numbers = answered(training.SECTION, problem).to_dict()["numbers"]["rates"]
    assert list(numbers["diverges"]) == [low, high]
    assert set(numbers) == {field.name for field in dataclasses.fields(result.rates)}
