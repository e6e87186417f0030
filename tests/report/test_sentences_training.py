"""Every sentence of the page on training, width and more rows: each is true once, and once it is not said."""

from dataclasses import replace

import numpy as np
import pytest

from everwide.report._sections import accuracy, ahead, forecast, training
from everwide.report._sections import width as width_section
from report.sentences import check

pytestmark = pytest.mark.once


def test_training(numbers, labelled):
    ours, theirs = training.training(numbers), training.training(labelled)
    rising, falling = np.linspace(0.5, 2, len(ours.held)), np.linspace(2, 0.5, len(ours.held))
    ends = len(ours.held) - 1
    of_rates = lambda one, **known: replace(one, rates=replace(one.rates, **known))
    edge = ours.rates.gradient_descent
    results = [
        replace(ours, held=rising, best=0),
        replace(ours, held=falling, best=ends),
        of_rates(ours, diverges=(edge, edge)),
        of_rates(ours, diverges=(3 * edge, 5 * edge)),
        of_rates(ours, condition_number=np.inf),
        of_rates(ours, condition_number=1e4),
    ]
    texts = check(training, [*((numbers, one) for one in results), (labelled, theirs)])
    assert "stopping makes the held-out error 75" in texts[0]
    assert "not needed" in texts[1]


def test_forecast(numbers, labelled):
    ours, theirs = forecast.forecast(numbers), forecast.forecast(labelled)

    def with_gain(gain):
        error = ours.error.copy()
        error[ours.twice] = (1 - gain) * error[ours.now]
        return replace(ours, error=error)

    near = replace(theirs, accuracy=np.full(len(theirs.n), 0.8), n_needed=[100.0, 200.0, 300.0], trusted_to=150)
    results = [near, replace(near, n_needed=[200.0, 300.0, np.inf]), replace(near, n_needed=[np.inf] * 3)]
    results.append(replace(near, accuracy=np.full(len(theirs.n), 0.999)))
    full = replace(numbers, limits=numbers.limits._replace(folds=5))
    gains = [(numbers, with_gain(gain)) for gain in (0.0, 0.1, 0.3)]
    check(forecast, [*gains, (full, ours), *((labelled, one) for one in results)])


def test_ahead(numbers, labelled):
    n, curve = np.array([60, 90, 180]), np.array([0.3, 0.2, 0.1])
    known = ahead.Ahead(
        width=256,
        n_pilot=90,
        n_now=90,
        n=n,
        now=1,
        twice=2,
        classes=False,
        error=curve,
        low=0.8 * curve,
        high=1.2 * curve,
        kernel_error=1.1 * curve,
        better=np.full(3, 0.6),
        measured_sizes=np.array([16, 40, 81]),
        measured=2 * curve,
        n_trained=49,
        n_failed=0,
        kernel_change=0.5,
        alignment_before=0.3,
        alignment_after=0.5,
    )
    changes = [
        {"better": np.full(3, 0.97)},
        {"better": np.full(3, 0.03)},
        {"kernel_change": 0.05},
        {"alignment_after": 0.31},
        {"kernel_change": None, "alignment_before": None, "alignment_after": None},
        {"alignment_before": np.nan},
        {"n_failed": 1},
    ]
    results = [replace(known, classes=classes, **change) for classes in (False, True) for change in [{}, *changes]]
    texts = check(ahead, [(labelled if one.classes else numbers, one) for one in results])
    assert "80.0\u202f%" in texts[len(changes) + 1]  # of a share of 0.2 that is wrong
    assert "76.0\u202f% to 84.0\u202f%" in texts[len(changes) + 1]
    assert not any("The kernel moved by" in texts[at] for at in (5, 6))


def test_width(numbers, labelled):
    known = {
        "width": 256,
        "n_train": 68,
        "n_test": 22,
        "kernel": accuracy.Score(0.9, 0.8, 0.95),
        "n_diverged": 0,
        "kernel_change": 0.5,
        "alignment_before": 0.3,
        "alignment_after": 0.5,
    }
    base = {
        classes: width_section.Width(
            **known,
            measure="accuracy" if classes else "rmse",
            network=accuracy.Score(0.9, 0.8, 0.95),
            each=[0.88, 0.92],
            ahead_of_kernel=accuracy.Lead(0.0, 1.0),
            useful=True,
            with_unit_readout=None,
            steps=100,
        )
        for classes in (False, True)
    }
    both = ((numbers, base[False]), (labelled, base[True]))
    changes = [
        {"ahead_of_kernel": accuracy.Lead(0.1, 0.01)},
        {"ahead_of_kernel": accuracy.Lead(-0.1, 0.01)},
        {"kernel_change": 0.05},
        {"alignment_before": np.nan},
        {"alignment_after": 0.3},
        {"n_diverged": 1, "each": [0.9]},
        {"with_unit_readout": 0.8},
        {"useful": False},
    ]
    cases = [(problem, replace(result, **change)) for problem, result in both for change in [{}, *changes]]
    check(width_section, [*cases, (replace(numbers, asked="auto"), base[False])])
