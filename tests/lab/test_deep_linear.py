"""The sampler beside conjugate Gaussians and its own constraints, modes beside closed forms, made-up verdicts."""

import csv

import numpy as np
import pytest

from everwide import InputError
from everwide_lab._claims import Verdict
from everwide_lab.deep_linear import reproduce
from everwide_lab.deep_linear._claims import Evidence, Posterior, Prior, Training, claims_of
from everwide_lab.deep_linear._dynamics import MODES, Task, _stepped, learn, solution, task
from everwide_lab.deep_linear._prior import log_norms
from everwide_lab.deep_linear._sampler import _conditioned, _product, draw

pytestmark = pytest.mark.once

NAMES = ("prior", "centred", "exact", "depth", "evidence", "curves", "order", "times")
NOISE = np.array([-0.01, 0.0, 0.01])


def claims(*, prior=1.0, off=0.02, exact=1.0, depth=1.0, gain=1.0, curve=0.01, order=1.0, late=1.0, seeds=3):
    """Made-up numbers of three seeds, or fewer, that differ a little."""
    noise, strengths = NOISE[:seeds], np.broadcast_to(np.arange(6.0, 0.0, -1.0), (seeds, 6))
    priors = [Prior(10, 4, -0.2 * (prior + noise), 0.2 * (prior + noise), (-0.2, 0.2))]
    shallow = Posterior((20,), 0.6, 2 * (exact + noise), np.full(seeds, 2.0), off + noise)
    deep = Posterior((40, 40), 0.6, 2 * depth * (exact + 0.5 * noise), np.full(seeds, 2.0 * depth), off + noise)
    evidence = Evidence(1.0, (0, 1, 4), gain * np.array([0.0, 1.0, 2.0]) * np.ones((seeds, 1)))
    times = order * np.arange(1.0, 7.0) + 10 + 0.01 * np.linspace(0, 1, seeds)[:, None]
    trained = [
        Training(2, aligned, curve + 0.1 * noise, times, times / (late + noise[:, None]), strengths)
        for aligned in (True, False)
    ]
    return claims_of(priors, [shallow, deep], [evidence], trained)


def verdicts(**told):
    return dict(zip(NAMES, (claim.verdict for claim in claims(**told)), strict=True))


def test_everything_holds_where_it_does():
    assert set(verdicts().values()) == {Verdict.HOLDS}


def test_everything_fails_where_it_does():
    found = verdicts(prior=2.0, off=0.5, exact=1.3, depth=1.3, gain=-1.0, curve=0.2, order=-1.0, late=1.5)
    assert set(found.values()) == {Verdict.FAILS}


def test_one_seed_decides_nothing_but_what_is_computed():
    found = verdicts(seeds=1)
    assert found.pop("evidence") is Verdict.HOLDS
    assert set(found.values()) == {Verdict.UNDECIDED}


def test_a_single_layer_is_a_vector_of_normal_numbers():
    logs = log_norms(8, 1, 4000, seed=0)
    chi = np.random.default_rng(1).chisquare(8, 100_000) / 8
    assert logs.mean() == pytest.approx(np.mean(np.log(chi)) / 2, abs=0.02)
    assert logs.var() == pytest.approx(np.var(np.log(chi)) / 4, rel=0.1)
    assert log_norms(8, 6, 300, seed=0).var() > 3 * logs.var()


def test_without_hidden_layers_networks_that_fit_are_gaussian():
    """A conditioned Gaussian: variance 1 / inputs aside from the rows, the interpolant of least norm along them."""
    rng = np.random.default_rng(0)
    x, y, new = rng.normal(size=(3, 12)), rng.normal(size=3), rng.normal(size=(5, 12))
    found = draw(x, y, new, (), chains=40, sweeps=200, seed=0)
    np.testing.assert_allclose(found.outputs.mean(0), new @ np.linalg.pinv(x) @ y, atol=0.05)
    assert found.variance.mean() == pytest.approx(1 / 12, rel=0.02)


@pytest.mark.parametrize("place", range(4))
def test_every_network_fits_whichever_layer_was_drawn(place):
    rng, sizes = np.random.default_rng(0), (8, 6, 5, 7, 1)
    x, y = rng.normal(size=(3, 8)), np.array([1.0, -2.0, 0.5])
    layers = [rng.normal(size=(4, *pair)) for pair in zip(sizes[1:], sizes, strict=False)]
    layers[place] = _conditioned(rng, layers, place, x, y)
    np.testing.assert_allclose(_product(layers) @ x.T, np.broadcast_to(y, (4, 3)), atol=1e-8)


