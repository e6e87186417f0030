"""Regressions and networks against solutions by hand; verdicts against made-up measurements."""

import csv

import numpy as np
import pytest

import everwide as ew
from everwide_lab._claims import Verdict
from everwide_lab.simon2021 import _run as whole
from everwide_lab.simon2021._claims import claims_of
from everwide_lab.simon2021._data import FASHION, Population, digits, fashion, fashion_file, hypercube
from everwide_lab.simon2021._finite import train_networks
from everwide_lab.simon2021._kernel import Laws, Measured, check_laws, predict, regress, training_sets

pytestmark = pytest.mark.once

LINEAR = ew.Serial(ew.Dense(1, w_std=1.3))
GOOD = Laws(1e-12, 0, 100, 7, 50, -0.2)


@pytest.fixture(scope="module")
def flat():
    """A linear model in five dimensions: a kernel that can be written down, and two targets."""
    x = np.random.default_rng(0).normal(size=(30, 5))
    kernel = 1.3**2 * x @ x.T / 5
    y = np.stack([x[:, 0], np.sign(x[:, 1])], 1)
    return Population(
        "plane", x, y, x, y, ("straight", "sign"), kernel, kernel, np.ones(3), np.ones(3), np.eye(3, 2), 0.1
    )


def test_networks_that_are_linear_solve_the_regression(flat):
    sizes, seeds = (2, 4), 3
    found = train_networks(LINEAR, flat, sizes, 8, seeds, 2000)
    exact = [row for n in sizes for row in regress(flat, n, seeds)]
    assert [(row.target, row.n, row.width) for row in found] == [
        (target, n, "8") for n in sizes for target in ("straight", "sign")
    ]
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(one.learnability, other.learnability, atol=0.03)
        np.testing.assert_allclose(one.error, other.error, atol=0.05)
        assert (one.train_error < 1e-3).all()
    early = train_networks(LINEAR, flat, sizes, 8, seeds, 0)
    assert all((np.abs(row.learnability) < 1e-5).all() and (row.train_error > 0.01).all() for row in early)


def test_regressions_are_solved_on_their_training_sets(flat):
    rows = training_sets(flat, 3, 4)[1]
    assert len(set(rows.tolist())) == 3
    np.testing.assert_array_equal(training_sets(flat, 3, 2), training_sets(flat, 3, 4)[:2])
    guess = flat.x @ np.linalg.pinv(flat.x[rows]) @ flat.y[rows]  # the shortest weights that fit
    straight, sign = regress(flat, 3, 4)
    np.testing.assert_allclose(sign.error[1], np.mean((guess[:, 1] - flat.y[:, 1]) ** 2), rtol=1e-8)
    np.testing.assert_allclose(straight.learnability[1], guess[:, 0] @ flat.y[:, 0] / np.sum(flat.y[:, 0] ** 2))


def test_predictions_are_relative_to_the_target(flat):
    small = predict(flat, 2)
    scaled = Population(**(vars(flat) | {"coefficients": 3 * flat.coefficients}))
    np.testing.assert_allclose(predict(scaled, 2).error, small.error)
    np.testing.assert_allclose(predict(scaled, 2).learnability, small.learnability)
    kappa = (1.1 + 2.01**0.5) / 4  # three equal modes and the rest: 3 / (1 + kappa) + 0.1 / kappa = 2
    np.testing.assert_allclose(small.learnability, 1 / (1 + kappa))


def test_the_hypercube_is_complete():
    net = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.5), ew.Relu(), ew.Dense(1))
    cube = hypercube(net)
    np.testing.assert_allclose(np.sum(cube.eigenvalues * cube.multiplicities), cube.kernel[0, 0])
    np.testing.assert_allclose(
        cube.kernel @ cube.y / 256, cube.y * (cube.coefficients.T @ cube.eigenvalues), atol=1e-12
    )
    half = regress(cube, 64, 10)[1]
    np.testing.assert_allclose(half.learnability.mean(), half.predicted_learnability, atol=0.03)


def test_images_have_length_and_two_kinds():
    found = digits(LINEAR, 200)
    np.testing.assert_allclose(np.mean(found.x**2, 1), 1)
    assert set(found.y.ravel()) == {-1.0, 1.0}
    np.testing.assert_allclose(np.sum(found.coefficients**2), 1)


def test_clothes_take_part_where_their_file_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERWIDE_DATA", raising=False)
    assert fashion_file() is None
    images = np.random.default_rng(0).integers(0, 255, (220, 28, 28), np.uint8)
    np.savez(tmp_path / FASHION, x_train=images, y_train=np.arange(220) % 10)
    monkeypatch.setenv("EVERWIDE_DATA", str(tmp_path))
    file = fashion_file()
    assert file is not None
    found = fashion(LINEAR, 210, file)
    assert found.x.shape == (210, 196)
    np.testing.assert_allclose(found.x[0] / found.x[0, 0], (np.add.reduce(images[0].reshape(14, 2, 14, 2), (1, 3), int)
                                                            / images[0, :2, :2].sum(dtype=int)).ravel())  # fmt: skip
    assert np.mean(found.y > 0) == 0.4


