"""The learning curve of any model, from its measured beginning."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from .._checks import InputError, finite_array, positive, probability
from ._curves import beginning, beside, features, log_quantiles, prior
from ._forecast import Curve, draw, first_below, rows_asked_for

_FEWEST, _SMALLEST_RANGE = 4, 1.5  # sizes; the largest over the smallest
_NEAREST, _FARTHEST = 0.5, 6.0  # log2 of the factors that the prior has seen
_ROUGHNESS = 18  # a column of the inputs of the networks


class Begun(NamedTuple):
    """What was measured, by rising size, and what is known beside it."""

    sizes: np.ndarray
    errors: np.ndarray
    stderr: np.ndarray  # NaN where none were given
    learner: str | None
    others: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Extrapolation:
    """The error that a model will have, by the number of rows it learns from. Made by `extrapolate`."""

    n: np.ndarray
    error: Curve
    low: Curve
    high: Curve
    measured: Begun

    def samples_needed(self, target: float, *, quantile: float = 0.5) -> float:
        """The fewest rows with which the error is at most `target`; infinite where that is not reached.

        Half of all models need more than the median says. To buy all rows in one round, ask for a higher quantile, as
        `quantile=0.9`: with so many rows the target is reached with that probability. With several rounds of labelling
        take the median, label, measure, and extrapolate again: it costs fewer rows.

        Mahmood et al., "How much more data do I need?" (2022), who correct the target instead.
        """
        positive(target, "samples_needed: target")
        spread = float(ndtri(probability(quantile, "samples_needed: quantile")) / ndtri(0.95))

        def curve(n: np.ndarray) -> np.ndarray:
            low, middle, high = log_errors(self.measured, n).T
            return middle + spread * (high - middle if spread > 0 else middle - low)

        return max(first_below(curve, math.log(target) + 1e-12), float(self.measured.sizes[0]))

    def table(self) -> list[dict[str, float]]:
        """One row for each `n`."""
        columns = zip(self.n, self.error, self.low, self.high, strict=True)
        return [dict(zip(("n", "error", "low", "high"), map(float, row), strict=True)) for row in columns]

    def plot(self, ax: Any = None) -> Any:
        """The measured beginning, the forecast and its interval, on matplotlib axes."""
        return draw(ax, self, "90% interval", *self.measured[:2], "measured", "error on new rows")

    def __str__(self) -> str:
        lines = [f"{'rows':>10}  {'error':>9}  90% interval"]
        lines += [f"{int(r['n']):10d}  {r['error']:9.4g}  {r['low']:.4g} .. {r['high']:.4g}" for r in self.table()]
        sizes, learner = self.measured.sizes, self.measured.learner or "any"
        return "\n".join([*lines, f"Measured at {len(sizes)} sizes up to {sizes[-1]:g}; learner: {learner}."])


def extrapolate(
    sizes: Any, errors: Any, n: Any, *, stderr: Any = None, learner: str | None = None, others: Any = None
) -> Extrapolation:
    """Continue the learning curve of any model, from the errors that were measured with few rows.

    Shapes of curves (power laws with a floor, shifted ones, those of Morgan, Mercer and Flodin, and of Weibull) are
    weighed by how well they agree with the beginning. Small networks, which have learned from some four thousand real
    curves how these go on, correct the forecast and give the interval; intervals are stretched so that they held for
    data sets that were not learned from, beginnings that are not monotone apart. The prior has seen up to 64 times the
    largest size, errors of at least 1 %, and sizes up to half a million; beyond, the shapes speak, and the interval
    grows. Errors that are all at most 1 are taken for shares of wrong classes; others, as squared errors, are scaled by
    the first of them.

    Args:
        sizes: numbers of rows that were learned from, four or more, in any order.
        errors: measured on new rows with each size, all above 0; better as means over several draws of the rows.
        n: for how many rows; one number or several. Up to the largest size the result is what was measured.
        stderr: standard errors of `errors`, if they are known.
        learner: a family, "network", "trees", "kernel", "linear", "neighbours" or "bayes"; or a name: "mlp", "realmlp",
            "tabnet", "tabpfn"; "tree", "extra_tree", "extra_trees", "forest", "boosting", "catboost"; "svm_poly",
            "svm_rbf", "svm_sigmoid"; "svm_linear", "logistic", "passive_aggressive", "perceptron", "ridge", "sgd",
            "lda", "qda"; "knn", "centroid"; "bernoulli_nb", "multinomial_nb", "complement_nb", "gaussian_nb". `None`:
            not known.
        others: errors of cheap models, by name, with the same rows at the same sizes. Logistic regression, nearest
            neighbours, naive Bayes, a tree and a forest are what the prior has seen; networks gain most from them.

    Returns:
        `n`; `error`: the median forecast; `low`, `high`: the 90 % interval; `measured`: what was
        given, sorted. Methods `samples_needed(target)`, `table()`, `plot()`.

    >>> import everwide.forecasting as fc, numpy as np
    >>> sizes = np.array([32, 64, 128, 256, 512])
    >>> curve = fc.extrapolate(sizes, 0.05 + 2 * sizes**-0.5, n=[2048, 8192], learner="mlp")
    >>> bool(curve.error[0] > curve.error[1] > 0.05), bool((curve.low < curve.error).all())
    (True, True)
    >>> curve.samples_needed(curve.error[0])
    2048.0

    Learned from LCDB 1.1 (Yan, Mohr and Viering, 2025; CC BY 4.0).
    """
    words = prior()["words"].tolist()
    if learner is not None and learner not in words[1:]:
        raise InputError(f"extrapolate(learner={learner!r}): expected None, or one of {', '.join(words[1:])}.")
    if not isinstance(others or {}, Mapping):
        raise InputError(
            f"extrapolate(others={others!r}): expected errors by the name of a model, {{'knn': [...], ...}}."
        )
    given = {"sizes": sizes, "errors": errors, **{f"others[{name!r}]": each for name, each in (others or {}).items()}}
    rows = [finite_array(each, f"extrapolate: {name}") for name, each in given.items()]
    for name, row in zip(given, rows, strict=True):
        if (row <= 0).any():
            hint = "An error of 0 says that too few rows were tested: leave that size out."
            raise InputError(f"extrapolate({name}={row.tolist()}): expected numbers above 0. {hint}")
    rows.append(np.nan * rows[0] if stderr is None else finite_array(stderr, "extrapolate: stderr"))
    if len({row.shape for row in rows}) > 1 or rows[0].ndim != 1 or (rows[-1] < 0).any():
        raise InputError("extrapolate: expected lists of equal length, one error for each size; no stderr below 0.")
    counts, measured, *cheap, noise = np.stack(rows)[:, np.argsort(rows[0])]
    if len(counts) < _FEWEST or (np.diff(counts) == 0).any() or counts[-1] < _SMALLEST_RANGE * counts[0]:
        expected = f"at least {_FEWEST} sizes, all different, the largest {_SMALLEST_RANGE} times the smallest or more"
        raise InputError(f"extrapolate(sizes={counts.tolist()}): expected {expected}. Average repeated ones.")
    asked = rows_asked_for(n, int(counts[-1]), "extrapolate")
    begun = Begun(counts, measured, noise, learner, dict(zip(others or {}, cheap, strict=True)))
    low, error, high = np.exp(log_errors(begun, asked)).T
    return Extrapolation(asked, error, low, high, begun)


def log_errors(curve: Begun, n: np.ndarray) -> Float[np.ndarray, "n 3"]:
    """At 5, 50 and 95 %: up to the largest size as measured; to 64 times by the prior; beyond, as the shapes go on."""
    shares = curve.errors.max() <= 1
    scale = max(1.0 if shares else 0.5 / curve.errors[0], 0.01 / curve.errors.min())
    errors = scale * np.stack([curve.errors, *curve.others.values()])
    begun = beginning(curve.sizes, errors, errors * curve.stderr / curve.errors)
    factor = np.log2(n) - begun.grid[-1]
    seen = np.clip(factor, _NEAREST, _FARTHEST)
    inputs, centers = features(begun, 2 ** (begun.grid[-1] + np.append(seen, np.maximum(factor, seen))))
    inputs, centers, far = inputs[:, : len(n)], centers[:, : len(n)], centers[0, len(n) :] - centers[0, : len(n)]
    at = prior()["words"].tolist().index(curve.learner or "")
    network = "others" if curve.others else "alone" if curve.learner is None else "learner"
    x = np.concatenate([inputs[0], np.tile(prior()["told"][at], (len(n), 1)), beside(inputs, centers)], 1)
    ahead = log_quantiles(prior(), network, int(prior()["group"][at]), x, seen)
    ahead = ahead[:, [1]] + (ahead - ahead[:, [1]]) * np.maximum(factor / _FARTHEST, 1)[:, None]
    noise = np.nanmax([np.mean(curve.stderr / curve.errors), inputs[0, 0, _ROUGHNESS]]) * ndtri([0.05, 0.5, 0.95])
    behind = np.interp(np.log2(n), begun.grid, np.log(begun.errors[0]))[:, None] + noise
    share = np.clip(factor / _NEAREST, 0, 1)[:, None]
    logs = share * (ahead + (centers[0] + far)[:, None]) + (1 - share) * behind - math.log(scale)
    return np.minimum(logs, 0) if shares else logs
