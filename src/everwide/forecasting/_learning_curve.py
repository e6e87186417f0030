"""The learning curve of any model: measured on parts of a pilot, then continued."""

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from .._checks import InputError, positive, probability, whole
from .._engine import Progress
from .._gram import kernel_matrix
from ._beside import ANY, Ahead, Errors, Roads, kernel_errors
from ._extrapolate import extrapolate
from ._fits import Design, Fits, design_of, run
from ._forecast import FEWEST, Curve, Forecast, ForecastWarning, draw, first_below, forecast_kernel, rows_asked_for
from ._identity import digest
from ._pilot import Targets, targets_of


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """The error that a model will have, by the number of rows it learns from. Made by `learning_curve_of`."""

    n: np.ndarray
    error: Curve
    low: Curve
    high: Curve
    unit: str
    sizes: np.ndarray
    errors: Errors
    failures: tuple[str, ...]
    kernel: Forecast | None
    kernel_errors: Errors | None
    ahead: Ahead

    def samples_needed(self, target: float, *, quantile: float = 0.5) -> float:
        """The fewest rows with which the error is at most `target`; infinite where that is not reached.

        `quantile`: as in `extrapolate`, the probability that it is reached with so many rows.
        """
        positive(target, "samples_needed: target")
        return needed(self.ahead, target, quantile)

    def table(self) -> list[dict[str, float]]:
        """One row for each `n`."""
        columns = zip(self.n, self.error, self.low, self.high, strict=True)
        return [dict(zip(("n", "error", "low", "high"), map(float, row), strict=True)) for row in columns]

    def plot(self, ax: Any = None) -> Any:
        """What was measured, the forecast and its interval, on matplotlib axes."""
        return draw(
            ax, self, "90% interval", self.sizes, np.nanmean(self.errors, 0), "measured", f"{self.unit}, new rows"
        )

    def __str__(self) -> str:
        lines = [f"{'rows':>10}  {'error':>9}  90% interval"]
        lines += [f"{int(r['n']):10d}  {r['error']:9.4g}  {r['low']:.4g} .. {r['high']:.4g}" for r in self.table()]
        fits = f"{np.isfinite(self.errors).sum()} fits with {self.sizes[0]} to {self.sizes[-1]} rows"
        told = f"The error is the {self.unit}; measured by {fits}."
        return "\n".join([*lines, told, *(f"Failed: {one}" for one in self.failures)])


def needed(ahead: Ahead, target: float, quantile: float) -> float:
    """The fewest rows, at least the smallest size, with which the error is below a target with some probability."""
    spread = float(ndtri(probability(quantile, "samples_needed: quantile")) / ndtri(0.95))

    def curve(n: np.ndarray) -> np.ndarray:
        low, middle, high = ahead.log_errors(n).T
        return middle + spread * (high - middle if spread > 0 else middle - low)

    return max(first_below(curve, math.log(target) + 1e-12), float(ahead.own.sizes[0]))


