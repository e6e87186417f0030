"""Gradient descent with a fixed kernel, after any number of steps at once. On the host, in float64."""

from typing import NamedTuple

import numpy as np


class Descent(NamedTuple):
    """A kernel of training examples, decomposed, and the rate of gradient descent on `1/2 sum |f - y|^2`."""

    eigenvalues: np.ndarray
    eigenvectors: np.ndarray
    rate: float

    def moved(self, cross: np.ndarray, residual: np.ndarray, steps: tuple[int, ...]) -> np.ndarray:
        """By how much outputs have moved: `(len(steps), m, outputs)`.

        - `cross`: `(m, n)`, the kernel of the examples one looks at with those of training.
        - `residual`: `(n, outputs)`, targets minus outputs at the start.
        """
        modes = self.eigenvectors.T @ residual
        learned = np.stack([_learned(self.eigenvalues, self.rate, step) for step in steps])
        return (cross @ self.eigenvectors) @ (learned[:, :, None] * modes)


def descent(kernel: np.ndarray, rate: float) -> Descent:
    """Decompose the kernel of the training examples `(n, n)`."""
    wide = np.asarray(kernel, np.float64)
    return Descent(*np.linalg.eigh((wide + wide.T) / 2), rate)


def _learned(eigenvalues: np.ndarray, rate: float, steps: int) -> np.ndarray:
    """`(1 - (1 - rate lam)^steps) / lam`, which is `rate * steps` where `lam` vanishes."""
    share = rate * eigenvalues
    slow = np.abs(share) < 0.5  # there, 1 - (1 - share)^steps would cancel
    gentle = -np.expm1(steps * np.log1p(-np.where(slow, share, 0)))
    learned = np.where(slow, gentle, 1 - (1 - np.where(slow, 0, share)) ** steps)
    tiny = np.abs(share) < np.finfo(np.float64).tiny
    return np.where(tiny, rate * steps, learned / np.where(tiny, 1, eigenvalues))
