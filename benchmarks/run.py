"""Times everwide and neural-tangents on the same work in the same run, in turns. See README.md."""

import argparse
import fnmatch
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import median

from protocol import HERE, Worker, WorkerError, seconds_to_first_line
from table import duration, machine, ratio_cells, record, table, times
from work import COLD, ROWS, Mode, Row

HEADING = ("work", "n", "ours", "theirs", "their fastest", "ratio", "spread", "to reach", "/ floor", "peak MB", "")
AGREE = 1e-3  # both sides must have computed the same kernel: relative, the incumbent's float32 included
UNSTEADY = 2  # a spread beyond this says more about the machine than about either side
CLOSE = 1.5  # one repetition with few examples cannot tell more


@dataclass
class Measured:
    """Seconds for each repetition (for each entry, where the two n differ), and peaks in bytes."""

    row: Row
    mode: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    peak_ours: int = 0
    peak_theirs: int = 0

    def verdict(self) -> str:
        """One plain word, what is missed, and whether something else ran meanwhile."""
        ratios = _over(self.theirs, self.ours)
        missed = [] if median(ratios) >= self.row.ratio else ["ratio"]
        if self.row.floor is not None and self.floor and median(_over(self.ours, self.floor)) > self.row.floor:
            missed.append("floor")
        unsteady = ", unsteady" if max(ratios) > UNSTEADY * min(ratios) else ""
        return (f"missed ({', '.join(missed)})" if missed else "met") + unsteady

    def cells(self) -> tuple[str, ...]:
        """One line of the table."""
        row = self.row
        unit = "" if row.n_ours == row.n_theirs or not row.n_theirs else " an entry"
        n = str(row.n_ours) if not unit else f"{row.n_ours} / {row.n_theirs}"
        goal = times(row.ratio) + (f", floor {times(row.floor)}" if row.floor else "")
        floor = times(median(_over(self.ours, self.floor))) if self.floor else "-"
        peaks = f"{self.peak_ours / 1e6:.0f} / {self.peak_theirs / 1e6:.0f}" if self.peak_ours else "-"
        seconds = (duration(median(side)) + unit for side in (self.ours, self.theirs))
        ratio = ratio_cells(_over(self.theirs, self.ours))
        return (row.name, n, *seconds, self.mode, *ratio, goal, floor, peaks, self.verdict())


def _over(above: list[float], below: list[float]) -> list[float]:
    """Ratios of neighbours in time."""
    return [a / b for a, b in zip(above, below, strict=True)]


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Bench:
    """Both environments and how much to run."""

    theirs: str
    repeats: int
    quick: bool

    def fastest_mode(self, row: Row) -> Mode:
        """Try every way to run the incumbent on fewer examples; those that come close again on all of them."""
        with Worker(self.theirs, "theirs.py") as worker:
            found = _heat(worker, row, row.modes(quick=self.quick), row.n_trial)
            close = [mode for mode, seconds in found.items() if seconds < CLOSE * min(found.values())]
            if len(close) > 1 and row.n_trial < row.n_theirs:
                found = _heat(worker, row, close, row.n_theirs)
        if not found:
            raise WorkerError(f"{row.name}: the incumbent could not be run in any way.")
        return min(found, key=found.__getitem__)

    def measure(self, row: Row) -> Measured:
        """Fresh processes, a warm-up each, then in turns: floor, ours, theirs."""
        mode = self.fastest_mode(row)
        result = Measured(row, str(mode))
        same = row.n_ours == row.n_theirs
        entries = (1, 1) if same else (row.n_ours**2, row.n_theirs**2)
        with ExitStack() as stack:
            start = lambda python, script: stack.enter_context(Worker(python, script))
            ours, theirs = start(sys.executable, "ours.py"), start(self.theirs, "theirs.py")
            mine = ours.ask(_question(row, row.n_ours))
            other = theirs.ask(_question(row, row.n_theirs) | {"how": mode.how, "dtype": mode.dtype})
            _same_kernel(row, mine["sample"], other["sample"])
            floor = start(sys.executable, "ours.py") if row.dense else None  # its own process: it has a peak too
            if floor:
                floor.ask(_question(row, row.n_ours) | {"do": "prepare_floor"})
            for _ in range(self.repeats):
                if floor:
                    result.floor.append(floor.ask({"do": "time_floor"})["seconds"])
                mine, other = ours.ask({"do": "time"}), theirs.ask({"do": "time"})
                result.ours.append(mine["seconds"] / entries[0])
                result.theirs.append(other["seconds"] / entries[1])
            result.peak_ours, result.peak_theirs = mine["peak"], other["peak"]
        return result

    def cold_start(self, row: Row) -> Measured:
        """Process start to first kernel, against process start to the incumbent being imported."""
        spec = json.dumps(_question(row, row.n_ours))
        ours = [sys.executable, str(HERE / "ours.py"), spec]
        theirs = [self.theirs, "-c", "import neural_tangents; print('done', flush=True)"]
        result = Measured(row, "its import alone")
        for turn in range(self.repeats + 1):
            pair = seconds_to_first_line(ours), seconds_to_first_line(theirs)
            if turn:  # the first start reads the files from the disk
                result.ours.append(pair[0])
                result.theirs.append(pair[1])
        return result

    def versions(self) -> str:
        """What ran, in one line."""
        found = []
        for python, script in ((sys.executable, "ours.py"), (self.theirs, "theirs.py")):
            with Worker(python, script) as worker:
                found.append(", ".join(f"{k} {v}" for k, v in worker.ask({"do": "facts"}).items()))
        return f"ours: {found[0]}; theirs: {found[1]}"


