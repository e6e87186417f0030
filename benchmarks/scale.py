"""Kernels of many rows: exact, in minutes, beside what others offer; and what a plan has said: `make scale`."""

import argparse
import csv
import json
import math
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from table import duration, machine, record, table

HERE = Path(__file__).resolve().parent
CSV = HERE / "scale.csv"
HEADING = ("data", "rows", "learner", "time", "planned", "peak GB", "error", "residual", "iterations")


class Line(NamedTuple):
    """What is learned by whom, from how many rows."""

    data: str
    learner: str
    n: int


LINES = [
    *(Line("fashion", "conjugate gradients", n) for n in (2500, 5000, 10_000, 20_000, 60_000)),
    Line("fashion", "conjugate gradients, held out", 20_000),
    Line("fashion", "conjugate gradients, held out", 60_000),
    *(Line("fashion", "cholesky, float32", n) for n in (2500, 5000, 10_000, 20_000)),
    *(Line("fashion", "nystrom", n) for n in (5000, 20_000, 60_000)),
    *(Line("fashion", "scikit-learn KernelRidge", n) for n in (5000, 10_000)),
    Line("fashion", "scikit-learn Nystroem", 60_000),
    Line("fashion", "LightGBM", 60_000),
    *(Line("made", "leaves", n) for n in (50_000, 200_000, 1_000_000)),
    *(Line("made", "nystrom", n) for n in (50_000, 200_000, 1_000_000)),
    Line("made", "scikit-learn Nystroem", 1_000_000),
    Line("made", "LightGBM", 1_000_000),
]


def measured(line: Line) -> dict[str, Any]:
    """A process of its own, so that its peak is its own."""
    command = [sys.executable, str(HERE / "scale_work.py"), line.data, line.learner, str(line.n)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"fault": f"ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def cells(line: Line, answer: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    if "fault" in answer:
        return (line.data, str(line.n), line.learner, answer["fault"], "", "", "", "", "")
    number = lambda value, form: "-" if value is None or math.isnan(value) else format(value, form)
    planned = "-" if math.isnan(answer["planned"]) else duration(60 * answer["planned"])
    error = f"{100 * answer['error']:.2f} %" if line.data == "fashion" else f"{answer['error']:.4f}"
    return (
        line.data,
        str(line.n),
        line.learner,
        duration(answer["seconds"]),
        planned,
        f"{answer['peak'] / 1e9:.2f}",
        error,
        number(answer["residual"], ".1e"),
        str(answer["iterations"] or "-"),
    )


def write_csv(rows: list[tuple[Line, dict[str, Any]]]) -> None:
    """For plots of cost against rows."""
    with CSV.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["data", "learner", "n", "seconds", "planned_minutes", "peak_bytes", "error"])
        for line, answer in rows:
            if "fault" not in answer:
                writer.writerow([*line, *(answer[key] for key in ("seconds", "planned", "peak", "error"))])


def draw(rows: list[tuple[Line, dict[str, Any]]]) -> None:
    """Seconds against rows, both on logarithmic axes, one curve a learner."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for data, learner in dict.fromkeys((line.data, line.learner) for line, _ in rows):
        some = [
            (line.n, a["seconds"])
            for line, a in rows
            if (line.data, line.learner) == (data, learner) and "seconds" in a
        ]
        if some:
            axes.loglog(*zip(*sorted(some), strict=True), marker="o", label=f"{learner} ({data})")
    axes.set_xlabel("rows")
    axes.set_ylabel("seconds")
    axes.legend(fontsize=7)
    figure.savefig(HERE / "scale.svg")


def main() -> None:
    """Measure, print, and record if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="lines whose data, learner or rows contain this")
    parser.add_argument("--most", type=int, default=10**9, help="rows at the most")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows: to try the script")
    parser.add_argument("--record", action="store_true", help="write the table, scale.csv and scale.svg")
    args = parser.parse_args()
    before, rows = machine(), []
    for line in LINES:
        small = line._replace(n=max(line.n // 10, 1000)) if args.quick else line
        if small.n <= args.most and args.only in f"{line.data}, {line.learner}, {line.n}":
            rows.append((small, measured(small)))
            print("; ".join(cells(*rows[-1])), file=sys.stderr, flush=True)
    text = f"{date.today()}, {before}.\n\n" + table([HEADING, *(cells(*row) for row in rows)])
    print(text)
    if args.record:
        record("scale", text)
        write_csv(rows)
        draw(rows)


if __name__ == "__main__":
    main()
