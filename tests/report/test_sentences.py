"""Every sentence of the page is said under a condition: here each of them is true once, and once it is not said.

Sentences are read from the source of the sections. One that no case says, or that all cases say, fails; what is true of
every table stands in `ALWAYS`.
"""

import ast
import inspect
from dataclasses import replace

import numpy as np
import pytest

import everwide as ew
from everwide._problem import prepare
from everwide.report._sections import (
    accuracy,
    ahead,
    architecture,
    calibration,
    data,
    forecast,
    modes,
    phase,
    rows,
    training,
)
from everwide.report._sections import width as width_section
from everwide.report._sections.accuracy import CONSTANT, NETWORK
from report.report_tables import hostile_table, number_table, small_net
from report.test_sections import validation

pytestmark = pytest.mark.once
LEAST = 20  # letters of what counts as a part of a sentence

ALWAYS = {  # what a number is, and how it was made
    "data": ("Each row is one example.",),
    "accuracy": (
        "same folds for all models",
        "to mean 0 and variance 1",
        "each learned from",
        "to be expected on new rows",
    ),
    "rows": ("Rows are counted from 1", "what the network would say without them", "when that one row is removed"),
    "architecture": ("what goes in and out", "Repeated layers count once", "nothing larger is held"),
    "modes": (
        "Its share of the kernel",
        "at infinite width",
        "What ridge or stopping leaves",
        "mostly treated as noise",
    ),
    "width": (
        "in batches of 64",
        "They start with",
        " steps of ",
        "infinitely wide, on the same",
        "judged on",
        "before and after training",
        "The infinitely wide network, on",
    ),
    "forecast": (
        "Goals, and the rows",
        "rows; trusted to",
        "The band should hold",
        "with 90",
        "infinitely wide network that learns",
    ),
    "ahead": (
        "to say when to stop; others say",
        " networks of width ",
        "What to expect of a network of width",
        "With twice as many rows about",
        "of a trained network, all",
        "probability ",
        "Its kernel is expected to reach",
        "Which to use, with ",
        "of the same network at infinite width",
        "all layers, by Adam",
    ),
    "training": (
        "above it the first step overshoots",
        "decay its rate, or it hovers",
        "Largest first rate, ADAM*",
        "measured on",
        " others. Steps are of ",
        "an error of 1 is that",
        "The rates are those",
        "at infinite width diverges above it",
        "Full batches, mean squared loss",
    ),
    "phase": ("What a layer deep down does", "variance of weights", "variance of biases"),
}


def parts_of(room) -> list[str]:
    """Parts of sentences in the functions of a section: no docstrings, no messages of errors, no names of columns."""
    tree = ast.parse(inspect.getsource(room))
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            skipped |= {id(inner) for inner in ast.walk(node)}
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            skipped.add(id(body[0].value))
        if getattr(node, "name", "") in ("_draw", "_sides") or _is_of_the_figure(node):
            skipped |= {id(inner) for inner in ast.walk(node)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in skipped]
    texts = [node.value for node in constants if isinstance(node.value, str)]
    return [text for text in dict.fromkeys(texts) if len(text) >= LEAST and set(text) & set(".,;:?")]


def _is_of_the_figure(node) -> bool:
    """Its caption, and what a section is called."""
    named = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("_CAPTION", "SECTION", "NETWORK")
    return named


def said(room, problem, result) -> str:
    """All that the page says of a result."""
    text = room.SECTION.describe(problem, result)
    tile = room.SECTION.tile(result) if room.SECTION.tile else None
    facts = [*text.facts, *([tile] if tile else [])]
    grids = [(grid.caption, *grid.columns, *(cell for row in grid.rows for cell in row)) for grid in text.grids]
    words = [*(word for fact in facts for word in fact), *text.warnings, *text.notes, *text.cautions]
    return "\n".join([*words, *(cell for grid in grids for cell in grid)])


@pytest.fixture(scope="module")
def labelled():
    """A problem of classes, made ready."""
    return prepare(hostile_table(), small_net(), quick=True)


def table_with(problem, x, y, classes=None, **known):
    names = known.pop("names", tuple(f"column {at}" for at in range(x.shape[1])))
    return replace(problem, table=replace(number_table(), x=x, y=y, names=names, classes=classes, **known))


