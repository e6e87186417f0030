"""What is learned: two functions that networks are good at, and tables."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everwide import InputError
from everwide.tables import Table, read_table

from .._sample import Sample, split

DIMENSION = 20  # of the inputs of functions
VALIDATION = 256  # rows on which ridges are chosen and networks stopped

Rows = tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n k"]]


class Task(NamedTuple):
    """A name, how many rows there are to learn from, and a way to draw them all."""

    name: str
    most: int
    draw: Callable[[int], Sample]  # by seed


def tasks(most: int, tests: int, data: Path | None) -> list[Task]:
    """All of them; a file takes part if it is given."""
    tables = [("digits", Table.digits())] + ([] if data is None else [(data.name, read_table(data))])
    functions = [("staircase", staircase), ("single neuron", single_neuron)]
    return [_function(*one, most, tests) for one in functions] + [_table(*one, most, tests) for one in tables]


def staircase(rng: np.random.Generator, n: int) -> Rows:
    """Corners of a hypercube; a sum of products of one, two and three of their coordinates."""
    x = rng.choice([-1.0, 1.0], size=(n, DIMENSION))
    return x, np.cumprod(x[:, :3], 1).sum(1, keepdims=True) / 3**0.5


def single_neuron(rng: np.random.Generator, n: int) -> Rows:
    """Gaussian inputs; a rectifier of one direction, centred, of unit power."""
    x = rng.normal(size=(n, DIMENSION))
    active = np.maximum(x.sum(1, keepdims=True) / DIMENSION**0.5, 0)
    return x, (active - (2 * np.pi) ** -0.5) / (0.5 - 0.5 / np.pi) ** 0.5


def _function(name: str, draw: Callable[[np.random.Generator, int], Rows], most: int, tests: int) -> Task:
    def sample(seed: int) -> Sample:
        return split(*draw(np.random.default_rng([seed, 1]), most + VALIDATION + tests), most, VALIDATION)

    return Task(name, most, sample)


def _table(name: str, table: Table, most: int, tests: int) -> Task:
    """Columns are centred and scaled over all rows, without a look at the targets; classes become columns."""
    x, y = table.x.reshape(table.n, -1), np.asarray(table.y)
    x = x[:, x.std(0) > 0]
    x = (x - x.mean(0)) / x.std(0)
    targets = np.eye(len(table.classes))[y.astype(int)] if table.classes else y[:, None]
    targets = (targets - targets.mean(0)) / targets.std()
    tested = min(tests, table.n // 3)
    learned = min(most, table.n - VALIDATION - tested)
    if learned < 2:
        raise InputError(f"{table.source} has {table.n} rows: expected at least {2 * VALIDATION} to learn and measure.")

    def sample(seed: int) -> Sample:
        order = np.random.default_rng([seed, 2]).permutation(table.n)[: learned + VALIDATION + tested]
        return split(x[order], targets[order], learned, VALIDATION)

    return Task(name, learned, sample)
