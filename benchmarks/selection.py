"""Which rows to label next: every method of `everwide.selection`, and bmdal_reg beside it; `make selection`.

A network is trained on the labelled rows, rows are chosen, their labels are bought, a new network is trained, and so
on. Methods of one set and seed share rows, first labels and the seeds of networks: differences are paired.
"""

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import data
import jax.numpy as jnp
import numpy as np
from contest import Lines
from protocol import HERE, Worker, WorkerError
from table import machine, record, table

import everwide as ew
from everwide._networks import train_networks
from everwide.selection import query
from everwide.training import Mse, SoftmaxCrossEntropy

WIDTH, STEPS, BATCH = 128, 1500, 64
HELD = 0.2  # of the labelled rows say when to stop, if there are enough
ENOUGH = 100
ROUNDS = 8
MOST_POOL, MOST_TEST = 4000, 2000
FEWEST_ROWS = 500  # of a UCI task
MOST_WIDE = 10  # sets that have columns of their own; more have lines
THEIRS = "lcmd, bmdal_reg"
INCUMBENT = HERE.parent / ".bench-selection" / "bin" / "python"

REGRESSION: dict[str, dict[str, Any]] = {
    "random": {"method": "random"},
    "lcmd": {"method": "lcmd"},
    THEIRS: {},
    "emoc": {"method": "emoc"},
    "lcmd, inputs": {"method": "lcmd", "kernel": "inputs"},
    "lcmd, infinite": {"method": "lcmd", "kernel": "net"},
    "lcmd, last layer": {"method": "lcmd", "kernel": "last_layer"},
    "bait": {"method": "bait"},
    "k_centre": {"method": "k_centre"},
    "badge": {"method": "badge"},
    "determinantal": {"method": "determinantal"},
    "typiclust": {"method": "typiclust"},
    "bald": {"method": "bald"},
    "expected_error": {"method": "expected_error"},
}
CLASSIFICATION: dict[str, dict[str, Any]] = {
    name: {"method": name}
    for name in ("random", "margin", "badge", "mlmoc", "emoc", "expected_error", "entropy", "bald", "bait", "lcmd")
} | {name: {"method": name} for name in ("k_centre", "determinantal", "typiclust")}


class Task(NamedTuple):
    """Rows, of which the first `first` are labelled; `batch` are in a round. Targets are numbers, or classes."""

    pool: data.Rows
    test: data.Rows
    first: int
    batch: int
    rounds: int
    classes: int  # 0 for numbers