def cases_of_data(numbers, labelled):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(200, 3)), rng.normal(size=200)
    skewed, far = np.exp(3 * noise), noise.copy()
    far[7] = 1e12
    constant = x.copy()
    constant[:, 1] = 7.0
    constant[:, 2] = np.arange(200)
    images = x[:, :1].reshape(-1, 1, 1, 1) * np.ones((1, 4, 4, 1))
    images[:, 0, 0] = 0
    twice = np.concatenate([x[:100], x[:100]])
    yield numbers
    yield labelled
    yield table_with(numbers, x, x[:, 0] + noise)
    yield table_with(numbers, x, skewed)
    yield table_with(numbers, x, -skewed)
    yield table_with(numbers, x, far)
    yield table_with(numbers, constant, noise)
    yield table_with(numbers, twice, noise)
    yield table_with(numbers, x, 2 * x[:, 0])
    yield table_with(numbers, x, (np.arange(200) % 10 == 0).astype(int), ("no", "yes"))
    yield table_with(numbers, rng.normal(size=(110, 120)), rng.normal(size=110))
    yield table_with(numbers, rng.normal(size=(200, 130)), noise)
    yield table_with(numbers, images, noise, names=(), sites=(4, 4, 1))


def test_data(numbers, labelled, monkeypatch):
    monkeypatch.setattr(data, "_MOST_COLUMNS", 125)
    problems = list(cases_of_data(numbers, labelled))
    check(data, [(problem, data.SECTION.measure(problem)) for problem in problems])


def scored(problem, wrong: dict[str, np.ndarray], classes: bool):
    """Accuracy of models with these losses: shares of rows that are wrong, or squares of errors."""
    n = len(wrong[NETWORK])
    truth = np.arange(n) % 2 if classes else np.linspace(-1, 1, n)
    predicted = {
        name: np.where(one > 0, 1 - truth, truth) if classes else truth + np.sqrt(one) for name, one in wrong.items()
    }
    problem = replace(problem, table=replace(problem.table, classes=("a", "b") if classes else None))
    return problem, accuracy.accuracy(problem, validation(truth=truth, predicted=predicted, dropped=int(n == 300)))


def losses(rng, share, n, classes):
    return (rng.random(n) < share) * 1.0 if classes else share * rng.chisquare(1, size=n)


def cases_of_accuracy(problem):
    rng = np.random.default_rng(0)
    for classes in (False, True):
        for n in (300, 400):
            for own, rival in ((0.2, 0.2), (0.1, 0.4), (0.4, 0.1), (0.5, 0.5), (0.5, 0.1)):
                drawn = [losses(rng, share, n, classes) for share in (own, rival, 0.5)]
                yield scored(problem, dict(zip((NETWORK, "forest", CONSTANT), drawn, strict=True)), classes)
        other, same = (losses(rng, share, 600, classes) for share in (0.2, 0.5))
        yield scored(problem, {NETWORK: np.zeros(600), "forest": other, CONSTANT: same}, classes)
        one = np.r_[1e12, losses(rng, 0.2, 299, classes)]
        yield scored(problem, {NETWORK: one, "forest": one + 1, CONSTANT: one + 1}, classes)


def test_accuracy(numbers):
    quick = list(cases_of_accuracy(numbers))
    full = [(replace(problem, limits=problem.limits._replace(folds=5)), result) for problem, result in quick]
    large = [(problem, replace(result, n_table=50_000)) for problem, result in quick]
    check(accuracy, quick + full + large)
    assert "480 of 50" not in said(accuracy, *quick[0])


def cases_of_calibration(numbers, labelled):
    rng = np.random.default_rng(0)
    both = lambda p: np.stack([1 - p, p], 1)
    uneven = np.r_[np.full(600, 0.95), np.full(600, 0.55)]
    for sure, truth in (
        (np.full(1000, 0.7), rng.random(1000) < 0.7),
        (np.full(1000, 0.7), rng.random(1000) < 0.64),
        (np.full(1000, 0.99), rng.random(1000) < 0.6),
        (np.full(1000, 0.55), rng.random(1000) < 0.9),
        (uneven, rng.random(1200) < np.r_[np.full(600, 0.75), np.full(600, 0.75)]),
        (np.repeat([0.999, 0.6], 500), np.r_[np.ones(500), rng.random(500) < 0.6] > 0),
    ):
        known = validation(truth=truth.astype(int), probability=both(sure))
        yield labelled, calibration.calibration_of_classes(known)
    for share in (0.6, 0.9, 1.0):
        inside = rng.random((200, len(accuracy.LEVELS))) < share
        known = {"truth": rng.normal(size=200), "mean": np.zeros(200), "std": np.ones(200), "inside": inside}
        yield numbers, calibration.calibration_of_intervals(validation(**known, half_width=np.ones(200)))


