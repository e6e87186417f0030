"""Gradient flow of any loss: against closed forms, steps of a small rate, and scipy."""

import numpy as np
import pytest
import scipy.integrate
import scipy.special

from everwide import spectral as sp
from everwide import training as tr

pytestmark = pytest.mark.once

pytest.importorskip("diffrax")

RNG = np.random.default_rng(0)
G = RNG.normal(size=(8, 5))
K, Y, F0 = G @ G.T + 0.1 * np.eye(8), RNG.normal(size=(8, 2)), RNG.normal(size=(8, 2))
LABELS = np.arange(8) % 3
TIMES = [0.0, 0.5, 5.0, 20.0]


def test_squared_loss_has_a_closed_form():
    found = tr.kernel_flow(K, Y, TIMES, loss=tr.Mse(), f0=F0, tolerance=1e-11)
    fit = tr.Regression(K, Y, f0=F0)
    np.testing.assert_allclose(found.outputs, fit.train(sp.gradient_flow(TIMES)), atol=1e-9)
    np.testing.assert_allclose(found.coefficients, fit.coefficients(sp.gradient_flow(TIMES)), atol=1e-8)
    assert found.loss[0] == pytest.approx(np.mean(np.sum((F0 - Y) ** 2, 1) / 2))


def test_momentum_in_continuous_time():
    found = tr.kernel_flow(K, Y, TIMES, loss=tr.Mse(), f0=F0, rate=0.1, momentum=0.9, tolerance=1e-11)
    expected = tr.Regression(K, Y, f0=F0).train(sp.momentum(0.1, 0.9, time=TIMES))
    np.testing.assert_allclose(found.outputs, expected, atol=1e-9)


def test_cross_entropy_by_another_solver():
    def slope(_, f):
        p = scipy.special.softmax(f.reshape(8, 3), 1)
        p[np.arange(8), LABELS] -= 1
        return (-K @ p / 8).ravel()

    solved = scipy.integrate.solve_ivp(
        slope, (0, 20), np.zeros(24), t_eval=TIMES, method="DOP853", rtol=1e-12, atol=1e-12
    )
    found = tr.kernel_flow(K, LABELS, TIMES, loss=tr.SoftmaxCrossEntropy(), tolerance=1e-11)
    np.testing.assert_allclose(found.outputs, solved.y.T.reshape(4, 8, 3), atol=1e-9)
    np.testing.assert_allclose(found.predict(K), found.outputs, atol=1e-12)


def test_small_steps_follow_the_flow():
    flow = tr.kernel_flow(K, LABELS, 5.0, loss=tr.SoftmaxCrossEntropy()).outputs[0]
    gaps = []
    for rate in (0.02, 0.01):
        run = tr.train(K, LABELS, loss=tr.SoftmaxCrossEntropy(), optimizer=tr.SGD(rate), steps=round(5.0 / rate))
        gaps.append(np.abs(run.outputs - flow).max())
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1)


def test_events_stop_the_flow():
    found = tr.kernel_flow(K, LABELS, TIMES, loss=tr.SoftmaxCrossEntropy(), until=0.5)
    assert 0.5 < found.stopped < 20
    assert found.loss[-1] == pytest.approx(0.5, rel=1e-2)
    again = tr.kernel_flow(K, LABELS, found.stopped, loss=tr.SoftmaxCrossEntropy())
    np.testing.assert_allclose(found.outputs[-1], again.outputs[0], atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": [1.0, 0.5]}, "ascending"),
        ({"times": -1.0}, "from 0 on"),
        ({"times": np.inf}, "finite numbers"),
        ({"times": []}, "from 0 on"),
        ({"rate": 0.0}, "above 0"),
        ({"momentum": 1.0}, "below 1"),
        ({"y": [0, 1]}, "2 rows and the kernel 8"),
        ({"y": np.full(8, np.nan)}, "must be finite"),
    ],
)
def test_bad_input(options, message):
    call = {"times": 1.0, "y": LABELS, "loss": tr.SoftmaxCrossEntropy(), **options}
    with pytest.raises(ValueError, match=message):
        tr.kernel_flow(K, **call)


def test_a_solver_that_gives_up_says_so():
    with pytest.raises(RuntimeError, match="stiff"):
        tr.kernel_flow(1e6 * K, Y, 100.0, loss=tr.Mse(), max_steps=50)
