"""Eigenvalues of kernels on domains with symmetries."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..._checks import InputError, not_negative, positive, whole
from ..._gram import diagonal, gram
from ...kernel import AbstractKernelFunction
from ...layers import AbstractLayer


def sphere_multiplicity(d: int, level: int) -> int:
    """Spherical harmonics of one degree in `d` dimensions; on the circle 1, 2, 2, ..."""
    fewer = math.comb(d + level - 3, d - 1) if level > 1 else 0
    return math.comb(d + level - 1, d - 1) - fewer


def legendre(d: int, levels: int, cosine: np.ndarray) -> Float[np.ndarray, "levels ..."]:
    """Legendre polynomials of `d` dimensions, 1 at 1: Chebyshev polynomials on the circle."""
    values = np.ones((levels, *np.shape(cosine)))
    if levels > 1:
        values[1] = cosine
    for k in range(1, levels - 1):
        values[k + 1] = ((2 * k + d - 2) * cosine * values[k] - k * values[k - 1]) / (k + d - 2)
    return values


def krawtchouk(d: int, levels: int) -> list[list[int]]:
    """`[level][flips]`: the sum of a parity over all points that differ from a corner in `flips` places.

    Whole numbers of any size. By the recursion in the level, each number of flips for itself:
    `(d - k) sum_(k+1) = (d - 2 flips) sum_k - k sum_(k-1)`.
    """
    before, now = [0] * (d + 1), [math.comb(d, flips) for flips in range(d + 1)]
    sums = [now]
    for k in range(levels - 1):
        after = [((d - 2 * f) * a - k * b) // (d - k) for f, (a, b) in enumerate(zip(now, before, strict=True))]
        before, now = now, after
        sums.append(now)
    return sums


def parities(signs: Float[np.ndarray, "points d"], level: int) -> Float[np.ndarray, "points functions"]:
    """Products of `level` coordinates, in the order of `itertools.combinations`."""
    return np.stack([np.prod(signs[:, list(s)], 1) for s in itertools.combinations(range(signs.shape[1]), level)], 1)


def harmonics(x: Float[np.ndarray, "points d"], level: int) -> Float[np.ndarray, "points functions"]:
    """Homogeneous harmonic polynomials of degree `level`, orthonormal on the unit sphere.

    By dimensions: in the last coordinate a Gegenbauer polynomial, in all others a harmonic polynomial of lower degree.
    The first function depends on the last coordinate only.
    """
    d = x.shape[1]
    if d == 2:
        turned = (x[:, 1] + 1j * x[:, 0]) ** level  # the angle counts from the last axis, as above
        both = np.stack([turned.real, turned.imag], 1) * 2**0.5
        return both if level else np.ones((len(x), 1))
    last, squared = x[:, -1], np.sum(x**2, 1)
    parts = []
    for inner in range(level + 1):
        index = inner + d / 2 - 1
        radial = _gegenbauer(level - inner, index, last, squared) / _norm(level - inner, index, d)
        parts.append(radial[:, None] * harmonics(x[:, :-1], inner))
    return np.concatenate(parts, 1)


def _gegenbauer(degree: int, index: float, t: np.ndarray, squared: np.ndarray) -> np.ndarray:
    """`r^degree C(t / r)`, a polynomial in `t` and `r^2`."""
    before, now = np.zeros_like(t), np.ones_like(t)
    for k in range(1, degree + 1):
        before, now = now, (2 * (k + index - 1) * t * now - (k + 2 * index - 2) * squared * before) / k
    return now


def _norm(degree: int, index: float, d: int) -> float:
    """Root mean square on the sphere of the Gegenbauer polynomial times the right power of the sine."""
    square = math.lgamma(degree + 2 * index) - math.lgamma(degree + 1) - 2 * math.lgamma(index)
    square += (1 - 2 * index) * math.log(2) + math.log(math.pi / (degree + index))
    density = math.lgamma(d / 2) - math.lgamma((d - 1) / 2) - 0.5 * math.log(math.pi)
    return math.exp((square + density) / 2)


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
            raise InputError(f"kernel is a {type(kernel).__name__}, expected a function of the cosine or a network.")
        return kernel
    positive(radius, "radius")
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
        if whole(level, "level", 0) >= len(self.eigenvalues):
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
    >>> eigenlearning.eigensystem("sphere", lambda cosine: cosine**2, 3, levels=4).eigenvalues
    array([0.33333333, 0.        , 0.13333333, 0.        ])

    Simon et al., "The eigenlearning framework" (2021).
    """
    _check(domain, d, levels, which)
    not_negative(tolerance, "tolerance")
    cube = domain == "hypercube"
    count = levels or (d + 1 if cube else 30)
    count = min(count, d + 1) if cube else count
    size = radius if radius is not None else math.sqrt(d) if cube else 1.0
    profile = profile_of(kernel, d, size, which, corners=cube)
    values, noise = _cube_values(profile, d, count) if cube else _sphere_values(profile, d, count)
    times = np.array([float((math.comb if cube else sphere_multiplicity)(d, level)) for level in range(count)])
    settled = _settled(values, noise * tolerance, tolerance)
    rest = max(float(evaluated(profile, np.ones(1))[0] - np.sum(settled * times)), 0.0)
    return Eigensystem(settled, times, rest, domain, d)


def _check(domain: str, d: Any, levels: Any, which: str) -> None:
    if domain not in ("circle", "hypercube", "sphere"):
        raise InputError(f"eigensystem(domain={domain!r}): expected 'circle', 'hypercube' or 'sphere'.")
    whole(d, "d", 1 if domain == "hypercube" else 2)
    if domain == "circle" and d != 2:
        raise InputError(f"eigensystem('circle', d={d!r}): expected 2 (a circle lies in the plane).")
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
