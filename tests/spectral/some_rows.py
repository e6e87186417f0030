"""Rows, kernels in plain numpy, and dense solutions, for solvers that never hold a whole kernel."""

from dataclasses import dataclass

import numpy as np

from everwide._engine import KernelOperator, RowBlocks
from spectral.oracles import RNG

N, RIDGE = 300, 0.05


@dataclass(frozen=True)
class Laplace:
    """A kernel of rows, in plain numpy."""

    def cross(self, x1, x2):
        return np.exp(-np.sqrt(np.maximum(((x1[:, None] - x2) ** 2).sum(-1), 0)))

    def diagonal(self, x):
        return np.ones(len(x))


@dataclass(frozen=True)
class Flat:
    """A constant."""

    def cross(self, x1, x2):
        return np.full((len(x1), len(x2)), 2.0)

    def diagonal(self, x):
        return np.full(len(x), 2.0)


@dataclass(frozen=True)
class Smooth:
    """A kernel with eigenvalues below all rounding."""

    def cross(self, x1, x2):
        return np.exp(-np.maximum(((x1[:, None] - x2) ** 2).sum(-1), 0) / 8)

    def diagonal(self, x):
        return np.ones(len(x))


X = RNG(0).normal(size=(N, 3))
K = Laplace().cross(X, X)
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2] + 0.1 * RNG(1).normal(size=N)], 1)
WEIGHTS = RNG(2).uniform(0.3, 3.0, N)
ROUNDED = K.astype(np.float32).astype(np.float64)  # as tiles keep it


def rows(memory=None, tile=64, **options):
    return KernelOperator(RowBlocks(Laplace(), X), memory=memory, tile=tile, **options)


def exact(ridge=RIDGE, weights=WEIGHTS, y=Y):
    return np.linalg.solve(ROUNDED + np.diag(ridge / weights), y)


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()
