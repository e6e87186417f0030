"""Populations of inputs, each with a kernel whose eigenvalues are known: three domains, and images."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everwide import ntk
from everwide.layers import AbstractLayer
from everwide.theory.eigenlearning import eigensystem, mercer

_CUBE = _SPHERE = 8  # dimensions
_LEVELS = 60
_FOLDER = "EVERWIDE_DATA"  # a variable of the environment
FASHION = "fashion_mnist.npz"


@dataclass(frozen=True, eq=False)
class Population:
    """Points `x` from which training sets are drawn, and points on which errors are measured; targets in columns.

    Where a domain is finite, errors are measured on all of it, on training examples too, as the theory has it.

    - `kernel`: of the infinitely wide network among `x`. `to_test`: from `x_test` to `x`. `names`: of the targets.
    - `eigenvalues`, `multiplicities`, `rest`, and `coefficients` `(levels, targets)`: what predictions are made of.
    """

    name: str
    x: Float[np.ndarray, "points d"]
    y: Float[np.ndarray, "points targets"]
    x_test: Float[np.ndarray, "tests d"]
    y_test: Float[np.ndarray, "tests targets"]
    names: tuple[str, ...]
    kernel: Float[np.ndarray, "points points"]
    to_test: Float[np.ndarray, "tests points"]
    eigenvalues: Float[np.ndarray, " levels"]
    multiplicities: Float[np.ndarray, " levels"]
    coefficients: Float[np.ndarray, "levels targets"]
    rest: float


def populations(net: AbstractLayer, points: int) -> list[Population]:
    """All of them; images of clothes only where their file is found. `points`: how many at the most."""
    always = [circle(net, points), hypercube(net), sphere(net, points), digits(net, points)]
    images = fashion_file()
    return always if images is None else [*always, fashion(net, points, images)]


def circle(net: AbstractLayer, points: int) -> Population:
    """Random points, and a grid to measure on; waves."""
    angles = np.stack([np.random.default_rng(0).uniform(0, 1, points), np.arange(points) / points]) * (2 * np.pi)
    x, x_test = 2**0.5 * np.stack([np.cos(angles), np.sin(angles)], -1)
    return _domain("circle", net, x, x_test, (1, 4, 10))


def hypercube(net: AbstractLayer) -> Population:
    """All corners; parities."""
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=_CUBE)))
    return _domain("hypercube", net, corners, corners, (1, 2, 4))


def sphere(net: AbstractLayer, points: int) -> Population:
    """Random points, and others to measure on; harmonics that depend on one coordinate."""
    x, x_test = _to_length(np.random.default_rng(0).normal(size=(2 * points, _SPHERE))).reshape(2, points, _SPHERE)
    return _domain("sphere", net, x, x_test, (1, 2, 3))


def digits(net: AbstractLayer, points: int) -> Population:
    """Images of 8 x 8 pixels; is the digit below five?"""
    from sklearn.datasets import load_digits

    images, kinds = (np.asarray(part) for part in load_digits(return_X_y=True))
    chosen = np.random.default_rng(0).permutation(len(images))[:points]
    return _images("digits", net, images[chosen].astype(np.float64), kinds[chosen] < 5, "0-4 or 5-9")


def fashion(net: AbstractLayer, points: int, file: Path) -> Population:
    """Images of clothes, as 14 x 14 pixels; a coat, dress, pullover, shirt, or something else?"""
    with np.load(file) as stored:
        images, kinds = stored["x_train"][:points].astype(np.float64), stored["y_train"][:points]
    small = images.reshape(len(images), 14, 2, 14, 2).mean((2, 4)).reshape(len(images), -1)
    return _images("fashion", net, small, np.isin(kinds, (2, 3, 4, 6)), "coats or other")


def fashion_file() -> Path | None:
    """Fashion-MNIST as one file of numpy arrays, if it is here."""
    folder = os.environ.get(_FOLDER)
    return Path(folder) / FASHION if folder and (Path(folder) / FASHION).is_file() else None


def _to_length(x: np.ndarray) -> np.ndarray:
    """Every row of mean square 1, as networks like them."""
    return x * (x.shape[1] ** 0.5 / np.linalg.norm(x, axis=1, keepdims=True))


def _domain(name: str, net: AbstractLayer, x: np.ndarray, x_test: np.ndarray, levels: tuple[int, ...]) -> Population:
    """Targets are single eigenfunctions, of unit mean square over the whole domain."""
    system = eigensystem(name, net, x.shape[1], radius=x.shape[1] ** 0.5, levels=_LEVELS)
    y, y_test = (np.stack([system.functions(level, at)[:, 0] for level in levels], 1) for at in (x, x_test))
    among = ntk(net, x)
    return Population(
        name,
        x,
        y,
        x_test,
        y_test,
        tuple(f"level {level}" for level in levels),
        among,
        among if x_test is x else ntk(net, x_test, x),
        system.eigenvalues,
        system.multiplicities,
        np.eye(len(system.eigenvalues))[:, list(levels)],
        system.rest,
    )


def _images(name: str, net: AbstractLayer, x: np.ndarray, label: np.ndarray, task: str) -> Population:
    """A target of +1 and -1; eigenvalues and coefficients are those of all points."""
    rows = _to_length(x)
    kernel, y = ntk(net, rows), np.where(label, 1.0, -1.0)[:, None]
    modes = mercer(kernel)
    ones, powers = np.ones(len(modes.eigenvalues)), modes.coefficients(y)
    return Population(name, rows, y, rows, y, (task,), kernel, kernel, modes.eigenvalues, ones, powers, 0.0)
