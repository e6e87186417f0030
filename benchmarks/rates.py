"""Recommended rates against sweeps of rates: ten networks, gradient descent, momentum and Adam, on rows of three sets.

A sweep goes up by factors of sqrt(2) until three rates in succession have lost by a factor of 2, and on to one that
fails; once at constant rates (what people try), once with the warm-up that is recommended. "excess": the loss after the
same steps from the same start, over the lowest of the sweep, minus 1; losses below 1 % of that of the best constant
count as 1 %. "limit": the one that is told over that of the sweep with the warm-up.
"""

import argparse
import csv
import functools
import math
from pathlib import Path
from typing import NamedTuple

import data
import jax
import jax.numpy as jnp
import numpy as np
import optax
from table import machine, record, table

import everwide as ew
import everwide.training as tr
from everwide.theory.rates import recommended_rate

ACTIVATIONS = {"relu": ew.Relu, "gelu": ew.Gelu, "tanh": ew.Tanh}
OPTIMIZERS = {"sgd": optax.sgd, "momentum": functools.partial(optax.sgd, momentum=0.9), "adam": optax.adam}
FITTED = 0.01  # of the loss of the best constant
FACTOR = 2**0.5
LINES = Path(__file__).with_name("rates.csv")


class Case(NamedTuple):
    """A network, its data, and how it is trained."""

    task: str
    rows: int
    activation: str
    depth: int
    width: int
    optimizer: str
    loss: str = "squares"
    batch_size: int | None = None


CASES = (
    Case("fashion", 256, "relu", 2, 256, "adam", "entropy"),
    Case("kin8nm", 256, "tanh", 1, 1024, "adam"),
    Case("xor", 256, "gelu", 3, 64, "adam", batch_size=64),
    Case("fashion", 256, "gelu", 1, 128, "sgd"),
    Case("kin8nm", 256, "relu", 6, 64, "sgd"),
    Case("xor", 256, "tanh", 2, 128, "sgd", "entropy"),
    Case("fashion", 256, "tanh", 4, 64, "momentum"),
    Case("kin8nm", 256, "gelu", 2, 256, "adam"),
    Case("xor", 256, "relu", 1, 512, "momentum"),
    Case("kin8nm", 256, "relu", 4, 128, "adam"),
)


