"""200 small spoiled tables: the error beside that of the better of a forest and a linear model: `make robustness`.

The error is the root mean square error, or the share of wrong classes, on rows kept aside. The ratio is

    error / max(error of the better one, floor),    floor = 5 % of the standard deviation of the targets kept aside,
                                                            or 5 % wrong classes:

below the floor everything is learned, and a ratio would compare digits, or two wrong rows with one. Where nothing can
be learned, the better one is about as wrong as a constant, and nobody may be much worse than that.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from contest import Lines, log_loss, timed
from data import Split
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from spoiled import Table, tables
from table import machine, record, table

from everwide.estimators import WideClassifier, WideRegressor

FLOOR = 0.05
ALLOWED = 1.5
_TEXT = ["object", "str", "category"]


def columns() -> Any:
    """Medians where numbers are missing, and a column that says so; an indicator for each level that is there twice."""
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    levels = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=2, sparse_output=False)
    return make_column_transformer(
        (numbers, make_column_selector(dtype_exclude=_TEXT)), (levels, make_column_selector(dtype_include=_TEXT))
    )


def linear(classes: bool) -> Any:
    model = LogisticRegression(max_iter=1000) if classes else RidgeCV(np.logspace(-3, 4, 15))
    return make_pipeline(columns(), model)


def forest(classes: bool) -> Any:
    make = RandomForestClassifier if classes else RandomForestRegressor
    return make_pipeline(columns(), make(300, random_state=0))


def ours(classes: bool) -> Any:
    return WideClassifier(random_state=0) if classes else WideRegressor(random_state=0)


OURS, PEERS = "everwide", ("forest", "linear")
MODELS: dict[str, Callable[[bool], Any]] = {OURS: ours, "forest": forest, "linear": linear}


def line(model: Any, rows: Table) -> dict[str, float]:
    """Error, log loss of classes, seconds; an error is infinite where a model fails or answers no number."""
    found: dict[str, float] = {"error": np.inf, "log_loss": np.nan, "floor": floor(rows), "fit": np.nan, "cpu": 0.0}
    try:
        with timed(found, "fit"):
            predicted = model.fit(rows.x, rows.y).predict(rows.x_test)
            if rows.classes:
                split = Split(np.empty(0), rows.y, np.empty(0), rows.y_test)
                found["log_loss"] = log_loss(model.predict_proba(rows.x_test), model.classes_, split)
    except Exception as error:  # whatever it is, a table has broken the model: it is told, and counts
        print(f"{rows.seed}: {type(error).__name__}: {error}", flush=True)
        return found
    wrong = predicted != rows.y_test if rows.classes else (predicted - rows.y_test) ** 2
    error = float(np.mean(wrong)) if rows.classes else float(np.sqrt(np.mean(wrong)))
    return found | {"error": error if np.isfinite(error) else np.inf}


def floor(rows: Table) -> float:
    """The error below which everything is learned."""
    return FLOOR if rows.classes else FLOOR * float(np.std(rows.y_test))


def measure(lines: Lines, models: list[str], chosen: Iterator[Table]) -> pd.DataFrame:
    """A row for each table: its story, errors, and ratios where ours has been run."""
    rows = []
    for each in chosen:
        found = {
            name: lines.run((each.seed, name), lambda name=name, each=each: line(MODELS[name](each.classes), each))
            for name in models
        }
        number = lambda name, key, found=found: float(found[name][key]) if name in found else np.nan
        best = min(number(name, "error") for name in PEERS)
        ratio = number(OURS, "error") / max(best, floor(each))
        loss = number(OURS, "log_loss") / min(number(name, "log_loss") for name in PEERS)
        rows.append({"seed": each.seed, "ratio": ratio, "loss": loss, "cpu": number(OURS, "cpu"), "best": best})
        rows[-1] |= {"classes": each.classes, "floor": floor(each), "story": each.story}
        print(f"{each.seed}: {ratio:.2f} ({loss:.2f}) {each.story}", flush=True)
    return pd.DataFrame(rows)


def summary(results: pd.DataFrame, shown: int) -> str:
    rows = [("", "tables", "median", "90 %", "largest", f"above {ALLOWED}", "better", "CPU seconds a table")]
    for title, part in (("numbers", results[~results.classes]), ("classes", results[results.classes])):
        ratio = part.ratio
        cells = (ratio.median(), ratio.quantile(0.9), ratio.max())
        counts = f"{(ratio > ALLOWED).sum()}", f"{(ratio < 1).sum()}"
        rows.append((title, f"{len(part)}", *(f"{cell:.2f}" for cell in cells), *counts, f"{part.cpu.mean():.1f}"))
    worst = [("table", "ratio", "ratio of log loss", "what was done")]
    for _, each in results.sort_values("ratio", ascending=False).head(shown).iterrows():
        loss = "-" if np.isnan(each.loss) else f"{each.loss:.2f}"
        worst.append((f"{each.seed}", f"{each.ratio:.2f}", loss, each.story))
    return f"{table(rows)}\n\n{table(worst)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs=2, type=int, default=(0, 200), metavar=("FROM", "TO"))
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--lines", type=Path, default=Path(__file__).with_name("robustness.csv"))
    parser.add_argument("--worst", type=int, default=8, help="how many are shown")
    parser.add_argument("--record", action="store_true", help="write the tables into README.md")
    chosen = parser.parse_args()
    results = measure(Lines(chosen.lines, ("seed", "model")), chosen.models, tables(*chosen.tables))
    text = f"{summary(results, chosen.worst)}\n\n{machine()}"
    print(text)
    if chosen.record:
        record("robustness", text)


if __name__ == "__main__":
    main()
