"""Methods against plain restatements of their papers' formulas, by brute force."""

import numpy as np
import pytest

import everwide.selection as sel
import everwide.spectral as sp
from everwide.selection._driver import Asked, Driver
from everwide.selection._methods import KMeans, Pool

pytestmark = pytest.mark.wide

N, LABELLED, BATCH = 40, 6, 5


def rows(seed=0, n=N):
    return np.random.default_rng(seed).normal(size=(n, 3))


def numbers(labelled=LABELLED):
    y = np.full(N, np.nan)
    y[:labelled] = np.arange(labelled) / 7 + 0.1
    return y


def kernel_of(x):
    return np.exp(-((x[:, None] - x) ** 2).sum(-1) / 2)


def picked(method, y=None, **options):
    kernel = kernel_of(rows())
    return sel.query(rows(), numbers() if y is None else y, kernel=kernel, method=method, batch_size=BATCH, **options)


def squared_distances(kernel):
    own = np.diagonal(kernel)
    return own[:, None] + own - 2 * kernel


def test_k_centre_takes_the_farthest():
    away, known, expected = squared_distances(kernel_of(rows())), list(range(LABELLED)), []
    for _ in range(BATCH):
        far = away[:, known].min(1)
        expected.append(int(far.argmax()))
        known.append(expected[-1])
    np.testing.assert_array_equal(picked("k_centre").indices, expected)


def test_lcmd_takes_the_farthest_of_the_largest_cluster():
    """Holzmüller et al. (2023), algorithm 7, where training rows are centres."""
    away, centres, expected = squared_distances(kernel_of(rows())), list(range(LABELLED)), []
    for _ in range(BATCH):
        pool = [i for i in range(N) if i not in centres]
        nearest = {i: min(centres, key=lambda c, i=i: away[i, c]) for i in pool}
        sizes = {c: sum(away[i, c] for i in pool if nearest[i] == c) for c in centres}
        largest = max(sizes, key=sizes.get)
        expected.append(max((i for i in pool if nearest[i] == largest), key=lambda i, c=largest: away[i, c]))
        centres.append(expected[-1])
    np.testing.assert_array_equal(picked("lcmd").indices, expected)


def test_bait_minimizes_the_trace():
    """Ash et al. (2021): `tr((sum over chosen of v v^T + ridge)^-1 sum over all of v v^T)`, forward, by brute force."""
    values, vectors = np.linalg.eigh(kernel_of(rows()))
    v = vectors * np.sqrt(np.maximum(values, 0))
    y = numbers()
    chosen, all_rows, expected = list(range(LABELLED)), v.T @ v, []
    ridge = 1e-2  # with fewer than eight labels, none is chosen

    def trace(some):
        return np.trace(np.linalg.solve(v[some].T @ v[some] + ridge * np.eye(N), all_rows))

    for _ in range(BATCH):
        rest = [i for i in range(N) if i not in chosen]
        expected.append(min(rest, key=lambda i: trace([*chosen, i])))
        chosen.append(expected[-1])
    np.testing.assert_array_equal(picked("bait", y).indices, expected)


def test_the_variance_of_all_rows_is_what_bait_lowers_by_its_score():
    chosen = picked("bait")
    kernel = kernel_of(rows())

    def variance(known):
        solved = np.linalg.solve(kernel[np.ix_(known, known)] + 1e-2 * np.eye(len(known)), kernel[known])
        return np.trace(kernel - kernel[:, known] @ solved)

    known = list(range(LABELLED))
    for row, score in zip(chosen.indices, chosen.scores, strict=True):
        assert variance(known) - variance([*known, row]) == pytest.approx(score, rel=1e-6)
        known.append(int(row))


def test_determinantal_is_the_greedy_map():
    none = np.full(N, np.nan)
    expected = sp.determinantal_map(kernel_of(rows()), BATCH)
    first = sel.query(
        rows(), none, kernel=kernel_of(rows()), method="determinantal", batch_size=BATCH, task="regression"
    )
    # every diagonal is 1, so that the first row is any
    assert set(first.indices[:1]) <= set(range(N))
    varied = kernel_of(rows()) * np.outer(np.linspace(1, 2, N), np.linspace(1, 2, N))
    expected = sp.determinantal_map(varied, BATCH)
    again = sel.query(rows(), none, kernel=varied, method="determinantal", batch_size=BATCH, task="regression")
    np.testing.assert_array_equal(again.indices, expected)


def test_badge_draws_in_proportion_to_squared_distances():
    x = np.array([[0.0], [1.0], [3.0], [0.2]])
    rng = np.random.default_rng(0)
    pool = Pool(x, np.zeros((1, 1)), None, np.zeros((4, 1)), None, rng)
    asked = Asked(None, None, 4)
    first = [int(Driver(x, pool, np.arange(4), asked).run(KMeans(pool, False), 1)[0][0]) for _ in range(300)]
    share = np.bincount(first, minlength=3) / 300
    expected = np.array([1, 9, 0.04]) / 10.04
    assert (np.abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / 300)).all()


