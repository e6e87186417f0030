"""Training, predicted: errors over time, when to stop, and the rates that are stable."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..._problem import Problem
from ..._words import count, number, percent
from ...spectral import Spectrum, gradient_flow
from ...theory.rates import stable_rates
from .._page import BLUE, ORANGE, Fact, Figure, Grid, Section, Text, plain_ticks

_LOOKS = 60
_MOST_TIME = 1e7  # times that of the strongest mode
_LEFT = 0.01  # of the training error, when it counts as fitted
_NEAR = 1.02  # times the lowest error, from which little is gained
_BETTER = 0.97  # of the error at the end, below which stopping early pays
Curve = Float[np.ndarray, " times"]


@dataclass(frozen=True, eq=False)
class Training:
    """Gradient flow on the squared loss, and the rates of `everwide.theory.rates.stable_rates` on all rows.

    - `train`, `held`: mean squared errors over those of a network that has learned nothing, at `times`, or after
      `steps` of gradient descent at half of the edge. `train_right`, `held_right`: shares of right classes, or
      empty. `best`: the place where `held` is lowest.
    - `steps_to_fit`: until 1 % of the training error is left; `None` where that does not happen.
    """

    n_train: int
    n_held_out: int
    rates: Any
    times: Curve
    steps: Curve
    train: Curve
    held: Curve
    train_right: Float[np.ndarray, " looks"]
    held_right: Float[np.ndarray, " looks"]
    best: int
    best_steps: float
    best_held_out_error: float
    final_held_out_error: float
    steps_to_fit: float | None


def training(problem: Problem) -> Training:
    """Gradient flow in closed form, learned from some rows and measured on the others."""
    kernel, y, train, held = problem.kernel.ntk, problem.y, problem.train, problem.held
    rates = stable_rates(kernel, None, y, net=problem.net)
    own, cross = kernel[np.ix_(train, train)].astype(np.float64), kernel[np.ix_(held, train)]
    spectrum = Spectrum.of(own)
    times = _times(spectrum, len(train))
    steps, coefficients = 2 * times / rates.gradient_descent, spectrum.apply(gradient_flow(times), y[train])
    inside, outside = own @ coefficients, cross @ coefficients
    errors = _error(inside, y[train]), _error(outside, y[held])
    fitted, best = np.flatnonzero(errors[0] <= _LEFT), int(np.argmin(errors[1]))
    empty = np.zeros(0)
    return Training(
        n_train=len(train),
        n_held_out=len(held),
        rates=rates,
        times=times,
        steps=steps,
        train=errors[0],
        held=errors[1],
        train_right=_right(inside, y[train], problem.means) if problem.classes else empty,
        held_right=_right(outside, y[held], problem.means) if problem.classes else empty,
        best=best,
        best_steps=float(steps[best]),
        best_held_out_error=float(errors[1][best]),
        final_held_out_error=float(errors[1][-1]),
        steps_to_fit=float(steps[fitted[0]]) if len(fitted) else None,
    )


def _times(spectrum: Spectrum, n: int) -> Curve:
    """From a tenth of the time of the fastest mode to ten times that of the slowest."""
    values = spectrum.values[spectrum.learnable]
    fastest, slowest = n / values.max(), n / values.min()
    longest = 10 * slowest / fastest if spectrum.learnable.all() else np.inf
    return fastest * np.geomspace(0.1, min(_MOST_TIME, longest), _LOOKS)


def _error(outputs: Float[np.ndarray, "times n k"], y: Float[np.ndarray, "n k"]) -> Curve:
    return np.mean((outputs - y) ** 2, (1, 2)) / max(np.mean(y**2), 1e-300)


def _right(outputs: Float[np.ndarray, "times n k"], y: Float[np.ndarray, "n k"], means: np.ndarray) -> Curve:
    return np.mean((outputs + means).argmax(-1) == y.argmax(-1), -1)


def _text(problem: Problem, result: Training) -> Text:
    rates = result.rates
    facts = (
        Fact("Edge of the lazy regime", number(rates.gradient_descent), _above(*rates.diverges)),
        Fact(
            "Largest first rate, ADAM*",
            number(rates.adam_star or 0.0),
            "Of the infinitely wide network: above it the first step overshoots. ADAM* divides by one norm for all "
            "parameters; decay its rate, or it hovers. Adam is tried, not predicted: everwide rate --trial adam.",
        ),
        _stopping(result),
        _conditioned(rates.condition_number),
    )
    note = (
        f"Learned from {count(result.n_train)} rows, measured on {count(result.n_held_out)} others. Steps are of "
        "gradient descent at half of the edge; an error of 1 is that of a network that knows only the mean. "
        f"The rates are those of all {count(len(problem.rows))} rows."
    )
    return Text(facts, notes=(note,), grids=(_grid(result),))


def _above(low: float, high: float) -> str:
    """What happens above the edge, to networks of infinite and of finite width."""
    units = "Full batches, mean squared loss, NTK parametrization (everwide.optim translates)."
    if low == high:
        return (
            "Gradient descent diverges above it, and at finite widths above nearly the same rate, since only the last "
            f"layer of this network is trained. {units}"
        )
    return (
        "Gradient descent diverges above it at infinite width. Finite networks spike there and then train; such ones "
        f"were seen to diverge at {number(low)} to {number(high)}. {units} To choose a rate for yours: everwide rate "
        "--trial."
    )


def _stopping(result: Training) -> Fact:
    held, best = result.held, result.best
    if held[best] < _BETTER * held[-1] and best < len(held) - 1:
        gain = percent(1 - held[best] / held[-1], 0)
        meaning = (
            f"Stop there: training on to the end would fit noise, and stopping makes the held-out error {gain} less."
        )
        return Fact("Best moment to stop", f"{count(result.best_steps)} steps", meaning)
    enough = result.steps[np.argmax(held <= _NEAR * held[best])]
    meaning = f"Train to the end: the held-out error does not rise. After {count(enough)} steps little is gained."
    return Fact("Early stopping", "not needed", meaning)


def _conditioned(condition: float) -> Fact:
    meaning = "Some rows are equal to the network, and their mean is all it can learn. Look for copies in the data."
    if np.isfinite(condition):
        meaning = (
            "Steps that the slowest pattern takes, about. Large numbers are normal; what you need is above: the moment "
            "from which held-out rows gain nothing more."
        )
    return Fact("Condition number", number(condition), meaning)


def _grid(result: Training) -> Grid:
    last = len(result.times) - 1
    classes = len(result.held_right) > 0
    rows = tuple(
        (number(result.steps[at]), number(result.train[at]), number(result.held[at]))
        + ((percent(result.held_right[at]),) if classes else ())
        for at in sorted({*range(0, last, 10), result.best, last})
    )
    columns = ("steps", "training error", "held-out error") + (("held-out accuracy",) if classes else ())
    return Grid("Errors over the course of training", columns, rows)


def _draw(figure: Any, result: Training) -> None:
    ax = figure.subplots()
    lowest, train = result.best_held_out_error, np.maximum(result.train, 1e-4)
    ax.plot(result.steps, train, color=ORANGE, label="training rows")
    ax.plot(result.steps, result.held, color=BLUE, label="held-out rows")
    ax.plot(result.best_steps, lowest, "o", color=BLUE, markersize=6, label="lowest")
    ax.set(xscale="log", yscale="log", xlabel="steps of gradient descent", ylabel="error (1: nothing learned)")
    ax.set_ylim(bottom=max(5e-4, min(train.min(), lowest) / 2))
    ax.legend(loc="lower left")
    plain_ticks(ax.xaxis, ax.yaxis)


def _tile(result: Training) -> Fact:
    rate = number(result.rates.gradient_descent)
    return Fact("lazy up to the rate", rate, "gradient descent at infinite width diverges above it")


SECTION = Section(
    "training",
    "How training will go",
    "Up to which rate is training what is predicted here, how long does it take, and when should it stop?",
    measure=training,
    describe=_text,
    figure=Figure(_draw, 3.1, "Predicted, not run: the error on training rows, and on rows that were held out."),
    tile=_tile,
)
