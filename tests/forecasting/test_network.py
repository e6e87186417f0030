"""Forecasts of networks that are really trained: what they say, beside their kernel; what diverges, what is refused."""

import warnings

import numpy as np
import optax
import pytest

import everwide as ew
import everwide.forecasting as fc
import everwide.training as tr
from everwide._checks import InputError
from everwide._networks import train_networks
from everwide.forecasting._identity import digest

pytestmark = [pytest.mark.once, pytest.mark.as_users]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1400, 4))
NUMBERS = np.abs(X[:, 0]) + np.maximum(X[:, 1] + X[:, 2], 0) + 0.2 * RNG.normal(size=1400)
LABELS = np.array(["no", "yes"])[(X[:, 0] * X[:, 1] > 0).astype(int)]
NET = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1, b_std=0.1))
SIZES = [160, 640]


def asked(y, rows=80, **options):
    return fc.forecast(NET, X[:rows], y[:rows], SIZES, of="network", **({"width": 32} | options))


@pytest.fixture(scope="module")
def numbers():
    return asked(NUMBERS)


@pytest.fixture(scope="module")
def classes():
    return asked(LABELS)


def test_a_network_is_forecast_beside_its_kernel(numbers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fc.ForecastWarning)
        kernel = fc.forecast(NET, X[:80], NUMBERS[:80], SIZES)
    np.testing.assert_allclose(numbers.kernel_error, kernel.error, rtol=1e-9)
    assert numbers.unit == "mean squared error"
    assert numbers.accuracy is None
    assert (numbers.low < numbers.error).all()
    assert (numbers.error < numbers.high).all()
    assert numbers.error[1] < numbers.error[0]
    assert numbers.samples_needed(float(numbers.error[1])) == pytest.approx(640, abs=1)
    assert [row["n"] for row in numbers.table()] == SIZES
    assert not numbers.failures


def test_classes_have_an_accuracy_and_a_share_that_is_wrong(classes):
    assert classes.unit == "share of wrong classes"
    np.testing.assert_allclose(classes.accuracy, 1 - classes.error)
    np.testing.assert_allclose(classes.kernel_error, 1 - classes.kernel.accuracy, rtol=1e-6)
    assert classes.samples_needed(float(classes.accuracy[1])) == pytest.approx(640, abs=1)
    with pytest.raises(InputError, match="an accuracy above 0 and below 1"):
        classes.samples_needed(1.5)


@pytest.mark.slow
def test_errors_are_those_of_networks_that_were_trained(numbers):
    """The mean of the pilot says less, and all rows but a fold are learned better than a sixteenth of them."""
    errors = numbers.curve.errors.mean(0)
    assert errors[-1] < 0.6 * NUMBERS[:80].var()
    assert errors[-1] < errors[0]


def test_the_advice_follows_from_the_numbers(numbers, classes):
    for found in (numbers, classes):
        ratio = found.error[1] / found.kernel_error[1]
        assert f"{ratio:.2f} times that of its kernel" in found.advice()
        assert 0 < found.moved.change < 1
        assert f"went from {found.moved.alignment_before:.2f} to {found.moved.alignment_after:.2f}" in found.advice()
        start = "Use the network" if found.better[1] > 0.9 else "Use the kernel" if found.better[1] < 0.1 else "Neither"
        assert found.advice().startswith(start)
        measured = found.curve.errors[:, -1].mean() / found.curve.kernel_errors[:, -1].mean()
        assert (found.better > 0.5).tolist() == (found.error / found.kernel_error * measured < 1).tolist()
        assert found.advice() in str(found)


def test_levels_are_those_of_the_interval(numbers, tmp_path):
    path = tmp_path / "fits"
    wide = asked(NUMBERS, level=0.99, path=path)
    np.testing.assert_allclose(wide.error, numbers.error, rtol=1e-6)
    np.testing.assert_allclose(np.log(wide.high / wide.error) / np.log(numbers.high / numbers.error), 1.566, rtol=1e-3)
    seen = []
    again = asked(NUMBERS, level=0.5, path=path, progress=seen.append)
    np.testing.assert_allclose(again.error, wide.error, rtol=1e-12)
    assert seen[-1].seconds < 1


