"""Random networks of finite width, drawn layer by layer.

Given one layer, the preactivations of the next one are independent Gaussian vectors, one for each neuron, whose
covariance between inputs is the empirical one of this layer. Drawing them is drawing the network: the law is that of
drawn weights, at a cost that grows with the width and not with its square. Inputs beyond the first are held as
differences to it, so that nearly equal ones do not cancel.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]
_TOGETHER = 1 << 21  # numbers that are drawn at a time


class Block(NamedTuple):
    """An activation, and the variances of weights (times the fan-in) and biases."""

    fn: Function
    weight: float
    bias: float


class Layer(NamedTuple):
    """Preactivations `(nets, width)` of the first input, and differences `(nets, others, width)` of others to it."""

    base: np.ndarray
    apart: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """`(nets,)`: of the first input, over the neurons."""
        return np.mean(self.base**2, axis=-1)

    def complement(self, other: int) -> np.ndarray:
        """`(nets,)`: 1 minus the correlation of the first input with another one."""
        second = self.base + self.apart[:, other]
        size1, size2 = (np.linalg.norm(z, axis=-1) for z in (self.base, second))
        difference = np.linalg.norm(self.apart[:, other], axis=-1)
        return (difference**2 - (size1 - size2) ** 2) / (2 * size1 * size2)

    def gain(self, other: int) -> np.ndarray:
        """`(nets,)`: by how much the variance of another input is above that of the first one."""
        apart = self.apart[:, other]
        return np.mean(apart * (2 * self.base + apart), axis=-1)


def first_layer(rng: np.random.Generator, nets: int, width: int, variance: float, directions: np.ndarray) -> Layer:
    """Signals of exactly this variance; `directions` `(others, 2)` are the others, along the first and aside of it."""
    along, aside = rng.standard_normal((2, nets, width))
    along /= np.sqrt(np.mean(along**2, -1, keepdims=True))
    aside -= along * np.mean(along * aside, -1, keepdims=True)
    aside /= np.sqrt(np.mean(aside**2, -1, keepdims=True))
    base = np.sqrt(variance) * along
    others = directions[:, 0, None] * along[:, None] + directions[:, 1, None] * aside[:, None]
    return Layer(base, np.sqrt(variance) * others - base[:, None])


def next_layer(rng: np.random.Generator, block: Block, layer: Layer) -> Layer:
    """Fresh weights."""
    out = np.empty((len(layer.base), 1 + layer.apart.shape[1], layer.base.shape[1]))
    size = max(1, _TOGETHER // out[0].size)
    for i in range(0, len(out), size):
        base, apart = layer.base[i : i + size], layer.apart[i : i + size]
        value = block.fn(base)
        features = np.concatenate([value[:, None], block.fn(base[:, None] + apart) - value[:, None]], axis=1)
        gram = features @ features.swapaxes(1, 2) * (block.weight / base.shape[-1])
        out[i : i + size] = _root(gram) @ rng.standard_normal(features.shape)
        out[i : i + size, 0] += np.sqrt(block.bias) * rng.standard_normal(base.shape)  # differences have none
    return Layer(out[:, 0], out[:, 1:])


def _root(gram: np.ndarray) -> np.ndarray:
    """Lower triangular roots; each row to its own relative accuracy, also where inputs have become equal."""
    scale = np.sqrt(np.maximum(np.einsum("nii->ni", gram), np.finfo(np.float64).tiny))
    unit = gram / scale[:, :, None] / scale[:, None, :]
    return scale[:, :, None] * np.linalg.cholesky(unit + 1e-13 * np.eye(gram.shape[1]))


def layers(rng: np.random.Generator, block: Block, first: Layer, depth: int) -> Iterator[Layer]:
    """The first layer, and `depth` more."""
    layer = first
    yield layer
    for _ in range(depth):
        layer = next_layer(rng, block, layer)
        yield layer


def gradient_sizes(
    rng: np.random.Generator, block: Block, slope: Function, variance: float, width: int, depth: int
) -> np.ndarray:
    """`(depth + 1,)`: mean squares of the gradient at each layer of one network with drawn weights, the last one 1."""
    z = np.sqrt(variance) * rng.standard_normal(width)
    slopes, weights = [], []
    for _ in range(depth):
        weights.append(rng.standard_normal((width, width)) * np.sqrt(block.weight / width))
        slopes.append(slope(z))
        z = weights[-1] @ block.fn(z) + np.sqrt(block.bias) * rng.standard_normal(width)
    gradient = rng.standard_normal(width)
    sizes = [np.mean(gradient**2)]
    for matrix, derivative in zip(weights[::-1], slopes[::-1], strict=True):
        gradient = derivative * (matrix.T @ gradient)
        sizes.append(np.mean(gradient**2))
    return np.array(sizes[::-1]) / sizes[0]
