"""Deep linear networks while they learn: modes of the data, one after the other."""

from typing import NamedTuple

import numpy as np
import scipy.integrate
from jaxtyping import Float

from .._digits import digits

DIRECTIONS = 10  # of the inputs: the leading ones, of variance 1 each
MODES = 6  # that are followed: the strongest
_ROWS = 500


class Task(NamedTuple):
    """Covariance of targets and whitened inputs, taken apart: `left diag(strengths) right^T`."""

    left: Float[np.ndarray, "k r"]
    strengths: Float[np.ndarray, " r"]
    right: Float[np.ndarray, "d r"]

    @property
    def covariance(self) -> Float[np.ndarray, "k d"]:
        """Of targets and inputs: all that training by the squared loss sees."""
        return (self.left * self.strengths) @ self.right.T


def task(seed: int) -> Task:
    """Classes of digits, from whitened leading directions of their pixels."""
    rows = digits(_ROWS, seed)
    sides, sizes, _ = np.linalg.svd(rows.x, full_matrices=False)
    x = sides[:, :DIRECTIONS] * np.sqrt(len(sides)) * np.sign(sizes[:DIRECTIONS])
    x = (x - x.mean(0)) / x.std(0)
    left, strengths, right = np.linalg.svd(rows.targets().T @ x / len(x), full_matrices=False)
    return Task(left, strengths, right.T)


class Learned(NamedTuple):
    """Of one network: strengths of modes over time, measured and predicted, `(times, modes)`, and half-times."""

    times: Float[np.ndarray, " t"]
    measured: Float[np.ndarray, "t modes"]
    predicted: Float[np.ndarray, "t modes"]

    def half_times(self, strengths: Float[np.ndarray, " modes"]) -> tuple[np.ndarray, np.ndarray]:
        """When half of a mode is learned, measured and predicted; not a number where it is not."""

        def first(course: np.ndarray) -> np.ndarray:
            there = course >= strengths / 2
            return np.where(there.any(0), self.times[there.argmax(0)], np.nan)

        return first(self.measured), first(self.predicted)


def learn(data: Task, layers: int, *, aligned: bool, width: int, start: float, rate: float, seed: int) -> Learned:
    """Full-batch gradient descent on half the mean square, from small weights.

    Aligned, layers begin as the data's own directions times one number, as in the paper's solution; else they are
    random, and a mode begins with what of it grows: half the sum of what both layers hold of it.
    """
    rng, (outputs, inputs) = np.random.default_rng(seed), data.covariance.shape
    first = start ** (1 / layers)
    if aligned:
        between = np.eye(width, len(data.strengths))
        weights = [first * between @ data.right.T, *(first * np.eye(width),) * (layers - 2)]
        weights.append(first * data.left @ between.T)
    else:
        sizes = (inputs, *(width,) * (layers - 1), outputs)
        weights = [first * rng.standard_normal(pair) / np.sqrt(width) for pair in zip(sizes[1:], sizes, strict=False)]
    begun = np.full(len(data.strengths), start) if aligned else _grown(weights, data)
    steps = int(_duration(data.strengths[MODES - 1], float(begun[:MODES].min()), layers) / rate)
    seen, every = [], max(1, steps // 400)
    for step in range(steps + 1):
        if step % every == 0:
            product = np.linalg.multi_dot(weights[::-1])
            seen.append((step * rate, np.einsum("km,kd,dm->m", data.left, product, data.right)[:MODES]))
        weights = _stepped(weights, data.covariance, rate)
    times, measured = (np.array(part) for part in zip(*seen, strict=True))
    courses = [solution(float(s), float(a), layers, times) for s, a in zip(data.strengths, begun, strict=True)]
    return Learned(times, measured, np.stack(courses[:MODES], 1))


def solution(strength: float, begun: float, layers: int, times: Float[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
    """The strength `a` of a mode: `da/dt = layers a^(2 - 2/layers) (strength - a)`; Saxe et al. 2014."""
    power = 2 - 2 / layers

    def slope(_: float, a: np.ndarray) -> np.ndarray:
        return layers * np.maximum(a, 0) ** power * (strength - a)

    solved = scipy.integrate.solve_ivp(
        slope, (0, float(times[-1])), [begun], t_eval=times, rtol=1e-8, atol=1e-12, method="LSODA"
    )
    return solved.y[0]


def _grown(weights: list[np.ndarray], data: Task) -> Float[np.ndarray, " r"]:
    """Of two layers: what of each mode grows, as long as all weights are small."""
    both = weights[0] @ data.right + weights[1].T @ data.left
    return np.sum((both / 2) ** 2, 0)


def _duration(strength: float, begun: float, layers: int) -> float:
    """Twice the time that takes the weakest mode from its beginning to half of its strength."""
    power = 2 - 2 / layers
    area, _ = scipy.integrate.quad(lambda a: 1 / (layers * a**power * (strength - a)), begun, strength / 2, limit=500)
    return 1.6 * area


def _stepped(weights: list[np.ndarray], covariance: Float[np.ndarray, "k d"], rate: float) -> list[np.ndarray]:
    """Inputs are white: the gradient knows their covariance with the targets alone."""
    below = [np.eye(weights[0].shape[1])]
    for weight in weights:
        below.append(weight @ below[-1])
    back, moved = covariance - below[-1], []
    for place in reversed(range(len(weights))):
        moved.append(weights[place] + rate * back @ below[place].T)
        back = weights[place].T @ back
    return moved[::-1]