@pytest.mark.slow
def test_a_file_is_of_one_optimizer_one_mask_and_one_width(tmp_path):
    path = tmp_path / "fits"
    few = {"width": 4, "path": path}
    first = asked(NUMBERS, optimizer=optax.adam(1e-2), **few)
    again = asked(NUMBERS, optimizer=optax.adam(1e-2), **few)  # another object, the same steps
    np.testing.assert_array_equal(first.curve.errors, again.curve.errors)
    slowing = optax.adam(optax.linear_schedule(1e-2, 1e-3, 5000))
    others = ({"optimizer": optax.adam(2e-2)}, {"optimizer": slowing}, {"width": 5}, {"seed": 1}, {"loss": tr.Huber()})
    for other in others:
        with pytest.raises(InputError, match="holds fits of another model"):
            asked(NUMBERS, **({"optimizer": optax.adam(1e-2)} | few | other))
    with pytest.raises(InputError, match="one of optax"):
        asked(NUMBERS, optimizer="adam", path=tmp_path / "others")


def test_digests_know_masks_shapes_and_text():
    parts = [np.zeros(4), None, np.array(["a", "b"])]
    masked = [np.zeros(4), np.ones(4, bool), np.array(["a", "b"])]
    folded = [np.zeros((2, 2)), None, np.array(["a", "b"])]
    assert len({digest(one) for one in (parts, masked, folded, parts[:2])}) == 4
    assert digest(parts) == digest([np.zeros(4), None, np.array(["a", "b"])])


def test_networks_that_diverge_are_named():
    with pytest.raises(InputError, match=r"50 of 50 fits failed.*training diverged. Take a smaller rate"):
        asked(NUMBERS, optimizer=optax.sgd(1e6))
    wild = NUMBERS.copy()
    wild[3] = 1e25  # beyond float32 once it is squared
    with pytest.raises(InputError, match="fits failed"):
        asked(wild, optimizer=optax.sgd(1e6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"of": "forest"}, "expected 'kernel' or 'network'"),
        ({"kernel": X[:80] @ X[:80].T}, "expected a network of everwide, got ndarray"),
        ({"x": X[:40], "y": NUMBERS[:40]}, "40 labelled rows, expected 64 or more"),
        ({"x": X[:80, 0]}, "expected .n, channels."),
        ({"x": X[:70]}, "y has 80 rows and x 70"),
        ({"y": np.array(["one"] * 80)}, "nothing to learn"),
        ({"y": np.full(80, 2.0)}, "nothing to learn"),
        ({"width": 0}, "width=0"),
        ({"ridge": 0.1}, "ridge would do nothing"),
        ({"which": "nngp"}, "which would do nothing"),
        ({"of": "kernel"}, "width would do nothing"),
        ({"of": "kernel", "width": None, "path": "fits", "loss": tr.Mse()}, "loss, path would do nothing"),
        ({"optimizer": "adam"}, "one of optax"),
        ({"level": 1.0}, "level=1.0"),
        ({"loss": tr.Hinge(), "y": LABELS[:80]}, "expected -1 or 1"),
        ({"kernel": ew.Serial(ew.Dense(), ew.Relu())}, "does not end with a Dense layer"),
    ],
)
def test_what_cannot_be_forecast_is_refused(change, message):
    given = {"kernel": NET, "x": X[:80], "y": NUMBERS[:80], "n": SIZES, "of": "network", "width": 32} | change
    with pytest.raises(ValueError, match=message):
        fc.forecast(given.pop("kernel"), given.pop("x"), given.pop("y"), **given)


@pytest.mark.slow
@pytest.mark.parametrize("y", [NUMBERS, LABELS], ids=["numbers", "classes"])
def test_the_error_with_more_rows_is_as_forecast(y):
    found = fc.forecast(NET, X[:200], y[:200], [800], of="network", width=64)
    labels = y is LABELS
    target = (y == "yes").astype(int) if labels else (y - y.mean()) / y.std()
    net = ew.Serial(*NET.critical().layers[:-1], ew.Dense(2 if labels else 1, w_std=2**0.5, b_std=0.0))
    loss = tr.SoftmaxCrossEntropy() if labels else tr.Mse()
    train, held = [np.arange(360, 1000)] * 3, [np.arange(200, 360)] * 3
    trained = train_networks(net, X, target, train, held, loss=loss, width=64).outputs[:, 1000:]
    wrong = trained.argmax(-1) != target[1000:] if labels else (trained[..., 0] - target[1000:]) ** 2 * y.var()
    assert 0.8 * found.low[0] < np.mean(wrong) < 1.25 * found.high[0]
