"""Training, predicted: errors over time, when to stop, and the rates that are stable."""

from typing import NamedTuple

import numpy as np

from ...spectral import gradient_flow
from ...theory.rates import StableRates, stable_rates
from ...training import Regression
from .._words import count, number, percent
from ._problem import Problem
from ._section import Fact, Grid, Section

KEY, TITLE = "training", "How training will go"
QUESTION = "Which learning rate is safe, how long does training take, and when should it stop?"
_LOOKS = 60
_MOST_TIME = 1e7  # times that of the strongest mode
_LEFT = 0.01  # of the training error, when it counts as fitted
_NEAR = 1.02  # times the lowest error, from which little is gained
_BETTER = 0.97  # of the error at the end, below which stopping early pays


class Curves(NamedTuple):
    """Mean squared errors over those of a network that has learned nothing; shares of right classes, or empty."""

    times: np.ndarray
    train: np.ndarray
    held: np.ndarray
    train_right: np.ndarray
    held_right: np.ndarray


def training(problem: Problem) -> Section:
    """Gradient flow on the squared loss in closed form, and `theory.stable_rates`."""
    kernel, y = problem.kernel.ntk, problem.y
    inside = kernel[np.ix_(problem.train, problem.train)]
    rates = stable_rates(inside, None, y[problem.train])
    curves = _curves(problem, rates, inside)
    step = rates.gradient_descent / 2
    best, last = int(np.argmin(curves.held)), len(curves.times) - 1
    fitted = np.flatnonzero(curves.train <= _LEFT)
    numbers = {
        "rows": len(problem.train),
        "held_out_rows": len(problem.held),
        "rates": _rates(rates),
        **curves._asdict(),
        "steps": curves.times / step,
        "best_time": curves.times[best],
        "best_steps": curves.times[best] / step,
        "best_held_out_error": curves.held[best],
        "final_held_out_error": curves.held[last],
        "steps_to_fit": curves.times[fitted[0]] / step if len(fitted) else None,
    }
    facts = (*_rate_facts(rates), _stopping(curves, best, last, step), _conditioned(rates))
    notes = (
        f"Learned from {count(len(problem.train))} rows, measured on {count(len(problem.held))} others. Steps are of "
        "gradient descent at half of the largest rate; an error of 1 is that of a network that knows only the mean.",
    )
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=notes, grids=(_table(curves, step, best),))


def _rate_facts(rates: StableRates) -> tuple[Fact, ...]:
    return (
        Fact(
            "Largest rate, gradient descent",
            number(rates.gradient_descent),
            "Above it training diverges. Start at half of it: full batches, mean squared loss, NTK parametrization "
            "(everwide.optim translates).",
        ),
        Fact(
            "Largest rate, ADAM*",
            number(rates.adam_star or 0.0),
            f"ADAM* divides by one norm for all parameters; decay it, or it hovers. Momentum 0.9 bears "
            f"{number(rates.momentum)} in gradient descent.",
        ),
    )


def _curves(problem: Problem, rates: StableRates, inside: np.ndarray) -> Curves:
    kernel, y, train, held = problem.kernel.ntk, problem.y, problem.train, problem.held
    unit = len(train) / rates.lambda_max
    slowest = len(train) / rates.lambda_min if rates.lambda_min > 0 else np.inf
    times = unit * np.geomspace(0.1, min(_MOST_TIME, 10 * slowest / unit), _LOOKS)
    fit, flow = Regression(inside, y[train]), gradient_flow(times)
    outputs = fit.train(flow), fit.predict(kernel[np.ix_(held, train)], flow)
    error = lambda found, rows: np.mean((found - y[rows]) ** 2, (1, 2)) / max(np.mean(y[rows] ** 2), 1e-300)
    right = lambda found, rows: np.mean((found + problem.means).argmax(-1) == y[rows].argmax(-1), -1)
    empty = np.zeros(0)
    rights = (right(outputs[0], train), right(outputs[1], held)) if problem.classes else (empty, empty)
    return Curves(times, error(outputs[0], train), error(outputs[1], held), *rights)


def _rates(rates: StableRates) -> dict[str, float | None]:
    names = ("gradient_descent", "momentum", "best", "adam_star", "lambda_max", "lambda_min", "condition_number")
    return {name: getattr(rates, name) for name in names}


def _stopping(curves: Curves, best: int, last: int, step: float) -> Fact:
    steps = curves.times[best] / step
    if curves.held[best] < _BETTER * curves.held[last] and best < last:
        gain = percent(1 - curves.held[best] / curves.held[last], 0)
        meaning = (
            f"Stop there: training on to the end would fit noise, and stopping makes the held-out error {gain} less."
        )
        return Fact("Best moment to stop", f"{count(steps)} steps", meaning)
    enough = curves.times[np.argmax(curves.held <= _NEAR * curves.held[best])] / step
    meaning = f"Train to the end: the held-out error does not rise. After {count(enough)} steps little is gained."
    return Fact("Early stopping", "not needed", meaning)


def _conditioned(rates: StableRates) -> Fact:
    meaning = "Some rows are equal to the network, and their mean is all it can learn. Look for copies in the data."
    if np.isfinite(rates.condition_number):
        meaning = (
            "Steps that the slowest pattern takes, about. Large numbers are normal; what you need is above: the moment "
            "from which held-out rows gain nothing more."
        )
    return Fact("Condition number", number(rates.condition_number), meaning)


def _table(curves: Curves, step: float, best: int) -> Grid:
    places = sorted({*range(0, len(curves.times), 10), best, len(curves.times) - 1})
    columns = ("steps", "training error", "held-out error") + (("held-out accuracy",) if len(curves.held_right) else ())
    rows = tuple(
        (number(curves.times[at] / step), number(curves.train[at]), number(curves.held[at]))
        + ((percent(curves.held_right[at]),) if len(curves.held_right) else ())
        for at in places
    )
    return Grid("Errors over the course of training", columns, rows)
