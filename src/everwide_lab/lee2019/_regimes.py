"""Ways to train, and what a fixed kernel predicts for each: from the same outputs at the start, at the same steps."""

import abc
from typing import ClassVar

import equinox as eqx
import numpy as np
import scipy.special
from jaxtyping import Float

from everwide.spectral import momentum
from everwide.training import SGD, AbstractLoss, Mse, Regression, SoftmaxCrossEntropy, max_learning_rate, train

from ._data import Digits

BETA = 0.9

Outputs = Float[np.ndarray, "looks rows outputs"]


class Task(eqx.Module):
    """Where the outputs of the training rows, and of others, begin, and when one looks at them."""

    data: Digits
    start: Float[np.ndarray, "n k"]
    start_other: Float[np.ndarray, "m k"]
    rate: float
    steps: tuple[int, ...] = eqx.field(static=True)


class AbstractRegime(eqx.Module):
    """A loss, summed over the rows, and an optimizer."""

    loss: eqx.AbstractClassVar[AbstractLoss]
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

    loss: ClassVar[AbstractLoss] = Mse()
    momentum: ClassVar[float] = BETA

    def rate(self, kernel: np.ndarray) -> float:
        return (1 - BETA) * max_learning_rate(kernel) / len(kernel) / 2

    def targets(self, data: Digits) -> np.ndarray:
        return data.targets

    def predict(self, kernel: np.ndarray, cross: np.ndarray, task: Task) -> Outputs:
        steps = momentum(task.rate * len(kernel), BETA, task.steps)
        return Regression(kernel, task.data.targets, f0=task.start).predict(cross, steps, f0=task.start_other)

    def error(self, outputs: Outputs, data: Digits) -> Float[np.ndarray, " looks"]:
        return np.mean((outputs - data.targets) ** 2, (-2, -1))


class CrossEntropy(AbstractRegime):
    """No closed form: gradient descent on the coefficients of the kernel, step by step."""

    loss: ClassVar[AbstractLoss] = SoftmaxCrossEntropy()
    momentum: ClassVar[float] = 0.0

    def rate(self, kernel: np.ndarray) -> float:
        return max_learning_rate(kernel, self.loss) / len(kernel) / 2

    def targets(self, data: Digits) -> np.ndarray:
        return data.labels

    def predict(self, kernel: np.ndarray, cross: np.ndarray, task: Task) -> Outputs:
        later = (self._at(step, kernel, cross, task) for step in task.steps[1:])
        return np.stack([task.start_other, *later])

    def error(self, outputs: Outputs, data: Digits) -> Float[np.ndarray, " looks"]:
        right = outputs[:, np.arange(len(data.labels)), data.labels]
        return np.mean(scipy.special.logsumexp(outputs, -1) - right, -1)

    def _at(self, step: int, kernel: np.ndarray, cross: np.ndarray, task: Task) -> Float[np.ndarray, "rows outputs"]:
        descent, labels = SGD(task.rate * len(kernel)), task.data.labels
        found = train(kernel, labels, loss=self.loss, optimizer=descent, f0=task.start, steps=step)
        return found.predict(cross, f0=task.start_other)
