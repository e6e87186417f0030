"""What all estimators share: their inputs, their rows, and growing with new ones."""

import abc
import math
import numbers
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_array, check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .._checks import InputError, refuse_complex, single_of_half, warn
from .._presets import PRESETS, preset
from ..layers import AbstractLayer
from ._choice import Choice, Goal, Learned, Member, Task
from ._effort import Clock
from ._frames import (
    check_classes,
    check_labels,
    check_names,
    check_numbers,
    class_notes,
    constant_notes,
    dense,
    encoder_of,
    known_weights,
    needs_encoding,
)
from ._images import ImageScaling, image_scaling
from ._large import MOST_DOUBLE, Within, grown, told
from ._learn import DENSE, IMAGES, TABLE, Asked, learn, show
from ._rows import Support, distinct
from ._scaling import ALONE, AS_IT_IS, UNSURE_FENCE, Fences, Groups, InputScaling, TwoViews
from ._solve import solved

_FARTHEST = 1e17  # squares of scaled inputs stay finite, in float32 too


@dataclass(eq=False, repr=False, kw_only=True)
class AbstractWide(BaseEstimator, abc.ABC):
    """An infinitely wide network behind scikit-learn's contract: fields are settings, unchecked until `fit`."""

    architecture: Any = field(default="auto", kw_only=False)
    input_shape: Any = None
    max_rows: Any = None
    budget_seconds: Any = None
    memory: Any = None
    store: Any = None
    backend: Any = None
    categorical_features: Any = "from_dtype"
    random_state: Any = None
    verbose: Any = False

    @abc.abstractmethod
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AbstractWide":
        """Learn from rows `X` and their targets."""

    @property
    def network_(self) -> AbstractLayer:
        """The network that was chosen, or given; of several, the one with the largest share."""
        check_is_fitted(self)
        return self._learned.first.reader.network

    @property
    def choice_(self) -> Choice:
        """What was chosen, and why."""
        check_is_fitted(self)
        return self._learned.choice

    @property
    def feature_importances_(self) -> Float[np.ndarray, " columns"]:
        """Of tables with `architecture="auto"`: the share of each column of X in what the first layers see."""
        check_is_fitted(self)
        seen = self._learned.importances
        if seen is None:
            raise AttributeError("feature_importances_ are those of tables with architecture='auto'.")
        if self._encoder is None:
            return seen
        return np.bincount(self._encoder.source, seen, vars(self)["n_features_in_"])

    @property
    def dual_coef_(self) -> Float[np.ndarray, "n k"]:
        """Of a single network: the coefficients of its kernel with the rows learned from."""
        check_is_fitted(self)
        if len(self._learned.members) > 1:
            raise AttributeError("dual_coef_ are those of a single network, and several were chosen: see choice_.")
        return self._learned.first.coefficients

    def transform_inputs(self, X: Any) -> Float[np.ndarray, "n *shown"]:
        """Inputs as `network_` reads them: scaled by what the training rows were, in the shape of `input_shape`.

        With `architecture="dense"` every column is there twice, scaled and by its ranks, followed by columns of zeros:
        then there are more columns than `X` has. Images may be whitened.
        """
        check_is_fitted(self)
        return self._shown(self._folded(self._validated(X)))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learned")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        return tags

    # Fitting

    def _validated(self, X: Any, y: Any = "no_validation", sample_weight: Any = None, **checks: Any) -> Any:
        """Rows as numbers: of frames, categories and missing values by an encoder, which `fit` makes."""
        reset, rows = not isinstance(y, str), dense(X)
        refuse_complex(rows, "X")
        refuse_complex(y, "y")
        y = single_of_half(y) if reset else y
        if reset:
            check_labels(y, several=bool(checks.get("multi_output")))
            check_names(rows)
            (check_classes if is_classifier(self) else check_numbers)(y)
            self._encoder: Any = None
            self._notes: tuple[str, ...] = ()
            if self._looks_at_columns(rows):
                return self._encoded(rows, y, sample_weight, **checks)
        if self._encoder is None:
            validated = validate_data(self, rows, y, reset=reset, allow_nd=True, dtype=np.float64, **checks)
            if reset:
                self._notes = (*constant_notes(np.asarray(validated[0])), *self._class_notes(np.asarray(validated[1])))
            return validated
        self._check_columns(rows, reset=False)
        return check_array(self._encoder.transform(rows))

    def _encoded(self, X: Any, y: Any, sample_weight: Any, **checks: Any) -> tuple[np.ndarray, np.ndarray]:
        """Training rows, from which an encoder has learned."""
        self._check_columns(X, reset=True)
        _, y = check_X_y(np.zeros((len(X), 1)), y, estimator=self, **checks)
        weights, classifies = known_weights(sample_weight, len(X)), is_classifier(self) and y.ndim == 1
        self._encoder, x = encoder_of(X, y, weights, self.categorical_features, classifies)
        self._notes = (*self._encoder.notes, *self._class_notes(y))
        return x, y

    def _class_notes(self, y: np.ndarray) -> tuple[str, ...]:
        return class_notes(y) if is_classifier(self) and y.ndim == 1 else ()

    def _looks_at_columns(self, X: Any) -> bool:
        return self.input_shape is None and needs_encoding(X, self.categorical_features)

    def _check_columns(self, X: Any, reset: bool) -> None:
        """Their names and their number are those of the training rows, or become so."""
        validate_data(self, X, reset=reset, skip_check_array=True)

    def _groups(self) -> Groups:
        """Of features: for zeros and ones of a category its column of X; others are numbers, or say what is missing."""
        encoder = self._encoder
        if encoder is None:
            return None
        return np.where(encoder.indicator, encoder.source, np.where(encoder.gap, AS_IT_IS, ALONE))

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
        shown = show(self._scaling(x), self._asked)
        size = np.abs(shown).reshape(len(shown), -1).max(1)
        if not (size < _FARTHEST).all():
            raise InputError(
                f"Row {int(np.argmax(~(size < _FARTHEST)))} of X is more than {_FARTHEST:.0e} standard deviations of "
                "the training rows away from them: nothing is known there. Is it in the same units?"
            )
        return shown

    def _asked_for(self) -> Asked:
        """The user's network, or how it is to be chosen."""
        given = self.architecture
        if isinstance(given, AbstractLayer):
            return given
        if isinstance(given, str) and given in PRESETS:
            return preset(given, self._shape)
        if isinstance(given, str) and given == "dense" and len(self._shape) == 1:
            return DENSE
        if isinstance(given, str) and given == "auto":
            return TABLE if len(self._shape) == 1 else IMAGES
        raise InputError(
            f"architecture={given!r}: expected 'auto', 'dense' (of flat rows), {', '.join(map(repr, PRESETS))}, or a "
            "network such as everwide.Serial(everwide.Dense(w_std=2**0.5), everwide.Relu(), everwide.Dense(1))."
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
        if rows > MOST_DOUBLE and self._asks_for_variances():
            raise InputError(
                f"{rows} rows: uncertainty is known of up to {MOST_DOUBLE}. Pass max_rows={MOST_DOUBLE} to learn from "
                "a random part of them. WideRegressor and WideClassifier learn any number of rows."
            )
        if rows == len(kept):
            return kept
        order = np.random.default_rng(self._seed()).permutation(kept)
        return np.sort(_spread(order, groups)[:rows])

    def _asks_for_variances(self) -> bool:
        return hasattr(self, "which")

    def _within(self) -> Within:
        """What may be used."""
        return Within.of(self.memory, self._asks_for_variances(), self.store, self.backend)

    def _most(self) -> int | None:
        """The most rows that the user wants to learn from."""
        most = self.max_rows
        if most is None:
            return None
        if isinstance(most, bool) or not isinstance(most, numbers.Integral) or most < 2:
            raise InputError(f"max_rows={most!r}: expected None or a whole number of at least 2.")
        return int(most)

    def _budget(self) -> float | None:
        """Seconds that a fit may take."""
        seconds = self.budget_seconds
        if seconds is None:
            return None
        if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real) or not 0 < float(seconds) < np.inf:
            raise InputError(f"budget_seconds={seconds!r}: expected None or a number of seconds above 0.")
        return float(seconds)

    def _distinct(self, rows: Task) -> Task:
        """Each row once, where it is now being kept."""
        once = distinct(rows)
        self._place: Int[np.ndarray, " rows"] = once.place
        self._notes = (*self._notes, once.note) if once.note else self._notes
        return once.task

    def _learn(self, rows: Task, goal: Goal) -> Learned:
        clock = Clock(self._budget(), bool(self.verbose))
        self._shape: tuple[int, ...] = rows.x.shape[1:]
        self._asked = self._asked_for()
        self._scaling = self._scaling_of(rows, goal)
        notes, scaled = (*self._notes, *self._fenced(rows.x)), rows._replace(x=self._scaling(rows.x))
        del rows  # of very many, rows as they came would take as much memory as those that are learned from
        learned = learn(scaled, self._asked, goal, self._seed(), self._within(), clock)
        learned = replace(learned, choice=replace(learned.choice, notes=(*notes, *learned.choice.notes)))
        self._support = None if isinstance(self._asked, AbstractLayer) else _support(learned)
        if self.verbose:
            sys.stdout.write(f"{learned.choice}\n")
        return learned

    def _fenced(self, x: np.ndarray) -> tuple[str, ...]:
        """On values that are drawn near, where the network is chosen here."""
        fences = self._scaling.fences if isinstance(self._scaling, InputScaling) else None
        columns = 0 if fences is None else int(fences.beyond(x).any(0).sum())
        if not columns:
            return ()
        have = "columns have" if columns > 1 else "column has"
        return (f"{columns} {have} values far beyond all others: they are drawn near.",)

    def _scaling_of(self, rows: Task, goal: Goal) -> TwoViews | ImageScaling:
        """How rows are shown: as the user's network reads them, or as networks that are chosen here do."""
        asked = self._asked
        if isinstance(asked, str) and asked == IMAGES and rows.x.ndim == 4:
            return image_scaling(rows.x, rows.y, rows.copies, goal.which, self._seed())
        if isinstance(asked, str) and asked == DENSE:
            return TwoViews.of(rows.x, rows.copies, self._groups())
        fences = self._fences(rows) if isinstance(asked, str) and asked == TABLE else None
        return InputScaling.of(rows.x, rows.copies, self._groups(), fences)

    def _fences(self, rows: Task) -> Fences:
        """Around what was seen; where uncertainty is asked for, further out, so that it can grow."""
        if self._asks_for_variances():
            return Fences.of(rows.x, rows.copies, self._groups(), far=UNSURE_FENCE, tight=False)
        return Fences.of(rows.x, rows.copies, self._groups())

    def _accept(self, learned: Learned) -> None:
        self._learned = learned

    def _grown(self, rows: Task) -> Learned:
        """With new rows, for the same network and ridge: what is new is computed; of very many, all is solved again."""
        learned, task, within = self._learned, self._learned.task, self._within()
        if np.isfinite(learned.choice.relative_time):
            raise InputError(
                f"partial_fit: training that stops at the time {learned.choice.relative_time:.3g} starts anew with new "
                "rows. Set relative_time=float('inf'), or call fit with all rows."
            )
        total, most = len(rows.x) + len(task.x), self._most() or math.inf
        most = min(most, MOST_DOUBLE) if within.variances else most
        if total > most:
            way_out = "Raise max_rows." if self.max_rows == most else "WideRegressor and WideClassifier go on."
            raise InputError(
                f"partial_fit: {len(rows.x)} new rows and {len(task.x)} old ones are more than {most}, the most that "
                f"is learned from. {way_out}"
            )
        new = rows._replace(x=self._shown(rows.x))
        whole = Task(*(np.concatenate(parts) for parts in zip(task, new, strict=True)))
        dtype, doubles = learned.dtype, within.doubles(total, MOST_DOUBLE)
        if within.variances or (doubles and all(member.exact for member in learned.members)):
            members = tuple(_extended(member, task, new, dtype) for member in learned.members)
        else:
            members, dtypes = zip(*(grown(member, whole, within) for member in learned.members), strict=True)
            dtype = dtypes[0]
        jitter, solver = max(member.jitter for member in members), told(members, total, learned.first.relative_ridge)
        choice = replace(learned.choice, rows=total, jitter=jitter, solver=solver)
        self._place = np.append(self._place, np.arange(len(task.x), total))
        return replace(learned, members=members, task=whole, choice=choice, dtype=dtype, honest=None)

    # Predicting

    def _outputs(self, X: Any) -> Float[np.ndarray, "n k"]:
        """In scaled units; where the network was chosen here, not further away than training rows speak for."""
        outputs = self._learned.outputs(self.transform_inputs(X))
        if self._support is None:
            return outputs
        if not is_classifier(self) and (far := int(self._support.shrinks(outputs).sum())):
            warn(f"{far} of {len(outputs)} predictions lay far beyond all training targets: shrunk.", UserWarning)
        return self._support(outputs)


def _extended(member: Member, task: Task, new: Task, dtype: type) -> Member:
    """With new rows: only what is new is computed."""
    reader, scale, old = member.reader, member.scale, member.solution
    if not hasattr(old, "extended"):
        old, _ = solved(reader.among(task.x, dtype), task, scale, ridge=old.ridge)
    cross, among = reader.cross(new.x, task.x, dtype) / scale, reader.among(new.x, dtype) / scale
    solution = old.extended(cross, among, new.y, new.weights, new.left)
    return replace(member, solution=solution, exact=True)


def _support(learned: Learned) -> Support:
    return Support.of(learned.task.y, (learned.task.y - learned.left_out)[learned.judged])


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
