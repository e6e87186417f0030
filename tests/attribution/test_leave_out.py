"""Kernel machines without some rows, against machines that are fitted without them."""

import numpy as np
import pytest

import everwide.attribution as at
import everwide.training as tr
from everwide import InputError
from everwide.spectral import KernelError

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
N, TESTS, RIDGE = 12, 5, 0.3
POINTS, NEW = RNG.normal(size=(N, 3)), RNG.normal(size=(TESTS, 3))
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)
GROUPS = np.array(list("cabbacabcacb"))


def kernel(a, b):
    return np.exp(-np.sum((a[:, None] - b) ** 2, -1) / 4)


def refitted(kept, y, weights, new):
    """Predictions at `new` by a solver that never heard of the other rows."""
    x = POINTS[kept]
    return kernel(new, x) @ np.linalg.solve(kernel(x, x) + np.diag(RIDGE / weights[kept]), y[kept])


TARGETS = {"one": RNG.normal(size=N), "three": RNG.normal(size=(N, 3))}


@pytest.mark.parametrize("y", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "groups"])
def test_predictions_are_those_of_machines_without_the_rows(y, weights, groups):
    given = np.ones(N) if weights is None else weights
    result = at.leave_out(kernel(POINTS, POINTS), y, kernel(NEW, POINTS), groups=groups, ridge=RIDGE, weights=weights)
    labels = np.arange(N) if groups is None else groups
    assert result.groups.tolist() == sorted(set(labels.tolist()))
    assert result.predictions.shape == (TESTS, len(result.groups), *y.shape[1:])
    everything = np.ones(N, bool)
    np.testing.assert_allclose(result.full, refitted(everything, y, given, NEW), atol=1e-9)
    np.testing.assert_allclose(result.fitted, refitted(everything, y, given, POINTS), atol=1e-9)
    for column, group in enumerate(result.groups):
        kept = labels != group
        np.testing.assert_allclose(result.predictions[:, column], refitted(kept, y, given, NEW), atol=1e-9)
        np.testing.assert_allclose(result.own[~kept], refitted(kept, y, given, POINTS[~kept]), atol=1e-9)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "groups"])
def test_attribution_is_what_losses_rise_by(groups):
    y, y_test = TARGETS["three"], RNG.normal(size=(TESTS, 3))
    labels = np.arange(N) if groups is None else groups
    without = at.leave_out(kernel(POINTS, POINTS), y, kernel(NEW, POINTS), groups=groups, ridge=RIDGE)
    result, everything = without.attribution(y_test), np.ones(N, bool)

    def losses(kept, new, target):
        return np.sum((refitted(kept, y, np.ones(N), new) - target) ** 2, 1) / 2

    for column, group in enumerate(without.groups):
        kept = labels != group
        rise = losses(kept, NEW, y_test) - losses(everything, NEW, y_test)
        np.testing.assert_allclose(result.scores[:, column], rise, atol=1e-9)
        own, mine = POINTS[~kept], y[~kept]
        rise = np.mean(losses(kept, own, mine) - losses(everything, own, mine))
        np.testing.assert_allclose(result.self_influence[column], rise, atol=1e-9)
        np.testing.assert_allclose(result.losses[column], np.mean(losses(everything, own, mine)), atol=1e-9)


def test_the_top_rows_and_the_suspects():
    y = np.sign(POINTS[:, 0])
    y[3] *= -5  # a wrong label, far off
    result = at.leave_out(kernel(POINTS, POINTS), y, kernel(POINTS, POINTS), ridge=RIDGE).attribution(y)
    assert result.suspects(1).tolist() == [3]
    top, worst = result.top(4), result.top(4, harmful=True)
    assert top.shape == worst.shape == (N, 4)
    for test in range(N):
        ordered = np.sort(result.scores[test])
        np.testing.assert_array_equal(result.scores[test, top[test]], ordered[::-1][:4])
        np.testing.assert_array_equal(result.scores[test, worst[test]], ordered[:4])
    with pytest.raises(InputError, match="12 rows to choose from"):
        result.top(13)


def test_other_losses_take_classes():
    y = np.eye(3)[RNG.integers(0, 3, N)]
    without = at.leave_out(kernel(POINTS, POINTS), y, kernel(NEW, POINTS), ridge=RIDGE)
    labels = RNG.integers(0, 3, TESTS)

    def entropy(outputs):
        return (
            np.log(np.exp(outputs).sum(-1))
            - np.take_along_axis(outputs, labels.reshape(-1, *[1] * (outputs.ndim - 1)), -1)[..., 0]
        )

    scores = without.attribution(labels, loss=tr.SoftmaxCrossEntropy()).scores
    np.testing.assert_allclose(scores, entropy(without.predictions) - entropy(without.full)[:, None], atol=1e-9)


K, Y = kernel(POINTS, POINTS), TARGETS["one"]
CROSS = kernel(NEW, POINTS)
BAD = {
    "all rows in a group": (lambda: at.leave_out(K, Y, CROSS, groups=["a"] * N), "All 12 rows.*group.*'a'.*nothing"),
    "one row": (lambda: at.leave_out(K[:1, :1], Y[:1], CROSS[:, :1]), "one training row"),
    "groups of another length": (lambda: at.leave_out(K, Y, CROSS, groups=[0, 1]), r"groups have.*\(2,\).*\(12,\)"),
    "groups without a name": (lambda: at.leave_out(K, Y, CROSS, groups=[np.nan] * N), "groups hold nan"),
    "other training rows": (lambda: at.leave_out(K, Y, CROSS[:, 1:]), r"kernel_test has.*\(5, 11\).*\(tests, 12\)"),
    "nan in the kernel of tests": (lambda: at.leave_out(K, Y, CROSS * np.nan), "kernel_test holds nan"),
    "nan in the kernel": (lambda: at.leave_out(K * np.nan, Y, CROSS), "kernel holds nan"),
    "too few targets": (lambda: at.leave_out(K, Y[1:], CROSS), r"y has shape \(11,\)"),
    "negative ridge": (lambda: at.leave_out(K, Y, CROSS, ridge=-1.0), "ridge=-1.0"),
    "weights of 0": (lambda: at.leave_out(K, Y, CROSS, weights=np.zeros(N)), "weights.*above 0"),
    "too few targets of tests": (lambda: at.leave_out(K, Y, CROSS).attribution(Y[:3]), "y_test has 3 rows and kernel"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    call, message = BAD[name]
    with pytest.raises((InputError, KernelError), match=message):
        call()