def regression_task(name: str, seed: int) -> Task:
    """A fifth of the rows is for tests. Scaled by the pool, as in the protocol of the paper."""
    with np.load(data.folder() / "regression_gal.npz") as file:
        x, y = file[f"{name}.X"].astype(np.float64), file[f"{name}.y"].astype(np.float64)
    order = np.random.default_rng([seed, 0]).permutation(len(y))
    tested = min(MOST_TEST, len(y) // 5)
    test, pool = order[:tested], order[tested:][:MOST_POOL]
    x = x[:, np.ptp(x[pool], axis=0) > 0]
    x = ((x - x[pool].mean(0)) / x[pool].std(0)).astype(np.float32)
    y = (y - y[pool].mean()) / y[pool].std()
    size = min(256, len(pool) // (ROUNDS + 4))
    return Task(data.Rows(x[pool], y[pool]), data.Rows(x[test], y[test]), size, size, ROUNDS, 0)


def class_task(name: str, seed: int) -> Task:
    """A UCI task: a quarter for tests; 20 labels, and 20 more in a round. Fashion-MNIST: from 100 to 1000."""
    rng = np.random.default_rng([seed, 1])
    if name == "fashion_mnist":
        split = data.images(name, 20_000, MOST_TEST)
        chosen = rng.permutation(len(split.y))[:MOST_POOL]
        flat = [x.reshape(len(x), -1) for x in (split.x[chosen], split.x_test)]
        x, x_test = ((one - flat[0].mean()) / flat[0].std() for one in flat)
        return Task(data.Rows(x, split.y[chosen]), data.Rows(x_test, split.y_test), 100, 100, 9, 10)
    with np.load(data.folder() / "uci60.npz") as file:
        x, y = file[f"{name}.X"].astype(np.float32), file[f"{name}.y"].astype(np.int64)
    order = rng.permutation(len(y))
    tested = min(MOST_TEST, len(y) // 4)
    test, pool = order[:tested], order[tested:][:MOST_POOL]
    return Task(data.Rows(x[pool], y[pool]), data.Rows(x[test], y[test]), 20, 20, ROUNDS, int(y.max()) + 1)


@functools.cache
def network(outputs: int) -> ew.Serial:
    """Two hidden layers of rectifiers; one object, so that programs are shared."""
    hidden = (ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu())
    return ew.Serial(*hidden, *hidden, ew.Dense(outputs, b_std=0.1))


def trained(task: Task, labelled: np.ndarray, seed: int) -> tuple[Any, np.ndarray]:
    """Parameters of a new network that has learned the labelled rows, and its outputs for the test rows."""
    order = np.random.default_rng([seed, 2]).permutation(labelled)
    held = round(HELD * len(order)) if len(order) >= ENOUGH else 0
    loss = SoftmaxCrossEntropy() if task.classes else Mse()
    x = np.concatenate([task.pool.x, task.test.x])
    y = np.concatenate([task.pool.y, task.test.y])  # those of the test rows are not looked at: no place names them
    done = train_networks(
        network(max(task.classes, 1)),
        x,
        np.eye(task.classes)[y] if task.classes else y[:, None],
        [order[held:]],
        [order[:held] if held else order],
        loss=loss,
        width=WIDTH,
        steps=STEPS,
        batch_size=BATCH,
        seed=seed,
    )
    return done.after[0], done.outputs[0][len(task.pool.y) :]


def score(task: Task, outputs: np.ndarray) -> float:
    """The logarithm of the root mean square error, or accuracy."""
    if task.classes:
        return float(np.mean(outputs.argmax(1) == task.test.y))
    return float(np.log(np.sqrt(np.mean((outputs[:, 0] - task.test.y) ** 2))))


def ours(how: dict[str, Any]) -> Callable[[Task, np.ndarray, Any, int], tuple[np.ndarray, float]]:
    """Rows that `query` picks, and how long it took."""

    def pick(task: Task, labelled: np.ndarray, params: Any, seed: int) -> tuple[np.ndarray, float]:
        net = network(max(task.classes, 1))
        y = np.full(len(task.pool.y), np.nan)
        y[labelled] = task.pool.y[labelled]
        given: dict[str, Any] = how | ({"kernel": net} if how.get("kernel") == "net" else {})
        kind = "classification" if task.classes else "regression"
        x = jnp.asarray(task.pool.x)
        start = time.perf_counter()
        picked = query(x, y, (net, params), batch_size=task.batch, task=kind, seed=seed, **given)
        return picked.indices, time.perf_counter() - start

    return pick


def theirs(worker: Worker) -> Callable[[Task, np.ndarray, Any, int], tuple[np.ndarray, float]]:
    """The same of bmdal_reg, with the same weights."""

    def pick(task: Task, labelled: np.ndarray, params: Any, seed: int) -> tuple[np.ndarray, float]:
        rest = np.setdiff1d(np.arange(len(task.pool.y)), labelled)
        layers = [part for part in params if hasattr(part, "weight")]
        weights = {f"weight{i}": np.asarray(layer.weight, np.float32) for i, layer in enumerate(layers)}
        biases = {f"bias{i}": np.asarray(layer.bias, np.float32) for i, layer in enumerate(layers)}
        x = task.pool.x.astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.npz"
            y = task.pool.y[labelled][:, None].astype(np.float32)
            arrays: dict[str, Any] = {"known": x[labelled], "pool": x[rest], "y": y} | weights | biases
            np.savez(path, **arrays)
            answer = worker.ask({"do": "lcmd", "path": str(path), "size": task.batch, "seed": seed})
        mine = [float(network(1).apply(params, jnp.asarray(row))[0]) for row in x[rest[:3]]]
        if not np.allclose(mine, answer["outputs"], atol=1e-3):
            raise WorkerError(f"The networks differ: {mine} and {answer['outputs']}.")
        return rest[np.array(answer["picked"])], answer["seconds"]

    return pick


def chain(task: Task, pick: Callable[..., tuple[np.ndarray, float]], seed: int) -> dict[str, float]:
    """All rounds of one method: scores before the first and after each; their mean without the first; seconds."""
    labelled, scores, seconds = np.arange(task.first), [], []
    for done in range(task.rounds + 1):
        params, outputs = trained(task, labelled, 1000 * seed + done)
        scores.append(score(task, outputs))
        if done < task.rounds:
            picked, took = pick(task, labelled, params, 1000 * seed + done)
            assert len(np.setdiff1d(picked, labelled)) == len(picked)
            labelled = np.concatenate([labelled, picked])
            seconds.append(took)
    found = {"mean": float(np.mean(scores[1:])), "last": scores[-1], "first": scores[0], "labelled": len(labelled)}
    return found | {"rounds": task.rounds, "batch": task.batch, "seconds": float(np.median(seconds[1:] or seconds))}


def measure(lines: Lines, kind: str, names: list[str], methods: list[str], seeds: int, minutes: float) -> None:
    """Until all is there, or the time is over; a later run goes on."""
    end, make = time.monotonic() + 60 * minutes, regression_task if kind == "regression" else class_task
    ways = REGRESSION if kind == "regression" else CLASSIFICATION
    worker = Worker(str(INCUMBENT), "selection_theirs.py") if THEIRS in methods else None
    for seed in range(seeds):
        for name in names:
            for method in methods:
                if time.monotonic() > end:
                    return
                pick = theirs(worker) if method == THEIRS and worker is not None else ours(ways[method])
                work = lambda name=name, seed=seed, pick=pick: chain(make(name, seed), pick, seed)
                found = lines.run((kind, name, seed, method), work)
                print(f"{name} {seed} {method}: {found['mean']}, {found['seconds']} s a choice", flush=True)


def paired(lines: Lines, kind: str, name: str, method: str, against: str, column: str = "mean") -> np.ndarray:
    """Differences of the seeds that both have."""

    def known(one: str) -> dict[str, float]:
        where = {"kind": kind, "set": name, "method": one}
        rows = [line for line in lines.rows.values() if all(line[key] == value for key, value in where.items())]
        return {line["seed"]: float(line[column]) for line in rows}

    ours, others = known(method), known(against)
    return np.array([ours[seed] - others[seed] for seed in ours if seed in others])


def cell(differences: np.ndarray) -> str:
    """A mean and its standard error."""
    if len(differences) < 2:
        return "-" if not len(differences) else f"{differences[0]:+.3f}"
    return f"{differences.mean():+.3f} ± {differences.std(ddof=1) / len(differences) ** 0.5:.3f}"


def summary(lines: Lines, kind: str) -> str:
    """Scores of random rows, and what every method adds to them."""
    ways = REGRESSION if kind == "regression" else CLASSIFICATION
    here = [line for line in lines.rows.values() if line["kind"] == kind]
    names = list(dict.fromkeys(line["set"] for line in here))
    methods = [method for method in ways if any(line["method"] == method for line in here)]
    what = "log RMSE (less is better)" if kind == "regression" else "accuracy (more is better)"
    rows = [(f"{what}, seeds", *(_headed(here, name) for name in names), "all sets", "seconds a choice")]
    for method in methods:
        each = [paired(lines, kind, name, method, "random") for name in names]
        together = np.array([one.mean() for one in each if len(one)])
        seconds = [float(line["seconds"]) for line in here if line["method"] == method]
        parts = [cell(one) for one in each] if method != "random" else [_mean(here, name) for name in names]
        total = "-" if method == "random" else f"{together.mean():+.4f}"
        rows.append((method, *parts, total, f"{np.median(seconds):.2g}"))
    return table(list(zip(*rows, strict=True)) if len(names) > MOST_WIDE else rows)


def _headed(here: list[dict[str, str]], name: str) -> str:
    seeds = {line["seed"] for line in here if line["set"] == name}
    (line,) = [line for line in here if line["set"] == name][:1]
    return f"{name}, {len(seeds)}, to {float(line['labelled']):.0f} rows"


def _mean(here: list[dict[str, str]], name: str) -> str:
    values = [float(line["mean"]) for line in here if line["set"] == name and line["method"] == "random"]
    return f"{np.mean(values):.3f}" if values else "-"


def uci_names() -> list[str]:
    """Tasks with enough rows."""
    with np.load(data.folder() / "uci60.npz") as file:
        return [name for name in data.uci_names() if len(file[f"{name}.y"]) >= FEWEST_ROWS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("regression", "classification"), nargs="?", default="regression")
    parser.add_argument("--sets", nargs="*", help="some of them")
    parser.add_argument("--methods", nargs="*", help="some of them; by default all that can run")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing new after so long")
    parser.add_argument("--lines", type=Path, default=Path(__file__).with_name("selection.csv"))
    parser.add_argument("--record", action="store_true", help="write the tables into README.md")
    chosen = parser.parse_args()
    ways = REGRESSION if chosen.kind == "regression" else CLASSIFICATION
    names = chosen.sets or (data.gal_names() if chosen.kind == "regression" else [*uci_names(), "fashion_mnist"])
    methods = chosen.methods or [one for one in ways if one != THEIRS or INCUMBENT.exists()]
    lines = Lines(chosen.lines, ("kind", "set", "seed", "method"))
    measure(lines, chosen.kind, names, methods, chosen.seeds, chosen.minutes)
    kinds = {line["kind"] for line in lines.rows.values()}
    text = "\n\n".join(summary(lines, kind) for kind in ("regression", "classification") if kind in kinds)
    text += f"\n\n{machine()}"
    print(text)
    if chosen.record:
        record("selection", text)


if __name__ == "__main__":
    main()
