"""Kills, flipped bits and a second worker: what a store comes through, and what Dask brings to it: `make store`.

Every trial is appended to store.csv when it is done; a run makes as many as are asked for and not there yet.
"""

import argparse
import csv
import itertools
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from table import duration, machine, ratio_cells, record, table

import everwide as ew
from everwide.scale import Dask, Store

HERE = Path(__file__).resolve().parent
CSV = HERE / "store.csv"
HEADING = ("what", "how often", "came through", "seen")
COLUMNS = ("date", "load", "what", "one", "two", "ceiling")
ROWS, TILE = 3072, 128  # 300 tiles of both kernels
BARE_TILES = 12
IMAGES, IMAGE_TILE = 256, 32  # 36 tiles, all of them of as much work
PATIENCE = 120  # seconds for a job of two, and until there is another worker: 20 on a busy machine
# A worker is one core: two of them can be twice as fast as one, and no faster.
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


class Trial(NamedTuple):
    """Whether bits were the same, and what was seen; or seconds of one worker and of two, beside bare processes."""

    one: float
    two: float
    ceiling: float = math.nan  # how much faster two processes without Dask are than one


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
    """Removed at the end; a worker may still be writing there."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
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


def killed_jobs(trials: int, workers: int, seed: int) -> Iterator[Trial]:
    """The process that computes (or that asks workers to) is killed at a random moment."""
    rng, expected, seconds = np.random.default_rng(seed), undisturbed(), length(workers)
    for _ in range(trials):
        with folder() as path:
            process = started(path / "run", workers)
            time.sleep(float(rng.uniform(0, seconds)))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            yield Trial(*resumed(path / "run", expected))


def undisturbed() -> dict[str, bytes]:
    """The tiles of a job that nobody disturbs."""
    net, x = dense()
    with folder() as path:
        ew.gram(net, x, out=Store(path / "run"), tile=TILE)
        return digest(path / "run")


def _tiles() -> int:
    side = -(-ROWS // TILE)
    return side * (side + 1) // 2


def killed_workers(trials: int, seed: int) -> Iterator[Trial]:
    """One of two workers is killed at a random moment; the job goes on, and another worker is started."""
    rng, expected, done = np.random.default_rng(seed), undisturbed(), 0
    while done < trials:
        with cluster(2) as client:
            warm(client, *dense(), TILE)
            seconds = timed(client, *dense(), TILE)
            while done < trials and staffed(client):
                yield killed_worker(client, seconds, rng, expected)
                done += 1


def staffed(client) -> bool:
    """Whether there are two workers soon."""
    try:
        client.wait_for_workers(2, timeout=PATIENCE)
    except TimeoutError:
        return False
    return True


def killed_worker(client, seconds: float, rng: np.random.Generator, expected: dict[str, bytes]) -> Trial:
    """Whether the bits are the same, and whether the job was still running when a worker was to be killed."""
    (net, x), pids, shot = dense(), list(client.run(os.getpid).values()), []
    moment = time.perf_counter() + float(rng.uniform(0, seconds))

    def shoot(progress: ew.Progress) -> None:
        if time.perf_counter() >= moment and not shot and progress.done < progress.total:
            shot.append(int(rng.choice(pids)))
            os.kill(shot[0], signal.SIGKILL)

    with folder() as path:
        try:
            with bounded(PATIENCE):
                ew.gram(net, x, out=Store(path / "run"), tile=TILE, backend=Dask(client), progress=shoot)
        except TimeoutError:
            return Trial(False, len(shot))
        return Trial(digest(path / "run") == expected, len(shot))


@contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """What takes longer ends with `TimeoutError`."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def flipped(trials: int, seed: int) -> Iterator[Trial]:
    """One bit of a tile, then the next tile."""
    (net, x), rng = dense(), np.random.default_rng(seed)
    with folder() as path:
        ew.gram(net, x, out=Store(path / "run"), tile=TILE)
        expected = digest(path / "run")
        for name in rng.choice(sorted(expected), trials, replace=False):
            file = path / "run" / name
            data = bytearray(file.read_bytes())
            bit = int(rng.integers(8 * len(data)))
            data[bit // 8] ^= 1 << bit % 8
            file.write_bytes(bytes(data))
            said: list[str] = []
            ew.gram(net, x, out=Store(path / "run", notice=said.append))
            yield Trial(digest(path / "run") == expected, any("Damaged tiles" in line for line in said))


@contextmanager
def cluster(workers: int) -> Iterator:
    """Processes of one core each; one that died is started again, however long that takes."""
    import dask.config
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 50, "env": ONE_CORE}
    kept = dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"})
    with kept, LocalCluster(n_workers=workers, **options) as made, Client(made) as client:
        yield client


def timed(client, net: ew.Serial, x: np.ndarray, tile: int) -> float:
    """Seconds of one job."""
    with folder() as path:
        start = time.perf_counter()
        ew.gram(net, x, out=Store(path / "run"), tile=tile, backend=Dask(client))
        return time.perf_counter() - start


