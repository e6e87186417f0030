"""Kernels on domains whose eigenfunctions are known: circle, hypercube, sphere."""

import math
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..._checks import InputError, whole
from ._domains import harmonics, krawtchouk, legendre, parities, sphere_multiplicity
from ._profile import Kernel, Profile, evaluated, profile_of

DOMAINS = ("circle", "hypercube", "sphere")
_PANEL, _PANELS = 32, 48  # Gauss-Legendre nodes of the angle, and stretches of it
_WRONG = 1e3  # times the tolerance, by which an eigenvalue may be below 0
_MOST_NUMBERS = 10**8  # of eigenfunctions at points


class Eigensystem(eqx.Module):
    """Eigenvalues of a kernel on a domain, level by level, from level 0 on. Made by `eigensystem`."""

    eigenvalues: Float[np.ndarray, " levels"]
    multiplicities: Float[np.ndarray, " levels"]
    rest: float
    domain: str = eqx.field(static=True)
    d: int = eqx.field(static=True)

    def functions(self, level: int, x: Any) -> Float[np.ndarray, "points functions"]:
        """All eigenfunctions of a level at points `(points, d)`, orthonormal over the domain.

        On the circle cosine and sine; on the hypercube products of coordinates, in the order of
        `itertools.combinations`; on the sphere harmonics, the first of which depends on the last coordinate only.
        """
        points = np.asarray(x, np.float64)
        if points.ndim != 2 or points.shape[1] != self.d or not np.isfinite(points).all():
            raise InputError(f"x has shape {points.shape}, expected finite numbers of shape (points, {self.d}).")
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        if (lengths == 0).any():
            raise InputError(f"x[{int(np.argmin(lengths))}] is 0, and is no point of the {self.domain}.")
        if not 0 <= level < len(self.eigenvalues):
            raise InputError(f"level={level!r}: expected 0 to {len(self.eigenvalues) - 1}.")
        count = int(self.multiplicities[level])
        if count * len(points) > _MOST_NUMBERS:
            raise InputError(f"Level {level} has {count} functions: too many for {len(points)} points. Use fewer.")
        if self.domain == "hypercube":
            signs = np.sign(points)
            if not np.allclose(points, signs * lengths / math.sqrt(self.d)):
                raise InputError("x holds points that are no corners: on the hypercube all |coordinates| are equal.")
            return parities(signs, level)
        return harmonics(points / lengths, level)


def eigensystem(
    domain: str,
    kernel: Kernel,
    d: int = 2,
    *,
    levels: int | None = None,
    which: str = "ntk",
    radius: float | None = None,
    tolerance: float = 1e-13,
) -> Eigensystem:
    """The eigenvalues of a kernel under the uniform distribution on a domain in `d` dimensions.

    Harmonics of degree k are level k. Eigenvalues on circle and sphere are integrals over the angle, by a rule that is
    exact to rounding for kernels which are smooth in the angle between 0 and pi.

    Args:
        domain: "circle" (`d = 2`), "sphere" (points of one length in `d` dimensions), or "hypercube" (its corners).
        kernel: a function of the cosine between two points, or of `x.x' / d` between two corners, for numpy arrays; or
            a network, whose kernel must depend on the cosine alone; or a kernel function.
        d: dimensions.
        levels: by default 30; on a hypercube all.
        which: "ntk" or "nngp", of a network.
        radius: length of the points that a network sees; by default 1, and `sqrt(d)` for corners of -1 and 1.
        tolerance: how accurate the kernel is, relative to its largest value. Eigenvalues that are smaller than what
            such errors leave are 0: a rectifier without biases does not see odd levels beyond the first.

    Returns:
        `eigenvalues`, `multiplicities`, `(levels,)`: what `learning_curve` takes; `rest`: what the eigenvalues beyond
        the last level add up to (add it to the ridge: modes that are too weak to be learned act as one);
        `functions(level, x)`: the orthonormal eigenfunctions of a level at points.

    >>> import everwide as ew
    >>> from everwide.theory import eigenlearning
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
    >>> eigenlearning.eigensystem("sphere", net, 3, levels=6).eigenvalues > 0
    array([ True,  True,  True, False,  True, False])

    Simon et al., "The eigenlearning framework" (2021).
    """
    _check(domain, d, levels, which)
    if domain == "hypercube":
        count = d + 1 if levels is None else min(levels, d + 1)
        size = math.sqrt(d) if radius is None else radius
        profile = profile_of(kernel, d, size, which, corners=True)
        values, noise = _cube_values(profile, d, count)
        times = np.array([math.comb(d, level) for level in range(count)], np.float64)
    else:
        count = 30 if levels is None else levels
        profile = profile_of(kernel, d, 1.0 if radius is None else radius, which)
        values, noise = _sphere_values(profile, d, count)
        times = np.array([float(sphere_multiplicity(d, level)) for level in range(count)])
    settled = _settled(values, noise * tolerance, tolerance)
    rest = max(float(evaluated(profile, np.ones(1))[0] - np.sum(settled * times)), 0.0)
    return Eigensystem(settled, times, rest, domain, d)


