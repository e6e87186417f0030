"""The rate that a doctor measures from one step, where nobody told it."""

import numpy as np
import pytest

from everwide.diagnosis._optimizers import Optimizer
from everwide.diagnosis._patient import PARTS, Pulse, Step
from everwide.diagnosis._patients import chart_of
from everwide.diagnosis._records import Findings

SIZE = 2000
RNG = np.random.default_rng(0)


def findings():
    return Findings(chart_of([np.zeros((4, 5))], rows_are_units=False), {}, None, np.zeros(4))


def seen(change, direction, params, gradient=None, parts=None):
    """A pulse and a step of one leaf."""
    one = lambda value: np.array([float(value)])
    slope = direction if gradient is None else gradient
    square = np.mean([p @ p for p in parts]) if parts is not None else slope @ slope
    nothing = np.zeros(1)
    pulse = Pulse(nothing, nothing, 0.0, 0.0, one(slope @ slope), one(square), one(params @ params), nothing)
    products = one(change @ change), one(direction @ direction), one(change @ direction)
    return pulse, Step(*products, change @ params, direction @ params, change @ slope, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
def test_of_descent_along_gradients_of_other_rows(noise):
    """Projected onto the gradient of the probe, a step looks shorter than it was."""
    slope = RNG.normal(size=SIZE)
    parts = slope + noise * PARTS**0.5 * RNG.normal(size=(PARTS, SIZE))
    gradient = parts.mean(0)
    change = -0.3 * (slope + 2 * RNG.normal(size=SIZE))  # of a small batch
    rate = findings()._rate_of(*seen(change, gradient, np.ones(SIZE), gradient, parts), Optimizer("gd"))
    assert rate == pytest.approx(0.3, rel=0.25)


def test_a_gradient_that_is_all_noise_says_nothing_new():
    known, parts = findings(), RNG.normal(size=(PARTS, SIZE))
    known.rate = 0.3
    gradient = parts.mean(0)
    change = -(gradient + 2 * RNG.normal(size=SIZE))
    assert known._rate_of(*seen(change, gradient, np.ones(SIZE), gradient, parts), Optimizer("gd")) == 0.3


@pytest.mark.parametrize("decay", [0.0, 0.1, 10.0])
def test_beside_decay(decay):
    direction, params = RNG.normal(size=(2, SIZE))
    change = -0.2 * (direction + decay * params)
    optimizer = Optimizer("momentum", first=[direction])
    assert findings()._rate_of(*seen(change, direction, params), optimizer) == pytest.approx(0.2, rel=0.1)


def test_of_a_step_in_another_direction_nothing_is_known():
    direction, params, other = RNG.normal(size=(3, SIZE))
    optimizer = Optimizer("momentum", first=[direction])
    assert findings()._rate_of(*seen(-other, direction, params), optimizer) is None
