"""60 classification tasks, the four published splits, everything chosen on training rows: `make uci`."""

import argparse
from pathlib import Path

import data
import numpy as np
import scipy.stats
from contest import CLASSIFIERS, Lines, classification_line
from table import machine, record, table

PUBLISHED = {"rf_caret": "random forest, published", "svm_C": "Gaussian SVM, published"}
OURS, SPLITS = "WideClassifier", 4
COLUMNS = ("fit", "predict", "cpu", "ece", "log_loss")


def measure(lines: Lines, models: list[str], names: list[str], file: str) -> None:
    for name in names:
        for number, split in enumerate(data.uci(name, file)):
            for model in models:
                work = lambda model=model, split=split: classification_line(CLASSIFIERS[model](split.y), split)
                lines.run((name, number, model), work)
        shown = {model: lines.column("accuracy", task=name, model=model).mean() for model in models}
        print(f"{name:34s}", "  ".join(f"{model} {value:5.1f}" for model, value in shown.items()), flush=True)


def tasks_of(lines: Lines, model: str, names: list[str]) -> list[str]:
    """Those of which all splits were run."""
    return [name for name in names if len(lines.column("accuracy", task=name, model=model)) == SPLITS]


def summary(lines: Lines, models: list[str], names: list[str], published: bool) -> str:
    """Models that were run on all tasks beside each other; then others, each beside ours on the tasks that it has."""
    found = {model: tasks_of(lines, model, names) for model in models}
    parts = [together(lines, [model for model in models if found[model] == names], names, published)]
    rows = [beside(lines, model, some) for model, some in found.items() if some and some != names]
    if rows:
        head = ("classifier", "tasks", "accuracy, %", f"{OURS}, %", "difference", "log loss", f"of {OURS}")
        head += ("calibration error, %", f"of {OURS}, %", "CPU seconds", f"of {OURS}")
        parts.append(table([head, *rows]))
    missing = [f"{model} on {len(names) - len(some)}" for model, some in found.items() if some != names]
    if missing:
        parts.append(f"Not run: {', '.join(missing)} of {len(names)} tasks.")
    return "\n\n".join(parts)


def beside(lines: Lines, model: str, names: list[str]) -> tuple[str, ...]:
    """Of a model and of ours, on the same tasks."""

    def means(column: str) -> np.ndarray:
        both = [[lines.column(column, task=name, model=one).mean() for name in names] for one in (model, OURS)]
        return np.array(both)

    accuracy = means("accuracy")
    apart = accuracy[1] - accuracy[0]
    difference = f"{apart.mean():+.2f} ± {apart.std(ddof=1) / len(names) ** 0.5:.2f}"
    more = [digits(value) for column in ("log_loss", "ece") for value in means(column).mean(1)]
    seconds = [digits(SPLITS * value) for value in means("cpu").sum(1)]
    return (model, f"{len(names)}", *(f"{value:.2f}" for value in accuracy.mean(1)), difference, *more, *seconds)


def together(lines: Lines, models: list[str], names: list[str], published: bool) -> str:
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
    parser.add_argument("--found", action="store_true", help="run nothing: show the lines that are there")
    chosen = parser.parse_args()
    names = chosen.tasks or data.uci_names(chosen.file)
    lines = Lines(chosen.lines or Path(__file__).with_name("uci.csv"), ("task", "split", "model"))
    if not chosen.found:
        measure(lines, chosen.models, names, chosen.file)
    text = f"{summary(lines, chosen.models, names, chosen.file == 'uci60')}\n\n{machine()}"
    print(text)
    if chosen.record:
        record("uci", text)


if __name__ == "__main__":
    main()
