"""Gaussian moments of any function of one variable, by brute force: the oracle that activations are checked with."""

from collections.abc import Callable, Sequence

import numpy as np

_REACH = 13.0  # standard deviations: the density is 1e-37 there
_PANEL = 0.25
_NODES = 12


def normal_grid(kinks: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a composite Gauss-Legendre rule for `E[f(z)]`, with panels that end at the kinks."""
    inside = [k for k in kinks if abs(k) < _REACH]
    ends = np.unique([*np.arange(-_REACH, _REACH + _PANEL / 2, _PANEL), 0.0, *inside])
    x, w = np.polynomial.legendre.leggauss(_NODES)
    half, centre = np.diff(ends) / 2, (ends[1:] + ends[:-1]) / 2
    z = (centre[:, None] + half[:, None] * x).ravel()
    weights = (half[:, None] * w).ravel() * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return z, weights


def hermite_coefficients(
    f: Callable[[np.ndarray], np.ndarray], std: float, kinks: Sequence[float], terms: int
) -> np.ndarray:
    """`E[f(std z) h_n(z)]` for the orthonormal Hermite polynomials `h_0 ... h_{terms - 1}`."""
    z, weights = normal_grid([k / std for k in kinks])
    values = weights * f(std * z)
    before, now = np.zeros_like(z), np.ones_like(z)
    out = []
    for n in range(terms):
        out.append(np.sum(values * now))
        before, now = now, (z * now - np.sqrt(n) * before) / np.sqrt(n + 1)
    return np.array(out)


def second_moment(f: Callable[[np.ndarray], np.ndarray], std: float, kinks: Sequence[float]) -> float:
    """`E[f(std z)^2]`."""
    z, weights = normal_grid([k / std for k in kinks])
    return float(np.sum(weights * f(std * z) ** 2))
