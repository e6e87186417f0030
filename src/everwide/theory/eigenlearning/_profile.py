"""A kernel as a function of the cosine between two points of one length."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._checks import InputError
from ..._gram import diagonal, gram
from ...kernel import AbstractKernelFunction
from ...layers import AbstractLayer

_ROTATED = 1e-6  # by which a kernel may differ between pairs of points at one angle

Profile = Callable[[np.ndarray], Any]
Kernel = Profile | AbstractLayer | AbstractKernelFunction


def evaluated(profile: Profile, cosine: np.ndarray) -> np.ndarray:
    """The kernel at some cosines, checked."""
    values = np.asarray(profile(cosine), np.float64)
    if values.shape != cosine.shape:
        raise InputError(
            f"The kernel maps cosines of shape {cosine.shape} to {values.shape}, expected one value for each."
        )
    if not np.isfinite(values).all():
        place = int(np.argmax(~np.isfinite(values)))
        raise InputError(f"The kernel is {values[place]} at a cosine of {cosine[place]:.6g}, expected finite values.")
    return values


def profile_of(kernel: Kernel, d: int, radius: float, which: str, *, corners: bool = False) -> Profile:
    """The kernel as a function of the cosine."""
    if not isinstance(kernel, AbstractLayer | AbstractKernelFunction):
        if not callable(kernel):
            raise TypeError(f"kernel is a {type(kernel).__name__}, expected a function of the cosine or a network.")
        return kernel
    if not 0 < radius < math.inf:
        raise InputError(f"eigensystem(radius={radius!r}): expected a finite number above 0.")
    place = _corners if corners else _on_an_arc
    _check_rotations(kernel, d, radius, which, corners)

    def profile(cosine: np.ndarray) -> np.ndarray:
        points = radius * place(cosine, d)
        pole = radius * place(np.ones(1), d)
        cross = getattr(gram(kernel, points, pole), which)[:, 0]
        return np.where(cosine == 1, getattr(diagonal(kernel, pole), which), cross)

    return profile


def _on_an_arc(cosine: np.ndarray, d: int) -> np.ndarray:
    points = np.zeros((len(cosine), d))
    points[:, 0], points[:, 1] = cosine, np.sqrt((1 - cosine) * (1 + cosine))
    return points


def _corners(cosine: np.ndarray, d: int) -> np.ndarray:
    flips = np.rint((1 - cosine) * d / 2)
    return np.where(np.arange(d) < flips[:, None], -1.0, 1.0) / math.sqrt(d)


def _check_rotations(kernel: Any, d: int, radius: float, which: str, corners: bool) -> None:
    """Pairs at one angle, turned at random, must have one value; the kernel must be one number a pair."""
    rng = np.random.default_rng(0)
    x = _corners(np.array([1.0, 1 - 2 * (d // 2) / d]), d) if corners else _on_an_arc(np.array([1.0, 0.3]), d)
    turns = np.stack([np.eye(d), *(_turn(rng, d, corners) for _ in range(3))])
    one, two = (radius * (point @ turns) for point in x)
    values = getattr(gram(kernel, one, two), which)
    if values.shape != (4, 4):
        raise InputError(
            f"The {which} of 4 by 4 points has shape {values.shape}, expected one number for each pair: the network "
            "leaves sites. End it with Flatten or pooling."
        )
    values = values.diagonal()
    if np.ptp(values) > _ROTATED * np.max(np.abs(values)):
        raise InputError(
            f"The {which} of this network is not a function of the cosine: equal angles give {values.min():.6g} to "
            f"{values.max():.6g}. Decompose it on data: everwide.theory.eigenlearning.mercer(everwide.ntk(net, x))."
        )


def _turn(rng: np.random.Generator, d: int, corners: bool) -> np.ndarray:
    """A rotation; of a cube, one that maps corners to corners."""
    if corners:
        return np.eye(d)[rng.permutation(d)] * rng.choice([-1.0, 1.0], d)
    return np.linalg.qr(rng.normal(size=(d, d)))[0]
