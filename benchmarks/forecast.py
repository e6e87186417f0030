"""Forecasts from 500 labelled rows against the error measured with 2 000, 5 000 and 10 000: `make forecast`."""

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import data
import numpy as np
import scipy.linalg
from table import machine, record, table

import everwide as ew
import everwide.forecasting as fc

PILOT, PILOTS = 500, 10
SIZES = (2000, 5000, 10_000)
DRAWS = {2000: 4, 5000: 2}  # training sets over which the measured error is averaged; otherwise one
TEST = 4000
ASKED = 0.10
LINES = Path(__file__).with_name("forecast.csv")
SETS = ("fashion_mnist", "protein", "naval", "power", "kin8nm")


class Line(NamedTuple):
    """One forecast beside its measurement."""

    name: str
    pilot: int
    n: int
    forecast: float
    low: float
    high: float
    measured: float
    accuracy: tuple[float, float] | None  # forecast, measured

    @property
    def relative(self) -> float:
        return self.forecast / self.measured - 1

    @property
    def held(self) -> bool:
        return self.low <= self.measured <= self.high


def network() -> ew.Serial:
    """Three hidden layers of rectifiers."""
    block = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu())
    return ew.Serial(ew.Repeat(block, 3), ew.Dense(1))


def lines(name: str, sizes: tuple[int, ...]) -> Iterator[Line]:
    """All pilots and sizes of one set; where it is too small, the largest size that leaves 1 000 rows for the test."""
    most = max(sizes) + TEST
    rows = data.fashion_mnist(most) if name == "fashion_mnist" else data.regression(name, most)
    kernel = np.asarray(ew.ntk(network(), rows.x))
    asked = sorted({min(n, len(rows.y) - 1000) for n in sizes})
    known: dict[tuple[int, float], tuple[float, float]] = {}
    for pilot in range(PILOTS):
        chosen = np.random.default_rng(pilot).permutation(len(rows.y))[:PILOT]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fc.ForecastWarning)
            found = fc.forecast(kernel[np.ix_(chosen, chosen)], None, rows.y[chosen], n=asked)
        ridge = float(f"{found.ridge:.1e}")  # pilots that differ by a per cent or two share a measurement
        for at, n in enumerate(asked):
            if (n, ridge) not in known:
                known[n, ridge] = measured(kernel, rows.y, n, ridge)
            error, accuracy = known[n, ridge]
            classes = None if found.accuracy is None else (float(found.accuracy[at]), accuracy)
            yield Line(name, pilot, n, *map(float, (found.error[at], found.low[at], found.high[at])), error, classes)


def measured(kernel: np.ndarray, y: np.ndarray, n: int, ridge: float) -> tuple[float, float]:
    """Mean squared error and accuracy on rows that were not learned, of kernel regression on n rows."""
    targets = np.eye(y.max() + 1)[y] if y.dtype.kind == "i" else y[:, None]
    found = []
    for draw in range(DRAWS.get(n, 1)):
        order = np.random.default_rng(100 + draw).permutation(len(y))
        train, test = order[:n], order[n:][:TEST]
        mean = targets[train].mean(0)
        gram = kernel[np.ix_(train, train)].astype(np.float64)
        gram[np.diag_indices(n)] += ridge
        factor = scipy.linalg.cho_factor(gram, overwrite_a=True, check_finite=False)
        dual = scipy.linalg.cho_solve(factor, targets[train] - mean, check_finite=False)
        predicted = kernel[np.ix_(test, train)].astype(np.float64) @ dual + mean
        right = np.mean(predicted.argmax(1) == targets[test].argmax(1))
        found.append((np.mean((predicted - targets[test]) ** 2), right))
    error, accuracy = np.mean(found, axis=0)
    return float(error), float(accuracy)


def report(found: list[Line], seconds: float) -> str:
    """A row for each set and size, over all pilots; then what they come to."""
    heading = ("data", "rows", "measured", "forecast: median, range", "relative: median, range", "held", "accuracy")
    body = [_summary([line for line in found if (line.name, line.n) == key]) for key in _keys(found)]
    error = np.abs([line.relative for line in found])
    inside = np.mean([line.held for line in found])
    by_set = ", ".join(f"{name} {np.median([abs(o.relative) for o in found if o.name == name]):.1%}" for name in SETS)
    verdict = "met" if np.median(error) <= ASKED else "missed"
    total = f"Median size of the relative error {np.median(error):.1%} (asked {ASKED:.0%}: {verdict}), quartiles "
    total += f"{np.quantile(error, 0.25):.1%} and {np.quantile(error, 0.75):.1%}; by set: {by_set}. "
    total += f"The 90 % interval held {inside:.0%} of {len(found)}. {seconds:.0f} s in all."
    return f"{machine()}.\n\n{table([heading, *body])}\n\n{total}"


def _keys(found: list[Line]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((line.name, line.n) for line in found))


def _summary(lines: list[Line]) -> tuple[str, ...]:
    """One row of the table."""
    spread = lambda values, form: f"{np.median(values):{form}}, {min(values):{form}} .. {max(values):{form}}"
    classes = [line.accuracy for line in lines if line.accuracy is not None]
    accuracy = f"{np.median([a for a, _ in classes]):.1%}; {np.median([b for _, b in classes]):.1%}" if classes else "-"
    return (
        lines[0].name,
        str(lines[0].n),
        f"{np.median([line.measured for line in lines]):.3g}",
        spread([line.forecast for line in lines], ".3g"),
        spread([line.relative for line in lines], "+.0%"),
        f"{sum(line.held for line in lines)} of {len(lines)}",
        accuracy,
    )


def write_lines(found: list[Line], path: Path) -> None:
    """Every forecast, as a table of text."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ("data", "pilot", "rows", "forecast", "low", "high", "measured", "accuracy", "accuracy_measured")
        )
        for line in found:
            numbers = (line.forecast, line.low, line.high, line.measured, *(line.accuracy or ()))
            writer.writerow((line.name, line.pilot, line.n, *(f"{number:.5g}" for number in numbers)))


def main() -> None:
    """Run all sets, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 000 rows only")
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    options = parser.parse_args()
    begin, found = time.perf_counter(), []
    for name in SETS:
        for line in lines(name, SIZES[:1] if options.quick else SIZES):
            found.append(line)
            print(f"{line.name} pilot {line.pilot} n={line.n}: {line.relative:+.1%}", flush=True)
    text = report(found, time.perf_counter() - begin)
    print(text)
    if options.record:
        record("recorded forecasts", text)
        write_lines(found, LINES)


if __name__ == "__main__":
    main()
