"""Random targets, and the least error that any kernel leaves of them.

A kernel with n rows predicts by n functions, `k(x_i, .)`, and a constant, whatever the targets are. When the target is
drawn at random from many directions, n functions that were there before it hold little of it: its mean power in them is
at most the sum of the n largest eigenvalues of `E[f(x) f(x')]`, taken over targets f.
"""

import abc
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from .._checks import InputError, finite_array, not_negative, whole


@dataclass(frozen=True, eq=False)
class AbstractTask(abc.ABC):
    """Rows `x`, labels `y` with Gaussian `noise` of this variance, and what is known about their target."""

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    noise: float

    @abc.abstractmethod
    def target(self, x: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Labels without noise."""

    @abc.abstractmethod
    def powers(self) -> Iterator[tuple[float, float]]:
        """Eigenvalues of the mean of `f(x) f(x')` over targets and how many there are of each; falling, no constant."""

    @property
    @abc.abstractmethod
    def trivial_error(self) -> float:
        """The mean squared error, on new rows, of the best constant."""

    def least_kernel_error(self, n: int | None = None) -> float:
        """What no kernel beats with `n` rows (by default those of the task), in mean squared error on new rows.

        It holds for every kernel, or set of n features, that was chosen before the labels were seen, with any ridge or
        stopping time, in the mean over random targets; for kernels that treat all inputs alike, as those of networks
        do, and random rows it holds for each target.
        """
        left, variance = whole(len(self.y) if n is None else n, "least_kernel_error: n", least=1), 0.0
        for power, count in self.powers():
            variance += power * min(count, left)
            left -= min(count, left)
            if not left:
                break
        return self.noise + max(self.trivial_error - self.noise - variance, 0.0)

    def kernel_edge(self, n: int | None = None) -> float:
        """The largest share of the trivial error that a kernel with `n` rows takes away: 0 where it learns nothing."""
        return 1 - self.least_kernel_error(n) / self.trivial_error


@dataclass(frozen=True, eq=False)
class SingleNeuron(AbstractTask):
    """Made by `single_neuron`. `direction`: the weights of the neuron, of length 1."""

    direction: Float[np.ndarray, " d"]

    def target(self, x: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        return np.maximum(_rows(x, len(self.direction)) @ self.direction, 0.0)

    @property
    def trivial_error(self) -> float:
        return self.noise + 0.5 - self._mean**2

    @cached_property
    def _mean(self) -> float:
        d = len(self.direction)
        return math.sqrt(d / math.pi) / 2 * math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2))

    def powers(self) -> Iterator[tuple[float, float]]:
        d, coefficient, degree = len(self.direction), self._mean, 0
        yield 1 / (4 * d), d  # what is linear; of the rest only even degrees are left
        while True:
            coefficient *= -(degree - 1) / (degree + d + 1)
            degree += 2
            harmonics = (2 * degree + d - 2) / degree * math.comb(degree + d - 3, degree - 1)
            yield coefficient**2, harmonics


@dataclass(frozen=True, eq=False)
class SparseParity(AbstractTask):
    """Made by `sparse_parity`. `inputs`: the columns whose product is the label."""

    inputs: tuple[int, ...]

    def target(self, x: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        return np.prod(_rows(x, self.x.shape[1])[:, list(self.inputs)], axis=1)

    @property
    def trivial_error(self) -> float:
        return self.noise + 1.0

    def powers(self) -> Iterator[tuple[float, float]]:
        parities = math.comb(self.x.shape[1], len(self.inputs))
        yield 1 / parities, parities
        yield 0.0, math.inf


def _rows(x: np.ndarray, d: int) -> np.ndarray:
    rows = finite_array(x, "target: x")
    if rows.ndim != 2 or rows.shape[1] != d:
        raise InputError(f"target: x has shape {rows.shape}, expected (rows, {d}).")
    return rows


def single_neuron(d: int, n: int, *, noise: float = 0.0, seed: int = 0) -> SingleNeuron:
    """One ReLU of `d` inputs in a random direction: `y = max(w . x, 0)`, plus noise.

    Rows are uniform on the sphere of radius `sqrt(d)`. A network finds the direction from a few times `d` rows; a
    kernel learns what is linear from as many, and needs some `d^2 / 2` for the next 0.08 of the variance of 0.34.

    Args:
        d: inputs, 2 or more.
        n: rows; for new ones to test on ask for more, and split them.
        noise: its variance.
        seed: of the direction, the rows and the noise.

    Returns:
        `x (n, d)`, `y (n,)`, `noise`, `direction`; `target(x)`: labels without noise; `trivial_error`: of the best
        constant; `least_kernel_error(n)`: what no kernel beats with `n` rows; `kernel_edge(n)`: the share of the
        trivial error that it may take away.

    >>> import everwide.tasks as tasks
    >>> task = tasks.single_neuron(60, 180)
    >>> round(task.trivial_error, 3), round(task.least_kernel_error(), 3), round(task.least_kernel_error(2000), 3)
    (0.34, 0.084, 0.011)

    Yehudai, Shamir, "On the power and limitations of random features for understanding neural networks" (2019).
    """
    whole(d, "single_neuron: d", least=2)
    whole(n, "single_neuron: n")
    rng = np.random.default_rng(whole(seed, "single_neuron: seed", least=0))
    direction, rows = rng.normal(size=d), rng.normal(size=(n, d))
    direction /= np.linalg.norm(direction)
    x = rows * (math.sqrt(d) / np.linalg.norm(rows, axis=1, keepdims=True))
    y = np.maximum(x @ direction, 0.0)
    return SingleNeuron(x, _noisy(y, noise, rng), float(noise), direction)


def sparse_parity(d: int, order: int, n: int, *, noise: float = 0.0, seed: int = 0) -> SparseParity:
    """The product of `order` of `d` signs, which ones is not said: `y = x[i] x[j] ...`, plus noise.

    All parities are orthogonal, so that n functions hold at most n of the `d! / (order! (d - order)!)` of them: a
    kernel with n rows leaves at least the share `1 - n order! (d - order)! / d!` of the variance.

    Args:
        d: inputs, each -1 or 1 with equal probability.
        order: how many of them are multiplied, at most `d`.
        n: rows; for new ones to test on ask for more, and split them.
        noise: its variance.
        seed: of the parity, the rows and the noise.

    Returns:
        As `single_neuron`; in place of a direction `inputs`, the columns that are multiplied.

    >>> import everwide.tasks as tasks
    >>> task = tasks.sparse_parity(20, 3, 400)
    >>> task.trivial_error, round(task.least_kernel_error(), 3), round(task.kernel_edge(1000), 3)
    (1.0, 0.649, 0.877)

    Malach et al., "Quantifying the benefit of using differentiable learning over tangent kernels" (2021).
    """
    whole(d, "sparse_parity: d")
    if whole(order, "sparse_parity: order") > d:
        raise InputError(
            f"sparse_parity(d={d}, order={order}): expected an order of at most {d}, the inputs there are."
        )
    whole(n, "sparse_parity: n")
    rng = np.random.default_rng(whole(seed, "sparse_parity: seed", least=0))
    inputs = tuple(sorted(rng.permutation(d)[:order].tolist()))
    x = rng.choice([-1.0, 1.0], size=(n, d))
    return SparseParity(x, _noisy(np.prod(x[:, list(inputs)], axis=1), noise, rng), float(noise), inputs)


def _noisy(y: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    return y + math.sqrt(not_negative(noise, "noise")) * rng.normal(size=len(y))
