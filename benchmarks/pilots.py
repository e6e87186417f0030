"""Forecasts from small, noisy, heavy-tailed, one-dimensional and imbalanced pilots, beside the truth: `make pilots`."""

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
from table import machine, record, table

import everwide as ew
import everwide.forecasting as fc

ROWS, TEST = 2000, 900  # that kernels learn from, and more of them to measure on
PILOTS, FACTORS = (64, 100, 150, 200, 300, 400), (2, 5, 20)
FITTED = ("abs", "heavy", "ripple", "xor", "blobs")  # to other worlds of which, and real pilots, the prior was fitted
NOISE = (0.0, 0.01, 0.05, 0.2, 0.5)  # of the variance of the target
Rng = np.random.Generator


class World(NamedTuple):
    """Rows, and what is true of them: a target with its noise, or probabilities of classes."""

    x: np.ndarray
    clean: np.ndarray  # (rows,), or (rows, classes)
    y: np.ndarray
    noise: float


class Line(NamedTuple):
    """One forecast beside the truth, of errors and of shares of wrong classes; NaN where there are none."""

    family: str
    error: tuple[float, float, float, float]  # low, forecast, high, truth
    wrong: tuple[float, float, float, float]


def numbers(rng: Rng, x: np.ndarray, clean: np.ndarray) -> World:
    """With normal noise."""
    noise = float(rng.choice(NOISE) * np.var(clean))
    return World(x, clean, clean + noise**0.5 * rng.normal(size=len(clean)), noise)


def classes(rng: Rng, x: np.ndarray, chances: np.ndarray) -> World:
    """Drawn by their probabilities; of two classes, that of the second."""
    shares = np.stack([1 - chances, chances], 1) if chances.ndim == 1 else chances
    return World(x, shares, (rng.uniform(size=(len(x), 1)) > np.cumsum(shares, 1)).sum(1), 0.0)


def absolute(rng: Rng, n: int) -> World:
    """`|x0|`."""
    x = rng.normal(size=(n, rng.choice([1, 2, 3, 5, 10])))
    return numbers(rng, x, np.abs(x[:, 0]))


def friedman(rng: Rng, n: int) -> World:
    """Friedman's first function."""
    x = rng.uniform(size=(n, rng.choice([5, 10])))
    waves = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return numbers(rng, (x - 0.5) * 12**0.5, waves)


def sine(rng: Rng, n: int) -> World:
    """One-dimensional."""
    x = rng.uniform(-2, 2, size=(n, 1))
    return numbers(rng, x, np.sin(rng.choice([2.0, 4.0, 8.0]) * x[:, 0]))


def heavy(rng: Rng, n: int) -> World:
    """A plane, with noise of Student's law."""
    x = rng.normal(size=(n, rng.choice([3, 8, 20])))
    slopes, freedom = rng.normal(size=x.shape[1]), rng.choice([2.5, 3.0, 5.0])
    clean = x @ slopes / np.linalg.norm(slopes) + rng.choice([0.0, 0.5]) * np.maximum(x[:, 0], 0) * x[:, 1]
    noise = float(rng.choice([0.05, 0.2, 1.0]) * np.var(clean))
    return World(x, clean, clean + rng.standard_t(freedom, n) * (noise * (freedom - 2) / freedom) ** 0.5, noise)


def ripple(rng: Rng, n: int) -> World:
    """Waves in several directions."""
    x = rng.normal(size=(n, rng.choice([2, 4, 6])))
    waves = rng.normal(size=(6, x.shape[1])) * rng.choice([0.7, 1.3])
    return numbers(rng, x, np.cos(x @ waves.T + rng.uniform(0, 2 * np.pi, 6)).sum(1))


def steps(rng: Rng, n: int) -> World:
    """Jumps."""
    x = rng.uniform(-1, 1, size=(n, rng.choice([2, 4, 8])))
    return numbers(rng, x, np.sign(x[:, 0]) + (x[:, 1] > 0.3) + (x[:, 2] * x[:, 3] if x.shape[1] > 2 else 0.0))


