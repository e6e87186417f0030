"""Whether `features_matter` sees features where a target needs them, and none where it does not: `make features`."""

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from table import machine, record, table

import everwide as ew
import everwide.forecasting as fc
from everwide import tasks

Rows = tuple[np.ndarray, np.ndarray]
Rng = np.random.Generator
SHALLOW = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1))
DEEP = ew.Serial(*[ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu()] * 2, ew.Dense(1))


def of(task: tasks._tasks.AbstractTask) -> Rows:
    """Its rows and labels."""
    return task.x, task.y


def staircase(rng: Rng) -> Rows:
    """Products of one, two and three of thirty signs."""
    x = rng.choice([-1.0, 1.0], size=(500, 30))
    return x, np.cumprod(x[:, :3], 1).sum(1)


def two_directions(rng: Rng) -> Rows:
    """The sign of the product of two directions, as classes; one label of twenty is wrong."""
    x = rng.normal(size=(500, 15))
    wrong = rng.random(500) < 0.05
    return x, ((x[:, :3].sum(1) * x[:, 3:6].sum(1) > 0) ^ wrong).astype(int)


def plane(rng: Rng) -> Rows:
    """With as much noise as signal."""
    x = rng.normal(size=(300, 15))
    return x, x @ rng.normal(size=15) / 15**0.5 + rng.normal(size=300)


def logistic(rng: Rng) -> Rows:
    """Classes by one direction."""
    x = rng.normal(size=(300, 8))
    return x, (2 * x[:, 0] + x[:, 1] + rng.logistic(size=300) > 0).astype(int)


def coins(rng: Rng) -> Rows:
    """Classes that no column knows of."""
    return rng.normal(size=(250, 6)), rng.integers(0, 2, 250)


def noise(rng: Rng) -> Rows:
    """Numbers with heavy tails that no column knows of."""
    return rng.normal(size=(250, 12)), rng.standard_t(3, size=250)


def process(rng: Rng) -> Rows:
    """A draw of a Gaussian process with a squared exponential, and a tenth of noise."""
    x = rng.normal(size=(400, 4))
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    factor = np.linalg.cholesky(np.exp(-distances / 12) + 1e-6 * np.eye(400))
    return x, factor @ rng.normal(size=400) + 0.3 * rng.normal(size=400)


def own_process(rng: Rng) -> Rows:
    """A draw of the Gaussian process that the deeper network is."""
    x = rng.normal(size=(400, 10))
    factor = np.linalg.cholesky(np.asarray(ew.nngp(DEEP, x)) + 1e-6 * np.eye(400))
    return x, factor @ rng.normal(size=400) + 0.1 * rng.normal(size=400)


def ball(rng: Rng) -> Rows:
    """A function of the distance from the origin: all directions are alike."""
    x = rng.normal(size=(400, 6))
    return x, (x**2).sum(1) / 6 + 0.2 * rng.normal(size=400)


def real(load: Callable, most: int) -> Callable[[Rng], Rows]:
    """Rows of a table, its columns scaled."""

    def rows(rng: Rng) -> Rows:
        x, y = load(return_X_y=True)
        order = rng.permutation(len(x))[:most]
        x = x[:, x.std(0) > 0]
        return ((x - x.mean(0)) / x.std(0))[order], (y if load is load_diabetes else y.astype(int))[order]

    return rows


def seed_of(rng: Rng) -> int:
    """For tasks that draw by themselves."""
    return int(rng.integers(1 << 30))


KINDS: dict[str, dict[str, Callable[[Rng], Rows]]] = {
    "features needed": {
        "a neuron, 25 inputs, 250 rows": lambda rng: of(tasks.single_neuron(25, 250, seed=seed_of(rng))),
        "a neuron, 60 inputs, 400 rows, noise": lambda rng: of(
            tasks.single_neuron(60, 400, noise=0.02, seed=seed_of(rng))
        ),
        "parity of 2 of 30, 400 rows": lambda rng: of(tasks.sparse_parity(30, 2, 400, seed=seed_of(rng))),
        "parity of 3 of 12, 400 rows": lambda rng: of(tasks.sparse_parity(12, 3, 400, seed=seed_of(rng))),
        "parity of 3 of 20, 600 rows, noise": lambda rng: of(
            tasks.sparse_parity(20, 3, 600, noise=0.1, seed=seed_of(rng))
        ),
        "staircase of 30, 500 rows": staircase,
        "classes by two directions of 15, 500 rows": two_directions,
    },
    "none needed": {
        "a noisy plane": plane,
        "logistic classes": logistic,
        "coin flips": coins,
        "heavy-tailed noise": noise,
        "a Gaussian process": process,
        "a draw of the network's own": own_process,
        "distance from the origin": ball,
    },
    "not known": {
        "digits, 400 rows": real(load_digits, 400),
        "wine": real(load_wine, 1000),
        "breast cancer": real(load_breast_cancer, 1000),
        "diabetes": real(load_diabetes, 1000),
    },
}


def line(name: str, draw: Callable[[Rng], Rows], seeds: int, first: int) -> tuple[str, ...]:
    """Verdicts of both networks over the seeds, and the range of ratios of errors and of gains in alignment."""
    told = []
    for seed in range(first, first + seeds):
        x, y = draw(np.random.default_rng([seed, len(name)]))
        told += [fc.features_matter(net, x, y, seed=seed) for net in (SHALLOW, DEEP)]
    ratios = [one.network_error / one.kernel_error for one in told]
    gains = [one.alignment[1] / one.alignment[0] for one in told if one.alignment is not None]
    counts = [str(sum(one.verdict == verdict for one in told)) for verdict in ("matter", "undecided", "not seen")]
    return (name, *counts, f"{min(ratios):.2f} .. {max(ratios):.2f}", f"{min(gains):.1f} .. {max(gains):.1f}")


def main() -> None:
    """Ask for every target, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="of data and networks")
    parser.add_argument("--first", type=int, default=100, help="the first of them; settings were chosen on 0 and 1")
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    options, begin = parser.parse_args(), time.process_time()
    body: list[tuple[str, ...]] = [
        ("target", "matter", "undecided", "not seen", "error, network / kernel", "alignment, after / before")
    ]
    for kind, targets in KINDS.items():
        for name, draw in targets.items():
            body.append(line(f"{kind}: {name}", draw, options.seeds, options.first))
            print(*body[-1], flush=True)
    text = f"{machine()}; {time.process_time() - begin:.0f} s of CPU.\n\n{table(body)}"
    print(text)
    if options.record:
        record("recorded features", text)


if __name__ == "__main__":
    main()