@pytest.mark.slow
def test_one_hidden_layer_is_as_importance_sampling_says():
    """Given the first layer, the last is conjugate: prior draws of the first, weighed by the evidence that is left."""
    rng = np.random.default_rng(0)
    x, y, width = rng.normal(size=(2, 6)), np.array([2.0, -1.5]), 5
    basis = np.linalg.qr(x.T)[0]
    first = rng.standard_normal((200_000, width, 6)) / np.sqrt(6)
    hidden = np.einsum("cij,nj->cni", first, x)
    gram = hidden @ np.swapaxes(hidden, 1, 2) / width
    coefficients = np.linalg.solve(gram, np.broadcast_to(y[:, None], (len(gram), 2, 1)))[..., 0]
    logs = -np.einsum("n,cn->c", y, coefficients) / 2 - np.linalg.slogdet(gram)[1] / 2
    weights = np.exp(logs - logs.max())
    mean = np.einsum("cni,cn->ci", hidden, coefficients) / width
    inner = np.einsum("cni,cnm,cmj->cij", hidden, np.linalg.inv(gram), hidden) / width
    second = (np.eye(width) - inner) / width + mean[:, :, None] * mean[:, None, :]
    aside = first - (first @ basis) @ basis.T
    open_parts = np.einsum("cij,cik,ckj->c", aside, second, aside) / 4
    expected = np.sum(weights * open_parts) / weights.sum()
    found = draw(x, y, x, (width,), chains=100, sweeps=400, seed=1).variance
    error = found.std(ddof=1) / 10
    assert abs(found.mean() - expected) < 4 * error + 0.01 * expected


def test_two_layers_follow_the_sigmoid():
    times = np.linspace(0, 20, 50)
    grown = np.exp(2 * 0.5 * times)
    np.testing.assert_allclose(
        solution(0.5, 1e-3, 2, times), 0.5 * grown / (grown - 1 + 0.5 / 1e-3), rtol=1e-5, atol=1e-8
    )


def test_steps_go_down_the_gradient():
    rng = np.random.default_rng(0)
    weights, covariance = [rng.normal(size=pair) for pair in ((3, 2), (4, 3), (2, 4))], rng.normal(size=(2, 2))

    def loss(now):
        return np.sum((covariance - now[2] @ now[1] @ now[0]) ** 2) / 2  # up to a constant, for white inputs

    moved = _stepped(weights, covariance, 1e-3)
    for place in range(3):
        slope, bumped = (weights[place] - moved[place]) / 1e-3, [one.copy() for one in weights]
        bumped[place][1, 1] += 1e-6
        assert slope[1, 1] == pytest.approx((loss(bumped) - loss(weights)) / 1e-6, rel=1e-3, abs=1e-4)


def test_modes_are_learned_one_after_the_other():
    data = Task(np.eye(8), np.geomspace(2.0, 0.2, 8), np.eye(8))
    found = learn(data, 2, aligned=True, width=8, start=1e-4, rate=0.01, seed=0)
    measured, predicted = found.half_times(data.strengths[:MODES])
    assert (np.diff(measured) > 0).all()
    np.testing.assert_allclose(measured, predicted, rtol=0.05)


def test_inputs_are_white():
    data = task(0)
    np.testing.assert_allclose(data.left.T @ data.left, np.eye(10), atol=1e-10)
    assert (np.diff(data.strengths) <= 0).all()
    assert data.strengths[0] < 1


@pytest.mark.slow
def test_everything_runs(tmp_path):
    stages = []
    found = reproduce(seeds=2, draws=20, chains=3, sweeps=8, out=tmp_path, progress=stages.append)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found.table()) == 2 * 4 + 5 + 3
    assert stages[-1].done == stages[-1].total
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert np.isfinite(found.evidences[0].values).all()


@pytest.mark.parametrize("given", [{"seeds": 0}, {"draws": 1}, {"chains": 1}, {"sweeps": 3}])
def test_bad_arguments(given):
    with pytest.raises(InputError, match="expected a seed"):
        reproduce(**given)
