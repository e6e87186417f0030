"""The Hermite expansion of an activation, and when its kernel is positive definite."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

_PANEL, _WIDTH = 20, 0.25  # Gauss-Legendre nodes of a stretch of this width: kinks of activations lie on its ends
_DEGREE = 60  # up to which polynomials are told from other functions
_NEGLIGIBLE = 1e-10
_EQUAL = 1e-7  # distance of two directions that are taken as one


def hermite_coefficients(
    activation: Callable[[Any], Any], degree: int, *, std: float = 1.0
) -> Float[np.ndarray, " terms"]:
    """`E[f(std z) he_k(z)]`, k from 0 to `degree`: `he_k` the orthonormal Hermite polynomials, `z` a Gaussian.

    For inputs of unit length, `E[f(w.x) f(w.x')] = sum_k c_k^2 (x.x')^k` over Gaussian `w`.

    - `activation`: one of everwide's, or any function of arrays, element by element. Kinks at multiples of 1/4 over
      `std` are integrated to rounding; elsewhere a kink costs accuracy, to about 1e-5.

    >>> import everwide as ew, everwide.theory as th, numpy as np
    >>> np.round(th.hermite_coefficients(ew.Relu(), 2), 6)
    array([0.398942, 0.5     , 0.282095])
    """
    if degree < 0:
        raise ValueError(f"hermite_coefficients(degree={degree!r}): expected at least 0.")
    if not 0 < std < math.inf:
        raise ValueError(f"hermite_coefficients(std={std!r}): expected a finite number above 0.")
    nodes, weights = np.polynomial.legendre.leggauss(_PANEL)
    half = math.ceil((2 * math.sqrt(degree) + 12) / _WIDTH)  # beyond, density times polynomial is nothing
    z = (_WIDTH * ((nodes + 1) / 2 + np.arange(-half, half)[:, None])).reshape(-1)
    mass = np.tile(weights, 2 * half) * _WIDTH / 2 / math.sqrt(2 * math.pi) * np.exp(-(z**2) / 4)
    values = mass * _values(activation, std * z)
    before, now, found = np.zeros_like(z), np.exp(-(z**2) / 4), []  # times a root of the density, or it overflows
    for k in range(degree + 1):
        found.append(np.sum(values * now))
        before, now = now, (z * now - math.sqrt(k) * before) / math.sqrt(k + 1)
    return np.array(found)


class Definiteness(NamedTuple):
    """Is a kernel of one hidden layer certain to be positive definite on these inputs, and why. Made by `definiteness`.

    >>> import everwide.theory as th
    >>> th.Definiteness(True, "why").guaranteed
    True
    """

    guaranteed: bool
    reason: str


def definiteness(activation: Callable[[Any], Any], x: Any) -> Definiteness:
    """Is `E[f(w.x) f(w.x')]`, `w` standard Gaussian, certain to be positive definite on the rows of `x`, of one length?

    It is if the Hermite expansion of `f` has infinitely many terms and no two rows are parallel. If it has infinitely
    many even and infinitely many odd terms, rows may be antipodal. That `f` is no polynomial is not enough for that:
    `tanh` is odd, and a pair `x, -x` makes its kernel singular.

    >>> import everwide as ew, everwide.theory as th, numpy as np
    >>> th.definiteness(ew.Tanh(), np.array([[1.0, 0.0], [-1.0, 0.0]]))
    Definiteness(guaranteed=False, reason='Rows 0 and 1 are antipodal, and the even part of the activation is a \
polynomial.')
    """
    rows = np.asarray(x, np.float64)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise ValueError(f"x has shape {rows.shape}, expected finite numbers of shape (n, d).")
    lengths = np.linalg.norm(rows, axis=1)
    if not lengths.min() > 0 or np.ptp(lengths) > _EQUAL * lengths.max():
        raise ValueError(
            f"Rows of x have lengths {lengths.min():.6g} to {lengths.max():.6g}, expected one. Scale them."
        )
    directions = rows / lengths[:, None]
    same, opposite = (_first_pair(directions, sign) for sign in (1.0, -1.0))
    if same:
        return Definiteness(False, f"Rows {same[0]} and {same[1]} are equal.")
    finite = {name: _is_polynomial(activation, sign, float(lengths[0])) for name, sign in (("even", 1), ("odd", -1))}
    if all(finite.values()):
        return Definiteness(False, "The activation is a polynomial: the rank of its kernel is bounded.")
    both = not any(finite.values())
    if opposite and not both:
        part = "even" if finite["even"] else "odd"
        reason = f"Rows {opposite[0]} and {opposite[1]} are antipodal, and the {part} part of the activation is a "
        return Definiteness(False, reason + "polynomial.")
    kinds = "even and infinitely many odd Hermite coefficients" if both else "Hermite coefficients"
    return Definiteness(
        True, f"Infinitely many {kinds} differ from 0, and no two rows are {'equal' if both else 'parallel'}."
    )


def _values(activation: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        values = np.asarray(activation(jnp.asarray(x, jnp.float64)), np.float64)
    if values.shape != x.shape:
        raise ValueError(f"The activation maps an array of shape {x.shape} to {values.shape}: it is not elementwise.")
    if not np.isfinite(values).all():
        place = int(np.argmax(~np.isfinite(values)))
        raise ValueError(f"The activation is {values[place]} at {x[place]:.6g}, expected finite numbers.")
    return values


def _is_polynomial(activation: Callable[[Any], Any], sign: int, std: float) -> bool:
    """Of low degree: does the even or odd part go on, far outside, as its leading Hermite terms say?"""
    part = lambda x: (_values(activation, x) + sign * _values(activation, -x)) / 2
    terms = hermite_coefficients(lambda x: part(np.asarray(x)), _DEGREE, std=std)
    terms[np.abs(terms) <= _NEGLIGIBLE * np.max(np.abs(terms))] = 0
    z = np.array([25.0, 27.0])  # where sixty terms of other functions are far off
    roots = np.array([math.sqrt(math.factorial(k)) for k in range(len(terms))])
    guess = np.polynomial.hermite_e.hermeval(z, terms / roots)
    rounding = _NEGLIGIBLE * (np.abs(_values(activation, std * z)) + np.abs(_values(activation, -std * z)))
    return bool(np.all(np.abs(part(std * z) - guess) <= 1e-4 * np.abs(guess) + rounding))


def _first_pair(directions: np.ndarray, sign: float) -> tuple[int, int] | None:
    """Rows that agree up to the sign."""
    close = directions @ directions.T * sign > 1 - _EQUAL**2 / 2 - 4 * np.finfo(np.float64).eps
    pairs = np.argwhere(np.triu(close, 1))
    return (int(pairs[0][0]), int(pairs[0][1])) if len(pairs) else None
