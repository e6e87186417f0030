"""The reference kernels that ship with the project, each in the dtype of the session."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from everwide_lab.golden import run_case

pytestmark = pytest.mark.as_users

GOLDEN = Path(__file__).parent / "golden"
CASES = {case["id"]: case for case in json.loads((GOLDEN / "golden.json").read_text())["cases"]}
KERNELS = [name for name, case in CASES.items() if case["kind"] == "kernel"]
FINITE = [name for name, case in CASES.items() if case["kind"].startswith("empirical")]
TRAINED = [name for name, case in CASES.items() if case["kind"].startswith(("predict", "max_learning_rate"))]
# Minutes of compilation; their words occur in other cases too.
HEAVY = {
    "fc_tanh_quadrature30",
    "fc_softplus_quadrature30",
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


@pytest.mark.wide
@pytest.mark.parametrize("name", FINITE)
def test_reference_networks_of_finite_width(name, arrays):
    outcome = run_case(CASES[name], arrays, dtypes=(DTYPE,))
    assert outcome.status == "passed", outcome.detail
    assert len(outcome.detail.split(", ")) == 10


@pytest.mark.once  # they are computed in float64 whatever the default is
@pytest.mark.parametrize("name", TRAINED)
def test_reference_trained_networks(name, arrays):
    outcome = run_case(CASES[name], arrays)
    assert outcome.status == "passed", outcome.detail


def test_every_case_is_tried():
    assert len(TRAINED) == 12
    assert sorted(CASES) == sorted(KERNELS + FINITE + TRAINED)
