"""Which columns matter, on rows that were kept out, and how predictions go with them."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..._checks import InputError
from ..._problem import Problem
from ..._words import count, number, percent, several
from ...estimators import WideClassifier, WideRegressor
from .._page import BLUE, GREEN, GREY, INK, ORANGE, Fact, Figure, Section, Text
from .accuracy import Score, cross_validated, losses_of
from .data import is_image, names_of, sources

_LEAST_HELD = 20  # rows: fewer tell nothing
_FEWEST, _MOST, _SHARE = 3, 6, 0.05  # columns that are looked at; beyond the fewest, those with such a share
_SHUFFLES, _DRAWS, _LEVEL = 5, 1000, 0.99  # of six columns that matter nothing, all are found to be so, mostly
_POINTS, _LEVELS, _ROWS = 12, 6, 60  # of a curve: values or levels, and rows over which it is a mean
_CLASSES = 3  # whose probabilities are drawn
_ENDS = (0.05, 0.95)  # shares of rows below and above which no curve goes
_STEADY = 0.01  # of its range: so much a curve may go back, and still rises or falls
_BARS, _LETTERS = 12, 22  # of the drawing

Features = Float[np.ndarray, "n d"]


class Curve(NamedTuple):
    """Mean outputs where rows take these values, numbers or levels, of one column."""

    values: list[float] | list[str]
    outputs: Float[np.ndarray, "points outputs"]

    @property
    def of_numbers(self) -> bool:
        """Whether values have an order."""
        return not isinstance(self.values[0], str)


@dataclass(frozen=True, eq=False)
class Column:
    """A column that was looked at. `share`: in what the first layers see.

    `rise`: of the error (root mean square, or the share of wrong answers) of rows that were kept out, when they
    exchange their values of this column; with its 99 % interval.
    """

    name: str
    share: float
    rise: Score
    curve: Curve

    @property
    def matters(self) -> bool:
        """Whether the error rises, beyond chance."""
        return self.rise.low > 0


@dataclass(frozen=True, eq=False)
class ColumnsThatMatter:
    """What an estimator has learned of columns, and what they are worth to it on rows that were kept out.

    - `names`, `shares`: of all columns, the largest first; `looked_at`: the first of them. `learned`: in words.
    - `error`: of the `n_held` rows as they are. `outputs`: what curves are of: the target, or frequent classes.
    """

    n_learned: int
    n_held: int
    classes: bool
    learned: str
    error: float
    names: list[str]
    shares: Float[np.ndarray, " columns"]
    outputs: list[str]
    looked_at: list[Column]


def columns(problem: Problem) -> ColumnsThatMatter | None:
    """Of the default estimator of tables; images have no columns."""
    table = problem.table
    if is_image(table):
        return None
    if len(problem.held) < _LEAST_HELD:
        raise InputError(f"Which columns matter is asked on {_LEAST_HELD} rows or more, and there are only {table.n}.")
    if not np.ptp(table.x[problem.rows][problem.train], axis=0).any():
        raise InputError("No column varies in the rows that are learned from: none of them can matter.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows that nobody has seen may lie far beyond all targets
        return _looked_at(problem, *_fitted(problem))


class Rows(NamedTuple):
    """Features and targets."""

    x: Features
    y: np.ndarray


def _fitted(problem: Problem) -> tuple[Any, Rows, Rows]:
    """The default estimator, its rows, and others; of what cross-validation has fitted, where that is it."""
    if problem.adds:
        known = problem.once(cross_validated)
        (model, held), x, y = known.last, problem.table.x[known.rows], known.truth
        train = np.setdiff1d(np.arange(len(y)), held)
        return model, Rows(x[train], y[train]), Rows(x[held], y[held])
    train, held = (
        Rows(problem.table.x[problem.rows][some], problem.labels[some]) for some in (problem.train, problem.held)
    )
    model = problem.new(WideClassifier if problem.classes else WideRegressor, "auto")
    return model.fit(*train), train, held


def _looked_at(problem: Problem, model: Any, train: Rows, held: Rows) -> ColumnsThatMatter:
    made = names_of(problem.table)
    places_of = sources(made)
    shares = np.array([model.feature_importances_[places].sum() for places in places_of.values()])
    order, names = np.argsort(-shares, kind="stable"), list(places_of)
    most = min(max(_FEWEST, int((shares >= _SHARE).sum())), _MOST)
    outputs, answer = _answers(problem, model)
    losses = losses_of(problem, model.predict(held.x), held.y)
    looked_at = []
    for at in order[:most]:
        places, seed = places_of[names[at]], [problem.seed, 8, int(at)]
        shuffled = [exchanged(held.x, places, np.random.default_rng([*seed, k])) for k in range(_SHUFFLES)]
        said = model.predict(np.concatenate(shuffled)).reshape(_SHUFFLES, len(held.y))
        rise = rise_of(problem, losses, np.mean([losses_of(problem, one, held.y) for one in said], axis=0))
        curve = curve_of(answer, train.x, names[at], places, made)
        looked_at.append(Column(names[at], float(shares[at]), rise, curve))
    return ColumnsThatMatter(
        n_learned=len(train.y),
        n_held=len(held.y),
        classes=problem.classes is not None,
        learned=model.choice_.description,
        error=_error(problem, losses.mean()),
        names=[names[at] for at in order],
        shares=shares[order],
        outputs=outputs,
        looked_at=looked_at,
    )


def _answers(problem: Problem, model: Any) -> tuple[list[str], Callable[[Features], Float[np.ndarray, "n outputs"]]]:
    """What curves are of, by name and as functions: numbers, or probabilities of frequent classes."""
    if not problem.classes:
        return [problem.table.target], lambda x: model.predict(x)[:, None]
    codes, sizes = model.classes_.astype(np.int64), np.bincount(problem.labels.astype(np.int64))
    frequent = np.argsort(-sizes[codes], kind="stable")[: _CLASSES if len(codes) > 2 else 1]
    return [problem.classes[codes[at]] for at in frequent], lambda x: model.predict_proba(x)[:, frequent]


def exchanged(x: Features, places: list[int], rng: np.random.Generator) -> Features:
    """Rows that have exchanged their values of one column: all that was made of it goes together."""
    shuffled = x.copy()
    shuffled[:, places] = x[rng.permutation(len(x))][:, places]
    return shuffled


def rise_of(problem: Problem, losses: Float[np.ndarray, " n"], shuffled: Float[np.ndarray, " n"]) -> Score:
    """Of the error; its interval by drawing rows again, with both of their losses."""
    drawn = np.random.default_rng([problem.seed, 9]).integers(len(losses), size=(_DRAWS, len(losses)))
    rises = _error(problem, shuffled[drawn].mean(1)) - _error(problem, losses[drawn].mean(1))
    low, high = np.quantile(rises, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Score(float(_error(problem, shuffled.mean()) - _error(problem, losses.mean())), float(low), float(high))


def _error(problem: Problem, loss: Any) -> Any:
    """The share of wrong answers, or a root mean square."""
    return loss if problem.classes else np.sqrt(loss)


def curve_of(
    answer: Callable[[Features], Any], x: Features, name: str, places: list[int], made: tuple[str, ...]
) -> Curve:
    """Partial dependence: the mean answer of rows that all take the value of one, as it is in the table.

    As of `sklearn.inspection.partial_dependence`, for columns of which several features were made, too.
    """
    values, donors = _values(x[:, places], [made[place].removeprefix(name) for place in places])
    rows = x[np.linspace(0, len(x) - 1, min(_ROWS, len(x))).astype(int)]
    changed = np.repeat(rows[None], len(donors), axis=0)
    changed[:, :, places] = x[donors][:, None, places]
    outputs = answer(changed.reshape(-1, x.shape[1])).reshape(len(donors), len(rows), -1)
    return Curve(values, outputs.mean(1))


def _values(x: Features, suffixes: list[str]) -> tuple[list[float] | list[str], Int[np.ndarray, " points"]]:
    """Numbers from small to large, or frequent levels; and a row that has each of them."""
    if suffixes[0].startswith("=") and len(suffixes) > 1:
        level = np.where(x.any(1), np.argmax(x, axis=1), len(suffixes))
        words = [*(one.lstrip("=: ").strip() for one in suffixes), "none of them"]
        levels, first, sizes = np.unique(level, return_index=True, return_counts=True)
        frequent = np.sort(np.argsort(-sizes, kind="stable")[:_LEVELS])
        return [words[levels[at]] for at in frequent], first[frequent]
    known = np.flatnonzero(x[:, -1] == 0) if suffixes[-1] == " is missing" else np.arange(len(x))
    known = known if len(known) else np.arange(len(x))
    order = known[np.argsort(x[known, 0], kind="stable")]
    if len(np.unique(x[order, 0])) > _POINTS:
        order = order[
            np.linspace(_ENDS[0] * (len(order) - 1), _ENDS[1] * (len(order) - 1), _POINTS).round().astype(int)
        ]
    values, first = np.unique(x[order, 0], return_index=True)
    return values.tolist(), order[first]


def _text(problem: Problem, result: ColumnsThatMatter) -> Text:
    facts = tuple(
        Fact(f"\u201c{column.name}\u201d", percent(column.share, 0), _meaning(result, column))
        for column in result.looked_at
    )
    notes = [
        f"Of the estimator that everwide takes for tables, fitted to {count(result.n_learned)} rows: {result.learned}. "
        "Percentages say how much of what it sees comes from each column.",
        "Columns that say the same are worth little one by one: while one is shuffled, the others are still there. "
        f"Curves are means over rows of which this column alone is changed, from the {_ENDS[0]:.0%} smallest to the "
        f"{1 - _ENDS[1]:.0%} largest values.",
    ]
    if problem.asked != "auto":
        notes.append("It is not the network that you asked for, which has no such shares.")
    if rest := len(result.names) - len(result.looked_at):
        left = percent(float(result.shares[len(result.looked_at) :].sum()), 0)
        notes.append(f"{several(rest, 'other column has', 'other columns together have')} {left}.")
    return Text(facts, notes=tuple(notes))


def _meaning(result: ColumnsThatMatter, column: Column) -> str:
    rise, show = column.rise, percent if result.classes else number
    rows = f"Shuffled in {count(result.n_held)} rows that were kept out"
    if not column.matters:
        return f"{rows}, it raises the error by no more than chance: it matters little, or others say the same."
    what = "share of wrong answers" if result.classes else "root mean square error"
    raised = f"{rows}, it raises the {what} from {show(result.error)} by {show(rise.value)}"
    return f"{raised} ({show(rise.low)} to {show(rise.high)}). {_direction(result, column.curve)}"


def _direction(result: ColumnsThatMatter, curve: Curve) -> str:
    """Of the output that moves most."""
    at = int(np.argmax(np.ptp(curve.outputs, axis=0)))
    outputs, show = curve.outputs[:, at], percent if result.classes else number
    means = f"Probabilities of \u201c{result.outputs[at]}\u201d" if result.classes else "Predictions"
    low, high, steps = int(np.argmin(outputs)), int(np.argmax(outputs)), np.diff(outputs)
    named = [f"\u201c{value}\u201d" if isinstance(value, str) else number(value) for value in curve.values]
    for word, sign in (("rise", 1), ("fall", -1)):
        if curve.of_numbers and (sign * steps >= -_STEADY * np.ptp(outputs)).all():
            ends = f"from {show(outputs[0])} to {show(outputs[-1])}"
            return f"{means} {word} {ends} as it goes from {named[0]} to {named[-1]}."
    highest, lowest = (f"{show(outputs[place])}, at {named[place]}" for place in (high, low))
    return f"{means} are highest, {highest}, and lowest, {lowest}."


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}\u2026"


def _draw(figure: Any, result: ColumnsThatMatter) -> None:
    above, below = figure.subfigures(2, 1, height_ratios=(2, 3))
    ax, shown = above.subplots(), min(_BARS, len(result.names))
    matter = {column.name for column in result.looked_at if column.matters}
    colours = [BLUE if name in matter else GREY for name in result.names[:shown]]
    ax.barh(range(shown), 100 * result.shares[:shown], color=colours, height=0.7)
    ax.set_yticks(range(shown), [_short(name) for name in result.names[:shown]])
    ax.tick_params(axis="y", labelcolor=INK, length=0)
    ax.set(xlabel="share of what is seen, %", ylim=(shown - 0.4, -0.6))
    ax.grid(axis="y", visible=False)
    wide = min(3, len(result.looked_at))
    axes = below.subplots(-(-len(result.looked_at) // wide), wide, sharey=True, squeeze=False).ravel()
    for ax, column in zip(axes, result.looked_at, strict=False):
        _draw_curve(ax, column, result)
    for ax in axes[len(result.looked_at) :]:
        ax.set_axis_off()
    if result.classes:
        axes[0].legend([_short(name) for name in result.outputs], fontsize=7)


def _draw_curve(ax: Any, column: Column, result: ColumnsThatMatter) -> None:
    curve, scale = column.curve, 100 if result.classes else 1
    across = curve.values if curve.of_numbers else range(len(curve.values))
    for outputs, colour in zip(curve.outputs.T, (BLUE, ORANGE, GREEN), strict=False):
        ax.plot(across, scale * outputs, "-" if curve.of_numbers else "o", color=colour, markersize=5)
    if not curve.of_numbers:
        ax.set_xticks(across, [_short(str(value))[:10] for value in curve.values], rotation=45, ha="right")
    ax.set_title(_short(column.name), fontsize=8.5, color=INK)
    ax.tick_params(labelsize=7.5)
    ax.locator_params(axis="y", nbins=4)


_CAPTION = (
    "Bars: how much of what is seen comes from each column; blue ones matter on rows that were kept out. Curves: mean "
    "predictions (of classes: probabilities, %) as one column changes."
)

SECTION = Section(
    "columns",
    "Which columns matter",
    "Which columns matter on rows it has not learned from, and how do predictions go with them?",
    measure=columns,
    describe=_text,
    figure=Figure(_draw, 5.6, _CAPTION),
)
