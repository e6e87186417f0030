"""What cannot be meant is refused with a sentence, not with a NaN or an error of numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide.theory import criticality, deep_linear, eigenlearning, finite_width, rates, regions

pytestmark = pytest.mark.once
NET = ew.Serial(ew.Dense(4), ew.Relu(), ew.Dense(1))
PROOF = finite_width.lee_certificate(np.eye(2), width=100, rate=1.0, lipschitz=1.0, residual=1.0)


def square(params, x):
    return x * params**2


BAD = {
    "no variances": (lambda: criticality.phase_diagram(ew.Tanh(), C_w=[]), "C_w=.*at least one"),
    "shapes that differ": (lambda: criticality.susceptibilities(ew.Tanh(), [1.0, 2.0], np.ones(3)), "do not broadcast"),
    "no sites": (lambda: criticality.propagate(ew.Dense(), 1, sites=(0,)), "sites=0"),
    "sites below 0": (lambda: criticality.propagate(ew.Dense(), 1, sites=(-1,)), "sites=-1"),
    "a density at NaN": (lambda: deep_linear.marchenko_pastur(0.5).pdf([np.nan, 1.0]), "none is NaN"),
    "a share at NaN": (lambda: deep_linear.marchenko_pastur(0.5).cdf(np.nan), "none is NaN"),
    "draws below 0": (lambda: deep_linear.prior_norm(3, [5]).sample(-1), "n=-1"),
    "a moment of order NaN": (lambda: deep_linear.prior_norm(3, [5]).log_moment(np.nan), "order=nan"),
    "a tolerance of NaN": (lambda: eigenlearning.eigensystem("sphere", np.exp, 3, tolerance=np.nan), "tolerance=nan"),
    "a target of three axes": (
        lambda: eigenlearning.learnability(np.eye(2), [0], np.ones((2, 1, 1))),
        "target has shape",
    ),
    "steps below 0": (lambda: PROOF.residual_after(-1), "steps=-1"),
    "a time below 0": (lambda: PROOF.residual_at([1.0, -1.0]), "time=.*from 0 on"),
    "a gap before the start": (lambda: PROOF.taylor_gap_after(-1), "steps=-1"),
    "parameters of NaN": (lambda: finite_width.lipschitz_upper_bound([np.full((2, 2), np.nan)]), "params holds"),
    "no matrices": (lambda: finite_width.lipschitz_upper_bound([np.ones(2)]), "expected matrices"),
    "an empty matrix": (
        lambda: finite_width.lipschitz_upper_bound([np.ones((0, 2))]),
        r"params\[0\] has shape \(0, 2\)",
    ),
    "no examples": (
        lambda: finite_width.estimate_jacobian_lipschitz(square, jnp.array(1.0), jnp.ones(0), 0.0),
        "x holds no examples",
    ),
    "targets of NaN": (
        lambda: finite_width.lazy_kappa(square, jnp.array(1.0), jnp.ones(2), jnp.array([np.nan, 1.0])),
        "y holds numbers that are not finite",
    ),
    "a schedule without end": (lambda: rates.schedule_check(lambda _: np.inf), "schedule holds inf"),
    "inputs below 0": (lambda: rates.rate_table(NET, (-1,), [4]), "input_shape=-1"),
    "a width below 0": (lambda: regions.expected_regions(NET, [0.0], [1.0], width=-1), "width=-1"),
    "an empty example": (lambda: regions.region_halfspaces(*regions.sawtooth(1), []), "x has shape"),
    "a tolerance below 0": (
        lambda: regions.region_halfspaces(*regions.sawtooth(1), [0.3]).contains([[0.1]], tolerance=-1.0),
        "tolerance=-1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case):
    call, message = BAD[case]
    with pytest.raises(ew.InputError, match=message):
        call()
