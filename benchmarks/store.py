"""Kills, flipped bits and a second worker: what a store comes through, and what Dask brings to it: `make store`."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np
from table import duration, machine, ratio_cells, record, table

import everwide as ew
from everwide.scale import Dask, Store

HEADING = ("what", "how often", "came through", "seen")
ROWS, TILE = 3072, 128  # 300 tiles of both kernels
IMAGES, IMAGE_TILE = 384, 48  # 36 tiles
# A worker is one core: two of them can be twice as fast as one, and no faster.
PATIENCE = 120  # seconds until a nanny has started another worker
ONE_CORE = {"NPROC": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def dense() -> tuple[ew.Serial, np.ndarray]:
    """Three hidden layers and rows, a second of work or two."""
    hidden = [layer for _ in range(3) for layer in (ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu())]
    return ew.Serial(*hidden, ew.Dense(1)), np.random.default_rng(0).standard_normal((ROWS, 64)).astype(np.float32)


def convolutional(n: int) -> tuple[ew.Serial, np.ndarray]:
    """Three convolutions and pooling over images of 16 x 16."""
    hidden = [layer for _ in range(3) for layer in (ew.Conv((3, 3), w_std=2**0.5), ew.Relu())]
    x = np.random.default_rng(0).standard_normal((n, 16, 16, 3)).astype(np.float32)
    return ew.Serial(*hidden, ew.GlobalAvgPool(), ew.Dense(1)), x


def job(folder: str, workers: int) -> None:
    """A process of its own, that will be killed: says when it begins."""
    net, x = dense()
    backend = Dask(workers=workers) if workers else None
    print("begin", flush=True)
    ew.gram(net, x, out=Store(folder), tile=TILE, backend=backend, progress=lambda p: print(p.done, flush=True))


def digest(folder: Path) -> dict[str, bytes]:
    """All tiles of a store."""
    files = [file for name in ("nngp", "ntk") for file in (folder / name / "c").rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.suffix != ".partial"}


@contextmanager
def folder() -> Iterator[Path]:
    """Removed at the end."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def started(path: Path, workers: int) -> subprocess.Popen:
    """A job that has said that it begins."""
    command = [sys.executable, __file__, "--job", str(path), "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def length(workers: int) -> float:
    """Seconds of an undisturbed job, from its beginning."""
    with folder() as path, started(path / "run", workers) as process:
        start = time.perf_counter()
        process.communicate()
        assert process.returncode == 0
        return time.perf_counter() - start


def resumed(path: Path, expected: dict[str, bytes]) -> tuple[bool, int]:
    """Run the job again, here; whether its bytes are those of an undisturbed run, and how many tiles were there."""
    net, x = dense()
    done: list[int] = []
    ew.gram(net, x, out=Store(path), tile=TILE, progress=lambda p: done.append(p.done))
    return digest(path) == expected, done[0]


def killed_jobs(trials: int, workers: int, expected: dict[str, bytes], rng: np.random.Generator) -> tuple[str, ...]:
    """The process that computes (or that asks workers to) is killed at a random moment."""
    seconds, same, there = length(workers), 0, []
    for trial in range(trials):
        with folder() as path:
            process = started(path / "run", workers)
            time.sleep(float(rng.uniform(0, seconds)))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            right, count = resumed(path / "run", expected)
            same, there = same + right, [*there, count]
        print(f"killed {trial + 1}: {there[-1]} tiles were there, the same bits: {right}", file=sys.stderr, flush=True)
    who = "the process" if not workers else f"the client of {workers} workers"
    seen = f"{min(there)}..{max(there)} of {_tiles()} tiles were there (median {median(there):.0f})"
    return f"kill -9 of {who}", f"{trials} random moments", f"{same} of {trials}", seen


def _tiles() -> int:
    side = -(-ROWS // TILE)
    return side * (side + 1) // 2


def killed_workers(trials: int, expected: dict[str, bytes], rng: np.random.Generator) -> tuple[str, ...]:
    """One of two workers is killed at a random moment; the job goes on, and a nanny starts another worker."""
    net, x = dense()
    same, hit = 0, 0
    with cluster(2) as client:
        seconds = timed(client, net, x, TILE)
        for trial in range(trials):
            client.wait_for_workers(2, timeout=PATIENCE)
            pids, shot = list(client.run(os.getpid).values()), []
            moment = time.perf_counter() + float(rng.uniform(0, seconds))

            def shoot(progress: ew.Progress, moment=moment, pids=pids, shot=shot) -> None:
                if time.perf_counter() >= moment and not shot and progress.done < progress.total:
                    shot.append(int(rng.choice(pids)))
                    os.kill(shot[0], signal.SIGKILL)

            with folder() as path:
                ew.gram(net, x, out=Store(path / "run"), tile=TILE, backend=Dask(client), progress=shoot)
                right = digest(path / "run") == expected
            same, hit = same + right, hit + len(shot)
            print(f"worker {trial + 1}: killed {len(shot)}, the same bits: {right}", file=sys.stderr, flush=True)
    return "kill -9 of one of two Dask workers", f"{trials} random moments", f"{same} of {trials}", f"{hit} were hit"


def flipped(trials: int, expected: dict[str, bytes], rng: np.random.Generator) -> tuple[str, ...]:
    """One bit of a tile, then the next tile."""
    net, x = dense()
    noticed, same = 0, 0
    with folder() as path:
        ew.gram(net, x, out=Store(path / "run"), tile=TILE)
        for name in rng.choice(sorted(expected), trials, replace=False):
            file = path / "run" / name
            data = bytearray(file.read_bytes())
            bit = int(rng.integers(8 * len(data)))
            data[bit // 8] ^= 1 << bit % 8
            file.write_bytes(bytes(data))
            said: list[str] = []
            ew.gram(net, x, out=Store(path / "run", notice=said.append))
            noticed += any("Damaged tiles" in line for line in said)
            same += digest(path / "run") == expected
    return (
        "a bit of a tile flipped",
        f"{trials} tiles",
        f"{same} of {trials}",
        f"{noticed} of {trials} noticed and said",
    )


@contextmanager
def cluster(workers: int) -> Iterator:
    """Processes of one core each."""
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 50, "env": ONE_CORE}
    with LocalCluster(n_workers=workers, **options) as made, Client(made) as client:
        yield client


def timed(client, net: ew.Serial, x: np.ndarray, tile: int) -> float:
    """Seconds of one job, after a small one that is not timed: workers compile first."""
    for rows in (x[: 4 * tile], x):
        with folder() as path:
            start = time.perf_counter()
            ew.gram(net, rows, out=Store(path / "run"), tile=tile, backend=Dask(client))
            seconds = time.perf_counter() - start
    return seconds


def two_against_one(repeats: int, images: int) -> tuple[str, ...]:
    """Convolutional tiles, in turns."""
    net, x = convolutional(images)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for workers, kept in seconds.items():
            with cluster(workers) as client:
                kept.append(timed(client, net, x, IMAGE_TILE))
        print({workers: duration(kept[-1]) for workers, kept in seconds.items()}, file=sys.stderr, flush=True)
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    ratio, spread = ratio_cells(ratios)
    verdict = "met" if median(ratios) >= 1.6 else "missed"
    what = f"two Dask workers against one, {images} images of 16 x 16, three convolutions, pooled"
    seen = f"{duration(median(seconds[1]))} and {duration(median(seconds[2]))}; 1.6x is asked: {verdict}"
    return what, f"{repeats} in turns", f"{ratio} ({spread})", seen


def measured(trials: int, flips: int, repeats: int, images: int, only: str) -> list[tuple[str, ...]]:
    """The lines of the table."""
    rng, (net, x) = np.random.default_rng(0), dense()
    with folder() as path:
        ew.gram(net, x, out=Store(path / "run"), tile=TILE)
        expected = digest(path / "run")
    lines: dict[str, Callable[[], tuple[str, ...]]] = {
        "process": lambda: killed_jobs(trials, 0, expected, rng),
        "worker": lambda: killed_workers(trials, expected, rng),
        "client": lambda: killed_jobs(max(1, trials // 10), 2, expected, rng),
        "bits": lambda: flipped(flips, expected, rng),
        "speed": lambda: two_against_one(repeats, images),
    }
    return [line() for name, line in lines.items() if only in name]


def main() -> None:
    """Measure, print, and record if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="lines whose name contains this: process, worker, client, bits, speed"
    )
    parser.add_argument("--trials", type=int, default=50, help="kills")
    parser.add_argument("--repeats", type=int, default=3, help="of the speed")
    parser.add_argument("--quick", action="store_true", help="few of everything: to try the script")
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job(args.job, args.workers)
        return
    before = machine()
    sizes = (3, 3, 1, 96) if args.quick else (args.trials, 20, args.repeats, IMAGES)
    lines = measured(*sizes, args.only)
    text = f"{date.today()}, {before}.\n\n" + table([HEADING, *lines])
    print(text)
    if args.record:
        record("store", text)


if __name__ == "__main__":
    main()
