"""Inputs and targets in units that networks like: centred, of size one. What was learned from training rows is kept."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

_CONSTANT = 1e-12  # of the size of a column: below, it does not vary
_SMALLEST = 1e-290  # below, a number is zero: its inverse would be infinite


@dataclass(frozen=True)
class InputScaling:
    """`(x - mean) * factor`. Columns that never vary have the factor 0: a network is not shown what it cannot learn.

    Images are scaled by channel, other inputs by column. The mean square of all columns is 1, constant ones included.
    """

    mean: Float[np.ndarray, " channels"]
    factor: Float[np.ndarray, " channels"]

    @classmethod
    def of(cls, x: Float[np.ndarray, "n *sites channels"], weights: Float[np.ndarray, " n"]) -> "InputScaling":
        """Of training rows."""
        rows = x.reshape(-1, x.shape[-1])
        share = np.repeat(weights, len(rows) // len(x))
        share = share / share.sum()
        mean, std, largest = _moments(rows, share)
        varies = std > _CONSTANT
        shown = max(int(varies.sum()), 1)
        factor = np.where(varies, np.sqrt(len(varies) / shown) / np.where(varies, std, 1.0), 0.0)
        return cls(mean * largest, factor / largest)

    def __call__(self, x: Float[np.ndarray, "n *sites channels"]) -> Float[np.ndarray, "n *sites channels"]:
        return (x - self.mean) * self.factor


@dataclass(frozen=True)
class TargetScaling:
    """`(y - mean) / std`, one for each output; `std` is 1 where a target never varies."""

    mean: Float[np.ndarray, " outputs"]
    std: Float[np.ndarray, " outputs"]

    @classmethod
    def of(cls, y: Float[np.ndarray, "n outputs"], weights: Float[np.ndarray, " n"]) -> "TargetScaling":
        """Of training rows."""
        mean, std, largest = _moments(y, weights / weights.sum())
        return cls(mean * largest, np.where(std > _CONSTANT, std * largest, 1.0))

    def __call__(self, y: Float[np.ndarray, "n outputs"]) -> Float[np.ndarray, "n outputs"]:
        return (y - self.mean) / self.std

    def back(self, y: Float[np.ndarray, "*any outputs"]) -> Float[np.ndarray, "*any outputs"]:
        """In the user's units again."""
        return y * self.std + self.mean


def _moments(
    rows: Float[np.ndarray, "n k"], share: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Mean and standard deviation in units of the largest entry, which keeps squares finite; and that entry."""
    largest = np.abs(rows).max(0)
    largest = np.where(largest > _SMALLEST, largest, 1.0)
    unit = rows / largest
    mean = share @ unit
    return mean, np.sqrt(share @ (unit - mean) ** 2), largest
