"""Limits beside simulations in plain numpy (tests/golden/simulate.py): layers that no other library has."""

import json
from pathlib import Path

import numpy as np
import pytest

import everwide as ew
from everwide.testing._draws import SAMPLED

pytestmark = [pytest.mark.once, pytest.mark.as_users]

STORED = json.loads((Path(__file__).parent / "golden" / "simulated.json").read_text())
NETWORKS = {
    "crop": ew.Serial(
        ew.Conv((3,), w_std=1.3, b_std=0.2),
        ew.Relu(),
        ew.layers.Crop((1, 1)),
        ew.Dense(w_std=1.2, b_std=0.1),
        ew.Relu(),
        ew.GlobalAvgPool(),
        ew.Dense(1, w_std=1.1, b_std=0.3),
    ),
    "causal_attention": ew.Serial(
        ew.Dense(w_std=1.4, b_std=0.3),
        ew.SelfAttention(causal=True, w_query_std=1.1, w_key_std=0.9, w_value_std=1.2, w_out_std=0.8),
        ew.Relu(),
        ew.layers.Index(-1),
        ew.Dense(1, w_std=1.5, b_std=0.2),
    ),
    "rms_norm": ew.Serial(
        ew.Dense(w_std=1.3, b_std=0.4),
        ew.Relu(),
        ew.layers.RmsNorm(),
        ew.Dense(w_std=1.2, b_std=0.5),
        ew.Relu(),
        ew.GlobalAvgPool(),
        ew.Dense(1, w_std=1.0, b_std=0.1),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_limit_is_what_wide_networks_do(name):
    values, errors = (np.array(STORED[name][part]) for part in ("nngp_and_ntk", "standard_errors"))
    assert np.max(errors / np.abs(values)) < 0.05  # sharp enough to tell
    exact = np.array(ew.gram(NETWORKS[name], np.array(STORED["x"])))
    assert SAMPLED.excess_of(values, errors, exact) <= 1