def test_calibration(numbers, labelled):
    cases = list(cases_of_calibration(numbers, labelled))
    full = [(replace(problem, limits=problem.limits._replace(folds=5)), result) for problem, result in cases]
    check(calibration, cases + full)


def test_rows(numbers, labelled):
    ours, theirs = rows.rows(numbers), rows.rows(labelled)
    by_share = lambda one, first, all: replace(one, influence=one.influence._replace(share_of_first=first, share=all))
    none = np.zeros(0, int)
    larger = replace(numbers, table=replace(numbers.table, x=np.zeros((500, 2)), y=np.zeros(500)))
    check(
        rows,
        [
            *((numbers, by_share(ours, first, all)) for first, all in ((0.1, 0.3), (0.1, 0.6), (0.6, 0.9))),
            (numbers, replace(ours, ruled=True, outliers=1)),
            (numbers, replace(ours, ruled=False, outliers=0, surprising_rows=none, uncertain_rows=none)),
            (larger, ours),
            (labelled, replace(theirs, right=0.9, n_contradicted=3)),
            (labelled, replace(theirs, right=0.9, n_contradicted=0)),
            (labelled, replace(theirs, right=0.4)),
        ],
    )


class Chosen:
    """An estimator that has chosen this."""

    def __init__(self, choice):
        self.choice_ = choice


def chosen(problem, **known):
    return replace(problem, estimator=Chosen(replace(problem.estimator.choice_, **known)))


def test_architecture(numbers):
    endless = {"relative_time": np.inf}
    auto = replace(numbers, asked="auto", x=np.zeros((90, 8)))
    problems = [
        chosen(numbers, relative_ridge=0.1, **endless),
        chosen(numbers, relative_ridge=1e-8, **endless),
        chosen(numbers, relative_time=30.0),
        chosen(numbers, relative_time=1e8),
        chosen(auto, frozen=3, depth=3),
        chosen(replace(auto, x=np.zeros((90, 4))), frozen=0),
        replace(numbers, asked="mlp"),
    ]
    check(architecture, [(problem, architecture.architecture(numbers)) for problem in problems])


def test_modes(numbers):
    result = modes.modes(numbers)
    some = [replace(result, modes_for_90_percent=most) for most in (3, 30, 60, 85)]
    check(modes, [(numbers, one) for one in [*some, replace(result, rank=50)]])


def test_phase(numbers):
    hidden = lambda activation, w_std, b_std: ew.Serial(
        ew.Dense(w_std=1.0), activation, ew.Dense(w_std=w_std, b_std=b_std), activation, ew.Dense(1)
    )
    nets = [
        hidden(ew.Tanh(), 0.5, 0.0),
        hidden(ew.Tanh(), 1.0, 0.0),
        hidden(ew.Tanh(), 2.0, 0.0),
        hidden(ew.Relu(), 2**0.5, 0.1),
        hidden(ew.Relu(), 2.0, 0.0),
        hidden(ew.Sigmoid(), 1.0, 0.0),
        ew.Serial(*hidden(ew.Tanh(), 2.0, 0.0).layers[:-1], ew.LayerNorm(), ew.Dense(1)),
    ]
    problems = [replace(numbers, net=net) for net in nets]
    texts = check(phase, [(problem, phase.phase(problem)) for problem in problems])
    for text in texts:  # what depth does to rows is said in one way
        assert not ("apart" in text and "Differences fade" in text)


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


def check(room, cases) -> list[str]:
    """Every part of a sentence is said of some cases, and not of all."""
    texts = [said(room, *case) for case in cases]
    always = ALWAYS.get(room.SECTION.key, ())
    hits = {part: [part in text for text in texts] for part in parts_of(room)}
    never = [part for part, said in hits.items() if not any(said)]
    unconditional = [part for part, said in hits.items() if all(said) and not any(one in part for one in always)]
    assert not never, "\n".join(["no case makes the page say", *never])
    assert not unconditional, "\n".join(["all cases make the page say", *unconditional])
    return texts