def far(rng: Rng, n: int) -> World:
    """Columns with values at a hundred standard deviations."""
    x = rng.normal(size=(n, rng.choice([4, 8])))
    half = x.shape[1] // 2
    x[:, :half] = rng.standard_t(rng.choice([1.5, 2.5]), size=(n, half))
    x = (x - x.mean(0)) / x.std(0)
    return numbers(rng, x, np.tanh(x[:, 0]) + np.maximum(x[:, -1], 0) + 0.5 * np.abs(x[:, -2]))


def xor(rng: Rng, n: int) -> World:
    """Signs of a product, some of them wrong."""
    x, wrong = rng.normal(size=(n, rng.choice([2, 4, 8]))), rng.choice([0.0, 0.1, 0.2])
    return classes(rng, x, np.where(x[:, 0] * x[:, 1] > 0, 1 - wrong, wrong))


def circle(rng: Rng, n: int) -> World:
    """Inside or outside, some of them wrong."""
    x, wrong = rng.normal(size=(n, rng.choice([2, 3, 6]))), rng.choice([0.0, 0.05, 0.15])
    length = np.sum(x**2, axis=1)
    return classes(rng, x, np.where(length > np.median(length), 1 - wrong, wrong))


def imbalanced(rng: Rng, n: int) -> World:
    """One row in five, ten or twenty is of the second class."""
    x = rng.normal(size=(n, rng.choice([2, 5, 10])))
    score = x[:, 0] + 0.5 * x[:, 1] ** 2 + 0.5 * x[:, -1]
    score = score - np.quantile(score, 1 - rng.choice([0.05, 0.1, 0.2]))
    return classes(rng, x, 1 / (1 + np.exp(-np.clip(rng.choice([2.0, 6.0, 20.0]) * score, -50, 50))))


def blobs(rng: Rng, n: int) -> World:
    """Several classes, each of two clusters."""
    d, several = rng.choice([3, 8, 16]), rng.choice([3, 6])
    centers, x = rng.normal(size=(2 * several, d)) * rng.choice([0.8, 1.3]), 1.2 * rng.normal(size=(n, d))
    near = -np.sum((x[:, None] - centers) ** 2, axis=-1)
    logits = rng.choice([0.5, 2.0]) * np.logaddexp(near[:, :several], near[:, several:])
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return classes(rng, x, shares / shares.sum(1, keepdims=True))


FAMILIES: dict[str, Callable[[Rng, int], World]] = {
    "abs": absolute,
    "heavy": heavy,
    "ripple": ripple,
    "xor": xor,
    "blobs": blobs,
    "friedman": friedman,
    "sine": sine,
    "steps": steps,
    "circle": circle,
    "imbalanced": imbalanced,
    "far": far,
}


def networks() -> list[ew.Serial]:
    """Of which each world gets one."""
    block = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu())
    return [
        ew.Serial(block, ew.Dense(1)),
        ew.Serial(ew.Repeat(block, 3), ew.Dense(1)),
        ew.Serial(ew.Dense(b_std=0.3), ew.Erf(), ew.Dense(1)),
    ]


