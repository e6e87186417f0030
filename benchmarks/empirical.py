"""Times `everwide.empirical_ntk` against everybody else who computes such kernels, in turns. See README.md."""

import argparse
import fnmatch
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from statistics import median

from empirical_work import HEAVY, PEERS, ROWS, Row
from protocol import HERE, Worker, WorkerError
from table import duration, machine, ratio_cells, record, table, times

HEADING = ("kernel", "peer", "ours", "theirs", "ratio", "spread", "to reach", "peak MB", "")
AGREE = 1e-3  # relative to the largest of the numbers that are compared
UNSTEADY = 2  # a spread beyond this says more about the machine than about either side


@dataclass
class Measured:
    """Seconds of each repetition, and peaks in bytes."""

    row: Row
    peer: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    peaks: tuple[int, int] = (0, 0)

    def ratios(self) -> list[float]:
        """Of neighbours in time."""
        return [theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    def verdict(self) -> str:
        """What is missed, and whether something else ran meanwhile."""
        missed = ["time"] if median(self.ratios()) < self.row.goal(self.peer) else []
        missed += ["memory"] if self.peaks[0] > self.peaks[1] else []
        unsteady = ", unsteady" if max(self.ratios()) > UNSTEADY * min(self.ratios()) else ""
        return (f"missed ({', '.join(missed)})" if missed else "met") + unsteady

    def cells(self) -> tuple[str, ...]:
        """One line of the table."""
        seconds = (duration(median(side)) for side in (self.ours, self.theirs))
        peaks = " / ".join(f"{peak / 1e6:.0f}" for peak in self.peaks)
        goal = times(self.row.goal(self.peer))
        return (self.row.name, self.peer, *seconds, *ratio_cells(self.ratios()), goal, peaks, self.verdict())


@dataclass(frozen=True)
class Bench:
    """The environments of others and how often to measure."""

    incumbent: str
    netket: str
    repeats: int

    def worker(self, peer: str) -> Worker:
        """A fresh process for a peer."""
        environment, script, _ = PEERS[peer]
        pythons = {"incumbent": self.incumbent, "netket": self.netket, "project": sys.executable}
        return Worker(pythons[environment], script)

    def measure(self, row: Row, peer: str) -> Measured:
        """Two fresh processes, a warm-up each, then in turns."""
        result = Measured(row, peer)
        with ExitStack() as stack:
            ours = stack.enter_context(Worker(sys.executable, "empirical_ours.py"))
            theirs = stack.enter_context(self.worker(peer))
            mine = ours.ask({"do": "prepare", "how": "ours", **row.question()})
            other = theirs.ask({"do": "prepare", "how": PEERS[peer][2], **row.question()})
            _same_kernel(row, peer, mine["sample"], other["sample"])
            for _ in range(self.repeats):
                mine, other = ours.ask({"do": "time"}), theirs.ask({"do": "time"})
                result.ours.append(mine["seconds"])
                result.theirs.append(other["seconds"])
            result.peaks = (mine["peak"], other["peak"])
        return result

    def versions(self) -> str:
        """What ran, in one line."""
        found = {}
        for peer in ("naive JAX", "PyTorch hooks", "neural-tangents 3"):
            with self.worker(peer) as worker:
                found[peer.split()[0]] = worker.ask({"do": "facts"})
        words = lambda facts: ", ".join(f"{name} {version}" for name, version in facts.items())
        return "; ".join(words(facts) for facts in found.values())


def _same_kernel(row: Row, peer: str, mine: list[float], other: list[float]) -> None:
    worst = max(abs(a - b) for a, b in zip(mine, other, strict=True)) / max(map(abs, other))
    if worst > AGREE:
        raise WorkerError(f"{row.name}: {peer} and we differ by {worst:.1e} between the first two examples.")


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    default = os.environ.get("EVERWIDE_EMPIRICAL_PYTHON", str(HERE.parent / ".bench-empirical" / "bin" / "python"))
    netket = os.environ.get("EVERWIDE_NETKET_PYTHON", str(HERE.parent / ".bench-netket" / "bin" / "python"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="kernels whose name contains or matches this")
    parser.add_argument("--peer", default="*", metavar="PATTERN", help="peers whose name contains or matches this")
    parser.add_argument("--fast", action="store_true", help="without the peers that need many seconds and gigabytes")
    parser.add_argument("--repeats", type=int, help="timed repetitions of each side (default 5; 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="few examples, for trying the script; proves nothing")
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md")
    parser.add_argument("--incumbent", default=default, metavar="PYTHON", help="Python with empirical_incumbent.txt")
    parser.add_argument("--netket", default=netket, metavar="PYTHON", help="Python with empirical_netket.txt")
    return parser.parse_args()


def main() -> None:
    """Measure, print, and record if asked to."""
    args = _arguments()
    if not Path(args.incumbent).exists():
        raise SystemExit(f"No {args.incumbent}: make an environment of empirical_incumbent.txt, or use --incumbent.")
    bench = Bench(args.incumbent, args.netket, args.repeats or (2 if args.quick else 5))
    wanted = lambda pattern, name: fnmatch.fnmatch(name, f"*{pattern}*")
    before, found = machine(), []
    for row in (row for row in ROWS if wanted(args.only, row.name)):
        for peer in (p for p in row.peers if wanted(args.peer, p) and not (args.fast and p in HEAVY)):
            try:
                found.append(bench.measure(row.quick() if args.quick else row, peer))
                say("; ".join(found[-1].cells()))
            except (WorkerError, FileNotFoundError) as error:  # the other rows are still worth their time
                say(f"{row.name}, {peer}: no result, {str(error).strip().splitlines()[-1]}")
    text = "\n\n".join(
        [
            f"{date.today()}, {before}; {bench.repeats} repeats{', quick' if args.quick else ''}.",
            f"Versions: {bench.versions()}.",
            table([HEADING, *(m.cells() for m in found)]),
        ]
    )
    print(text)
    if args.record:
        record("recorded empirical run", text)


if __name__ == "__main__":
    main()
