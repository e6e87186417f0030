"""What every way to train says to what it cannot train on."""

import jax
import numpy as np
import pytest

import everwide.spectral as sp
import everwide.training as tr

K, Y = np.eye(3), [1.0, 2.0, 3.0]
NAN = np.full((2, 3), np.nan)
FIT = tr.Regression(K, Y)
pytestmark = pytest.mark.once


def train(kernel=K, y=Y, steps=2, **options):
    return tr.train(kernel, y, loss=tr.Mse(), optimizer=tr.SGD(0.1), steps=steps, **options)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: tr.Regression(np.ones((3, 3, 3)), Y), r"\(n, n\)"),
        (lambda: tr.Regression(K, [1, np.nan, 2]), "Row 1 of y is nan"),
        (lambda: FIT.predict(NAN, sp.ridge()), r"not finite at \(0, 0\)"),
        (lambda: FIT.train(sp.gradient_descent(100.0, 10**6)), "above the largest stable one, 6"),
        (lambda: tr.GaussianProcess(K, Y, noise=0.1).predict(NAN, np.eye(2)), r"not finite at \(0, 0\)"),
        (lambda: tr.GaussianProcess(K, Y, noise=0.1).predict(np.zeros((2, 3)), np.eye(5)), "2 and 5 test rows"),
        (lambda: train().predict(NAN), r"not finite at \(0, 0\)"),
        (lambda: train().predict(K, f0=3.0), "outputs of the test rows before"),
        (lambda: train(record=0), "at least 1 step"),
        (lambda: train(steps=-1), "0 or more"),
        (lambda: train(steps=None, batches=iter([])), "ended after 0"),
        (lambda: train(K * np.nan), r"holds nan at \(0, 0\)"),
        (lambda: train(tr.FeatureKernel(K * np.nan)), "not finite"),
        (lambda: tr.FunctionKernel(lambda a, b: a @ b.T, np.zeros((0, 3))), "at least one row"),
        (lambda: tr.kernel_flow(K, Y, 1.0, loss=tr.Mse(), f0=np.full(3, np.nan)), "f0 of the training rows"),
        (lambda: tr.minibatches(jax.random.key(0), 3, 1, 0), "1 or more"),
        (lambda: tr.Huber(-1.0), "delta=-1.0: expected a finite number above 0"),
        (lambda: tr.Huber(0.0), "delta=0.0"),
    ],
)
def test_a_sentence_and_never_a_nan(run, message):
    with pytest.raises(ValueError, match=message):
        run()


def test_a_flow_that_is_there_already_stops_at_once():
    assert tr.kernel_flow(K, Y, [0.0, 1.0], loss=tr.Mse(), until=1e9).stopped == 0.0
