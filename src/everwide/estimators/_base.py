"""What all estimators share: their inputs, their rows, and growing with new ones."""

import abc
import math
import numbers
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.special
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .._checks import InputError
from .._presets import PRESETS, preset
from ..layers import AbstractLayer
from ._learn import Choice, Goal, Learned, Task, batches, learn, show, solved

_CONSTANT = 1e-12  # of the size of a column: below, it does not vary
_SMALLEST = 1e-290  # below, a number is zero: its inverse would be infinite
_MOST_KNOTS = 1000
_OUTERMOST = 1e-3  # a share of rows: no rank is further out in the Gaussian


@dataclass(frozen=True)
class InputScaling:
    """`(x - mean) * factor`. Columns that never vary have the factor 0: a network is not shown what it cannot learn.

    Images are scaled by channel, other inputs by column. The mean square of all columns is 1, constant ones included.
    """

    mean: Float[np.ndarray, " channels"]
    factor: Float[np.ndarray, " channels"]

    @classmethod
    def of(cls, x: Float[np.ndarray, "n *sites channels"], weights: Float[np.ndarray, " n"]) -> "InputScaling":
        """Of training rows."""
        rows = x.reshape(-1, x.shape[-1])
        share = np.repeat(weights, len(rows) // len(x))
        share = share / share.sum()
        mean, std, largest = _moments(rows, share)
        varies = std > _CONSTANT
        shown = max(int(varies.sum()), 1)
        factor = np.where(varies, np.sqrt(len(varies) / shown) / np.where(varies, std, 1.0), 0.0)
        return cls(mean * largest, factor / largest)

    def __call__(self, x: Float[np.ndarray, "n *sites channels"]) -> Float[np.ndarray, "n *sites channels"]:
        return (x - self.mean) * self.factor


@dataclass(frozen=True)
class TargetScaling:
    """`(y - mean) / std`, one for each output; `std` is 1 where a target never varies."""

    mean: Float[np.ndarray, " outputs"]
    std: Float[np.ndarray, " outputs"]

    @classmethod
    def of(cls, y: Float[np.ndarray, "n outputs"], weights: Float[np.ndarray, " n"]) -> "TargetScaling":
        """Of training rows."""
        mean, std, largest = _moments(y, weights / weights.sum())
        return cls(mean * largest, np.where(std > _CONSTANT, std * largest, 1.0))

    def __call__(self, y: Float[np.ndarray, "n outputs"]) -> Float[np.ndarray, "n outputs"]:
        return (y - self.mean) / self.std

    def back(self, y: Float[np.ndarray, "*any outputs"]) -> Float[np.ndarray, "*any outputs"]:
        """In the user's units again."""
        return y * self.std + self.mean


@dataclass(frozen=True)
class Quantiles:
    """For each column, values of training rows and the quantiles of a Gaussian that belong to their ranks."""

    knots: tuple[Float[np.ndarray, " _"], ...]
    scores: tuple[Float[np.ndarray, " _"], ...]

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]) -> "Quantiles":
        """Of training rows; a row of weight w counts as w rows."""
        columns = [_knots(column, weights) for column in x.T]
        return cls(tuple(knots for knots, _ in columns), tuple(scores for _, scores in columns))

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Between values the quantiles are straight lines; beyond the outermost ones they stay."""
        scored = np.empty(x.shape)
        for at, (knots, scores) in enumerate(zip(self.knots, self.scores, strict=True)):
            scored[:, at] = np.interp(x[:, at], knots, scores)
        return scored


def _knots(column: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, place = np.unique(column, return_inverse=True)
    counts = np.bincount(place, weights, len(values))
    ranks = (np.cumsum(counts) - counts / 2) / counts.sum()
    kept = np.unique(np.linspace(0, len(values) - 1, _MOST_KNOTS).astype(int))
    return values[kept], scipy.special.ndtri(np.clip(ranks[kept], _OUTERMOST, 1 - _OUTERMOST))


@dataclass(frozen=True)
class TwoViews:
    """Scaled columns beside their scaled quantiles."""

    plain: InputScaling
    quantiles: Quantiles
    ranked: InputScaling

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]) -> "TwoViews":
        """Of training rows."""
        quantiles = Quantiles.of(x, weights)
        return cls(InputScaling.of(x, weights), quantiles, InputScaling.of(quantiles(x), weights))

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n more"]:
        return np.concatenate([self.plain(x), self.ranked(self.quantiles(x))], axis=1)


def _moments(
    rows: Float[np.ndarray, "n k"], share: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Mean and standard deviation in units of the largest entry, which keeps squares finite; and that entry."""
    largest = np.abs(rows).max(0)
    largest = np.where(largest > _SMALLEST, largest, 1.0)
    unit = rows / largest
    mean = share @ unit
    return mean, np.sqrt(share @ (unit - mean) ** 2), largest


