"""Diagonal linear networks: from lazy to rich by the scale of their first weights."""

import math
from typing import Any

import equinox as eqx
import numpy as np
import scipy.integrate
import scipy.optimize
from jaxtyping import Float

from ..._checks import InputError, at_least_zero, finite_array, positive
from ...spectral import Factor, Spectrum

_SMALLEST, _LARGEST = 1e-150, 1e150  # first weights whose squares are numbers
_FALL = math.log(16.0)  # by which the scale goes down at a time, towards its own
_STEPS, _HALVINGS = 200, 60
_EXACT, _NEAR = 1e-11, 1e-6  # of the targets: residuals at the limit; at the worst
_CONSISTENT = 1e-8


class DiagonalNetwork(eqx.Module):
    """Made by `diagonal_network`."""

    x: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, " n"]
    first: Float[np.ndarray, " p"]

    def penalty(self, coefficients: Any) -> float:
        """What gradient flow keeps small: `sum s^2 q(b / s^2)`, of first weights `s`.

        `q(z) = 2 - sqrt(4 + z^2) + z asinh(z / 2)`. For small weights it is near `log(1 / s^2) |b|`, for large ones
        near `b^2 / (4 s^2)`.
        """
        b = _vector(coefficients, "coefficients", len(self.first))
        z = np.abs(b) / self.first**2
        return float(np.sum(np.abs(b) * (np.arcsinh(z / 2) - z / (2 + np.hypot(2, z)))))

    def flow(self, times: Any) -> Float[np.ndarray, "times p"]:
        """Coefficients at times of gradient flow on `1/2 mean (x b - y)^2`; an ODE of as many numbers as rows."""
        asked = np.atleast_1d(at_least_zero(times, "times"))
        if asked.ndim != 1:
            raise InputError(f"times has shape {asked.shape}, expected one time, or (times,).")
        n, squares = len(self.x), 2 * self.first**2

        def residual(_: float, total: np.ndarray) -> np.ndarray:
            return (self.x @ (squares * np.sinh(-4 * self.x.T @ total)) - self.y) / n

        def slope(_: float, total: np.ndarray) -> np.ndarray:
            return (self.x * (-4 * squares * np.cosh(4 * self.x.T @ total))) @ self.x.T / n

        looks, places = np.unique(asked, return_inverse=True)
        course = scipy.integrate.solve_ivp(
            residual, (0.0, max(looks[-1], 1e-300)), np.zeros(n), "Radau", looks, rtol=1e-9, atol=1e-13, jac=slope
        )
        if not course.success:
            raise InputError(
                f"flow: the equation could not be integrated ({course.message}). Scale x and y to about 1."
            )
        return (squares * np.sinh(-4 * course.y.T @ self.x))[places]

    def limit(self) -> Float[np.ndarray, " p"]:
        """Coefficients where the flow ends: of all that fit `y`, those of the smallest `penalty`."""
        basis, values = self._reduced()
        aim = np.log(2 * self.first**2)
        easy = math.log(max(float(np.abs(basis.T @ values).max()), np.finfo(np.float64).tiny))
        above = max(easy - float(aim.min()), 0.0)  # begin where sinh is nearly linear
        stages = math.ceil(above / _FALL)
        dual = _newton(basis, values, aim + above, np.zeros(len(values)))
        before = dual
        for stage in range(1, stages + 1):
            start = 2 * dual - before if stage > 1 else dual  # grows in proportion to the logarithm of the scale
            before, dual = dual, _newton(basis, values, aim + above * (1 - stage / stages), start)
        return _coefficients(basis.T @ dual, aim)

    def rich(self) -> Float[np.ndarray, " p"]:
        """Where the flow ends from vanishing weights: of all that fit, coefficients of the smallest sum of `|b|`."""
        basis, values = self._reduced()
        p = len(self.first)
        best = scipy.optimize.linprog(np.ones(2 * p), A_eq=np.hstack([basis, -basis]), b_eq=values, bounds=(0, None))
        return best.x[:p] - best.x[p:]

    def lazy(self) -> Float[np.ndarray, " p"]:
        """Where the flow ends from huge weights: of all that fit, the smallest sum of `b^2 / s^2`. A kernel does it."""
        basis, values = self._reduced()
        relative = (self.first / self.first.max()) ** 2
        return relative * (basis.T @ Factor.of((basis * relative) @ basis.T).solve(values))

    def _reduced(self) -> tuple[Float[np.ndarray, "r p"], Float[np.ndarray, " r"]]:
        """The same equations with orthonormal rows; raises where they have no solution."""
        spectrum = Spectrum.of_features(self.x, what="x")
        vectors, sizes = spectrum.vectors[:, spectrum.learnable], np.sqrt(spectrum.values[spectrum.learnable])
        left = self.y - vectors @ (vectors.T @ self.y)
        if np.linalg.norm(left) > _CONSISTENT * np.linalg.norm(self.y):
            raise InputError(
                f"x has {len(self.x)} rows of rank {len(sizes)}, and no coefficients fit y: what is left is "
                f"{np.linalg.norm(left):.3g}. Only where many fit there is a bias; use fewer rows than columns."
            )
        return (vectors.T @ self.x) / sizes[:, None], (vectors.T @ self.y) / sizes


