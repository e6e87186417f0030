"""Whether features matter: on targets that are known to need them, or not to; what stands still, what is refused."""

import numpy as np
import optax
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict

import everwide as ew
import everwide.forecasting as fc
from everwide import tasks
from everwide._checks import InputError
from everwide._losses import Mse
from everwide._networks import adam, train_networks
from everwide.forecasting._features import _probability

pytestmark = [pytest.mark.once, pytest.mark.as_users]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 8))
PLANE = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]) + 0.5 * RNG.normal(size=120)
COINS = RNG.choice([-1.0, 1.0], 120)
NET = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.3), ew.Relu(), ew.Dense(1))
DEEP = ew.Serial(*[ew.Dense(w_std=2**0.5, b_std=0.3), ew.Relu()] * 2, ew.Dense(1))


def staircase(n, seed):
    x = np.random.default_rng(seed).choice([-1.0, 1.0], size=(n, 20))
    return x, np.cumprod(x[:, :3], 1).sum(1)


def smooth(n, seed):
    """A draw of the Gaussian process of the network itself."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 8))
    kernel = ew.nngp(DEEP, x) + 1e-8 * np.eye(n)
    return x, np.linalg.cholesky(kernel) @ rng.normal(size=n) + 0.1 * rng.normal(size=n)


def test_a_parity_needs_features():
    task, seen = tasks.sparse_parity(8, 2, 120, seed=3), []
    told = fc.features_matter(NET, task.x, task.y, width=32, progress=seen.append)
    assert told.verdict == "matter"
    assert told.network_error < 0.2 * told.kernel_error
    assert told.alignment[1] > 3 * told.alignment[0]
    assert (told.rows, told.diverged) == (96, 0)
    assert str(told).startswith("Features matter here: learning from 96 rows, trained networks (AdamW, rate 0.005")
    assert [one.done for one in seen] == list(range(1, 26))


def test_a_noisy_plane_does_not_and_kernels_are_as_good_as_a_ridge_on_the_columns():
    told = fc.features_matter(NET, X, PLANE, width=32)
    ridge = cross_val_predict(RidgeCV(np.logspace(-3, 3, 25)), X, PLANE, cv=KFold(5, shuffle=True, random_state=0))
    assert told.probability < 0.5
    assert told.kernel_error == pytest.approx(np.mean((ridge - PLANE) ** 2), rel=0.25)


def test_the_best_kernel_is_taken_on_a_plane_without_noise():
    told = fc.features_matter(NET, X, X[:, 0], width=32)
    assert told.kernel_error < 1e-10 < told.network_error
    assert told.verdict == "not seen"


def test_coin_flips_have_none():
    told = fc.features_matter(NET, X, COINS, width=32)
    assert told.verdict == "not seen"
    assert told.kernel_error == pytest.approx(1.0, abs=0.1)
    assert str(told).startswith("No gain by features is seen with 96 rows")


def test_networks_that_are_just_a_tenth_better_are_seldom_called_surely_so():
    """One time in sixty, of parts that are independent; one in twenty, were their spread not made larger."""
    kernel = np.exp(RNG.normal(size=(4000, 5)))
    ratios = np.exp(0.2 * RNG.normal(size=(4000, 5)))
    surely = np.array([_probability(one, 0.9 * one * ratio) for one, ratio in zip(kernel, ratios, strict=True)])
    assert 0.008 < np.mean(surely > 0.95) < 0.028
    assert 0.008 < np.mean(surely < 0.05) < 0.028
    for kernel, network in ((0.0, 1e-4), (1e-10, 1e-15)):  # the kernel makes no error that counts
        assert _probability(np.full(5, kernel), np.full(5, network)) == 0.001


@pytest.mark.slow
def test_a_network_that_stands_still_has_learned_nothing():
    told = fc.features_matter(NET, X, PLANE, width=32, optimizer=optax.sgd(0.0))
    assert told.verdict == "not seen"
    assert told.alignment[1] == pytest.approx(told.alignment[0])
    assert told.network_error == pytest.approx(np.var(PLANE), rel=0.1)
    assert "your optimizer" in str(told)


@pytest.mark.slow
def test_rows_with_masks_have_errors_and_no_alignment():
    net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))
    batch = ew.Inputs(X[:, :6].reshape(120, 3, 2), mask=np.tile([True, True, False], (120, 1)))
    told = fc.features_matter(net, batch, PLANE, width=16)
    assert told.alignment is None
    assert "alignment" not in str(told)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"net": "mlp"}, "expected a network of everwide, got str"),
        ({"x": X[:40], "y": PLANE[:40]}, "40 labelled rows, expected 64"),
        ({"y": PLANE[:50]}, "y has 50 rows and x 120"),
        ({"y": np.full(120, 2.0)}, "All targets are equal"),
        ({"y": ["one class"] * 120}, "nothing to learn"),
        ({"y": np.where(np.arange(120) == 7, np.nan, PLANE)}, "Row 7 of y is not finite"),
        ({"x": np.where(np.arange(8) == 2, np.nan, X)}, "row 0"),
        ({"x": np.ones((120, 8))}, "cannot be told apart"),
        ({"task": "ranking"}, "task='ranking'"),
        ({"seed": -1}, "seed=-1"),
        ({"width": 0}, "width=0"),
        ({"optimizer": "adam"}, "expected one of optax"),
        pytest.param({"optimizer": optax.sgd(1e6)}, "networks diverged", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_told_is_refused(change, message):
    given = {"net": NET, "x": X, "y": PLANE, "width": 8} | change
    with pytest.raises(InputError, match=message):
        fc.features_matter(given.pop("net"), given.pop("x"), given.pop("y"), **given)


def test_a_network_without_dense_outputs_is_refused():
    with pytest.raises(ew.ArchitectureError, match="does not end with a Dense layer"):
        fc.features_matter(ew.Serial(ew.Dense(), ew.Relu()), X, PLANE)


MATTER = {
    "neuron": lambda seed: (task := tasks.single_neuron(25, 300, seed=seed, noise=0.01)) and (task.x, task.y),
    "pair": lambda seed: (task := tasks.sparse_parity(20, 2, 300, seed=seed)) and (task.x, task.y),
    "triple": lambda seed: (task := tasks.sparse_parity(12, 3, 600, seed=seed)) and (task.x, task.y),
    "staircase": lambda seed: staircase(300, seed),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", MATTER.values(), ids=MATTER)
@pytest.mark.parametrize("net", [NET, DEEP], ids=["one layer", "two layers"])
def test_features_are_seen_where_they_matter(make, net):
    assert [fc.features_matter(net, *make(seed), seed=seed).verdict for seed in (11, 12)] == ["matter"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_none_are_seen_where_there_are_none(seed):
    rng = np.random.default_rng(seed)
    x, y = smooth(300, seed)
    assert fc.features_matter(DEEP, x, y, seed=seed).verdict != "matter"
    assert fc.features_matter(DEEP, x, rng.normal(size=300), seed=seed).verdict == "not seen"
    assert fc.features_matter(DEEP, x, rng.integers(0, 2, 300), seed=seed).verdict == "not seen"
    assert fc.features_matter(DEEP, x, x @ rng.normal(size=8) + rng.normal(size=300), seed=seed).verdict == "not seen"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "n"),
    [(tasks.sparse_parity(20, 3, 1400, seed=5), 400), (tasks.single_neuron(60, 1400, seed=5), 400)],
    ids=["parity", "neuron"],
)
def test_a_trained_network_beats_what_no_kernel_can(task, n):
    parts = np.array_split(np.arange(n), 5)
    train = [np.setdiff1d(np.arange(n), part) for part in parts]
    how = {"loss": Mse(), "optimizer": adam(5e-3, 0.3), "width": 64, "batch_size": 32, "patience": 20}
    trained = train_networks(NET, task.x, (task.y - task.y[:n].mean())[:, None], train, parts, **how)
    outputs = trained.outputs[:, n:, 0].mean(0) + task.y[:n].mean()
    assert np.mean((outputs - task.target(task.x[n:])) ** 2) < task.least_kernel_error(n)
