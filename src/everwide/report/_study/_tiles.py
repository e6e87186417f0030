"""What this network will make of the data, in a few numbers."""

import math
from collections.abc import Mapping
from typing import Any

from .._words import count, number, percent
from ._needs import about
from ._section import Fact, Section
from ._validation import NETWORK


def tiles(sections: Mapping[str, Section]) -> tuple[Fact, ...]:
    """The numbers that most people look for first, of the parts that could be computed."""
    makers = {
        "accuracy": _accuracy,
        "calibration": _calibration,
        "forecast": _forecast,
        "training": _training,
        "width": _width,
    }
    return tuple(make(sections[key].numbers) for key, make in makers.items() if sections[key].numbers)


def _accuracy(numbers: Mapping[str, Any]) -> Fact:
    own, classes = numbers["scores"][NETWORK], numbers["measure"] == "accuracy"
    show = percent if classes else number
    ahead = numbers["ahead_of_best_rival"]
    word = "better than" if ahead["low"] > 0 else "worse than" if ahead["high"] < 0 else "level with"
    label = "accuracy on new rows" if classes else "error on new rows (RMSE)"
    return Fact(label, show(own["value"]), f"{word} the best of forest, boosting and SVM")


def _calibration(numbers: Mapping[str, Any]) -> Fact:
    if "expected_calibration_error" in numbers:
        error = numbers["expected_calibration_error"]
        return Fact("calibration error", percent(error), "between how sure it says it is, and how often it is right")
    share = numbers["coverage_of_90_percent_intervals"]
    return Fact("of 90\u202f% intervals hold", percent(share), "on rows it has not seen")


def _forecast(numbers: Mapping[str, Any]) -> Fact:
    needed, rows = float(numbers["rows_needed"][0]), numbers["rows"]
    goal = numbers["targets"][0]
    aim = f"for {percent(goal)} accuracy" if "accuracy" in numbers else f"for an error of {number(goal)}"
    if not math.isfinite(needed):
        return Fact("rows needed", "no number", f"{aim}: more of the same will not do it")
    return Fact("rows needed", about(needed, numbers["trusted_to"]), f"{aim}; there are {count(rows)} now")


def _training(numbers: Mapping[str, Any]) -> Fact:
    rate = numbers["rates"]["gradient_descent"]
    return Fact("largest learning rate", number(rate), "of gradient descent; start at half of it")


def _width(numbers: Mapping[str, Any]) -> Fact:
    return Fact("agreement at width 256", percent(numbers["correlation"]), "of a trained network with this page")