class Told:
    """A classifier that says what it is told, by the first column."""

    classes_ = np.array(["a", "b", "c"])

    def __init__(self, chances):
        self.chances = chances

    def predict(self, x):
        return self.classes_[self.predict_proba(x).argmax(1)]

    def predict_proba(self, x):
        return self.chances[np.asarray(x)[:, 0].astype(int)]


def classes(n):
    y = np.array([None] * n, object)
    y[:3] = ["a", "b", "c"]
    return y


def told(n=12):
    chances = np.random.default_rng(1).dirichlet(np.ones(3), n)
    return np.c_[np.arange(n), rows(2, n)], classes(n), Told(chances), chances


def test_margin_and_entropy_are_the_formulas():
    x, y, model, chances = told()
    best = np.sort(chances, axis=1)[3:]
    indices, why = sel.query(x, y, model, method="margin", batch_size=3)
    np.testing.assert_array_equal(indices, 3 + np.argsort(best[:, -1] - best[:, -2])[:3])
    first = model.classes_[np.argsort(-chances[indices[0]])[:2]]
    assert why[0].startswith(f"it may be {first[0]} or {first[1]}")
    entropy = -(chances * np.log(chances)).sum(1)[3:]
    np.testing.assert_array_equal(
        sel.query(x, y, model, method="entropy", batch_size=3).indices, 3 + np.argsort(-entropy)[:3]
    )


def test_look_ahead_in_features_is_look_ahead_with_matrices():
    """A kernel machine on the given kernel; the next row is chosen after the first one was learned."""
    x, y, model, chances = told(20)
    kernel = kernel_of(x / 5)
    chosen = sel.query(x, y, model, kernel=kernel, method="mlmoc", batch_size=2)
    eye, ridge = np.eye(3), 1e-2
    unit = kernel / np.mean(np.diagonal(kernel))
    parts = unit[:3, :3], eye, unit[3:, :3], unit[3:, 3:]
    ahead = sel.look_ahead(*parts, ridge=ridge, labels=eye, start=(chances[:3], chances[3:]))
    first = int(ahead.mlmoc().argmax())
    assert chosen.indices[0] == 3 + first
    assert chosen.scores[0] == pytest.approx(ahead.mlmoc()[first], rel=1e-6)
    after = ahead.learned(first, eye[ahead.before[first].argmax()])
    scores = after.mlmoc()
    scores[first] = -1
    assert chosen.indices[1] == 3 + int(scores.argmax())
    assert chosen.scores[1] == pytest.approx(scores.max(), rel=1e-6)


@pytest.mark.parametrize("method", ["emoc", "expected_error", "bald"])
def test_numbers_look_ahead(method):
    chosen = picked(method)
    kernel, known, ridge = kernel_of(rows()), list(range(LABELLED)), 1e-2
    solved = np.linalg.solve(kernel[:6, :6] + ridge * np.eye(6), kernel[:6])
    left = (kernel - kernel[:, :6] @ solved)[6:, 6:]
    total = np.diagonal(left) + ridge
    by_hand = {
        "emoc": np.abs(left).sum(0) / np.sqrt(total),
        "expected_error": (left**2).sum(0) / total,
        "bald": 0.5 * np.log(total / ridge),
    }[method]
    assert chosen.indices[0] == len(known) + by_hand.argmax()
    assert chosen.scores[0] == pytest.approx(by_hand.max(), rel=1e-6)


def test_typiclust_covers_clusters_first():
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    x = np.repeat(centres, 15, axis=0) + rng.normal(size=(60, 2))
    y = np.full(60, np.nan)
    y[0] = 1.0
    indices, why = sel.query(x, y, method="typiclust", kernel="inputs", batch_size=3, task="regression")
    assert sorted(np.asarray(indices) // 15) == [1, 2, 3]
    assert all("far from labelled and picked rows" in reason for reason in why)
    spread = np.linalg.norm(x - np.repeat(centres, 15, axis=0), axis=1)
    assert np.median(spread[indices]) < np.median(spread)


def test_features_of_a_kernel_are_exact_or_close():
    kernel = kernel_of(rows())
    columns = []

    def read(some):
        columns.extend(some)
        return kernel[:, some]

    exact = sp.partial_cholesky(read, np.diagonal(kernel), N)
    np.testing.assert_allclose(exact @ exact.T, kernel, atol=1e-9)
    assert len(set(columns)) == len(columns)
    few = sp.partial_cholesky(read, np.diagonal(kernel), 20, seed=1)
    best = np.sort(np.linalg.eigvalsh(kernel))[:-20].sum()
    assert few.shape[1] <= 20
    assert best <= np.trace(kernel - few @ few.T) < 5 * best
