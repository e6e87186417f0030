"""Closed forms against retraining: a model is solved for anew for every candidate and every label."""

import numpy as np
import pytest

import everwide as ew
import everwide.selection as sel

pytestmark = pytest.mark.wide

N, POOL, CLASSES, RIDGE = 40, 25, 4, 1e-3


def problem(seed=0):
    """Random features of a network, labels, and outputs of a model that does not fit them."""
    rng = np.random.default_rng(seed)
    features = np.maximum(rng.normal(size=(N + POOL, 8)) @ rng.normal(size=(8, 300)), 0) / 300**0.5
    kernel = features @ features.T + 1e-6 * np.eye(N + POOL)
    y = np.eye(CLASSES)[rng.integers(0, CLASSES, N)]
    y[:CLASSES] = np.eye(CLASSES)
    return kernel, y, 0.3 * rng.normal(size=(N + POOL, CLASSES))


def retrained(kernel, f, rows, y, ridge=RIDGE):
    """`f(x) + K(x, X) (K(X, X) + ridge)^-1 (y - f(X))` at the pool, solved from nothing."""
    among = kernel[np.ix_(rows, rows)] + ridge * np.eye(len(rows))
    return f[N:] + kernel[N:][:, rows] @ np.linalg.solve(among, y - f[rows])


def ahead_of(kernel, y, f):
    parts = kernel[:N, :N], y, kernel[N:, :N], kernel[N:, N:]
    return sel.look_ahead(*parts, ridge=RIDGE, labels=np.eye(CLASSES), start=(f[:N], f[N:]))


@pytest.fixture(scope="module")
def naive():
    """Predictions (candidate, label, pool row, output) by retraining."""
    kernel, y, f = problem()
    rows = list(range(N))
    return np.array(
        [
            [retrained(kernel, f, [*rows, N + j], np.vstack([y, label])) for label in np.eye(CLASSES)]
            for j in range(POOL)
        ]
    )


def test_predictions_are_those_of_retraining(naive):
    kernel, y, f = problem()
    ahead = ahead_of(kernel, y, f)
    np.testing.assert_allclose(ahead.before, retrained(kernel, f, list(range(N)), y), atol=1e-9)
    np.testing.assert_allclose(ahead.predictions, naive, atol=1e-9)


def test_scores_are_those_of_retraining(naive):
    kernel, y, f = problem()
    ahead = ahead_of(kernel, y, f)
    change = np.linalg.norm(naive - ahead.before, axis=3).sum(2)  # candidate, label
    likely = ahead.before.argmax(1)
    np.testing.assert_allclose(ahead.mlmoc(), change[np.arange(POOL), likely], rtol=1e-9)
    assert ahead.mlmoc().argmax() == change[np.arange(POOL), likely].argmax()
    chances = np.exp(ahead.before) / np.exp(ahead.before).sum(1, keepdims=True)
    np.testing.assert_allclose(ahead.emoc(chances), (chances * change).sum(1), rtol=1e-9)
    flips = (naive.argmax(-1) != ahead.before.argmax(1)).sum(-1)
    np.testing.assert_array_equal(ahead.label_flips(), flips)
    distances = ((naive[..., None, :] - np.eye(CLASSES)) ** 2).sum(-1)
    soft = np.exp(-distances / (2 * ahead.spread))
    wrong = 1 - (soft / soft.sum(-1, keepdims=True)).max(-1)
    np.testing.assert_allclose(ahead.expected_error(chances), (chances * wrong.mean(-1)).sum(1), rtol=1e-9)


def test_spread_is_the_leave_one_out_error():
    kernel, y, f = problem()
    errors = []
    for left in range(N):
        rows = [i for i in range(N) if i != left]
        solved = np.linalg.solve(kernel[np.ix_(rows, rows)] + RIDGE * np.eye(N - 1), (y - f[:N])[rows])
        errors.append(y[left] - f[left] - kernel[left, rows] @ solved)
    assert ahead_of(kernel, y, f).spread == pytest.approx(np.mean(np.square(errors)), rel=1e-8)


def test_queries_in_sequence_are_one_retraining():
    kernel, y, f = problem()
    ahead, rows, labels = ahead_of(kernel, y, f), list(range(N)), y
    for _ in range(8):
        scores = ahead.mlmoc()
        scores[[row - N for row in rows[N:]]] = -1
        pick = int(scores.argmax())
        label = np.eye(CLASSES)[ahead.before[pick].argmax()]
        ahead, rows, labels = ahead.learned(pick, label), [*rows, N + pick], np.vstack([labels, label])
    np.testing.assert_allclose(ahead.before, retrained(kernel, f, rows, labels), atol=1e-9)
    among = kernel[np.ix_(rows, rows)] + RIDGE * np.eye(len(rows))
    left = kernel[N:, N:] - kernel[N:][:, rows] @ np.linalg.solve(among, kernel[rows][:, N:])
    np.testing.assert_allclose(ahead.covariance, left, atol=1e-9)


def blocks():
    """A kernel with axes of outputs, as a model of three outputs has it: `(n, n, k, k)`, and as one matrix."""
    rng = np.random.default_rng(1)
    jacobian = rng.normal(size=(9, 3, 60)) / 60**0.5
    full = np.einsum("iap,jbp->ijab", jacobian, jacobian)
    return full, rng.normal(size=(5, 3)), rng.normal(size=(2, 3))