def test_laws_of_a_small_domain():
    functions = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 40)))[0] * 40**0.5
    found = check_laws(np.arange(1, 41) ** -1.5, functions, 4)
    assert found.sum_gap < 1e-8
    assert found.mode_falls == 0
    assert (found.mode_steps, found.mixture_steps) == (4 * 23 * 40, 4 * 23)
    assert found.mixture_falls > 0 > found.worst_fall


def row(width="kernel", learned=0.5, error=0.5, *, spread=0.01, predicted=(0.5, 0.5), n=16, domain="cube"):
    noise = spread * np.array([-1.0, 1.0, -1.0, 1.0])
    return Measured(domain, "level 1", n, width, learned + noise, error + noise, 0 * noise, *predicted)


def verdicts(rows, laws=GOOD):
    names = ("learnability", "error", "networks", "hard", "sum", "modes", "mixtures")
    return dict(zip(names, (claim.verdict for claim in claims_of(rows, laws)), strict=True))


def test_verdicts_follow_the_numbers():
    near, off, wild = (
        row(learned=0.52, error=0.53),
        row(learned=0.7, error=0.8),
        row(error=0.8, learned=0.7, spread=0.5),
    )
    assert verdicts([near] * 9 + [off])["error"] is Verdict.HOLDS
    assert verdicts([near] * 9 + [row(error=0.8, domain="circle")])["error"] is Verdict.PARTLY
    assert verdicts([near, near, off])["error"] is Verdict.PARTLY
    assert verdicts([near, off])["learnability"] is Verdict.FAILS
    assert verdicts([near, wild, wild])["learnability"] is Verdict.UNDECIDED
    tiny = row(error=0.02, predicted=(0.5, 0.001))  # far in proportion, near in what it is
    assert verdicts([tiny])["error"] is Verdict.HOLDS
    assert verdicts([near])["networks"] is Verdict.UNDECIDED


def test_the_narrowest_networks_decide():
    kernel, good, bad = row(), row("500", error=0.52), row("20", error=0.8)
    assert verdicts([kernel, good])["networks"] is Verdict.HOLDS
    assert verdicts([kernel, bad])["networks"] is Verdict.FAILS
    assert verdicts([kernel, good, bad])["networks"] is Verdict.PARTLY
    assert verdicts([kernel, row("20"), row("500", error=0.9)])["networks"] is Verdict.HOLDS
    assert verdicts([kernel, row("20", error=0.7, spread=0.4)])["networks"] is Verdict.UNDECIDED
    assert verdicts([kernel, row("20", error=np.nan)])["networks"] is Verdict.FAILS
    numbers = claims_of([kernel, bad], GOOD)[2].numbers
    assert "width 20 x1.60 (" in numbers
    assert "0.000 apart" in numbers


def test_hard_modes_and_laws():
    hard = row(error=1.3, predicted=(0.0, 1.3))
    assert verdicts([hard])["hard"] is Verdict.HOLDS
    assert verdicts([row(error=0.8, predicted=(0.0, 1.3))])["hard"] is Verdict.FAILS
    assert verdicts([row()])["hard"] is Verdict.UNDECIDED
    found = verdicts([row()])
    assert (found["sum"], found["modes"], found["mixtures"]) == (Verdict.HOLDS, Verdict.HOLDS, Verdict.FAILS)
    found = verdicts([row()], Laws(0.1, 3, 100, 0, 50, 0.0))
    assert (found["sum"], found["modes"], found["mixtures"]) == (Verdict.FAILS, Verdict.FAILS, Verdict.HOLDS)


def test_results_are_written(tmp_path):
    rows = [row(n=n, width=w, domain=d) for d in ("cube", "digits") for w in ("kernel", "20") for n in (16, 64)]
    whole.Simon2021(tuple(rows), GOOD).write(tmp_path)
    with (tmp_path / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 8
    assert float(table[0]["predicted_error"]) == 0.5
    np.testing.assert_allclose(float(table[0]["error_se"]), np.std([-0.01, 0.01] * 2, ddof=1) / 2)
    assert "No free lunch" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"seeds": 5, "draws": 3}, "seeds=5, draws=3"), ({"points": 20}, "points=20: expected at least 200")],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        whole.reproduce(**arguments)


@pytest.mark.slow  # compiles networks and kernels for each domain
def test_everything_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERWIDE_DATA", raising=False)
    stages = []
    found = whole.reproduce(
        widths=(8,), seeds=2, steps=50, draws=3, points=200, out=tmp_path / "out", progress=stages.append
    )
    assert {one.domain for one in found.rows} == {"circle", "hypercube", "sphere", "digits"}
    assert len(found.rows) == 10 * (6 + 2)
    assert stages[-1].done == stages[-1].total
    assert (tmp_path / "out" / "figure.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simon2021", "criticality", "catapult", "vyas2022"])
def test_the_command_writes_table_figure_and_verdicts(name, tmp_path):
    from typer.testing import CliRunner

    from everwide.cli import app

    result = CliRunner().invoke(app, ["reproduce", name, "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} >= {"results.md", "results.csv", "figure.png"}
    assert "holds" in result.output