_MOST_ROWS = 20_000
_FARTHEST = 1e17  # squares of scaled inputs stay finite, in float32 too


@dataclass(eq=False, repr=False, kw_only=True)
class AbstractWide(BaseEstimator, abc.ABC):
    """An infinitely wide network behind scikit-learn's contract: fields are settings, unchecked until `fit`."""

    architecture: Any = field(default="auto", kw_only=False)
    input_shape: Any = None
    max_rows: Any = None
    random_state: Any = None
    verbose: Any = False

    @abc.abstractmethod
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AbstractWide":
        """Learn from rows `X` and their targets."""

    @property
    def network_(self) -> AbstractLayer:
        """The network that was chosen, or given."""
        check_is_fitted(self)
        return self._learned.reader.network

    @property
    def choice_(self) -> Choice:
        """What was chosen, and why."""
        check_is_fitted(self)
        return self._learned.choice

    def transform_inputs(self, X: Any) -> Float[np.ndarray, "n *shown"]:
        """Inputs as `network_` reads them: scaled by what the training rows were, in the shape of `input_shape`.

        Where the network was chosen (`architecture="auto"`) for flat rows, every column is there twice, scaled and by
        its ranks, followed by columns of zeros: then there are more columns than `X` has.
        """
        check_is_fitted(self)
        return self._shown(self._folded(self._validated(X)))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learned")

    # Fitting

    def _validated(self, X: Any, y: Any = "no_validation", **checks: Any) -> Any:
        reset = not isinstance(y, str)
        return validate_data(self, X, y, reset=reset, allow_nd=True, dtype=np.float64, **checks)

    def _folded(self, x: Float[np.ndarray, "n *given"]) -> Float[np.ndarray, "n *shape"]:
        """Flat rows as images, where the user says so."""
        shape, numbers_in_row = self.input_shape, math.prod(x.shape[1:])
        if shape is None:
            return x
        if not isinstance(shape, tuple | list) or not all(isinstance(n, int | np.integer) and n > 0 for n in shape):
            raise InputError(f"input_shape={shape!r}: expected None or the shape of one example, such as (8, 8, 1).")
        if math.prod(shape) != numbers_in_row:
            raise InputError(
                f"input_shape={tuple(shape)} has {math.prod(shape)} numbers, and a row of X {x.shape[1:]}: "
                f"{numbers_in_row}. They must agree."
            )
        return x.reshape(len(x), *shape)

    def _shown(self, x: Float[np.ndarray, "n *shape"]) -> Float[np.ndarray, "n *shown"]:
        expected = self._shape
        if x.shape[1:] != expected:
            raise InputError(f"A row of X has the shape {x.shape[1:]}, expected {expected}, as in the training rows.")
        shown = show(self._scaling(x), self._given)
        size = np.abs(shown).reshape(len(shown), -1).max(1)
        if not (size < _FARTHEST).all():
            raise InputError(
                f"Row {int(np.argmax(~(size < _FARTHEST)))} of X is more than {_FARTHEST:.0e} standard deviations of "
                "the training rows away from them: nothing is known there. Is it in the same units?"
            )
        return shown

    def _given_network(self) -> AbstractLayer | None:
        """The user's network; None where it is to be chosen."""
        given = self.architecture
        if isinstance(given, AbstractLayer):
            return given
        if isinstance(given, str) and given in PRESETS:
            return preset(given, self._shape)
        if isinstance(given, str) and given == "auto":
            return None
        raise InputError(
            f"architecture={given!r}: expected 'auto', {', '.join(map(repr, PRESETS))}, or a network such as "
            "everwide.Serial(everwide.Dense(w_std=2**0.5), everwide.Relu(), everwide.Dense(1))."
        )

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31))

    def _weights(self, sample_weight: Any, X: np.ndarray) -> Float[np.ndarray, " n"]:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if (weights < 0).any() or not weights.any():
            raise InputError("sample_weight: expected weights of at least 0, and some above it.")
        return weights

    def _kept(self, weights: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
        """The rows to learn from: those with weight, and of these a random part where there are too many."""
        kept, most = np.flatnonzero(weights), self._most()
        rows = len(kept) if most is None else min(most, len(kept))
        if rows > _MOST_ROWS:
            raise InputError(
                f"{rows} rows: exact training takes up to {_MOST_ROWS}. Pass max_rows={_MOST_ROWS} to learn from a "
                "random part of them; approximate training on all rows is planned for a later version."
            )
        if rows == len(kept):
            return kept
        order = np.random.default_rng(self._seed()).permutation(kept)
        return np.sort(_spread(order, groups)[:rows])

    def _most(self) -> int | None:
        """The most rows that the user wants to learn from."""
        most = self.max_rows
        if most is None:
            return None
        if isinstance(most, bool) or not isinstance(most, numbers.Integral) or most < 2:
            raise InputError(f"max_rows={most!r}: expected None or a whole number of at least 2.")
        return int(most)

    def _learn(self, rows: Task, goal: Goal) -> Learned:
        self._shape: tuple[int, ...] = rows.x.shape[1:]
        self._given = self._given_network()
        views = TwoViews if self._given is None and rows.x.ndim == 2 else InputScaling
        self._scaling: InputScaling | TwoViews = views.of(rows.x, rows.copies)
        learned = learn(rows._replace(x=self._scaling(rows.x)), self._given, goal, self._seed())
        if self.verbose:
            sys.stdout.write(f"{learned.choice}\n")
        return learned

    def _accept(self, learned: Learned) -> None:
        self._learned = learned
        self.dual_coef_: Float[np.ndarray, "n k"] = learned.solution.coefficients / learned.scale

    def _grown(self, rows: Task) -> Learned:
        """With new rows, for the same network and ridge: only what is new is computed."""
        learned, old, most = self._learned, self._learned.solution, min(self._most() or _MOST_ROWS, _MOST_ROWS)
        if np.isfinite(learned.choice.relative_time):
            raise InputError(
                f"partial_fit: training that stops at the time {learned.choice.relative_time:.3g} starts anew with new "
                "rows. Set relative_time=float('inf'), or call fit with all rows."
            )
        reader, task, dtype, scale = learned.reader, learned.task, learned.dtype, learned.scale
        if len(rows.x) + len(task.x) > most:
            raise InputError(
                f"partial_fit: {len(rows.x)} new rows and {len(task.x)} old ones are more than {most}, the most that "
                f"is learned from. {'Raise max_rows.' if self.max_rows else 'Call fit with max_rows.'}"
            )
        if not hasattr(old, "extended"):
            old, _ = solved(reader.among(task.x, dtype), task, scale, ridge=old.ridge)
        new = rows._replace(x=self._shown(rows.x))
        cross, among = reader.cross(new.x, task.x, dtype) / scale, reader.among(new.x, dtype) / scale
        solution = old.extended(cross, among, *new[1:])
        whole = Task(*(np.concatenate(parts) for parts in zip(task, new, strict=True)))
        choice = replace(learned.choice, rows=len(whole.x), jitter=solution.jitter)
        return replace(learned, task=whole, solution=solution, choice=choice)

    # Predicting

    def _outputs(self, X: Any) -> Float[np.ndarray, "n k"]:
        """In scaled units."""
        x, learned = self.transform_inputs(X), self._learned
        return np.concatenate(
            [
                learned.reader.cross(x[rows], learned.task.x, learned.dtype) @ self.dual_coef_
                for rows in batches(len(x), len(learned.task.x))
            ]
        )


def _spread(order: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """An order of rows in which the beginning has every group in its share, and one row of each before all others."""
    if groups is None:
        return order
    place = np.empty(len(order))
    for group in np.unique(groups[order]):
        members = np.flatnonzero(groups[order] == group)
        place[members] = np.arange(len(members)) / len(members)
    return order[np.argsort(place, kind="stable")]


def number_or_auto(value: Any, name: str) -> float | None:
    """A number, or None for 'auto'."""
    if isinstance(value, str) and value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value) >= 0:
        raise InputError(f"{name}={value!r}: expected 'auto' or a number of at least 0.")
    return float(value)


def ridge_or_auto(value: Any, name: str) -> float | None:
    """A finite number, or None for 'auto'."""
    number = number_or_auto(value, name)
    if number is not None and np.isinf(number):
        raise InputError(f"{name}={value!r}: expected 'auto' or a finite number of at least 0.")
    return number


def ridge_and_time(ridge: Any, time: Any, grows: bool) -> tuple[float | None, float | None]:
    """What the user has fixed, of the two ways not to learn noise; with rows that come later, training never stops."""
    chosen, until = ridge_or_auto(ridge, "relative_ridge"), number_or_auto(time, "relative_time")
    if chosen and until is not None and np.isfinite(until):
        raise InputError(
            f"relative_ridge={ridge!r} and relative_time={time!r}: give one of them, and leave the other at 'auto'."
        )
    return chosen, np.inf if until is None and (grows or chosen is not None) else until
