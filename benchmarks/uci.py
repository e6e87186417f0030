"""60 classification tasks, the four published splits, everything chosen on training rows: `make uci`."""

import argparse
from pathlib import Path

import data
import numpy as np
import scipy.stats
from contest import CLASSIFIERS, Lines, classification_line
from table import machine, record, table

PUBLISHED = {"rf_caret": "random forest, published", "svm_C": "Gaussian SVM, published"}
COLUMNS = ("fit", "predict", "cpu", "ece", "log_loss")


def measure(lines: Lines, models: list[str], names: list[str], file: str) -> None:
    for name in names:
        for number, split in enumerate(data.uci(name, file)):
            for model in models:
                work = lambda model=model, split=split: classification_line(CLASSIFIERS[model](split.y), split)
                lines.run((name, number, model), work)
        shown = {model: lines.column("accuracy", task=name, model=model).mean() for model in models}
        print(f"{name:34s}", "  ".join(f"{model} {value:5.1f}" for model, value in shown.items()), flush=True)


def summary(lines: Lines, models: list[str], names: list[str], published: bool) -> str:
    accuracy = {model: [lines.column("accuracy", task=name, model=model).mean() for name in names] for model in models}
    if published:
        found = data.uci_published()
        accuracy |= {shown: [float(found[name][key]) for name in names] for key, shown in PUBLISHED.items()}
    values = np.array(list(accuracy.values()))
    ranks = scipy.stats.rankdata(-values, axis=0)
    rows = []
    for at, name in enumerate(accuracy):
        wins = np.sum(values[at] >= values.max(0))
        fit, predict, cpu, ece, loss = (lines.column(column, model=name) for column in COLUMNS)
        more = map(digits, (mean(ece), mean(loss), mean(fit + predict) * len(fit), mean(cpu) * len(cpu)))
        rows.append((name, f"{values[at].mean():.2f}", f"{ranks[at].mean():.2f}", f"{wins}", *more))
    head = ("classifier", f"mean accuracy of {len(names)} tasks, %", "mean rank", "best or equal")
    head += ("calibration error, %", "log loss", "wall seconds in all", "CPU seconds in all")
    return table([head, *rows])


def mean(numbers: np.ndarray) -> float:
    return float(numbers.mean()) if len(numbers) else np.nan


def digits(number: float) -> str:
    """Three of them, or a dash where a number was not measured."""
    return "-" if np.isnan(number) else f"{number:.3g}" if number < 100 else f"{number:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(CLASSIFIERS), choices=list(CLASSIFIERS))
    parser.add_argument("--file", default="uci60", help="another file of tasks in the same folder")
    parser.add_argument("--tasks", nargs="*", help="some of them")
    parser.add_argument("--lines", type=Path, help="where results are kept; an interrupted run goes on")
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    chosen = parser.parse_args()
    names = chosen.tasks or data.uci_names(chosen.file)
    lines = Lines(chosen.lines or Path(__file__).with_name("uci.csv"), ("task", "split", "model"))
    measure(lines, chosen.models, names, chosen.file)
    text = f"{summary(lines, chosen.models, names, chosen.file == 'uci60')}\n\n{machine()}"
    print(text)
    if chosen.record:
        record("uci", text)


if __name__ == "__main__":
    main()
