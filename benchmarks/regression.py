"""Nine regression sets, published splits, everything chosen on training rows: `make regression`."""

import argparse
from pathlib import Path

import data
import numpy as np
from contest import OUR_REGRESSORS, REGRESSORS, Lines, regression_line
from table import machine, record, table

SPLITS = {"kin8nm": 5, "power": 5, "naval": 5, "protein": 5}  # the large ones; otherwise all twenty
SLOW = {"GP, RBF": 5, "xRFM": 5, "WideGPRegressor": 5}  # splits of peers that take minutes, and of our second one
FEWER = {("GP, RBF", "naval"): 2, ("GP, RBF", "protein"): 2, ("xRFM", "protein"): 2}
BESIDE = "CatBoost"  # errors are compared with, split by split
CLOSE = 1.03


def splits_of(model: str, name: str, most: int = 20) -> int:
    """So many of a set are run."""
    return min(most, SPLITS.get(name, 20), FEWER.get((model, name), SLOW.get(model, 20)))


def measure(lines: Lines, models: list[str], names: list[str], most: int) -> None:
    for name in names:
        for number in range(min(most, SPLITS.get(name, 20))):
            split = data.gal(name, number)
            for model in models:
                if number < splits_of(model, name, most):
                    work = lambda model=model, split=split: regression_line(REGRESSORS[model], split)
                    line = lines.run((name, number, model), work)
                    print(f"{name} {number} {model}: RMSE {line['rmse']}, CPU {line['cpu']} s", flush=True)


def cells(lines: Lines, name: str, model: str, column: str) -> str:
    values = lines.column(column, task=name, model=model)
    if not len(values) or np.isnan(values).any():
        return "-"
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{values.mean():.3g} ± {values.std(ddof=1) / len(values) ** 0.5:.1g}"


def beside(lines: Lines, name: str, model: str) -> float:
    """RMSE over that of CatBoost, means over the splits that both have; NaN where there are none."""
    rmse = lambda number, model: float(lines.rows[name, number, model]["rmse"])
    numbers = [number for task, number, other in lines.rows if (task, other) == (name, model)]
    shared = [number for number in numbers if (name, number, BESIDE) in lines.rows]
    ratios = np.array([[rmse(number, model), rmse(number, BESIDE)] for number in shared]).reshape(-1, 2)
    return float(np.divide(*ratios.mean(0))) if len(shared) else np.nan


def relative(lines: Lines, models: list[str], names: list[str]) -> list[str]:
    """Ratios to CatBoost by set, their geometric mean, how often a model is best or close to it, seconds in all."""
    ratios = np.array([[beside(lines, name, model) for model in models] for name in names])
    rows = [(f"RMSE / that of {BESIDE}", *models)]
    rows += [(name, *map(shown, line)) for name, line in zip(names, ratios, strict=True)]
    rows.append(("geometric mean", *map(shown, np.exp(np.log(ratios).mean(0)))))
    close = np.nan_to_num(ratios, nan=np.inf) <= CLOSE * np.nanmin(ratios, axis=1, keepdims=True)
    rows.append((f"best, or within {CLOSE - 1:.0%} of it", *(f"{n} of {len(names)}" for n in close.sum(0))))
    for title, columns in (("wall seconds a set", ("fit", "predict")), ("CPU seconds a set", ("cpu",))):
        means = [[seconds(lines, name, model, columns) for name in names] for model in models]
        rows.append((title, *(shown(np.mean(line)) for line in means)))
    return [table(rows)]


def missing(lines: Lines, models: list[str], names: list[str]) -> list[str]:
    """A sentence on lines that are not there."""
    told = []
    for model in models:
        wanted = {name: splits_of(model, name) for name in names}
        found = {name: len(lines.column("rmse", task=name, model=model)) for name in names}
        some = [f"{name} ({found[name]} of {wanted[name]} splits)" for name in names if found[name] < wanted[name]]
        told += [f"{model} on {', '.join(some)}"] if some else []
    return [f"Not all was run: {'; '.join(told)}."] if told else []


def seconds(lines: Lines, name: str, model: str, columns: tuple[str, ...]) -> float:
    values = sum(lines.column(column, task=name, model=model) for column in columns)
    return float(np.mean(values)) if np.size(values) else np.nan


def shown(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3g}"


def summary(lines: Lines, models: list[str], names: list[str]) -> str:
    parts = relative(lines, models, names)
    for column, title in (("rmse", "RMSE"), ("density", "mean log density"), ("held", "held by 90 % intervals, %")):
        rows = [(title, *models)]
        rows += [(name, *(cells(lines, name, model, column) for model in models)) for name in names]
        parts.append(table(rows))
    for model in OUR_REGRESSORS:
        held = [values.mean() for name in names if len(values := lines.column("held", task=name, model=model))]
        if held:
            parts.append(f"90 % intervals of {model} hold {np.mean(held):.1f} % (mean over {len(held)} sets).")
    return "\n\n".join([*parts, *missing(lines, models, names)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(REGRESSORS), choices=list(REGRESSORS))
    parser.add_argument("--sets", nargs="*", help="some of them")
    parser.add_argument("--splits", type=int, default=20, help="at most so many of each set")
    parser.add_argument("--lines", type=Path, default=Path(__file__).with_name("regression.csv"))
    parser.add_argument("--record", action="store_true", help="write the tables into README.md")
    parser.add_argument("--found", action="store_true", help="run nothing: show the lines that are there")
    chosen = parser.parse_args()
    names = chosen.sets or data.gal_names()
    lines = Lines(chosen.lines, ("task", "split", "model"))
    if not chosen.found:
        measure(lines, chosen.models, names, chosen.splits)
    text = f"{summary(lines, chosen.models, names)}\n\n{machine()}"
    print(text)
    if chosen.record:
        record("regression", text)


if __name__ == "__main__":
    main()
