"""Both kernels of every named architecture at realistic shapes: first call, next calls, memory, share of the floor.

The floor is the arithmetic that XLA counts in a tile, at the rate of a matrix product on this machine. With the Python
of an environment that holds neural-tangents (`--theirs`), the same networks are timed there, as far as it has them.
"""

import argparse
import json
from pathlib import Path
from statistics import median

from protocol import Worker, WorkerError
from table import machine, record, table

# name: examples, shape of one
WORK = {
    "mlp": (1000, (3072,)),
    "mlp_tanh": (500, (100,)),
    "cnn": (64, (32, 32, 3)),
    "myrtle": (12, (32, 32, 3)),
    "resnet": (4, (32, 32, 3)),
    "resnet_norm": (4, (32, 32, 3)),
    "wide_resnet": (4, (32, 32, 3)),
    "mlp_mixer": (32, (32, 32, 3)),
    "vit": (32, (32, 32, 3)),
    "gpt": (16, (128, 1)),
    "graph_network": (100, (30, 8)),
    "recurrent_network": (50, (128, 8)),
}
HEADING = (
    "network",
    "n",
    "first",
    "of a processor",
    "next",
    "spread",
    "peak MB",
    "of the floor",
    "theirs",
    "theirs / ours",
)


def main() -> None:
    """Ask each side, one network at a time, in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(WORK), help="names")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of the examples: less is quicker")
    parser.add_argument("--python", default="python", help="the project's interpreter")
    parser.add_argument("--theirs", default=None, help="an interpreter with neural-tangents")
    parser.add_argument("--out", type=Path, default=None, help="a JSON file for all that was measured")
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    asked, before = parser.parse_args(), machine()
    print(" | ".join(HEADING))
    found, lines = {}, []
    for name in asked.only:
        n, shape = WORK[name]
        question = {"net": name, "n": max(int(n * asked.share), 2), "shape": shape, "repeats": asked.repeats}
        ours = _asked(asked.python, "architectures_ours.py", question)
        theirs = None if asked.theirs is None else _asked(asked.theirs, "architectures_theirs.py", question)
        found[name] = {"question": question, "ours": ours, "theirs": theirs}
        lines.append(_cells(name, question["n"], ours, theirs))
        print(" | ".join(lines[-1]), flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1))
    if asked.record:
        record("architectures", f"{before}; {asked.repeats} repeats.\n\n{table([HEADING, *lines])}")


def _asked(python: str, script: str, question: dict) -> dict:
    try:
        with Worker(python, script) as worker:
            return worker.ask({"do": "measure"} | question)
    except WorkerError as fault:
        return {"error": str(fault).strip().splitlines()[-1]}


def _cells(name: str, n: int, ours: dict, theirs: dict | None) -> tuple[str, ...]:
    if "error" in ours:
        return name, str(n), ours["error"], *("-",) * (len(HEADING) - 3)
    times = ours["next"]
    floor = ours["floor"] / median(times)
    first = f"{ours['first']:.2f} s", f"{ours['first_processor']:.2f} s"
    cells = *first, f"{median(times):.3f} s", f"{min(times):.3f} - {max(times):.3f}"
    other = "-" if theirs is None else theirs.get("error") or f"{median(theirs['next']):.3f} s"
    ratio = "-" if theirs is None or "error" in theirs else f"{median(theirs['next']) / median(times):.1f}"
    return name, str(n), *cells, f"{ours['peak'] / 1e6:.0f}", f"{100 * floor:.1f} %", other, ratio


if __name__ == "__main__":
    main()
