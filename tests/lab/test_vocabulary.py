"""The reference vocabulary: every word and option, against an oracle that shares no code with the library."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from everwide.signal import ArchitectureError
from everwide.testing._draws import EXACT64, Exact
from everwide_lab.golden import build_network, run_case, words
from lab import vocabulary_oracle
from lab.fresh_cases import RELU, all_cases, attention, conv, dense, fresh_case

pytestmark = pytest.mark.once

GOLDEN = Path(__file__).parent.parent / "golden"
DTYPE = np.float64 if jax.config.jax_enable_x64 else np.float32
FRESH = all_cases()
QUICK = {
    "mixed_parametrizations",
    "width_scales",
    "concat_shared",
    "nested",
    "pool_defaults",
    "index_last",
    "contract_the_line",
    "attention_concat",
    "attention_rate",
    "attention_exp_half",
    "attention_abs_symmetric",
    "layernorm_one_site_axis",
    "aggregate_reversed",
    "dropout_line_symmetric",
    "mask_flatten",
}


def _run(name):
    case, arrays = FRESH[name]()
    outcome = run_case(case, arrays, dtypes=(DTYPE,))
    assert outcome.status == "passed", outcome.detail


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_fresh_case(name):
    _run(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FRESH) - QUICK))
def test_every_other_fresh_case(name):
    _run(name)


SHIPPED = (
    "fc_relu_standard_s",
    "fc_dropout_sym",
    "conv2d_circular_avgpool",
    "conv_local_then_conv_gap",
    "conv_transpose_same",
    "conv_layernorm_channel",
    "attention_softmax_posemb",
    "attention_identity_sqrt",
    "aggregate_2d_axis2",
    "masked_conv1d_gap",
    "index_crop",
    "dotgeneral_diff",
)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_oracle_knows_the_shipped_cases(name):
    cases = {c["id"]: c for c in json.loads((GOLDEN / "golden.json").read_text())["cases"]}
    with np.load(GOLDEN / "golden.npz") as archive:
        stored = {k.removeprefix(f"{name}/"): archive[k] for k in archive.files if k.startswith(f"{name}/")}
    found = vocabulary_oracle.kernels(
        cases[name]["layers"],
        stored["x1"],
        stored.get("x2"),
        patterns=(stored.get("pattern1"), stored.get("pattern2")),
        mask_constant=cases[name].get("mask_constant"),
    )
    for got, kernel in zip(found, ("nngp", "ntk"), strict=True):
        assert Exact(cases[name]["rtol"]).excess(got, stored[kernel]) <= 1


def test_equal_batches_are_one_batch():
    layers = [dense(), RELU, {"type": "dropout", "rate": 0.5}, dense()]
    case, arrays = fresh_case("twins", layers, (3,), symmetric=True)
    arrays["twins/x2"] = arrays["twins/x1"] + 1e-13
    assert run_case(case, arrays, dtypes=(DTYPE,)).status == "passed"


def test_a_wrong_reference_fails():
    case, arrays = fresh_case("wrong", [dense(), RELU, dense()], (3,))
    arrays["wrong/ntk"] = arrays["wrong/ntk"] * 1.001
    assert run_case(case, arrays, dtypes=(DTYPE,)).status == "failed"


def test_the_converged_reference_is_the_truth():
    case, arrays = fresh_case("converged", [dense(), RELU, dense()], (3,))
    for kernel in ("nngp", "ntk"):
        arrays[f"converged/{kernel}_converged"] = arrays[f"converged/{kernel}"]
        arrays[f"converged/{kernel}"] = arrays[f"converged/{kernel}"] + 1
    assert run_case(case, arrays, dtypes=(DTYPE,)).status == "passed"


@pytest.mark.parametrize(
    ("layers", "complaint"),
    [
        ([{"type": "wormhole"}], "type 'wormhole', expected one of abrelu, abs, aggregate,"),
        ([dense(wobble=3)], "unknown options: wobble. It knows: W_std, b_std, parameterization, s, width."),
        ([dense(), {"type": "monomial"}], "needs the option 'degree'"),
        (
            [dense(), {"type": "elementwise_numerical", "fn": "lambert", "deg": 3}],
            "unknown fn 'lambert', expected one of abs, cos, elu,",
        ),
        ([dense(parameterization="mup")], "unknown parameterization 'mup'"),
        ([dense(), {"type": "branches", "merge": "max", "branches": [[], []]}], "unknown merge 'max'"),
        ([dense(), {"type": "gelu", "approximate": True}], "approximate can only be False"),
        ([dense(), {"type": "layernorm", "axes": [0, 1], "eps": 0.1}], "must hold the channels"),
        ([dense(), {"type": "avg_pool", "window": [2]}], "AvgPool needs 1 site axes"),
        ([conv([2])], "Conv needs 1 site axes"),
        (
            [attention(pos_emb="SUM", decay="slow")],
            "'slow', expected one of exp, exp_half, inv1, none, or a",
        ),
        ([attention(pos_emb="SUM", decay=-0.5)], "unknown decay -0.5, expected one of exp"),
        ([attention(pos_emb="SUM", decay=True)], "unknown decay True"),
        ([["dense"]], "must be an object with a 'type'"),
    ],
)
def test_what_the_vocabulary_does_not_know_fails_that_case_alone(layers, complaint):
    with pytest.raises(ArchitectureError, match=complaint):
        build_network(layers, (3,))
    arrays = {"odd/x1": np.ones((2, 3)), "odd/nngp": np.ones((2, 2)), "odd/ntk": np.ones((2, 2))}
    outcome = run_case({"id": "odd", "kind": "kernel", "input_shape": [3], "layers": layers}, arrays)
    assert outcome.status == "failed"
    assert complaint in outcome.detail


def test_equal_decays_are_one_function():
    """And so they compile once."""
    layers = [attention(pos_emb="SUM", decay=rate) for rate in (0.5, "exp_half", 1, "exp")]
    half, named, one, exp = (build_network([layer], (4, 3)).net.layers[0].position.decay for layer in layers)
    assert half == named != one == exp


def test_every_word_of_the_shipped_cases_is_listed():
    known = words()
    for case in json.loads((GOLDEN / "golden.json").read_text())["cases"]:
        for layer in case.get("layers", ()):
            assert any(layer["type"] in known[group] for group in ("weights", "activations", "sites", "others"))


def test_widths_are_fixed_only_where_the_limit_knows_them():
    assert build_network([dense(5)], (3,)).net.layers[0].width is None
    assert build_network([dense(5, parameterization="standard")], (3,)).net.layers[0].width == 5


def test_a_fraction_of_a_channel():
    """Five input channels in a network that is twice as wide: a fan-in of two and a half."""
    case, arrays = fresh_case("fraction", [dense(4, parameterization="standard", s=[2, 1])], (5,))
    x = arrays["fraction/x1"] @ arrays["fraction/x2"].T / 5
    assert EXACT64.excess(arrays["fraction/ntk"], 2.5 * x + 1) <= 1
    assert run_case(case, arrays, dtypes=(DTYPE,)).status == "passed"