def warm(client, net: ew.Serial, x: np.ndarray, tile: int) -> None:
    """Every worker compiles for tiles on the diagonal and beside it, and has opened a store."""
    client.run(ew.gram, net, x[: 3 * tile], tile=tile)
    timed(client, net, x[: 4 * tile], tile)


def bare_job() -> None:
    """A process of its own: computes tiles into memory whenever a line comes in, and says when it is done."""
    net, x = convolutional(BARE_TILES * IMAGE_TILE)
    for _ in itertools.chain([""], sys.stdin):  # once, not asked, to compile
        ew.gram(net, x[:IMAGE_TILE], x, tile=IMAGE_TILE)
        print("done", flush=True)


@contextmanager
def bare(many: int) -> Iterator[list[subprocess.Popen]]:
    """Processes of one core each that have compiled."""
    command = [sys.executable, __file__, "--bare"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": os.environ | ONE_CORE}
    with ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(many)]
        together(processes, ask=False)
        yield processes


def together(processes: list[subprocess.Popen], *, ask: bool = True) -> float:
    """Seconds until all of them are done."""
    start = time.perf_counter()
    for process in processes if ask else ():
        print(file=process.stdin, flush=True)
    assert all(process.stdout is not None and process.stdout.readline() for process in processes)
    return time.perf_counter() - start


def two_against_one(repeats: int, seed: int) -> Iterator[Trial]:
    """Convolutional tiles, in turns: seconds of one worker, of two, and what two processes without Dask gain."""
    net, x = convolutional(IMAGES)
    with cluster(1) as one, cluster(2) as two, bare(2) as processes:
        for client in (one, two):
            warm(client, net, x, IMAGE_TILE)
        for _ in range(repeats):
            seconds = [timed(client, net, x, IMAGE_TILE) for client in (one, two)]
            yield Trial(*seconds, ceiling=2 * together(processes[:1]) / together(processes))


LINES: dict[str, tuple[int, Callable[[int, int], Iterator[Trial]]]] = {
    "process": (50, lambda trials, seed: killed_jobs(trials, 0, seed)),
    "worker": (50, killed_workers),
    "client": (5, lambda trials, seed: killed_jobs(trials, 2, seed)),
    "bits": (20, flipped),
    "speed": (5, two_against_one),
}
WORDS = {
    "process": "kill -9 of the process",
    "worker": "kill -9 of one of two Dask workers",
    "client": "kill -9 of the client of two workers",
    "bits": "a bit of a tile flipped",
    "speed": f"two Dask workers against one, {IMAGES} images of 16 x 16, three convolutions, pooled",
}


def known(path: Path) -> dict[str, list[Trial]]:
    """All trials so far."""
    trials: dict[str, list[Trial]] = {name: [] for name in LINES}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                trials[row["what"]].append(Trial(*(float(row[name]) for name in Trial._fields)))
    return trials


def append(path: Path, name: str, trial: Trial) -> None:
    """At once, so that an interrupted run loses nothing."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(COLUMNS)
        writer.writerow([date.today(), f"{os.getloadavg()[0]:.1f}", name, *map(float, trial)])


def cells(name: str, trials: list[Trial]) -> tuple[str, ...]:
    """One line of the table."""
    one, two, ceiling = ([float(trial[i]) for trial in trials] for i in range(3))
    if name == "speed":
        ratios = [a / b for a, b in zip(one, two, strict=True)]
        (ratio, spread), (most, around) = ratio_cells(ratios), ratio_cells(ceiling)
        seen = f"{duration(median(one))} and {duration(median(two))}; two bare processes: {most} ({around})"
        asked = "1.6x is asked: " + ("missed", "met")[median(ratios) >= 1.6]
        return WORDS[name], f"{len(trials)} in turns", f"{ratio} ({spread})", f"{seen}; {asked}"
    there = f"{min(two):.0f}..{max(two):.0f} of {_tiles()} tiles were there (median {median(two):.0f})"
    seen = {"worker": f"{sum(two):.0f} were hit", "bits": f"{sum(two):.0f} noticed and said"}.get(name, there)
    how = f"{len(trials)} tiles" if name == "bits" else f"{len(trials)} random moments"
    return WORDS[name], how, f"{sum(one):.0f} of {len(trials)}", seen


def main() -> None:
    """Measure, print, and record if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help=f"lines whose name contains this: {', '.join(LINES)}")
    parser.add_argument("--trials", type=int, default=50, help="more of a line at the most")
    parser.add_argument("--quick", action="store_true", help="one of everything, recorded nowhere: to try the script")
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job or args.bare:
        job(args.job, args.workers) if args.job else bare_job()
        return
    with folder() as scratch:
        path, before = scratch / "store.csv" if args.quick else CSV, machine()
        for name, (many, line) in LINES.items():
            done = len(known(path)[name])
            left = 1 if args.quick else min(many - done, args.trials)
            if args.only not in name or left <= 0:
                continue
            for trial in line(left, done):
                append(path, name, trial)
                print(name, *trial, file=sys.stderr, flush=True)
        lines = [cells(name, trials) for name, trials in known(path).items() if trials]
    text = f"{date.today()}, {before}.\n\n" + table([HEADING, *lines])
    print(text)
    if args.record:
        record("store", text)


if __name__ == "__main__":
    main()