def _heat(worker: Worker, row: Row, modes: list[Mode], n: int) -> dict[Mode, float]:
    """Seconds of one repetition after a warm-up, for each mode that runs."""
    found = {}
    for mode in modes:
        try:
            worker.ask(_question(row, n) | {"how": mode.how, "dtype": mode.dtype})
            found[mode] = worker.ask({"do": "time"})["seconds"]
            say(f"  their {mode}: {duration(found[mode])} with n={n}")
        except WorkerError as error:
            say(f"  their {mode}: failed, {str(error).strip().splitlines()[-1]}")
    return found


def _question(row: Row, n: int) -> dict:
    return {"do": "prepare", "net": row.net.question(), "shape": list(row.shape), "n": n}


def _same_kernel(row: Row, mine: list[float], other: list[float]) -> None:
    worst = max(abs(a - b) / abs(b) for a, b in zip(mine, other, strict=True))
    if worst > AGREE:
        say(f"  WARNING, {row.name}: the two sides differ by {worst:.1e} in nngp[0, 1] or ntk[0, 1]: {mine}, {other}")


def _arguments() -> argparse.Namespace:
    default = os.environ.get("EVERWIDE_BENCH_PYTHON", str(HERE.parent / ".bench" / "bin" / "python"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="rows whose name contains or matches this")
    parser.add_argument("--repeats", type=int, help="timed repetitions of each side (default 5; 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small sizes, for trying the script; proves nothing")
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md")
    parser.add_argument("--incumbent", default=default, metavar="PYTHON", help="Python that has neural-tangents 0.6.5")
    return parser.parse_args()


def main() -> None:
    """Measure, print, and record if asked to."""
    args = _arguments()
    if not Path(args.incumbent).exists():
        raise SystemExit(f"No {args.incumbent}: run `make bench`, which installs it, or name another with --incumbent.")
    bench = Bench(args.incumbent, args.repeats or (2 if args.quick else 5), args.quick)
    wanted = lambda row: fnmatch.fnmatch(row.name, f"*{args.only}*")
    before, found = machine(), []
    for row in filter(wanted, (*ROWS, *COLD)):
        say(row.name)
        measure = bench.cold_start if row in COLD else bench.measure
        try:
            found.append(measure(row.quick() if args.quick and row in ROWS else row))
            say("  " + "; ".join(found[-1].cells()[2:]))
        except WorkerError as error:  # the other rows are still worth their time
            say(f"  no result: {error}")
    text = "\n\n".join(
        [
            f"{date.today()}, {before}; {bench.repeats} repeats{', quick' if args.quick else ''}.",
            f"Versions, {bench.versions()}.",
            table([HEADING, *(m.cells() for m in found)]),
        ]
    )
    print(text)
    if args.record:
        record("recorded run", text)


if __name__ == "__main__":
    main()
