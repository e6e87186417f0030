"""Digits to learn, ways to train, and what a fixed kernel predicts for each, from the same outputs at the start."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np
import scipy.special
from jaxtyping import Float, Int

from everwide import InputError
from everwide.spectral import momentum
from everwide.training import SGD, Mse, Regression, SoftmaxCrossEntropy, max_learning_rate, train

MOMENTUM = 0.9
_KINDS = (3, 8)

Outputs = Float[np.ndarray, "looks rows outputs"]


class Digits(NamedTuple):
    """Images of unit length as vectors; labels 0 and 1."""

    x: Float[np.ndarray, "n pixels"]
    labels: Int[np.ndarray, " n"]
    x_test: Float[np.ndarray, "m pixels"]

    @property
    def targets(self) -> Float[np.ndarray, "n 2"]:
        """For the squared loss: +1/2 at the label, -1/2 elsewhere."""
        return np.eye(2)[self.labels] - 0.5


def digits(n: int) -> Digits:
    """`n` images of both kinds for training, and as many for the test: few, so that networks learn them in seconds."""
    from sklearn.datasets import load_digits

    images, kinds = (np.asarray(part) for part in load_digits(return_X_y=True))
    chosen = np.flatnonzero(np.isin(kinds, _KINDS))
    if not 2 <= n <= len(chosen) // 2:
        raise InputError(f"n={n!r}: expected 2 to {len(chosen) // 2}, as there are {len(chosen)} such digits.")
    order = np.random.default_rng(0).permutation(chosen)[: 2 * n]
    x = images[order].astype(np.float64)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return Digits(x[:n], (kinds[order[:n]] == _KINDS[1]).astype(np.int64), x[n:])


class Task(eqx.Module):
    """Where the outputs of the training rows, and of others, begin, and when one looks at them."""

    data: Digits
    start: Float[np.ndarray, "n k"]
    start_other: Float[np.ndarray, "m k"]
    rate: float
    steps: tuple[int, ...] = eqx.field(static=True)


class AbstractRegime(eqx.Module):
    """A loss, averaged over the rows, and an optimizer."""

    loss: eqx.AbstractClassVar[Callable[[Any, Any], Any]]
    momentum: eqx.AbstractClassVar[float]

    @abc.abstractmethod
    def rate(self, kernel: np.ndarray) -> float:
        """A stable learning rate for this kernel."""

    @abc.abstractmethod
    def targets(self, data: Digits) -> np.ndarray:
        """What the loss takes."""

    @abc.abstractmethod
    def predict(self, kernel: np.ndarray, cross: np.ndarray, task: Task) -> Outputs:
        """Outputs of the rows of `cross` at every look, with a kernel `(n, n)` or `(n, n, k, k)`."""

    @abc.abstractmethod
    def error(self, outputs: Outputs, data: Digits) -> Float[np.ndarray, " looks"]:
        """What is shown over time: a mean over the training rows."""


class SquaredLossWithMomentum(AbstractRegime):
    """Closed form: a filter of the spectrum. In time it goes as fast as gradient descent at half its largest rate."""

    loss: ClassVar[Callable[[Any, Any], Any]] = Mse()
    momentum: ClassVar[float] = MOMENTUM

    def rate(self, kernel: np.ndarray) -> float:
        return (1 - MOMENTUM) * max_learning_rate(kernel) / 2

    def targets(self, data: Digits) -> np.ndarray:
        return data.targets

    def predict(self, kernel: np.ndarray, cross: np.ndarray, task: Task) -> Outputs:
        steps = momentum(task.rate, MOMENTUM, task.steps)
        return Regression(kernel, task.data.targets, f0=task.start).predict(cross, steps, f0=task.start_other)

    def error(self, outputs: Outputs, data: Digits) -> Float[np.ndarray, " looks"]:
        return np.mean((outputs - data.targets) ** 2, (-2, -1))


class CrossEntropy(AbstractRegime):
    """No closed form: gradient descent on the coefficients of the kernel, step by step."""

    loss: ClassVar[Callable[[Any, Any], Any]] = SoftmaxCrossEntropy()
    momentum: ClassVar[float] = 0.0

    def rate(self, kernel: np.ndarray) -> float:
        return max_learning_rate(kernel, self.loss) / 2

    def targets(self, data: Digits) -> np.ndarray:
        return data.labels

    def predict(self, kernel: np.ndarray, cross: np.ndarray, task: Task) -> Outputs:
        later = (self._at(step, kernel, cross, task) for step in task.steps[1:])
        return np.stack([task.start_other, *later])

    def error(self, outputs: Outputs, data: Digits) -> Float[np.ndarray, " looks"]:
        right = outputs[:, np.arange(len(data.labels)), data.labels]
        return np.mean(scipy.special.logsumexp(outputs, -1) - right, -1)

    def _at(self, step: int, kernel: np.ndarray, cross: np.ndarray, task: Task) -> Float[np.ndarray, "rows outputs"]:
        descent, labels = SGD(task.rate), task.data.labels
        run = train(kernel, labels, loss=self.loss, optimizer=descent, f0=task.start, steps=step)
        return run.predict(cross, f0=task.start_other)
