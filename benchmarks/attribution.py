"""Attribution of trained networks beside TRAK, gradient similarity and retrained networks: `make attribution`.

Parts are kept in attribution.csv, and what is there is not measured again.
"""

import argparse
import csv
import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import data
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from scipy.stats import rankdata
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from table import machine, record, table

import everwide as ew
import everwide.attribution as at
import everwide.training as tr
from everwide.empirical import project_gradients

KEPT = Path(__file__).with_suffix(".csv")
TASKS = ("digits, mlp", "digits, cnn", "fashion, mlp", "fashion, cnn")
TESTS, CLASSES = 200, 10
CHECKPOINTS, ALONE = 5, 2  # networks that have learned from all rows; of them, each for itself too
EPOCHS, BATCH, RATES = 20, 50, {"mlp": 1e-3, "cnn": 3e-3}  # of Adam
DIMS = (64, 128, 256)  # of TRAK: ours is compared with the best of them
NOISE = 0.1  # share of labels that are wrong
REMOVED, LOOKED_AT = 0.05, 10  # of the rows, for so many test rows
LOSS = tr.SoftmaxCrossEntropy()
Params = Any


class Task(NamedTuple):
    """Rows with classes, and a network."""

    kind: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


class Score(NamedTuple):
    """One number that was measured."""

    task: str
    seed: int
    measure: str
    method: str
    checkpoints: int
    value: float


def task(name: str, seed: int) -> Task:
    """Other rows, and another split, for every seed."""
    where, kind = name.split(", ")
    rng = np.random.default_rng(seed)
    if where == "digits":
        all_of_them, n = load_digits(), 1500
        x, y = all_of_them.images[..., None] / 16, all_of_them.target
        order = rng.permutation(len(y))[: n + TESTS]
    else:
        n = 2000
        with np.load(data.folder() / "fashion_mnist.npz") as file:
            x, y = file["x_train"][..., None] / np.float32(255), file["y_train"]
        order = rng.permutation(len(y))[: n + TESTS]
    x, y = x[order].astype(np.float32), y[order].astype(np.int32)
    if (where, kind) == ("fashion", "cnn"):  # half the pixels a side: a quarter of the time
        x = x.reshape(-1, 14, 2, 14, 2, 1).mean((2, 4))
    return Task(kind, x[:n], y[:n], x[n:], y[n:])


@functools.cache
def network(kind: str) -> ew.Serial:
    """Two hidden layers of 64, or two convolutions and a hidden layer."""
    dense = lambda width: (ew.Dense(width, w_std=2**0.5, b_std=0.1), ew.Relu())
    conv = lambda width: (ew.Conv((3, 3), width=width, strides=2, w_std=2**0.5, b_std=0.1), ew.Relu())
    body = (ew.Flatten(), *dense(64), *dense(64)) if kind == "mlp" else (*conv(8), *conv(16), ew.Flatten(), *dense(32))
    return ew.Serial(*body, ew.Dense(CLASSES, b_std=0.1))


