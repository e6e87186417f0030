"""How exact the float32 kernels are, ours and the incumbent's, against 50 digits and against float64. See README.md."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import numpy as np
from ours import network
from protocol import HERE, Worker
from reference import relative_error, relu_pair
from table import record, table
from work import Net

import everwide as ew

HEADING = ("float32 against", "claim", "limit", "ours", "", "incumbent", "")
DISTANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
Kernels = tuple[np.ndarray, np.ndarray]
Compute = Callable[[Net, np.ndarray], Kernels]
Line = tuple[str, str, float, Callable[[Compute], float]]


def ours(net: Net, x: np.ndarray) -> Kernels:
    """NNGP and NTK in the dtype of the rows."""
    found = ew.gram(network(net.question()), x)
    return found.nngp, found.ntk


def incumbents(worker: Worker, folder: str) -> Compute:
    """The same from the other environment, through files."""

    def compute(net: Net, x: np.ndarray) -> Kernels:
        rows, out = f"{folder}/rows.npy", f"{folder}/kernels.npz"
        np.save(rows, x)
        question = {"do": "kernels", "net": net.question(), "how": "jit", "dtype": str(x.dtype)}
        worker.ask(question | {"rows": rows, "out": out})
        with np.load(out) as found:
            return found["nngp"], found["ntk"]

    return compute


def rows(n: int, channels: int, seed: int) -> np.ndarray:
    """Standard normal, float32."""
    return np.random.default_rng(seed).standard_normal((n, channels)).astype(np.float32)


def repeated(x: np.ndarray, distance: float, seed: int) -> np.ndarray:
    """The same rows, each moved by a relative distance."""
    noise = np.random.default_rng(seed).standard_normal(x.shape)
    unit = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    return (x + distance * np.linalg.norm(x, axis=1, keepdims=True) * unit).astype(np.float32)


def worst(net: Net, x: np.ndarray, pairs: list[tuple[int, int]]) -> Callable[[Compute], float]:
    """The largest relative error of both kernels over some pairs of rows, against 50 digits."""
    exact = {(i, j): relu_pair(x[i], x[j], net) for i, j in pairs}

    def error(compute: Compute) -> float:
        found = compute(net, x)
        both = lambda i, j: zip(found, exact[i, j], strict=True)
        return max(relative_error(kernel[i, j], value) for i, j in pairs for kernel, value in both(i, j))

    return error


def diagonals() -> Iterator[Line]:
    """Every row with itself."""
    x = rows(64, 784, seed=1)
    for depth in (3, 10):
        yield "50 digits", f"diagonal, depth {depth}", 1e-6, worst(Net(depth=depth), x, [(i, i) for i in range(64)])


def near_duplicates() -> Iterator[Line]:
    """Every row with a copy that was moved a little."""
    x = rows(16, 784, seed=2)
    pairs = [(i, 16 + i) for i in range(16)]
    for depth in (3, 10):
        for distance in DISTANCES:
            both = np.concatenate([x, repeated(x, distance, seed=3)])
            name = f"off-diagonal, rows {distance:.0e} apart, depth {depth}"
            yield "50 digits", name, 1e-5, worst(Net(depth=depth), both, pairs)


def smallest_eigenvalues() -> Iterator[Line]:
    """Of 2000 rows: all of them drawn, and with 100 that return a little moved."""
    drawn = rows(2000, 20, seed=4)
    moved = np.concatenate([drawn[:1900], repeated(drawn[:100], 1e-3, seed=5)])
    for x, what in ((drawn, "2000 drawn rows"), (moved, "2000 rows, 100 of them 1e-3 from another")):
        spectrum = np.linalg.eigvalsh(ours(Net(), x.astype(np.float64))[1])
        name = f"smallest eigenvalue, {what} (condition {spectrum[-1] / spectrum[0]:.0e})"
        yield "float64", name, 1e-2, _eigenvalue_error(x, spectrum[0])


def _eigenvalue_error(x: np.ndarray, exact: float) -> Callable[[Compute], float]:
    smallest = lambda ntk: np.linalg.eigvalsh(ntk.astype(np.float64))[0]
    return lambda compute: float(abs(smallest(compute(Net(), x)[1]) / exact - 1))


def float64_itself() -> str:
    """The float64 kernel is a reference above, so it is held against 50 digits too."""
    x = rows(16, 20, seed=4)
    x = np.concatenate([x, repeated(x, 1e-3, seed=5)]).astype(np.float64)
    pairs = [(i, j) for i in range(0, 16, 3) for j in (i, i + 1, 16 + i)]
    return (
        f"Our float64 kernel, {len(pairs)} entries of such rows against 50 digits: {worst(Net(), x, pairs)(ours):.1e}."
    )


def _line(line: Line, theirs: Compute | None) -> tuple[str, ...]:
    reference, claim, limit, error = line
    verdict = lambda value: "within" if value <= limit else "missed"
    mine = error(ours)
    cells = (reference, claim, f"{limit:.0e}", f"{mine:.1e}", verdict(mine))
    print(f"{claim}: {mine:.1e}", file=sys.stderr, flush=True)
    if theirs is None:
        return (*cells, "-", "")
    other = error(theirs)
    return (*cells, f"{other:.1e}", verdict(other))


def measure(python: str) -> str:
    """The table; the incumbent's column is empty where its environment is missing."""
    lines = [*diagonals(), *near_duplicates(), *smallest_eigenvalues()]
    if Path(python).exists():
        with Worker(python, "theirs.py") as worker, tempfile.TemporaryDirectory() as folder:
            theirs = incumbents(worker, folder)
            body = [_line(line, theirs) for line in lines]
    else:
        print(f"No {python}: `make bench` installs the incumbent. Ours alone:", file=sys.stderr)
        body = [_line(line, None) for line in lines]
    head = f"{date.today()}. Dense ReLU networks, largest relative error of float32 kernels. {float64_itself()}"
    return f"{head}\n\n{table([HEADING, *body])}"


def main() -> None:
    """Measure, print, and record if asked to."""
    default = os.environ.get("EVERWIDE_BENCH_PYTHON", str(HERE.parent / ".bench" / "bin" / "python"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md")
    parser.add_argument("--incumbent", default=default, metavar="PYTHON", help="Python that has neural-tangents 0.6.5")
    args = parser.parse_args()
    text = measure(args.incumbent)
    print(text)
    if args.record:
        record("recorded accuracy", text)


if __name__ == "__main__":
    main()
