"""Leave-one-out of iterations: the diagonal of an inverse, by random probes that are solved for beside the targets."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._engine import KernelOperator
from ._preconditioner import Preconditioner
from ._run import Task

_PROBES, _PROBED = (
    16,
    0.05,
)  # random vectors for the diagonal of the inverse: their number errs more than their residual
_TINY = float(np.finfo(np.float64).tiny)


class Probes(NamedTuple):
    """Random signs, and what a preconditioner makes of them: from there iterations begin."""

    near: Preconditioner
    signs: Float[np.ndarray, "n p"]
    start: Float[np.ndarray, "n p"]

    @classmethod
    def of(cls, near: Preconditioner, seed: int) -> "Probes":
        """As many as are enough."""
        shape = (len(near.weights), _PROBES)
        signs = 2.0 * np.random.default_rng(seed).integers(0, 2, shape) - 1
        return cls(near, signs, near.solve(signs))

    def beside(self, task: Task) -> Task:
        """More columns of the same system: products read the kernel once for all of them."""
        return task._replace(
            y=np.concatenate([task.y, self.signs], axis=1),
            start=np.concatenate([task.start, self.start], axis=1),
            tolerances=np.concatenate([task.tolerances, np.full(_PROBES, _PROBED)]),
        )

    def precision(
        self, solved: Float[np.ndarray, "n p"], kernel: KernelOperator, noise: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """The diagonal of `A^-1`: that of the preconditioner, and by random signs what it is off; within its bounds.

        Bekas, Kokiopoulou and Saad (2007).
        """
        precision = self.near.precision() + np.mean(self.signs * (solved - self.start), axis=1)
        return np.clip(precision, 1 / (kernel.diagonal() + noise), 1 / np.maximum(noise, _TINY))
