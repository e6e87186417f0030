"""The reference kernels that ship with the project, each in the dtype of the session."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from everwide.testing import run_case

GOLDEN = Path(__file__).parent / "golden"
CASES = {case["id"]: case for case in json.loads((GOLDEN / "golden.json").read_text())["cases"]}
KERNELS = [name for name, case in CASES.items() if case["kind"] == "kernel"]
FINITE = [name for name, case in CASES.items() if case["kind"].startswith("empirical")]
# Minutes of compilation; their words occur in other cases too.
HEAVY = {
    "fc_relu_d10_sym",
    "conv2d_same_gap_sym",
    "myrtle_like",
    "wide_resnet_like",
    "fc_gelu_d5_sym",
    "conv2d_same_flatten",
}
DTYPE = np.float64 if jax.config.jax_enable_x64 else np.float32


@pytest.fixture(scope="module")
def arrays():
    with np.load(GOLDEN / "golden.npz") as stored:
        return dict(stored)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in HEAVY else n for n in KERNELS])
def test_reference_kernels(name, arrays):
    outcome = run_case(CASES[name], arrays, dtypes=(DTYPE,))
    assert outcome.status == "passed", outcome.detail


@pytest.mark.parametrize("name", FINITE)
def test_reference_networks_of_finite_width(name, arrays):
    outcome = run_case(CASES[name], arrays, dtypes=(DTYPE,))
    assert outcome.status == "passed", outcome.detail
    assert len(outcome.detail.split(", ")) == 10


def test_every_other_case_belongs_to_a_later_version(arrays):
    others = [case for name, case in CASES.items() if name not in KERNELS + FINITE]
    assert len(others) == 12
    assert {run_case(case, arrays).status for case in others} == {"skipped"}