def sphere_eigenvalues(
    kernel: Profile, d: int, levels: int = 30, *, tolerance: float = 1e-13
) -> Float[np.ndarray, " levels"]:
    """Eigenvalues of a function of the cosine on the unit sphere in `d` dimensions, for degrees 0, 1, ....

    By the formula of Funk and Hecke, in the angle. See `eigensystem`, which takes networks too.

    Args:
        kernel: a function of the cosine, for numpy arrays.
        d: dimensions.
        levels: how many degrees.
        tolerance: as in `eigensystem`.

    Returns:
        `(levels,)`.

    >>> from everwide.theory import eigenlearning
    >>> eigenlearning.sphere_eigenvalues(lambda cosine: cosine**2, 3, 4)
    array([0.33333333, 0.        , 0.13333333, 0.        ])
    """
    return eigensystem("sphere", kernel, d, levels=levels, tolerance=tolerance).eigenvalues


def _check(domain: str, d: Any, levels: Any, which: str) -> None:
    if domain not in DOMAINS:
        raise InputError(f"eigensystem(domain={domain!r}): expected 'circle', 'hypercube' or 'sphere'.")
    whole(d, "d")
    fewest = 1 if domain == "hypercube" else 2
    if d < fewest or (domain == "circle" and d != 2):
        expected = "2 (a circle lies in the plane)" if domain == "circle" else f"at least {fewest}"
        raise InputError(f"eigensystem({domain!r}, d={d!r}): expected {expected}.")
    if domain == "hypercube" and d > 1000:
        raise InputError(f"eigensystem('hypercube', d={d}): multiplicities overflow beyond 1000 dimensions.")
    if levels is not None:
        whole(levels, "levels")
    if which not in ("ntk", "nngp"):
        raise InputError(f"eigensystem(which={which!r}): expected 'ntk' or 'nngp'.")


def _sphere_values(profile: Profile, d: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, and what errors of size 1 of the kernel would do to them."""
    nodes, weights = np.polynomial.legendre.leggauss(_PANEL)
    panels = max(_PANELS, levels // 4)
    angles = np.pi * ((nodes + 1) / 2 + np.arange(panels)[:, None]).reshape(-1) / panels
    mass = np.tile(weights, panels) * np.sin(angles) ** (d - 2)
    mass = mass / mass.sum()
    polynomials = legendre(d, levels, np.cos(angles))
    values = evaluated(profile, np.cos(angles))
    return polynomials @ (mass * values), np.abs(polynomials) @ (mass * np.max(np.abs(values)))


def _cube_values(profile: Profile, d: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    values = evaluated(profile, 1 - 2 * np.arange(d + 1) / d)
    sums = np.array([[total / 2**d for total in row] for row in krawtchouk(d, levels)])
    return sums @ values, np.abs(sums).sum(1) * np.max(np.abs(values))


def _settled(values: np.ndarray, noise: np.ndarray, tolerance: float) -> np.ndarray:
    """Without what is rounding."""
    low = int(np.argmin(values + _WRONG * noise))
    if values[low] < -_WRONG * noise[low]:
        raise InputError(
            f"The kernel is not positive semidefinite here: its eigenvalue at level {low} is {values[low]:.3g}. "
            f"If its values are less accurate than {tolerance:g}, say so: tolerance=."
        )
    return np.where(values > noise, values, 0.0)
