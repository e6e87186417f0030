"""What is measured in `training.py`, the same numbers for both sides. numpy only: both environments import it."""

import numpy as np

TIMES = np.logspace(-1, 5, 20)
CLOSED = {"n": 2000, "m": 500, "outputs": 10}
STEPS = {"n": 5000, "outputs": 10, "batch": 64, "steps": 10_000}


def closed_problem(n: int, m: int, outputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A smooth kernel of training rows, of test with training rows, and targets; float32 numbers."""
    x = np.random.default_rng(0).normal(size=(n + m, 20))
    kernel = _rbf(x[:n], x[:n])
    cross = _rbf(x[n:], x[:n])
    targets = np.sin(x[:n] @ np.random.default_rng(1).normal(size=(20, outputs)))
    kernel = (kernel + kernel.T) / 2 + 0.01 * np.eye(n)
    return kernel.astype(np.float32), cross.astype(np.float32), targets.astype(np.float32)


def step_problem(n: int, outputs: int, batch: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A kernel, labels, and the rows of every step."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 20))
    return _rbf(x, x).astype(np.float32), rng.integers(0, outputs, n), rng.integers(0, n, (steps, batch))


def _rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    square = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.exp(-np.maximum(square, 0) / 40)
