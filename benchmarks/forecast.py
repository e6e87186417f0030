"""Forecasts from 500 labelled rows against the error measured with 2 000, 5 000 and 10 000: `make forecast`.

Of kernels; with `--of network`, of networks that are trained by Adam.
"""

import argparse
import csv
import tempfile
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
import everwide.training as tr
from everwide._networks import train_networks

PILOT, PILOTS = 500, 10
SIZES = (2000, 5000, 10_000)
DRAWS = {2000: 4, 5000: 2}  # training sets over which the measured error is averaged; otherwise one
TEST = 4000
ASKED = 0.10
NETWORK_PILOTS, SEEDS, HELD = 2, 2, 0.2  # pilots; networks that are measured at each size; rows that stop them
NETWORK_ASKED = 0.12
LINES = Path(__file__).with_name("forecast.csv")
KEPT = Path(tempfile.gettempdir()) / "everwide_forecast_networks"  # pilots' networks: a run that was cut off goes on
TRUTH = Path(__file__).with_name("forecast_networks_measured.csv")  # of networks that were trained once
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
    kernel: float = float("nan")  # its forecast, beside that of a network

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


def network_lines(name: str, sizes: tuple[int, ...], again: bool) -> Iterator[Line]:
    """The same of networks: errors are shares of wrong classes, or mean squared errors."""
    most = max(sizes) + TEST
    rows = data.fashion_mnist(most) if name == "fashion_mnist" else data.regression(name, most)
    asked = sorted({min(n, len(rows.y) - 1000) for n in sizes})
    truth = {n: known_truth(name, rows, n, again) for n in asked}
    for pilot in range(NETWORK_PILOTS):
        chosen = np.random.default_rng(pilot).permutation(len(rows.y))[:PILOT]
        path = KEPT / f"{name}_{pilot}.jsonl"
        path.parent.mkdir(exist_ok=True)
        if again:
            path.unlink(missing_ok=True)
        found = fc.forecast(network(), rows.x[chosen], rows.y[chosen], n=asked, of="network", seed=pilot, path=path)
        for at, n in enumerate(asked):
            numbers = map(float, (found.error[at], found.low[at], found.high[at], truth[n]))
            yield Line(name, pilot, n, *numbers, None, float(found.kernel_error[at]))


def known_truth(name: str, rows: data.Rows, n: int, again: bool) -> float:
    """What networks that learned from n rows were measured to have; once, unless it is to be done again."""
    lines = TRUTH.read_text().splitlines()[1:] if TRUTH.exists() else []
    known = {(one, int(size)): float(error) for one, size, error in (line.split(",") for line in lines)}
    if again or (name, n) not in known:
        known[name, n] = measured_networks(rows, n)
        body = [f"{one},{size},{error:.6g}" for (one, size), error in known.items()]
        TRUTH.write_text("\n".join(["data,rows,measured", *body, ""]))
    return known[name, n]


def measured_networks(rows: data.Rows, n: int) -> float:
    """The mean error of networks of width 256, as `forecast` trains them, that learned from n rows."""
    classes = rows.y.dtype.kind == "i"
    outputs = int(rows.y.max()) + 1 if classes else 1
    block = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu())
    net = ew.Serial(ew.Repeat(block, 3), ew.Dense(outputs)).critical()
    orders = [np.random.default_rng(200 + seed).permutation(len(rows.y)) for seed in range(SEEDS)]
    held = round(HELD * n)
    train, stop, test = zip(*[np.split(order, [n - held, n])[:3] for order in orders], strict=True)
    loss = tr.SoftmaxCrossEntropy() if classes else tr.Mse()
    outputs = train_networks(net, rows.x, rows.y, train, stop, loss=loss, seed=1).outputs
    pairs = [(one[rest[:TEST]], rows.y[rest[:TEST]]) for one, rest in zip(outputs, test, strict=True)]
    return float(np.mean([np.mean(a.argmax(1) != b) if classes else np.mean((a[:, 0] - b) ** 2) for a, b in pairs]))


def network_report(found: list[Line], seconds: float) -> str:
    """A row for each set and size, over all pilots; then what they come to, beside the kernel's forecast."""
    heading = ("data", "rows", "network, measured", "forecast", "relative", "its kernel's forecast", "relative", "held")
    body = []
    for key in _keys(found):
        lines = [line for line in found if (line.name, line.n) == key]
        several = lambda values, form: ", ".join(f"{value:{form}}" for value in values)
        kernels = [line.kernel for line in lines]
        body.append(
            (
                *map(str, key),
                f"{lines[0].measured:.3g}",
                several([line.forecast for line in lines], ".3g"),
                several([line.relative for line in lines], "+.0%"),
                several(kernels, ".3g"),
                several([line.kernel / line.measured - 1 for line in lines], "+.0%"),
                f"{sum(line.held for line in lines)} of {len(lines)}",
            )
        )
    own = np.abs([line.relative for line in found])
    kernel = np.abs([line.kernel / line.measured - 1 for line in found])
    by_set = [(np.array([line.name == name for line in found]), name) for name in SETS]
    sets = ", ".join(
        f"{name} {np.median(own[at]):.1%} ({np.median(kernel[at]):.1%})" for at, name in by_set if at.any()
    )
    verdict = "met" if np.median(own) <= NETWORK_ASKED else "missed"
    total = (
        f"Median size of the relative error {np.median(own):.1%} (asked {NETWORK_ASKED:.0%}: {verdict}), that of the "
    )
    total += f"kernel's forecast {np.median(kernel):.1%}; by set: {sets}. Nearer than the kernel's in "
    total += f"{np.sum(own <= kernel)} of {len(found)}. The 90 % interval held {np.mean([o.held for o in found]):.0%}. "
    return f"{machine()}.\n\n{table([heading, *body])}\n\n{total}{seconds:.0f} s in all."


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
    """Every forecast, as a table of text; of classes with accuracies, of networks with what is said of their kernel."""
    networks = [line for line in found if not np.isnan(line.kernel)]
    last = ("kernel",) if networks else ("accuracy", "accuracy_measured")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("data", "pilot", "rows", "forecast", "low", "high", "measured", *last))
        for line in found:
            rest = (line.kernel,) if networks else line.accuracy or ()
            numbers = (line.forecast, line.low, line.high, line.measured, *rest)
            writer.writerow((line.name, line.pilot, line.n, *(f"{number:.5g}" for number in numbers)))


def main() -> None:
    """Run all sets, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 000 rows only")
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    parser.add_argument("--of", choices=("kernel", "network"), default="kernel", help="what is forecast")
    parser.add_argument("--only", choices=SETS, help="one data set")
    parser.add_argument("--again", action="store_true", help="train all networks again")
    options = parser.parse_args()
    begin, found, networks = time.perf_counter(), [], options.of == "network"
    for name in [options.only] if options.only else SETS:
        sizes = SIZES[:1] if options.quick else SIZES
        for line in network_lines(name, sizes, options.again) if networks else lines(name, sizes):
            found.append(line)
            print(f"{line.name} pilot {line.pilot} n={line.n}: {line.relative:+.1%}", flush=True)
    text = (network_report if networks else report)(found, time.perf_counter() - begin)
    print(text)
    if options.record:
        record("recorded network forecasts" if networks else "recorded forecasts", text)
        write_lines(found, LINES.with_stem("forecast_networks") if networks else LINES)


if __name__ == "__main__":
    main()