def lines(family: str, number: int) -> Iterator[Line]:
    """Three pilots of one world, each with forecasts for 2, 5 and 20 times its rows, but 2 000 at the most."""
    rng = np.random.default_rng([number, *family.encode()])
    world = FAMILIES[family](rng, ROWS + TEST)
    kernel = np.asarray(ew.ntk(networks()[rng.integers(3)], world.x), np.float64)
    for rows in rng.choice(PILOTS, 3, replace=False):
        pilot = rng.permutation(ROWS)[:rows]
        if world.clean.ndim == 2 and len(np.unique(world.y[pilot])) < world.clean.shape[1]:
            continue
        asked = sorted({min(int(rows) * factor, ROWS) for factor in FACTORS})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fc.ForecastWarning)
            curve = fc.forecast(kernel[np.ix_(pilot, pilot)], None, world.y[pilot], n=asked)
        for at, n in enumerate(asked):
            error, wrong = truth(kernel, world, n, curve.ridge, rng)
            right = (curve.accuracy_high, curve.accuracy, curve.accuracy_low)
            best, middle, worst = (np.nan if each is None else 1 - each[at] for each in right)
            errors = (curve.low[at], curve.error[at], curve.high[at], error)
            yield Line(family, errors, (best, middle, worst, wrong))


def truth(kernel: np.ndarray, world: World, n: int, ridge: float, rng: Rng) -> tuple[float, float]:
    """Mean squared error and share of wrong classes of the kernel: expectations over the noise, means over draws."""
    found, test = [], slice(ROWS, None)
    targets = world.y[:, None] if world.clean.ndim == 1 else np.eye(world.clean.shape[1])[world.y]
    for _ in range(1 if n > 1500 else 2 if n > 800 else 3):
        train = rng.permutation(ROWS)[:n]
        gram, mean = kernel[np.ix_(train, train)], targets[train].mean(0)
        gram[np.diag_indices(n)] += ridge
        dual = scipy.linalg.solve(gram, targets[train] - mean, assume_a="pos", overwrite_a=True, check_finite=False)
        predicted, clean = kernel[test, train] @ dual + mean, world.clean[test]
        if clean.ndim == 1:
            found.append((np.mean((predicted[:, 0] - clean) ** 2) + world.noise, np.nan))
        else:
            right = clean[np.arange(len(clean)), predicted.argmax(1)].mean()
            found.append((np.mean((predicted - clean) ** 2 + clean * (1 - clean)), 1 - right))
    error, wrong = np.mean(found, axis=0)
    return float(error), float(wrong)


def summary(name: str, values: list[tuple[float, float, float, float]]) -> tuple[str, ...]:
    """One row of the table: held, too high, too low; the median error, the median of logarithms."""
    low, middle, high, true = np.array(values).T
    ratio = np.log(middle / true)
    return (
        name,
        str(len(true)),
        f"{np.mean((low <= true) & (true <= high)):.0%}",
        f"{np.mean(true < low):.0%}",
        f"{np.mean(true > high):.0%}",
        f"{np.median(np.abs(np.expm1(ratio))):.1%}",
        f"{np.median(ratio):+.2f}",
    )


def report(found: list[Line], seconds: float) -> str:
    """A row for each family, errors before shares of wrong classes; then which of them the prior knew."""
    heading = ("pilots", "forecasts", "held", "below", "above", "median relative error", "median log ratio")
    body, near = [], [one for one in found if one.family != "far"]
    parts = {name: [one for one in found if one.family == name] for name in FAMILIES}
    parts |= {
        "all but far": near,
        "families that were fitted": [one for one in near if one.family in FITTED],
        "other families": [one for one in near if one.family not in FITTED],
    }
    for name, part in parts.items():
        body.append(summary(name, [one.error for one in part]))
    for name, part in parts.items():
        shares = [one.wrong for one in part if not np.isnan(one.wrong[3])]
        if shares:
            body.append(summary(f"wrong classes: {name}", shares))
    return f"{machine()}; {seconds:.0f} s of CPU.\n\n{table([heading, *body])}"


def main() -> None:
    """Run all families, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=8, help="of each family")
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    options, found, begin = parser.parse_args(), [], time.process_time()
    for family in FAMILIES:
        for number in range(options.worlds):
            found += lines(family, number)
        print(*summary(family, [one.error for one in found if one.family == family]), flush=True)
    text = report(found, time.process_time() - begin)
    print(text)
    if options.record:
        record("recorded pilots", text)


if __name__ == "__main__":
    main()
