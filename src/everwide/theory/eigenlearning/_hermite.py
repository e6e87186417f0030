"""Expansions of activations and kernels in Hermite polynomials."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..._checks import InputError, positive, whole
from .._host import Response, response

_DEGREE = 60  # up to which polynomials are told from other functions
_NEGLIGIBLE = 1e-10
_EQUAL = 1e-7  # distance of two directions that are taken as one


def hermite_coefficients(
    activation: Callable[[Any], Any], degree: int, *, std: float = 1.0
) -> Float[np.ndarray, " terms"]:
    """`E[f(std z) he_k(z)]`, k from 0 to `degree`: `he_k` the orthonormal Hermite polynomials, `z` a Gaussian.

    For inputs of unit length, `E[f(w.x) f(w.x')] = sum_k c_k^2 (x.x')^k` over Gaussian `w`.

    Args:
        activation: one of everwide's, or any function of arrays, element by element. Its kinks and jumps are found.
        degree: the last one.
        std: of the inputs.

    Returns:
        `(degree + 1,)`.

    >>> import everwide as ew, numpy as np
    >>> from everwide.theory import eigenlearning
    >>> np.round(eigenlearning.hermite_coefficients(ew.Relu(), 2), 6)
    array([0.398942, 0.5     , 0.282095])
    """
    return _coefficients(response(activation), whole(degree, "degree", 0), positive(std, "std"))


def _coefficients(act: Response, degree: int, std: float) -> np.ndarray:
    reach = 2 * math.sqrt(degree) + 12  # beyond, density times polynomial is nothing
    return act.rule(std, reach).hermite(degree + 1)


class Definiteness(NamedTuple):
    """Made by `definiteness`."""

    guaranteed: bool
    reason: str


def definiteness(activation: Callable[[Any], Any], x: Any) -> Definiteness:
    """Is `E[f(w.x) f(w.x')]`, `w` standard Gaussian, certain to be positive definite on the rows of `x`, of one length?

    It is if the Hermite expansion of `f` has infinitely many terms and no two rows are parallel. If it has infinitely
    many even and infinitely many odd terms, rows may be antipodal. That `f` is no polynomial is not enough for that:
    `tanh` is odd, and a pair `x, -x` makes its kernel singular.

    Args:
        activation: as in `hermite_coefficients`.
        x: `(n, d)`, rows of one length.

    Returns:
        `guaranteed`, and the `reason`, a sentence.

    >>> import everwide as ew, numpy as np
    >>> from everwide.theory import eigenlearning
    >>> eigenlearning.definiteness(ew.Tanh(), np.array([[1.0, 0.0], [-1.0, 0.0]]))
    Definiteness(guaranteed=False, reason='Rows 0 and 1 are antipodal, and the even part of the activation is a \
polynomial.')
    """
    rows = np.asarray(x, np.float64)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise InputError(f"x has shape {rows.shape}, expected finite numbers of shape (n, d).")
    lengths = np.linalg.norm(rows, axis=1)
    if not lengths.min() > 0 or np.ptp(lengths) > _EQUAL * lengths.max():
        raise InputError(
            f"Rows of x have lengths {lengths.min():.6g} to {lengths.max():.6g}, expected one. Scale them."
        )
    directions = rows / lengths[:, None]
    same, opposite = (_first_pair(directions, sign) for sign in (1.0, -1.0))
    if same:
        return Definiteness(False, f"Rows {same[0]} and {same[1]} are equal.")
    finite = _polynomial_parts(response(activation), float(lengths[0]))
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


def _polynomial_parts(act: Response, std: float) -> dict[str, bool]:
    """Is the even, is the odd part a polynomial of low degree: does it go on, far outside, as its terms say?"""
    terms = _coefficients(act, _DEGREE, std)
    terms[np.abs(terms) <= _NEGLIGIBLE * np.max(np.abs(terms))] = 0
    roots = np.array([math.sqrt(math.factorial(k)) for k in range(len(terms))])
    z = np.array([25.0, 27.0])  # where sixty terms of other functions are far off
    right, left = act.function(std * z), act.function(-std * z)
    rounding = _NEGLIGIBLE * (np.abs(right) + np.abs(left))

    def goes_on(parity: int) -> bool:
        part = (right + (-1) ** parity * left) / 2
        guess = np.polynomial.hermite_e.hermeval(z, np.where(np.arange(len(terms)) % 2 == parity, terms / roots, 0))
        return bool(np.all(np.abs(part - guess) <= 1e-4 * np.abs(guess) + rounding))

    return {"even": goes_on(0), "odd": goes_on(1)}


def _first_pair(directions: np.ndarray, sign: float) -> tuple[int, int] | None:
    """Rows that agree up to the sign."""
    close = directions @ directions.T * sign > 1 - _EQUAL**2 / 2 - 4 * np.finfo(np.float64).eps
    pairs = np.argwhere(np.triu(close, 1))
    return (int(pairs[0][0]), int(pairs[0][1])) if len(pairs) else None


_WAY_OUT = {  # a negative eigenvalue is mostly the work of rounding
    "eigenvalues": " A decomposition leaves values about 1e-16 of the largest below 0: pass "
    "numpy.maximum(eigenvalues, 0), or use everwide.theory.eigenlearning.mercer, which does. If it is larger, the "
    "kernel is not positive semidefinite."
}


def checked_problem(given: dict[str, Any]) -> tuple[Any, ...]:
    """Refuse what is no spectrum, no target or no setting; values that are traced are checked when they are known."""
    values = {name: _known(name, value) for name, value in given.items()}
    _check_shapes({name: np.shape(value) for name, value in values.items()})
    return tuple(_at_least_zero(name, value) for name, value in values.items())


def checked_eigenvalues(eigenvalues: Any) -> np.ndarray:
    """A list of numbers, at least 0, as float64."""
    values = _known("eigenvalues", eigenvalues)
    if not isinstance(values, np.ndarray):
        raise TypeError("eigenvalues is traced by JAX, and this function runs on the host: pass concrete numbers.")
    _check_modes(values.shape)
    return _at_least_zero("eigenvalues", values)


def _check_modes(shape: tuple[int, ...]) -> None:
    if len(shape) != 1 or not shape[0]:
        raise InputError(f"eigenvalues has shape {shape}, expected (modes,): one number for each mode.")


def _known(name: str, value: Any) -> Any:
    """As float64 on the host, or as an array of JAX where it is traced."""
    try:
        return np.asarray(value, np.float64)
    except jax.errors.TracerArrayConversionError:
        return jnp.asarray(value)  # also a list that holds one traced number
    except (TypeError, ValueError) as fault:
        kind = type(value).__name__
        raise InputError(f"{name} is a {kind} that numpy cannot read as numbers: {fault}. Pass an array.") from None


def _check_shapes(shapes: dict[str, tuple[int, ...]]) -> None:
    modes = shapes["eigenvalues"]
    _check_modes(modes)
    for name in ("coefficients", "multiplicities"):
        if shapes[name] != modes:
            raise InputError(
                f"{name} has shape {shapes[name]}, expected {modes}: one number for each of the eigenvalues. "
                "For several outputs, pass the norm over the outputs, or call once for each."
            )
    try:
        np.broadcast_shapes(shapes["n"], shapes["ridge"], shapes["noise"])
    except ValueError:
        raise InputError(
            f"n, ridge and noise have shapes {shapes['n']}, {shapes['ridge']} and {shapes['noise']}, which do not "
            "broadcast. Put each on an axis of its own: n[:, None], ridge[None, :]."
        ) from None


def _at_least_zero(name: str, value: Any) -> Any:
    any_sign, way_out = name == "coefficients", _WAY_OUT.get(name, "")
    wrong = ~((any_sign | (value >= 0)) & (abs(value) < np.inf))  # no comparison with NaN is true
    if not isinstance(value, np.ndarray):
        below = "" if any_sign else "below 0, or one "
        return eqx.error_if(value, jnp.any(wrong), f"{name} holds a number {below}that is not finite.{way_out}")
    if not wrong.any():
        return value
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"{name}[{', '.join(map(str, place))}]" if place else name
    bound = "" if any_sign else ", at least 0"
    way_out = way_out if value[place] < 0 else ""
    raise InputError(f"{where} is {value[place]:.6g}, expected a finite number{bound}.{way_out}")