def diagonal_network(x: Any, y: Any, *, scale: float = 1.0, start: Any = None) -> DiagonalNetwork:
    """Regression by `b = u^2 - v^2`, a network of two layers without mixing, trained by gradient flow.

    Both `u` and `v` begin as `scale * start`, so `b` begins at 0. The scale decides what is learned: from small weights
    sparse coefficients (the rich regime), from large ones those of a kernel (the lazy regime). The way to the rich
    limit is logarithmic in the scale.

    Args:
        x: `(n, p)`, rows.
        y: `(n,)`, targets.
        scale: of the first weights.
        start: `(p,)`, their shape, above 0; None is 1 for all.

    Returns:
        `limit()`: the coefficients at the end of training, `flow(times)`: on the way, in the units of the library
        (half the mean square), `penalty(coefficients)`: what is smallest at the limit; `rich()` and `lazy()`: the
        limits of vanishing and of huge scales. All but the flow and the penalty need data that can be fitted.

    >>> import numpy as np
    >>> from everwide.theory import implicit_bias
    >>> network = implicit_bias.diagonal_network([[1.0, 2.0]], [2.0], scale=1e-4)
    >>> network.limit().round(3), network.rich(), network.lazy()
    (array([0., 1.]), array([0., 1.]), array([0.4, 0.8]))

    Woodworth et al. 2020, Kernel and rich regimes in overparametrized models.
    """
    rows = finite_array(x, "x")
    if rows.ndim != 2:
        raise InputError(f"x has shape {rows.shape}, expected (n, p).")
    shape = np.ones(rows.shape[1]) if start is None else _vector(start, "start", rows.shape[1])
    first = positive(scale, "scale") * shape
    if not ((first > _SMALLEST) & (first < _LARGEST)).all():
        raise InputError(
            f"scale={scale!r}, start: expected first weights from {_SMALLEST:g} to {_LARGEST:g}, got {first.min():.3g} "
            f"to {first.max():.3g}. Beyond them are rich() and lazy()."
        )
    return DiagonalNetwork(rows, _vector(y, "y", len(rows)), first)


def _vector(value: Any, label: str, size: int) -> Float[np.ndarray, " size"]:
    vector = finite_array(value, label)
    if vector.shape != (size,):
        raise InputError(f"{label} has shape {vector.shape}, expected ({size},).")
    return vector


def _coefficients(u: Float[np.ndarray, " p"], logs: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    """`exp(logs) sinh(u)`, where the first may be tiny and the second huge."""
    return np.sign(u) * np.exp(logs + np.abs(u)) * -np.expm1(-2 * np.abs(u)) / 2


def _newton(
    basis: Float[np.ndarray, "r p"], y: Float[np.ndarray, " r"], logs: Float[np.ndarray, " p"], dual: np.ndarray
) -> Float[np.ndarray, " r"]:
    """The minimum over `nu` of `sum exp(logs) cosh(basis^T nu) - y nu`, which is convex."""

    def value(at: np.ndarray) -> float:
        u = np.abs(basis.T @ at)
        with np.errstate(over="ignore"):
            return float(np.sum(np.exp(logs + u) * (1 + np.exp(-2 * u)) / 2) - y @ at)

    for _ in range(_STEPS):
        u = basis.T @ dual
        gap = basis @ _coefficients(u, logs) - y
        if np.abs(gap).max() <= _EXACT * np.abs(y).max():
            break
        weights = np.exp(logs + np.abs(u)) * (1 + np.exp(-2 * np.abs(u))) / 2
        step = Factor.with_jitter((basis * weights) @ basis.T, float(weights.max())).solve(gap)
        size, here, slope = 1.0, value(dual), float(gap @ step)
        for _ in range(_HALVINGS):
            if value(dual - size * step) <= here - 1e-4 * size * slope + 1e-15 * abs(here):
                break
            size /= 2
        dual = dual - size * step
    else:
        gap = basis @ _coefficients(basis.T @ dual, logs) - y
        if not np.abs(gap).max() <= _NEAR * np.abs(y).max():
            raise InputError(
                f"limit: {np.abs(gap).max():.3g} of y is left after {_STEPS} steps of Newton's method. Are scales of "
                "columns or of start many orders of magnitude apart?"
            )
    return dual