def test_blocks_of_outputs_are_retraining_too():
    full, y, labels = blocks()
    ahead = sel.look_ahead(full[:5, :5], y, full[5:, :5], full[5:, 5:], ridge=RIDGE, labels=labels)
    flat = full.transpose(0, 2, 1, 3).reshape(27, 27)
    for j in range(4):
        for at, label in enumerate(labels):
            rows = np.r_[:15, 15 + 3 * j : 18 + 3 * j]
            among = flat[np.ix_(rows, rows)] + RIDGE * np.eye(18)
            naive = flat[15:][:, rows] @ np.linalg.solve(among, np.r_[y.ravel(), label])
            np.testing.assert_allclose(ahead.predictions[j, at], naive.reshape(4, 3), atol=1e-9)
    change = np.linalg.norm(ahead.predictions - ahead.before, axis=3).sum(2)
    np.testing.assert_allclose(ahead.emoc(np.full((4, 2), 0.5)), change.mean(1), rtol=1e-9)
    again = ahead.learned(2, labels[1])
    np.testing.assert_allclose(again.before, ahead.predictions[2, 1], atol=1e-9)
    assert again.covariance[2, 2] == pytest.approx(RIDGE * np.eye(3), abs=2e-4)  # nothing but noise is left


def test_equal_blocks_are_one_kernel_for_all_outputs():
    kernel, y, f = problem()
    scalar = ahead_of(kernel, y, f)
    full = kernel[..., None, None] * np.eye(CLASSES)
    parts = full[:N, :N], y, full[N:, :N], full[N:, N:]
    ahead = sel.look_ahead(*parts, ridge=RIDGE, labels=np.eye(CLASSES), start=(f[:N], f[N:]))
    np.testing.assert_allclose(ahead.mlmoc(), scalar.mlmoc(), rtol=1e-8)
    np.testing.assert_allclose(ahead.variance_reduction(), CLASSES * scalar.variance_reduction(), rtol=1e-8)


def test_variance_falls_by_what_is_said():
    kernel, y, f = problem()
    ahead = ahead_of(kernel, y, f)
    falls = [np.trace(ahead.covariance) - np.trace(ahead.learned(j, y[0]).covariance) for j in range(POOL)]
    np.testing.assert_allclose(ahead.variance_reduction(), falls, rtol=1e-8)


def test_an_infinitely_wide_network_looks_ahead():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
    kernel = ew.ntk(net, x)
    ahead = sel.look_ahead(kernel[:8, :8], y[:8], kernel[8:, :8], kernel[8:, 8:], ridge=0.1, labels=[-1.0, 1.0])
    assert ahead.predictions.shape == (4, 2, 4, 1)
    rows = [*range(8), 10]
    naive = kernel[8:][:, rows] @ np.linalg.solve(kernel[np.ix_(rows, rows)] + 0.1 * np.eye(9), np.r_[y[:8], 1.0])
    np.testing.assert_allclose(ahead.predictions[2, 1, :, 0], naive, atol=1e-9)


def test_memory_is_bounded_by_tiles(monkeypatch, naive):
    monkeypatch.setattr(sel._look_ahead, "_TILE", 1)
    kernel, y, f = problem()
    np.testing.assert_allclose(ahead_of(kernel, y, f).predictions, naive, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros((N, 1, 1))}, "y has shape"),
        ({"y": np.full(N, np.nan)}, "y holds nan"),
        ({"y": np.arange(N + 0.0)[:-1]}, "kernel_labelled has shape"),
        ({"kernel_pool_labelled": np.zeros((3, 3))}, "kernel_pool_labelled has shape"),
        ({"kernel_pool": np.full((POOL, POOL), np.inf)}, "kernel_pool holds inf"),
        ({"ridge": -1.0}, "ridge=-1.0"),
        ({"labels": np.zeros((2, 9))}, "labels have 9 columns"),
        ({"y": np.linspace(0, 1, N).reshape(N, 1), "labels": None, "many": True}, "List the possible labels"),
        ({"start": np.zeros(3)}, "expected a pair"),
        ({"start": (np.zeros(3), np.zeros(3))}, r"start\[0\] has shape"),
    ],
)
def test_what_cannot_be_used_is_refused(change, message, monkeypatch):
    if change.pop("many", False):
        monkeypatch.setattr(sel._look_ahead, "_MOST_LABELS", 5)
    kernel, y, _ = problem()
    given = {"kernel_labelled": kernel[:N, :N], "y": y, "kernel_pool_labelled": kernel[N:, :N]}
    given |= {"kernel_pool": kernel[N:, N:], "ridge": RIDGE} | change
    with pytest.raises(ew.InputError, match=message):
        sel.look_ahead(**given)


def test_a_label_of_another_shape_and_a_row_outside_are_refused():
    kernel, y, f = problem()
    ahead = ahead_of(kernel, y, f)
    with pytest.raises(ew.InputError, match="expected 4"):
        ahead.learned(0, [1.0])
    with pytest.raises(ew.InputError, match="expected a row of the pool"):
        ahead.learned(POOL, y[0])
    with pytest.raises(ew.InputError, match="probabilities have shape"):
        ahead.emoc(np.ones((2, 2)))
