"""What is asked of a spectrum, a target and a setting before anything is computed."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._checks import InputError

_NAMES = ("eigenvalues", "coefficients", "n", "ridge", "noise", "multiplicities")


class Given(NamedTuple):
    """Eigenvalues, coefficients, n, ridge, noise and multiplicities; `traced` if any of them is known only later."""

    numbers: tuple[Any, ...]
    traced: bool


def checked_problem(eigenvalues: Any, coefficients: Any, n: Any, ridge: Any, noise: Any, multiplicities: Any) -> Given:
    """Refuse what is no spectrum, no target or no setting; values that are traced are checked when they are known."""
    many = np.ones(np.shape(eigenvalues)) if multiplicities is None else multiplicities
    values = [*map(_known, _NAMES, (eigenvalues, coefficients, n, ridge, noise, many))]
    _check_shapes(values)
    checked = [_at_least_zero(name, value) for name, value in zip(_NAMES, values, strict=True)]
    return Given(tuple(checked), any(not isinstance(value, np.ndarray) for value in checked))


def checked_eigenvalues(eigenvalues: Any, name: str = "eigenvalues") -> np.ndarray:
    """A list of numbers, at least 0, as float64."""
    values = _known(name, eigenvalues)
    if not isinstance(values, np.ndarray):
        raise TypeError(f"{name} is traced by JAX, and this function runs on the host: pass concrete numbers.")
    if values.ndim != 1 or not values.size:
        raise InputError(f"{name} has shape {values.shape}, expected (modes,): one number for each mode.")
    return _at_least_zero(name, values)


def _known(name: str, value: Any) -> Any:
    """As float64 on the host, or as an array of JAX where it is traced."""
    try:
        return np.asarray(value, np.float64)
    except jax.errors.TracerArrayConversionError:
        return jnp.asarray(value)  # also a list that holds one traced number
    except (TypeError, ValueError) as fault:
        held = type(value).__name__
        raise TypeError(f"{name} is a {held} that numpy cannot read as numbers: {fault}. Pass an array.") from None


def _check_shapes(values: list[Any]) -> None:
    shapes = dict(zip(_NAMES, (np.shape(value) for value in values), strict=True))
    modes = shapes["eigenvalues"]
    if len(modes) != 1 or not modes[0]:
        raise InputError(f"eigenvalues has shape {modes}, expected (modes,): one number for each mode.")
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
    if not isinstance(value, np.ndarray):
        if name == "coefficients":
            return eqx.error_if(value, ~jnp.all(jnp.isfinite(value)), f"{name} holds a number that is not finite.")
        right = (value >= 0) & (value < jnp.inf)  # no comparison with NaN is true
        return eqx.error_if(
            value, ~jnp.all(right), f"{name} holds a number below 0, or one that is not finite.{_way_out(name)}"
        )
    wrong = ~np.isfinite(value) if name == "coefficients" else ~((value >= 0) & (value < np.inf))
    if not wrong.any():
        return value
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"{name}[{', '.join(map(str, place))}]" if place else name
    bound = "" if name == "coefficients" else ", at least 0"
    way_out = _way_out(name) if value[place] < 0 else ""
    raise InputError(f"{where} is {value[place]:.6g}, expected a finite number{bound}.{way_out}")


def _way_out(name: str) -> str:
    """A negative eigenvalue is mostly the work of rounding."""
    if name != "eigenvalues":
        return ""
    return (
        " A decomposition leaves values about 1e-16 of the largest below 0: pass numpy.maximum(eigenvalues, 0), or use "
        "everwide.theory.eigenlearning.mercer, which does. If it is larger, the kernel is not positive semidefinite."
    )
