"""Whether the network knows what it does not know."""

import numpy as np

from .._words import count, number, percent
from ._problem import Problem
from ._section import Fact, Grid, Section
from ._validation import LEVELS, SHOWN_LEVEL, Validation, hurried

KEY, TITLE = "calibration", "Whether it knows when it is wrong"
QUESTION = "When it says that it is 90\u202f% sure, is it right nine times out of ten?"
_BINS = 10
_PROCESS, _ITSELF = "A Gaussian process of such networks", "The trained network, calibrated on its training rows"
_GOOD, _FAIR = 0.03, 0.08


def calibration(problem: Problem, found: Validation) -> Section:
    """Reliability and expected calibration error of classes; coverage of intervals of numbers."""
    if not problem.classes:
        return _of_numbers(found)
    return _of_classes(found, _ITSELF if hurried(problem) else _PROCESS)


def _of_classes(found: Validation, judge: str = _PROCESS) -> Section:
    sure = found.probability.max(1)
    right = (found.probability.argmax(1) == found.truth).astype(np.float64)
    edges = np.unique(np.quantile(sure, np.linspace(0, 1, _BINS + 1)))
    places = np.clip(np.searchsorted(edges, sure, side="right") - 1, 0, max(len(edges) - 2, 0))
    sizes = np.bincount(places)
    filled = np.flatnonzero(sizes)
    said, was = (np.bincount(places, values)[filled] / sizes[filled] for values in (sure, right))
    error = float(np.sum(sizes[filled] * np.abs(said - was)) / len(sure))
    chosen = found.probability[np.arange(len(sure)), found.truth.astype(np.int64)]
    log_loss = -float(np.mean(np.log(np.maximum(chosen, 1e-12))))
    numbers = {
        "rows": len(sure),
        "said": said,
        "was": was,
        "rows_in_bin": sizes[filled],
        "expected_calibration_error": error,
        "log_loss": log_loss,
        "mean_said": float(sure.mean()),
        "mean_was": float(right.mean()),
    }
    facts = (
        Fact("Expected calibration error", percent(error), _honest(error, float(sure.mean() - right.mean()))),
        _threshold(sure, right),
        Fact(
            "Log loss",
            number(log_loss),
            f"Nats by row; {number(float(np.log(found.probability.shape[1])))} would be guessing. Lower is better: use "
            "it to compare with other models that give probabilities.",
        ),
    )
    notes = (f"{judge}, on {count(len(sure))} rows it had not seen, in bins of equal size.",)
    rows = tuple((percent(a), percent(b), count(n)) for a, b, n in zip(said, was, sizes[filled], strict=True))
    grid = Grid("What it said, and what was", ("said", "right", "rows"), rows)
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=notes, grids=(grid,))


def _honest(error: float, excess: float) -> str:
    if error < _GOOD:
        return "The probabilities can be taken at their word."
    side = "too sure of itself" if excess > 0 else "too careful"
    if error < _FAIR:
        return f"It is a little {side}: probabilities are good for ranking, and nearly so for decisions."
    return f"It is {side}: calibrate the probabilities (sklearn.calibration) before you decide by them."


def _threshold(sure: np.ndarray, right: np.ndarray) -> Fact:
    """The share of rows that can be decided with 99 % accuracy: those of which it is the most sure."""
    order = np.argsort(-sure, kind="stable")
    accuracy = np.cumsum(right[order]) / np.arange(1, len(sure) + 1)
    enough = np.flatnonzero(accuracy >= 0.99)
    share = (enough[-1] + 1) / len(sure) if len(enough) else 0.0
    if share == 0:
        return Fact("Decided at 99\u202f%", "none", "No group of rows is that safe: have people look at its answers.")
    edge = percent(float(sure[order[enough[-1]]]), 0)
    meaning = f"It is at least {edge} sure of these rows, and right about 99\u202f% of them. Send the others to people."
    return Fact("Decided at 99\u202f%", percent(share, 0), meaning)


def _of_numbers(found: Validation) -> Section:
    std = np.maximum(found.std, np.finfo(np.float64).tiny)
    scores = (found.truth - found.mean) / std
    covered = found.inside.mean(0)
    at_90 = float(covered[LEVELS.index(SHOWN_LEVEL)])
    density = -0.5 * np.log(2 * np.pi * std**2) - 0.5 * scores**2
    numbers = {
        "rows": len(scores),
        "levels": np.array(LEVELS),
        "covered": covered,
        "coverage_of_90_percent_intervals": at_90,
        "log_likelihood": float(np.mean(density)),
        "mean_std": float(np.mean(found.std)),
        "median_half_width_of_90_percent_intervals": float(np.median(found.half_width)),
        "spread_of_scores": float(np.std(scores)),
    }
    facts = (
        Fact("Coverage of 90\u202f% intervals", percent(at_90), _covers(at_90)),
        Fact(
            "Usual width of an interval",
            f"\u00b1 {number(float(np.median(found.half_width)))}",
            "In units of the target, for 90\u202f%; half of the rows have a narrower one. Is that narrow enough?",
        ),
        Fact(
            "Log likelihood",
            number(float(np.mean(density))),
            "Nats by row, of what was measured under what was predicted. Higher is better: use it to compare models.",
        ),
    )
    notes = (f"{_PROCESS}, on {count(len(scores))} rows it had not seen.",)
    rows = tuple((percent(a, 0), percent(b)) for a, b in zip(LEVELS, covered, strict=True))
    grid = Grid("Intervals, and how often they held", ("should hold", "held"), rows)
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=notes, grids=(grid,))


def _covers(share: float) -> str:
    if abs(share - 0.9) < _GOOD:
        return "The intervals can be taken at their word."
    if share < 0.9:
        return "The intervals are too narrow: widen them until they hold as often as they say."
    return "The intervals are wider than they need be: safe, and a little wasteful."
