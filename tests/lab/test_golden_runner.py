"""`python -m everwide_lab golden`: lines, counts, exit status."""

import io
import json

import numpy as np
import pytest

from everwide_lab.__main__ import main
from everwide_lab.golden import run_case, run_golden
from everwide_lab.golden._run import deviation
from lab.fresh_cases import RELU, dense, fresh_case

pytestmark = pytest.mark.once


@pytest.fixture
def written(tmp_path):
    """Write cases and arrays, return their paths."""

    def write(*cases):
        described, arrays = [], {}
        for case, stored in cases:
            described.append(case)
            arrays |= stored
        (tmp_path / "cases.json").write_text(json.dumps({"cases": described}))
        np.savez(tmp_path / "arrays.npz", **arrays)
        return str(tmp_path / "cases.json"), str(tmp_path / "arrays.npz")

    return write


GOOD = fresh_case("good", [dense(), RELU, dense()], (3,))
UNKNOWN = ({"id": "odd", "kind": "divination"}, {})
BROKEN = ({"id": "broken", "kind": "kernel", "input_shape": [3], "layers": [dense()]}, {})


def test_counts_and_lines(written):
    out = io.StringIO()
    outcomes = run_golden(*written(GOOD, UNKNOWN, BROKEN), out=out)
    lines = out.getvalue().splitlines()
    assert [o.status for o in outcomes] == ["passed", "failed", "failed"]
    assert len(lines) == 4
    assert lines[-1] == "1 passed, 2 failed"
    assert "divination" in lines[1]


def test_exit_status(written, capsys):
    assert main(["golden", *written(GOOD)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"
    assert main(["golden", *written(GOOD, UNKNOWN)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed"


@pytest.mark.parametrize("case", ["no object", {}, {"id": "x"}, {"id": "x", "kind": "kernel"}])
def test_no_case_ends_the_run(case):
    assert run_case(case, {}).status == "failed"


def test_an_unknown_option_of_a_case_is_not_ignored():
    case, arrays = GOOD
    outcome = run_case(case | {"wrap_around": True}, arrays)
    assert outcome.status == "failed"
    assert "wrap_around" in outcome.detail


def test_both_precisions_are_reported():
    detail = run_case(*GOOD).detail
    assert all(name in detail for name in ("nngp64", "ntk64", "nngp32", "ntk32"))


def test_the_words_are_listed(capsys):
    assert main(["words"]) == 0
    lines = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert lines["weights"] == "attention, conv, conv_local, conv_transpose, dense"
    assert "exp_half" in lines["decays"]


def test_deviations_are_in_units_of_the_largest_entry():
    assert deviation(np.array([1.0, -4.2]), np.array([1.0, -4.0])) == pytest.approx(0.05)
    assert deviation(np.zeros((2, 0)), np.zeros((2, 0))) == 0
    for wrong in ([1.0, np.nan], [1.0, np.inf], [1.0], [[1.0, -4.0]]):
        assert deviation(np.array(wrong), np.array([1.0, -4.0])) == np.inf
