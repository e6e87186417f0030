"""Nine regression sets, published splits, everything chosen on training rows: `make regression`."""

import argparse
from pathlib import Path

import data
import numpy as np
from contest import REGRESSORS, Lines, regression_line
from table import machine, record, table

SPLITS = {"kin8nm": 1, "power": 1, "naval": 1, "protein": 1}  # the large ones; otherwise three of twenty


def measure(lines: Lines, models: list[str], names: list[str]) -> None:
    for name in names:
        for number in range(SPLITS.get(name, 3)):
            split = data.gal(name, number)
            for model in models:
                work = lambda model=model, split=split: regression_line(REGRESSORS[model](), split)
                found = lines.run((name, number, model), work)
                print(f"{name} {number} {model}: RMSE {found['rmse']}, {float(found['fit']):.1f} s", flush=True)


def cells(lines: Lines, name: str, model: str, column: str) -> str:
    found = lines.column(column, task=name, model=model)
    return "-" if not len(found) or np.isnan(found).any() else f"{found.mean():.3g} ± {found.std():.1g}"


def summary(lines: Lines, models: list[str], names: list[str]) -> str:
    parts = []
    for column, title in (("rmse", "RMSE"), ("density", "mean log density"), ("held", "held by 90 % intervals, %")):
        rows = [(title, *models)]
        rows += [(name, *(cells(lines, name, model, column) for model in models)) for name in names]
        parts.append(table(rows))
    held = [lines.column("held_interval", model=model) for model in models if model.startswith("WideGPRegressor")]
    parts.append(f"`predict_interval(coverage=0.9)` of the nngp held {held[0].mean():.1f} % on average over splits.")
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(REGRESSORS), choices=list(REGRESSORS))
    parser.add_argument("--sets", nargs="*", help="some of them")
    parser.add_argument("--lines", type=Path, default=Path(__file__).with_name("regression.csv"))
    parser.add_argument("--record", action="store_true", help="write the tables into README.md")
    chosen = parser.parse_args()
    names = chosen.sets or data.gal_names()
    lines = Lines(chosen.lines, ("task", "split", "model"))
    measure(lines, chosen.models, names)
    text = f"{summary(lines, chosen.models, names)}\n\n{machine()}"
    print(text)
    if chosen.record:
        record("regression", text)


if __name__ == "__main__":
    main()
