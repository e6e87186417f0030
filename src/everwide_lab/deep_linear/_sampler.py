"""All networks that fit: their weights, drawn from the posterior layer by layer.

Given the others, a layer is Gaussian, and that the network interpolates is linear in it: a draw from the prior that is
corrected in the direction of the constraints is an exact draw. Nothing here knows the formulas that it is held against.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Layers = list[Float[np.ndarray, "chains _ _"]]  # outputs, inputs; the last has one output


class Drawn(NamedTuple):
    """By chain: the mean output at new rows, and the mean variance of `theta` in directions that rows leave open."""

    outputs: Float[np.ndarray, "chains m"]
    variance: Float[np.ndarray, " chains"]


def draw(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    x_test: Float[np.ndarray, "m d"],
    hidden_widths: tuple[int, ...],
    *,
    chains: int,
    sweeps: int,
    seed: int,
) -> Drawn:
    """Networks without activations that interpolate; a quarter of the sweeps comes before the first that counts."""
    rng, sizes = np.random.default_rng(seed), (x.shape[1], *hidden_widths, 1)
    layers = [_prior(rng, chains, *pair) for pair in zip(sizes[1:], sizes[:-1], strict=True)]
    basis = np.linalg.qr(x.T)[0]
    kept = []
    for sweep in range(sweeps):
        for place in range(len(layers)):
            layers[place] = _conditioned(rng, layers, place, x, y)
        if sweep >= sweeps // 4:
            theta = _product(layers)
            aside = theta - (theta @ basis) @ basis.T
            kept.append((theta @ x_test.T, np.sum(aside**2, 1) / (x.shape[1] - len(x))))
    outputs, variances = (np.mean(part, 0) for part in zip(*kept, strict=True))
    return Drawn(outputs, variances)


def _prior(rng: np.random.Generator, chains: int, out: int, into: int) -> np.ndarray:
    return rng.standard_normal((chains, out, into)) / np.sqrt(into)


def _product(layers: Layers) -> Float[np.ndarray, "chains d"]:
    theta = layers[-1]
    for layer in reversed(layers[:-1]):
        theta = theta @ layer
    return theta[:, 0]


def _conditioned(
    rng: np.random.Generator, layers: Layers, place: int, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "chains out in"]:
    """One layer given the others and that outputs are `y`: a draw from the prior, corrected."""
    chains, out, into = layers[place].shape
    below = np.broadcast_to(x.T, (chains, *x.T.shape))
    for layer in layers[:place]:
        below = layer @ below  # (chains, in, n)
    above = np.ones((chains, 1, 1))
    for layer in reversed(layers[place + 1 :]):
        above = above @ layer  # (chains, 1, out)
    fresh = _prior(rng, chains, out, into)
    missing = y - (above @ fresh @ below)[:, 0]
    gram = np.swapaxes(below, 1, 2) @ below * np.sum(above**2, (1, 2))[:, None, None]
    weights = np.linalg.solve(gram, missing[..., None])  # (chains, n, 1)
    return fresh + np.swapaxes(above, 1, 2) @ np.swapaxes(below @ weights, 1, 2)
