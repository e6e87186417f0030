"""Times `everwide.training` against `neural_tangents.predict`, and its steps against their floor. See README.md."""

import argparse
import os
import sys
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from statistics import median

from protocol import HERE, Worker
from table import duration, machine, ratio_cells, record, table, times
from training_work import CLOSED, STEPS

HEADING = ("work", "ours", "theirs", "which", "ratio", "spread", "to reach", "peak MB", "")
AGREE = 1e-2  # of float32 eigenvalues


class Bench:
    """Two processes at a time, in turns."""

    def __init__(self, incumbent: str, repeats: int):
        self.incumbent, self.repeats = incumbent, repeats

    def turns(self, ours: dict, theirs: dict, python: str, script: str) -> tuple[list, list, tuple[int, int], list]:
        """Seconds of both sides, their peaks, and samples of their results."""
        with ExitStack() as stack:
            first = stack.enter_context(Worker(sys.executable, "training_ours.py"))
            second = stack.enter_context(Worker(python, script))
            samples = [w.ask({"do": "prepare", **q})["sample"] for w, q in ((first, ours), (second, theirs))]
            mine, other = [], []
            for _ in range(self.repeats):
                mine.append(first.ask({"do": "time"}))
                other.append(second.ask({"do": "time"}))
        seconds = lambda found: [one["seconds"] for one in found]
        return seconds(mine), seconds(other), (mine[-1]["peak"], other[-1]["peak"]), samples

    def closed(self, name: str, what: str, size: dict) -> list[tuple[str, ...]]:
        """A row against each of the incumbent's precisions."""
        rows = []
        for dtype in ("float32", "float64"):
            question = {"what": what, "size": size}
            mine, other, peaks, (a, b) = self.turns(
                question, question | {"dtype": dtype}, self.incumbent, "training_theirs.py"
            )
            worst = max(abs(x - y) for x, y in zip(a, b, strict=True)) / max(map(abs, b))
            if worst > AGREE:
                print(f"{name}, {dtype}: results differ by {worst:.1e}", file=sys.stderr)
            rows.append(_row(name, f"neural-tangents, {dtype}", mine, other, peaks, 1.0))
        return rows

    def steps(self, name: str, size: dict) -> tuple[str, ...]:
        """Our steps over their floor."""
        mine, floor, peaks, _ = self.turns(
            {"what": "steps", "size": size}, {"what": "floor", "size": size}, sys.executable, "training_ours.py"
        )
        return _row(name, "floor: rows read once", mine, floor, peaks, 1 / 3)


def _row(name, which, mine, other, peaks, goal) -> tuple[str, ...]:
    ratios = [theirs / ours for ours, theirs in zip(mine, other, strict=True)]
    verdict = "met" if median(ratios) >= goal else "missed"
    memory = " / ".join(f"{p / 1e6:.0f}" for p in peaks)
    cells = ratio_cells(ratios)
    return name, duration(median(mine)), duration(median(other)), which, *cells, times(goal), memory, verdict


def main() -> None:
    """Measure, print, and record if asked to."""
    default = os.environ.get("EVERWIDE_BENCH_PYTHON", str(HERE.parent / ".bench" / "bin" / "python"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, for trying the script; proves nothing")
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md")
    parser.add_argument("--incumbent", default=default, metavar="PYTHON", help="Python that has neural-tangents 0.6.5")
    args = parser.parse_args()
    if not Path(args.incumbent).exists():
        raise SystemExit(f"No {args.incumbent}: run `make bench` once, or use --incumbent.")
    bench, before = Bench(args.incumbent, args.repeats), machine()
    closed = {"n": 200, "m": 50, "outputs": 3} if args.quick else CLOSED
    steps = {"n": 300, "outputs": 3, "batch": 16, "steps": 500} if args.quick else STEPS
    size = f"n={closed['n']}, {closed['outputs']} outputs, 20 times"
    rows = bench.closed(f"factorize and predict, {size}", "whole", closed)
    rows += bench.closed(f"predict again, {size}", "again", closed)
    rows.append(bench.steps(f"{steps['steps']} steps of ADAM*, n={steps['n']}, batch {steps['batch']}", steps))
    text = f"{date.today()}, {before}; {args.repeats} repeats.\n\n{table([HEADING, *rows])}"
    print(text)
    if args.record:
        record("recorded training run", text)


if __name__ == "__main__":
    main()