def rows(case: Case, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of unit variance; numbers of unit variance, or classes."""
    if case.task == "fashion":
        return data.fashion_mnist(case.rows, seed)
    if case.task == "xor":  # a tenth of the labels is wrong
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(case.rows, 10)).astype(np.float32)
        return x, ((x[:, 0] * x[:, 1] > 0) ^ (rng.random(case.rows) < 0.1)).astype(int)
    return data.regression(case.task, case.rows, seed)


class Task(NamedTuple):
    """What is trained, from where, and the loss of the best constant."""

    net: ew.Serial
    params: tuple
    x: np.ndarray
    y: np.ndarray
    loss: tr.Mse | tr.SoftmaxCrossEntropy
    constant: float


def prepare(case: Case, seed: int) -> Task:
    """At critical initialization; Adam in the standard parametrization, as frameworks have it."""
    x, y = rows(case, seed)
    k = int(y.max()) + 1 if y.dtype.kind == "i" else 1
    hidden = [layer for _ in range(case.depth) for layer in (ew.Dense(), ACTIVATIONS[case.activation]())]
    net = ew.Serial(*hidden, ew.Dense(k)).critical()
    law = "standard" if case.optimizer == "adam" else "ntk"
    params = net.init(jax.random.key(seed), x.shape[1:], width=case.width, parametrization=law)
    if case.loss == "entropy":
        shares = np.bincount(y) / len(y)
        return Task(net, params, x, y, tr.SoftmaxCrossEntropy(), -np.sum(shares * np.log(np.maximum(shares, 1e-9))))
    targets = np.eye(k)[y] - np.bincount(y) / len(y) if k > 1 else y[:, None]
    return Task(net, params, x, targets, tr.Mse(), float(np.var(targets, axis=0).sum()) / 2)


def trainer(case: Case, task: Task, steps: int):
    """A function of rate and warm-up: the losses before each step, infinite from where they overflow."""
    x = jnp.asarray(task.x, jnp.float32)
    y = jnp.asarray(task.y if case.loss == "entropy" else task.y.astype(np.float32))
    size, key = case.batch_size or len(x), jax.random.key(1)

    def mean_loss(params, x, y):
        return jnp.mean(jax.vmap(lambda a, target: task.loss(task.net.apply(params, a), target))(x, y))

    @jax.jit
    def run(rate, warmup):
        rule = OPTIMIZERS[case.optimizer](lambda step: rate * jnp.minimum((step + 1) / jnp.maximum(warmup, 1), 1.0))

        def take(carry):
            step, params, state, losses = carry
            batch = jax.random.choice(jax.random.fold_in(key, step), len(x), (size,), replace=False)
            here = (x, y) if size == len(x) else (x[batch], y[batch])
            value, slope = jax.value_and_grad(mean_loss)(params, *here)
            updates, state = rule.update(slope, state, params)
            return step + 1, optax.apply_updates(params, updates), state, losses.at[step].set(value)

        start = (0, task.params, rule.init(task.params), jnp.full(steps, jnp.inf))
        fine = lambda carry: (carry[0] == 0) | (carry[3][carry[0] - 1] < 1e8 * carry[3][0])
        return jax.lax.while_loop(lambda carry: (carry[0] < steps) & fine(carry), take, start)[3]

    return lambda rate, warmup: np.asarray(run(jnp.float32(rate), jnp.int32(warmup)))


def last(losses: np.ndarray) -> float:
    """The mean over the last tenth of the steps."""
    recent = losses[-len(losses) // 10 :]
    return float(recent.mean()) if np.isfinite(recent).all() else math.inf


class Sweep(NamedTuple):
    """The lowest loss, its rate, and the first rate above it that fails."""

    loss: float
    rate: float
    limit: float


def sweep(run, first: float, warmup: int, constant: float) -> Sweep:
    """Upwards, until three in succession have lost by a factor of two; then on to the first that fails."""
    rates, losses, failed, ended = [], [], [], None
    while ended is None or not any(failed[ended:]):
        rates.append(first * FACTOR ** len(rates))
        history = run(rates[-1], warmup)
        losses.append(last(history))
        failed.append(not losses[-1] < min(constant, history[0]))
        if ended is None and min(losses) < constant and min(losses[-3:]) > 2 * min(losses):
            ended = int(np.argmin(losses))
    return Sweep(losses[ended], rates[ended], rates[ended + failed[ended:].index(True)] / FACTOR**0.5)


def judged(case: Case, seed: int, steps: int) -> dict[str, str]:
    """One line of the table."""
    task = prepare(case, seed)
    found = recommended_rate(
        task.net, task.params, task.x, task.y, OPTIMIZERS[case.optimizer],
        steps=steps, loss=task.loss, batch_size=case.batch_size,
    )  # fmt: skip
    run = trainer(case, task, steps)
    constant, warm = (sweep(run, found.diverges / 128, warmup, task.constant) for warmup in (0, found.warmup))
    floor, ours = FITTED * task.constant, last(run(found.rate, found.warmup))
    excess = [max(ours, floor) / max(one.loss, floor) - 1 for one in (constant, warm)]
    batches = f", batches of {case.batch_size}" if case.batch_size else ""
    return {
        "network": f"{case.task}, {case.activation}, {case.depth} x {case.width}",
        "trained by": f"{case.optimizer}, {case.loss}{batches}",
        "seed": str(seed),
        "loss": f"{ours / task.constant:.4f}",
        "best of sweep": f"{constant.loss / task.constant:.4f}",
        "with warm-up": f"{warm.loss / task.constant:.4f}",
        "excess": f"{excess[0]:+.1%}",
        "excess, warm-up": f"{excess[1]:+.1%}",
        "rate": f"{found.rate:.3g}",
        "best of sweep's rate": f"{constant.rate:.3g}",
        "limit": f"{found.diverges:.3g}",
        "over measured": f"{found.diverges / warm.limit:.2f}",
        "limit, constant": f"{constant.limit:.3g}",
        "spike": f"{found.spike:.3g}",
        "cost": f"{found.cost / steps:.1f}",
    }


def summary(lines: list[dict[str, str]]) -> str:
    """Medians, and how many reach what is asked."""
    read = lambda name: np.array([float(line[name].rstrip("%")) for line in lines])
    excess, warm, ratio = read("excess"), read("excess, warm-up"), np.abs(np.log(read("over measured")))
    return (
        f"{len(lines)} trainings. Excess over a sweep of constant rates: median {np.median(excess):+.1f} %, largest "
        f"{excess.max():+.1f} %, at most 5 % in {np.sum(excess <= 5)}; over a sweep with the warm-up: median "
        f"{np.median(warm):+.1f} %, largest {warm.max():+.1f} %, at most 5 % in {np.sum(warm <= 5)}. Limits within a "
        f"factor of 1.5: {np.sum(ratio <= np.log(1.5))}. Cost: {np.median(read('cost')):.1f} trainings."
    )


def main() -> None:
    """Each network is written to a file as it is done, so that a run may be cut short and go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", type=int, nargs="*", help="places in the list of networks")
    parser.add_argument("--record", action="store_true", help="write the table of README.md, of all lines in rates.csv")
    options = parser.parse_args()
    lines = list(csv.DictReader(LINES.open(newline=""))) if LINES.exists() else []
    for place in range(len(CASES)) if options.only is None else options.only:
        line = judged(CASES[place], options.seed, options.steps)
        same = [line[name] for name in ("network", "trained by", "seed")]
        lines = [old for old in lines if [old[name] for name in ("network", "trained by", "seed")] != same] + [line]
        print(" | ".join(line.values()), flush=True)
        with LINES.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(line))
            writer.writeheader()
            writer.writerows(lines)
    print(summary(lines))
    if options.record:
        rows = [tuple(lines[0]), *(tuple(line.values()) for line in lines)]
        record("rates", f"{table(rows)}\n\n{summary(lines)}\n\n{machine()}")


if __name__ == "__main__":
    main()
