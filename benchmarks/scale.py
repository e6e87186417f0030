"""Kernels of many rows: exact, in minutes, beside what others offer; and what a plan has said: `make scale`.

Each line is a process of its own, and is appended to scale.csv when it is done. `--only "fashion, estimator, 20000"`
measures one, `--missing` what is not there yet.
"""

import argparse
import csv
import json
import math
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from table import duration, machine, record, table

HERE = Path(__file__).resolve().parent
CSV = HERE / "scale.csv"
THEIRS = HERE.parent / ".bench-scale" / "bin" / "python"
HEADING = ("data", "rows", "learner", "time", "planned", "peak GB", "disk GB", "error", "residual", "iterations")
MEASURED = ("seconds", "planned", "peak", "disk", "error", "residual", "iterations", "solver", "fault")


class Line(NamedTuple):
    """What is learned by whom, from how many rows."""

    data: str
    learner: str
    n: int


SIZES = (2500, 5000, 10_000, 20_000)
LINES = [
    *(Line("fashion", "conjugate gradients", n) for n in (*SIZES, 60_000)),
    *(Line("fashion", "floor", n) for n in (20_000, 60_000)),
    *(Line("fashion", "conjugate gradients, held out", n) for n in (20_000, 60_000)),
    *(Line("fashion", "conjugate gradients, recomputed", n) for n in SIZES),
    *(Line("fashion", "conjugate gradients, from a store", n) for n in SIZES),
    *(Line("fashion", "estimator", n) for n in (*SIZES, 60_000)),
    *(Line("fashion", "cholesky", n) for n in (2500, 5000, 10_000)),
    *(Line("fashion", "cholesky, float32", n) for n in SIZES),
    *(Line("fashion", "nystrom", n) for n in (5000, 20_000, 60_000)),
    *(Line("fashion", "scikit-learn KernelRidge", n) for n in (5000, 10_000)),
    Line("fashion", "scikit-learn Nystroem", 60_000),
    Line("fashion", "LightGBM", 60_000),
    *(Line("fashion", "GPyTorch, conjugate gradients", n) for n in (5000, 20_000)),
    Line("fashion", "GPyTorch, SVGP", 5000),
    *(
        Line("protein", learner, 41_157)
        for learner in ("estimator", "leaves", "nystrom", "scikit-learn Nystroem", "LightGBM")
    ),
    *(Line("made", "estimator", n) for n in (50_000, 200_000, 1_000_000)),
    *(Line("made", "leaves", n) for n in (50_000, 200_000, 1_000_000)),
    *(Line("made", "nystrom", n) for n in (50_000, 200_000, 1_000_000)),
    Line("made", "scikit-learn Nystroem", 1_000_000),
    *(Line("made", "LightGBM", n) for n in (50_000, 200_000, 1_000_000)),
]


def measured(line: Line) -> dict[str, Any]:
    """A process of its own, so that its peak is its own."""
    theirs = line.learner.startswith("GPyTorch")
    python, script = (THEIRS, "scale_theirs.py") if theirs else (sys.executable, "scale_work.py")
    command = [str(python), str(HERE / script), line.data, line.learner, str(line.n)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"fault": f"ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def cells(line: Line, answer: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    if answer.get("fault"):
        return (line.data, str(line.n), line.learner, answer["fault"], *[""] * (len(HEADING) - 4))
    number = lambda value, form: "-" if math.isnan(value) else format(value, form)
    planned = "-" if math.isnan(answer["planned"]) else duration(60 * answer["planned"])
    error = number(100 * answer["error"], ".2f") + " %" if line.data == "fashion" else number(answer["error"], ".4f")
    return (
        line.data,
        str(line.n),
        line.learner,
        duration(answer["seconds"]),
        planned,
        f"{answer['peak'] / 1e9:.2f}",
        f"{answer['disk'] / 1e9:.2f}" if answer["disk"] else "-",
        error,
        number(answer["residual"], ".1e"),
        str(int(answer["iterations"]) or "-"),
    )


def append(path: Path, line: Line, answer: dict[str, Any]) -> None:
    """At once, so that an interrupted run loses nothing."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(["date", "load", *Line._fields, *MEASURED])
        load = f"{os.getloadavg()[0]:.1f}"
        writer.writerow([date.today(), load, *line, *(answer.get(key, "") for key in MEASURED)])


def read(path: Path) -> dict[Line, dict[str, Any]]:
    """What was measured last of each line."""
    if not path.exists():
        return {}
    plain = lambda key, text: text if key in ("solver", "fault") else float(text or "nan")
    with path.open(newline="") as file:
        return {
            Line(row["data"], row["learner"], int(row["n"])): {key: plain(key, row[key]) for key in MEASURED}
            for row in csv.DictReader(file)
        }


def draw(rows: list[tuple[Line, dict[str, Any]]]) -> None:
    """Seconds against rows, both on logarithmic axes, one curve a learner."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for data, learner in dict.fromkeys((line.data, line.learner) for line, _ in rows):
        some = [
            (line.n, a["seconds"])
            for line, a in rows
            if (line.data, line.learner) == (data, learner) and not a["fault"]
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
    parser.add_argument(
        "--only", action="append", help="lines whose data, learner and rows contain this; may be repeated"
    )
    parser.add_argument("--most", type=int, default=10**9, help="rows at the most")
    parser.add_argument("--missing", action="store_true", help="leave out what is in scale.csv")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the rows, into scale_quick.csv: to try the script"
    )
    parser.add_argument("--list", action="store_true", help="print the lines, and measure none")
    parser.add_argument(
        "--record", action="store_true", help="write the table of all that scale.csv has, and scale.svg"
    )
    args = parser.parse_args()
    path, before = HERE / "scale_quick.csv" if args.quick else CSV, machine()
    known = read(path)
    for line in LINES:
        small = line._replace(n=max(line.n // 10, 1000)) if args.quick else line
        named = not args.only or any(f", {part}," in f", {line.data}, {line.learner}, {line.n}," for part in args.only)
        if not named or small.n > args.most or (args.missing and small in known and not known[small]["fault"]):
            continue
        if args.list:
            print(*line, sep=", ")
            continue
        answer = measured(small)
        append(path, small, answer)
        print("; ".join(cells(small, read(path)[small])), file=sys.stderr, flush=True)
    measured_lines = list(read(path).items())
    text = f"{date.today()}, {before}.\n\n" + table([HEADING, *(cells(*row) for row in measured_lines)])
    print(text)
    if args.record:
        record("scale", text)
        draw(measured_lines)


if __name__ == "__main__":
    main()
