"""Targets that kernels cannot learn, beside kernels that try, and what is left beside brute force."""

import itertools
import math

import numpy as np
import pytest

import everwide as ew
from everwide import tasks
from everwide.spectral import Spectrum, solve

SHALLOW = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1))
DEEP = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
pytestmark = pytest.mark.once


def best_kernel_error(task, n, kernel):
    """On rows after the first n, without noise, with the ridge that is best for these very rows."""
    labels, mean = task.target(task.x[n:]), task.y[:n].mean()
    solved = solve(kernel[:n, :n], task.y[:n, None] - mean, solver="eigen")
    predicted = (kernel[n:, :n] @ solved.at(ridge).coefficients[:, 0] + mean for ridge in 10.0 ** np.arange(-5, 4))
    return min(np.mean((one - labels) ** 2) for one in predicted)


MAKE = {
    "neuron": lambda seed: tasks.single_neuron(12, 700, seed=seed, noise=0.01),
    "parity": lambda seed: tasks.sparse_parity(9, 2, 700, seed=seed, noise=0.01),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize(("net", "n"), [(SHALLOW, 24), (DEEP, 24), (SHALLOW, 100)])
def test_no_kernel_beats_what_it_must_leave(make, net, n):
    drawn = [make(seed) for seed in range(6)]
    errors = [best_kernel_error(one, n, np.asarray(ew.ntk(net, one.x), np.float64)) for one in drawn]
    error, uncertain = np.mean(errors), np.std(errors) / math.sqrt(len(errors) - 1)
    assert error + 0.01 > drawn[0].least_kernel_error(n) - 2 * uncertain


@pytest.mark.parametrize("d", [2, 3, 7])
def test_powers_of_a_neuron_are_eigenvalues_of_its_mean_square(d):
    x = tasks.single_neuron(d, 700, seed=1).x
    mean_square = np.asarray(ew.nngp(ew.Serial(ew.Dense(), ew.Relu()), x), np.float64)  # weights of variance 1 / d
    values = np.sort(Spectrum.of(mean_square).values)[::-1] / len(x)
    powers = itertools.islice(tasks.single_neuron(d, 1).powers(), 2)
    (linear, d_linear), (square, d_square) = powers
    assert values[1 : 1 + d] == pytest.approx(linear, rel=0.4)
    assert values[1 : 1 + d].mean() == pytest.approx(linear, rel=0.04)
    assert values[1 + d : 1 + d + int(d_square)].mean() == pytest.approx(square, rel=0.12)
    assert d_linear == d


@pytest.mark.parametrize("d", [2, 5, 40])
def test_all_powers_of_a_neuron_are_its_variance(d):
    task = tasks.single_neuron(d, 10)
    total = sum(power * count for power, count in itertools.islice(task.powers(), 3000))
    assert total == pytest.approx(task.trivial_error, rel=1e-6)
    many = tasks.single_neuron(d, 100_000, seed=3)
    assert np.var(many.y) == pytest.approx(task.trivial_error, rel=0.02)


def test_functions_hold_no_more_of_parities_than_is_said():
    x = np.array(list(itertools.product([-1.0, 1.0], repeat=6)))
    parities = np.stack([x[:, i] * x[:, j] for i, j in itertools.combinations(range(6), 2)], 1) / 8
    task = tasks.sparse_parity(6, 2, 10)
    for n in (3, 9):
        functions = np.linalg.qr(parities[:, :n] + 0.1 * np.random.default_rng(n).normal(size=(64, n)))[0]
        left = 1 - np.mean(np.sum((functions.T @ parities) ** 2, axis=0))
        assert left >= task.least_kernel_error(n) - 1e-12
        exact = 1 - np.mean(np.sum((parities[:, :n].T @ parities) ** 2, axis=0))
        assert exact == pytest.approx(task.least_kernel_error(n))
    assert task.least_kernel_error(15) == task.least_kernel_error(10**6) == 0.0


def test_labels_are_the_target_and_its_noise():
    for make in (lambda **o: tasks.single_neuron(8, 20_000, **o), lambda **o: tasks.sparse_parity(8, 3, 20_000, **o)):
        clean, noisy = make(), make(noise=0.25)
        np.testing.assert_array_equal(clean.y, clean.target(clean.x))
        assert np.var(noisy.y - noisy.target(noisy.x)) == pytest.approx(0.25, rel=0.05)
        assert noisy.least_kernel_error(50) == pytest.approx(0.25 + clean.least_kernel_error(50))
        assert noisy.trivial_error == pytest.approx(0.25 + clean.trivial_error)
        assert 0 < clean.kernel_edge(20) < clean.kernel_edge(50) < 1
        np.testing.assert_array_equal(make(seed=5).x, make(seed=5).x)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: tasks.single_neuron(1, 5), "d=1"),
        (lambda: tasks.single_neuron(3, 0), "n=0"),
        (lambda: tasks.single_neuron(3, 5, noise=-1.0), "noise=-1"),
        (lambda: tasks.sparse_parity(4, 5, 5), "at most 4"),
        (lambda: tasks.sparse_parity(4, 0, 5), "order=0"),
        (lambda: tasks.sparse_parity(4, 2, 5, seed=-1), "seed=-1"),
        (lambda: tasks.sparse_parity(4, 2, 5).target(np.ones((3, 5))), "expected"),
        (lambda: tasks.sparse_parity(4, 2, 5).least_kernel_error(0), "n=0"),
    ],
)
def test_bad_input(run, message):
    with pytest.raises(ew.InputError, match=message):
        run()