@functools.partial(jax.jit, static_argnums=0)
def trained(kind: str, x: jax.Array, y: jax.Array, rows: jax.Array, key: jax.Array) -> Params:
    """A network that has learned from some of the rows: Adam, a fixed number of passes."""
    net, optimizer, n = network(kind), optax.adam(RATES[kind]), len(rows)
    start = net.init(key, x.shape[1:], parametrization="standard")

    def loss(params: Params, places: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(lambda a, b: LOSS(net.apply(params, a), b))(x[places], y[places]))

    def step(carry: tuple, places: jax.Array) -> tuple:
        params, memory = carry
        change, memory = optimizer.update(jax.grad(loss)(params, places), memory, params)
        return (optax.apply_updates(params, change), memory), None

    def once(carry: tuple, key: jax.Array) -> tuple:
        batches = rows[jr.permutation(key, n)][: n // BATCH * BATCH].reshape(-1, BATCH)
        return jax.lax.scan(step, carry, batches)

    return jax.lax.scan(once, (start, optimizer.init(start)), jr.split(jr.fold_in(key, 1), EPOCHS))[0][0]


@functools.partial(jax.jit, static_argnums=0)
def outputs(kind: str, params: Params, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda one: network(kind).apply(params, one))(x)


def margin(logits: jax.Array, label: jax.Array) -> jax.Array:
    """`log p / (1 - p)` of the label: what TRAK explains."""
    return logits[label] - jax.nn.logsumexp(jnp.where(jnp.arange(CLASSES) == label, -jnp.inf, logits))


def margins(kind: str, params: Params, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(margin)(outputs(kind, params, x), jnp.asarray(y)), np.float64)


def ours(rows: Task, checkpoints: list[Params]) -> np.ndarray:
    return at.influence(network(rows.kind), checkpoints[0], *rows[1:], loss=LOSS, checkpoints=checkpoints[1:]).scores


def ours_sketched(rows: Task, checkpoints: list[Params]) -> np.ndarray:
    net, first, *others = network(rows.kind), *checkpoints
    return at.influence(net, first, *rows[1:], loss=LOSS, checkpoints=others, dim=1024, key=jr.key(0)).scores


def trak(dim: int, rows: Task, checkpoints: list[Params]) -> np.ndarray:
    """`mean(phi (Phi^T Phi)^-1 Phi^T) mean(1 - p)`, projected gradients of margins: Park et al. 2023."""
    hats, doubts = [], []
    for number, params in enumerate(checkpoints):
        some, others = (
            np.asarray(
                project_gradients(network(rows.kind), params, x, jr.key(number), dim, loss=margin, y=y), np.float64
            )
            for x, y in ((rows.x, rows.y), (rows.x_test, rows.y_test))
        )
        hats.append(others @ np.linalg.solve(some.T @ some, some.T))
        doubts.append(1 / (1 + np.exp(margins(rows.kind, params, rows.x, rows.y))))
    return np.mean(hats, 0) * np.mean(doubts, 0)


def similarity(rows: Task, checkpoints: list[Params]) -> np.ndarray:
    """Inner products of the gradients of losses, means over checkpoints."""
    tests, train = (rows.x_test, rows.y_test), (rows.x, rows.y)
    kernels = [ew.empirical_ntk(loss_of(rows.kind), params, tests, train) for params in checkpoints]
    return np.mean(kernels, 0)[..., 0, 0]


@functools.cache
def loss_of(kind: str) -> Callable[[Params, Any], jax.Array]:
    return lambda params, row: LOSS(network(kind).apply(params, row[0]), row[1])


TRAK = {f"TRAK, dim {dim}": functools.partial(trak, dim) for dim in DIMS}
METHODS = {"influence": ours, "influence, dim 1024": ours_sketched, **TRAK, "similarity": similarity}
REMOVING = ("influence", "TRAK, dim 128", "similarity")


def ranks(values: np.ndarray) -> np.ndarray:
    """Of every column, centred and of length 1."""
    ranked = np.apply_along_axis(rankdata, 0, values)
    ranked -= ranked.mean(0)
    return ranked / np.linalg.norm(ranked, axis=0)


def datamodelling(name: str, seed: int, subsets: int, networks: int) -> Iterator[Score]:
    """The linear datamodelling score, and what removing the top rows does."""
    rows, rng = task(name, seed), np.random.default_rng([seed, 1])
    n, key = len(rows.y), jr.key(1000 + seed)
    x, y = jnp.asarray(rows.x), jnp.asarray(rows.y)

    def retrained(kept: np.ndarray, number: int) -> np.ndarray:
        """Margins of the tests, means over networks."""
        keys = [jr.fold_in(jr.fold_in(key, number), i) for i in range(networks)]
        return np.stack([margins(rows.kind, trained(rows.kind, x, y, kept, k), rows.x_test, rows.y_test) for k in keys])

    parts = np.stack([rng.permutation(n)[: n // 2] for _ in range(subsets)])
    each = np.stack([retrained(part, number) for number, part in enumerate(parts)])
    halves = [ranks(each[:, half::2].mean(1)) for half in (0, 1)]
    yield Score(name, seed, "halves", "retrained", 0, float(np.mean(np.sum(halves[0] * halves[1], 0))))
    members, truth = np.zeros((subsets, n)), ranks(each.mean(1))
    np.put_along_axis(members, parts, 1.0, 1)
    models = [trained(rows.kind, x, y, jnp.arange(n), jr.fold_in(key, 10**6 + c)) for c in range(CHECKPOINTS)]
    right = np.mean([margins(rows.kind, m, rows.x_test, rows.y_test) > 0 for m in models], 0)
    yield Score(name, seed, "accuracy", "retrained", 0, float(right.mean()))
    best = {}
    for method, scores_of in METHODS.items():
        alone = [scores_of(rows, [model]) for model in models[:ALONE]]
        best[method] = scores_of(rows, models)
        lds = [float(np.mean(np.sum(ranks(members @ s.T) * truth, 0))) for s in (*alone, best[method])]
        yield Score(name, seed, "LDS", method, 1, float(np.mean(lds[:-1])))
        yield Score(name, seed, "LDS", method, CHECKPOINTS, lds[-1])
    looked, removed = rng.choice(np.flatnonzero(right == 1), LOOKED_AT, replace=False), int(REMOVED * n)
    with_all = np.stack([margins(rows.kind, m, rows.x_test, rows.y_test) for m in models]).mean(0)
    best["at random"] = rng.normal(size=(TESTS, n))
    for place, method in enumerate((*REMOVING, "at random")):
        fallen = []
        for test in looked:
            kept = np.sort(np.argsort(-best[method][test], kind="stable")[removed:])
            fallen.append(with_all[test] - retrained(kept, subsets + 1000 * place + int(test)).mean(0)[test])
        yield Score(name, seed, "margin lost", method, CHECKPOINTS, float(np.mean(fallen)))


def wrong_labels(name: str, seed: int) -> Iterator[Score]:
    """How well wrong labels are told from right ones: areas under the curve."""
    rows, rng = task(name, seed), np.random.default_rng([seed, 2])
    n, key = len(rows.y), jr.key(2000 + seed)
    wrong = rng.uniform(size=n) < NOISE
    labels = np.where(wrong, (rows.y + rng.integers(1, CLASSES, n)) % CLASSES, rows.y).astype(np.int32)
    given = rows._replace(y=labels, x_test=rows.x[:1], y_test=labels[:1])
    models = [trained(rows.kind, rows.x, labels, jnp.arange(n), jr.fold_in(key, c)) for c in range(CHECKPOINTS)]
    results = [at.influence(network(rows.kind), model, *given[1:], loss=LOSS) for model in models]
    doubts = {
        "influence": [r.losses + r.self_influence for r in results],  # what `suspects` sorts by
        "self-influence": [r.self_influence for r in results],
        "confidence": [r.losses for r in results],
    }
    for method, some in doubts.items():
        yield Score(name, seed, "AUC", method, 1, float(np.mean([roc_auc_score(wrong, one) for one in some])))
        yield Score(name, seed, "AUC", method, CHECKPOINTS, float(roc_auc_score(wrong, np.mean(some, 0))))


def kept(path: Path) -> list[Score]:
    """What was measured before."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [Score(*(kind(line[name]) for name, kind in Score.__annotations__.items())) for line in lines]


def keep(path: Path, scores: list[Score]) -> None:
    """Add lines to the file; several programs may do so."""
    heading = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([Score._fields] if heading else [])
        writer.writerows((*score[:-1], f"{score.value:.4f}") for score in scores)


def measured(path: Path, asked: list[tuple[str, int]], subsets: int, networks: int) -> list[Score]:
    """What is asked for, from the file, or now."""
    for name, seed in asked:
        there, began = {s.measure for s in kept(path) if (s.task, s.seed) == (name, seed)}, time.perf_counter()
        if "LDS" not in there:
            keep(path, list(datamodelling(name, seed, subsets, networks)))
        if "AUC" not in there:
            keep(path, list(wrong_labels(name, seed)))
        print(f"{name}, seed {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    return [s for s in kept(path) if (s.task, s.seed) in asked]


def spread(values: list[float]) -> str:
    """The mean over seeds, and the smallest and the largest."""
    return f"{np.mean(values):.3f} ({min(values):.3f}..{max(values):.3f})" if values else "-"


def told(scores: list[Score]) -> str:
    """Tables, and a sentence for each demand."""

    def values(task: str, measure: str, method: str, checkpoints: int) -> list[float]:
        return [s.value for s in scores if s[:1] + s[2:5] == (task, measure, method, checkpoints)]

    names = list(dict.fromkeys(s.task for s in scores))
    counts = (1, CHECKPOINTS)
    heading = ("LDS, checkpoints", *(f"{name}" for name in names))
    lines = [heading]
    lines += [
        (f"{method}, {c}", *(spread(values(name, "LDS", method, c)) for name in names))
        for c in counts
        for method in METHODS
    ]
    lines += [("retrained halves", *(spread(values(name, "halves", "retrained", 0)) for name in names))]
    removal = [("margin lost", *names)]
    removal += [
        (method, *(spread(values(name, "margin lost", method, CHECKPOINTS)) for name in names))
        for method in (*REMOVING, "at random")
    ]
    noise = [("AUC, checkpoints", *names)]
    noise += [(f"{m}, {c}", *(spread(values(n, "AUC", m, c)) for n in names)) for c in counts
              for m in ("influence", "self-influence", "confidence")]  # fmt: skip
    verdicts = []
    for other, those in (("the best of TRAK", tuple(TRAK)), ("similarity", ("similarity",))):
        pairs = [
            (values(name, "LDS", "influence", c), np.max([values(name, "LDS", method, c) for method in those], 0))
            for c in counts
            for name in names
        ]
        ours, theirs = (np.concatenate(side) for side in zip(*pairs, strict=True))
        count = f"{np.sum(ours >= theirs)} of {len(ours)} pairs of task, seed and checkpoints"
        verdicts.append(f"LDS no worse than {other} in {count}; mean {ours.mean():.3f} against {theirs.mean():.3f}.")
    return "\n\n".join([machine(), table(lines), table(removal), table(noise), " ".join(verdicts)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", help="0, 1 and 2 by default; with --quick, 0")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--subsets", type=int, default=60, help="halves of the rows that networks are retrained on")
    parser.add_argument("--networks", type=int, default=4, help="retrained on each of them")
    parser.add_argument("--quick", action="store_true", help="30 halves and two networks on each: minutes")
    parser.add_argument("--kept", action="store_true", help="measure nothing: tables of what was measured")
    parser.add_argument("--record", action="store_true", help="write the tables into README.md")
    args = parser.parse_args()
    seeds = args.seeds or ([0] if args.quick else [0, 1, 2])
    sizes = (30, 2) if args.quick else (args.subsets, args.networks)
    path = KEPT.with_stem("attribution_quick") if args.quick else KEPT
    asked = [(name, seed) for seed in seeds for name in args.tasks]
    text = told(kept(path) if args.kept else measured(path, asked, *sizes))
    print(text)
    if args.record:
        record("attribution", text)


if __name__ == "__main__":
    main()
