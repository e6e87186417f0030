"""Times Hessians as operators against curvlinops and PyHessian, in turns, on the same numbers: `make curvature`."""

import argparse
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from statistics import median

from curvature_work import MODELS, PEERS, WORK
from protocol import HERE, Worker, WorkerError
from table import duration, machine, ratio_cells, record, table

HEADING = ("model", "work", "peer", "ours", "theirs", "ratio", "spread", "numbers", "peak MB", "")
AGREE = 1e-4


@dataclass
class Measured:
    """Seconds of each repetition, peaks in bytes, and how far numbers are apart."""

    model: str
    work: str
    peer: str
    apart: float | None
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    peaks: tuple[int, int] = (0, 0)

    def cells(self) -> tuple[str, ...]:
        """One line of the table."""
        ratios = [theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)]
        missed = ["time"] if median(ratios) < 1 else []
        missed += ["memory"] if self.peaks[0] > self.peaks[1] else []
        missed += ["numbers"] if self.apart is not None and self.apart > AGREE else []
        apart = "-" if self.apart is None else f"{self.apart:.1e}"
        peaks = " / ".join(f"{peak / 1e6:.0f}" for peak in self.peaks)
        seconds = (duration(median(side)) for side in (self.ours, self.theirs))
        verdict = f"missed ({', '.join(missed)})" if missed else "met"
        return (self.model, self.work, self.peer, *seconds, *ratio_cells(ratios), apart, peaks, verdict)


def measure(python: str, model: str, work: str, peer: str, n: int, repeats: int) -> Measured:
    """Two fresh processes, once untimed, then in turns."""
    with ExitStack() as stack:
        ours = stack.enter_context(Worker(sys.executable, "curvature_ours.py"))
        theirs = stack.enter_context(Worker(python, "curvature_theirs.py"))
        question = {"do": "prepare", "model": model, "work": work, "how": peer, "n": n}
        mine, other = ours.ask(question)["numbers"], theirs.ask(question)["numbers"]
        result = Measured(model, work, peer, _apart(work, mine, other))
        for _ in range(repeats):
            here, there = ours.ask({"do": "time"}), theirs.ask({"do": "time"})
            result.ours.append(here["seconds"])
            result.theirs.append(there["seconds"])
        result.peaks = (here["peak"], there["peak"])
    return result


def _apart(work: str, mine: list[float], other: list[float]) -> float | None:
    """Relative to the largest number; traces are random, and are compared in units of their error."""
    if not other or work in ("trace", "density"):
        return None
    return max(abs(a - b) for a, b in zip(mine, other, strict=True)) / max(map(abs, other))


def main() -> None:
    """Measure, print, and record if asked to."""
    default = os.environ.get("EVERWIDE_CURVATURE_PYTHON", str(HERE.parent / ".bench-curvature" / "bin" / "python"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="lines whose model, work or peer contains this")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few rows, once: to try the script")
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    parser.add_argument("--incumbent", default=default, metavar="PYTHON", help="with curvature_incumbent.txt")
    args = parser.parse_args()
    before, measured = machine(), []
    for model, n in MODELS.items():
        for work in WORK:
            for peer in PEERS:
                if args.only not in f"{model}, {work}, {peer}":
                    continue
                size, repeats = (n // 16, 1) if args.quick else (n, args.repeats)
                try:
                    measured.append(measure(args.incumbent, model, work, peer, size, repeats))
                    print("; ".join(measured[-1].cells()), file=sys.stderr, flush=True)
                except WorkerError as error:
                    print(f"{model}, {work}, {peer}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
    text = f"{date.today()}, {before}; {args.repeats} repeats.\n\n" + table([HEADING, *(m.cells() for m in measured)])
    print(text)
    if args.record:
        record("curvature", text)


if __name__ == "__main__":
    main()