def learning_curve_of(
    model: Any,
    x: Any,
    y: Any,
    n: Any = None,
    *,
    kernel: Any = None,
    learner: str | None = None,
    task: str = "auto",
    path: Any = None,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> LearningCurve:
    """Measure how the error of any model begins to fall, with few fits to parts of a pilot, and continue it.

    Six sizes, from a sixteenth of the pilot to four fifths, and five folds: every row is tested once at every size, and
    a fold has the same test rows at all of them. `extrapolate` goes on from there. With `kernel`, half of the fall
    beyond the last size, or a little more for classes, is that of the kernel's own `forecast`. That helps models that
    are like the kernel, as networks are.

    Args:
        model: an estimator with `fit` and `predict`, which is copied for every fit; or a function
            `fit(x, y) -> predict`, where `predict(x)` gives classes, or numbers.
        x: the pilot, 64 rows or more, drawn at random from what the model will see: an array, or a data frame.
        y: its labels: classes or numbers, as in `forecast`.
        n: for how many rows; one number or several. By default from an eighth of the pilot to 20 times as many.
        kernel: a network, or what else `forecast` takes, for `x` as it is; by default there is none.
        learner: what the model is, as in `extrapolate`.
        task: "classification", "regression", or "auto", by the labels.
        path: a file in which finished fits are kept; with the same model, pilot and seed, they are not done again.
        threads: fits at a time.
        seed: of the folds and orders.
        progress: called after every fit.

    Returns:
        `n`; `error`: the median forecast; `low`, `high`: the 90 % interval; `unit`: "share of wrong classes", or "mean
        squared error"; `sizes`, `errors`: what was measured, a row for each fold, NaN where a fit failed; `failures`:
        what those said; `kernel`: its forecast; `kernel_errors`: as `errors`. Methods `samples_needed(target)`,
        `table()`, `plot()`.

    >>> import everwide.forecasting as fc, numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> x = np.random.default_rng(0).normal(size=(200, 20))
    >>> noise = np.random.default_rng(1).normal(size=200)
    >>> curve = fc.learning_curve_of(Ridge(), x, x.sum(1) + noise, n=[1000], learner="linear")
    >>> bool(curve.low[0] < curve.error[0] < curve.errors[:, -1].mean()), curve.unit
    (True, 'mean squared error')
    """
    whole(threads, "learning_curve_of: threads")
    targets = pilot_of(y, task, len(x), "learning_curve_of")
    design = design_of(targets, whole(seed, "learning_curve_of: seed", least=0))
    about = {"model": _name(model), "data": digest((x, y)), "seed": seed, "sizes": design.sizes.tolist()}
    fit = _fit_of(model, x, np.asarray(y), targets)
    fits = run(design, fit, path=path, about=about, threads=threads, progress=progress)
    matrix = None if kernel is None else kernel_matrix(kernel, x)
    return continued(design, fits, targets, n, matrix, learner, seed, ANY[targets.task])


def pilot_of(y: Any, task: str, rows: int, label: str) -> Targets:
    """The targets of a pilot that is large enough."""
    targets = targets_of(y, task)
    if len(targets.values) != rows:
        raise InputError(f"{label}: y has {len(targets.values)} rows and x {rows}: they must agree.")
    if rows < FEWEST:
        raise InputError(f"{label}: the pilot has {rows} labelled rows, expected {FEWEST} or more. Label more rows.")
    return targets


def continued(
    design: Design,
    fits: Fits,
    y: Targets,
    n: Any,
    kernel: np.ndarray | None,
    learner: str | None,
    seed: int,
    roads: Roads,
) -> LearningCurve:
    """The curve of what was measured, beside that of a kernel matrix if there is one."""
    asked, rows = rows_asked_for(n, len(y.values), "learning_curve_of"), len(y.values)
    least = 0.5 / rows if y.labels is not None else 1e-20 * y.variance  # none wrong in so many rows is not none at all
    use = np.isfinite(fits.errors).any(0)
    means = np.maximum(np.nanmean(fits.errors[:, use], axis=0), least)
    spread = np.nanstd(fits.errors[:, use], axis=0) / np.sqrt(np.isfinite(fits.errors[:, use]).sum(0))
    unit = 1.0 if y.labels is not None else means[0] / 2  # what is above 1 is no share
    own = extrapolate(design.sizes[use], means / unit, asked, stderr=spread / unit, learner=learner).measured
    curve = theirs = None
    if kernel is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* is trusted to", ForecastWarning)  # the interval says as much
            curve = forecast_kernel(
                kernel, None, y.values + y.mean if y.labels is None else y.labels, asked, task=y.task, seed=seed
            )
        theirs = kernel_errors(kernel, y, curve.ridge, design)
    ahead = Ahead(own, unit, curve, roads)
    low, error, high = np.exp(ahead.log_errors(asked)).T
    what = "mean squared error" if y.labels is None else "share of wrong classes"
    return LearningCurve(asked, error, low, high, what, design.sizes, fits.errors, fits.failures, curve, theirs, ahead)


def _fit_of(model: Any, x: Any, y: np.ndarray, targets: Targets) -> Callable[[np.ndarray, np.ndarray], float]:
    """The error on some rows, learned from others."""
    is_estimator = callable(getattr(model, "fit", None)) and callable(getattr(model, "predict", None))
    if not is_estimator and not callable(model):
        raise InputError(
            f"learning_curve_of(model={model!r}): expected an estimator with fit and predict, or a function "
            "fit(x, y) -> predict."
        )
    rows: Any = x.iloc if hasattr(x, "iloc") else np.asarray(x)

    def fit(train: np.ndarray, test: np.ndarray) -> float:
        learn: Any = copy.deepcopy(model).fit if is_estimator else model
        learned = learn(rows[train], y[train])
        predicted = np.asarray((learned.predict if is_estimator else learned)(rows[test]))
        if predicted.size != y[test].size:
            raise InputError(f"predictions have shape {predicted.shape}, expected {y[test].shape}")
        predicted = predicted.reshape(y[test].shape)
        if targets.labels is None:
            return float(np.mean((predicted.astype(np.float64) - y[test].astype(np.float64)) ** 2))
        return float(np.mean((predicted != y[test]).reshape(len(test), -1).any(1)))

    return fit


def _name(model: Any) -> str:
    """The same in another session: of an estimator with its parameters, of a function without its address."""
    return getattr(model, "__qualname__", None) or repr(model)
