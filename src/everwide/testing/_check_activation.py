"""Do the Gaussian moments of an activation belong to its function?"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..activations import AbstractActivation, GaussianPair
from ._draws import ConformanceError, Exact, cancelling_for, exact_for, require_equal

_CORRELATIONS = (-0.6, -0.2, 0.0, 0.35, 0.6)
_TERMS = 70  # 0.6^70 = 3e-16
_REACH = 13.0  # standard deviations: the density is 1e-37 there
_PANEL, _NODES = 0.25, 12

Function = Callable[[np.ndarray], np.ndarray]


class ActivationReport(NamedTuple):
    """The largest deviation of each check, in units of what is allowed (so at most 1)."""

    function: float
    price: float
    same: float
    symmetry: float


def check_activation(
    activation: AbstractActivation,
    *,
    variances: Sequence[float] = (0.3, 1.0, 2.1),
    kinks: Sequence[float] = (0.0,),
    jumps: bool = False,
    tolerance: float | None = None,
) -> ActivationReport:
    """Raise `ConformanceError` unless the moments of an activation are those of its function.

    - Means, moments and slopes equal quadratures of the function and of its derivative (by autodiff): one variable by
      brute force, two by their Hermite series.
    - `slope` is the derivative of `moment` in the covariance (Price's theorem).
    - `moments` is `dual` at `u = v`; `dual` is symmetric; `minus` and `plus` belong to it.
    - Values and gradients are finite for constant, equal and opposite inputs.

    Args:
        activation: The activation.
        variances: At which it is checked.
        kinks: The points where the function is not smooth.
        jumps: It is not continuous there: its derivative is the ordinary one, and Price's theorem does not apply.
        tolerance: The largest deviation, relative to the largest number; `None` is rounding in the default dtype.

    Returns:
        The largest deviation of each check in units of what is allowed: `function`, `price`, `same`, `symmetry`.

    >>> import everwide as ew
    >>> from everwide.testing import check_activation
    >>> report = check_activation(ew.Relu())
    """
    dtype = jnp.zeros(()).dtype
    allowed = exact_for(dtype) if tolerance is None else Exact(tolerance)
    function = _against_quadrature(activation, variances, kinks, allowed)
    pair = _generic_pairs(variances)
    price = 0.0 if jumps else _price(activation, pair, allowed)
    same = _same_numbers(activation, jnp.asarray(variances), cancelling_for(dtype))
    symmetry = _symmetric(activation, pair, allowed)
    _finite_at_the_edges(activation)
    return ActivationReport(function, price, same, symmetry)


def _generic_pairs(variances: Sequence[float]) -> GaussianPair:
    v = np.asarray(variances)
    var1, var2, rho = (a.ravel() for a in np.meshgrid(v, v, _CORRELATIONS, indexing="ij"))
    return GaussianPair(*(jnp.asarray(a) for a in (var1, rho * np.sqrt(var1 * var2), var2)))


def _against_quadrature(
    activation: AbstractActivation, variances: Sequence[float], kinks: Sequence[float], tolerance: Exact
) -> float:
    derivative = jax.vmap(jax.grad(lambda x: jnp.sum(activation(x))))

    def f(x: np.ndarray) -> np.ndarray:
        return np.asarray(activation(jnp.asarray(x)), np.float64)

    def df(x: np.ndarray) -> np.ndarray:
        return np.asarray(derivative(jnp.asarray(x)), np.float64)

    stds = np.sqrt(np.asarray(variances))
    mean, moment, slope = (np.asarray(m, np.float64) for m in activation.moments(jnp.asarray(variances)))
    mean2, moment2 = np.array([hermite_coefficients(f, s, kinks, 1)[0] for s in stds]), _moment(f, stds, kinks)
    size = np.sqrt(moment2.max())  # a mean is as accurate as the function is large
    worst = 0.0
    for name, got, expected in (
        ("mean", mean + size, mean2 + size),
        ("moment", moment, moment2),
        ("slope", slope, _moment(df, stds, kinks)),
    ):
        claim = f"moments(var).{name} is the quadrature of the function at var = {tuple(variances)}"
        worst = max(worst, require_equal(activation, claim, got, expected, tolerance))
    pair = _generic_pairs(variances)
    dual = activation.dual(pair)
    for name, g in (("moment", f), ("slope", df)):
        series = [hermite_coefficients(g, s, kinks, _TERMS) for s in stds]
        expected = [np.sum(a * b * c ** np.arange(_TERMS)) for a in series for b in series for c in _CORRELATIONS]
        claim = f"dual(pair).{name} is the quadrature of the function"
        worst = max(worst, require_equal(activation, claim, getattr(dual, name), expected, tolerance))
    return worst


def _moment(f: Function, stds: np.ndarray, kinks: Sequence[float]) -> np.ndarray:
    """`E[f(std z)^2]`."""
    grids = (normal_grid([k / std for k in kinks]) for std in stds)
    return np.array([np.sum(weights * f(std * z) ** 2) for std, (z, weights) in zip(stds, grids, strict=True)])


def _price(activation: AbstractActivation, pair: GaussianPair, tolerance: Exact) -> float:
    def moment(cov: Array) -> Array:
        return jnp.sum(activation.dual(GaussianPair(pair.var1, cov, pair.var2)).moment)

    claim = "dual(pair).slope is the derivative of its moment in the covariance"
    return require_equal(activation, claim, activation.dual(pair).slope, jax.grad(moment)(pair.cov), tolerance)


def _same_numbers(activation: AbstractActivation, var: Array, tolerance: Exact) -> float:
    exact, zero = activation.moments(var), jnp.zeros_like(var)
    plain = activation.dual(GaussianPair(var, var, var))
    known = activation.dual(GaussianPair(var, var, var, zero, 4 * var))
    worst = 0.0
    for dual in (plain, known):
        for name in ("moment", "slope"):
            claim = f"moments(var).{name} is dual at u = v"
            got = jnp.broadcast_to(getattr(dual, name), var.shape)
            worst = max(worst, require_equal(activation, claim, got, getattr(exact, name), tolerance))
    return worst


def _symmetric(activation: AbstractActivation, pair: GaussianPair, tolerance: Exact) -> float:
    both = pair.var1 + pair.var2
    minus, plus = both - 2 * pair.cov, both + 2 * pair.cov
    there = activation.dual(GaussianPair(pair.var1, pair.cov, pair.var2, minus, plus))
    back = activation.dual(GaussianPair(pair.var2, pair.cov, pair.var1, minus, plus))
    worst = 0.0
    for name in ("moment", "slope"):
        claim = f"dual(pair).{name} is symmetric"
        worst = max(worst, require_equal(activation, claim, getattr(there, name), getattr(back, name), tolerance))
    total = activation.moments(pair.var1).moment + activation.moments(pair.var2).moment
    for sign, got in ((-1, there.minus), (1, there.plus)):
        if got is not None:
            claim = f"dual(pair).{'plus' if sign > 0 else 'minus'} belongs to its moments"
            worst = max(worst, require_equal(activation, claim, got, total + sign * 2 * there.moment, tolerance))
    return worst


def _finite_at_the_edges(activation: AbstractActivation) -> None:
    """Constant, equal and opposite numbers, where angles and square roots have infinite derivatives."""
    edges = {
        "two constants": (0.0, 0.0, 0.0),
        "a constant": (0.0, 0.0, 1.0),
        "equal numbers": (1.0, 1.0, 1.0),
        "opposite numbers": (1.0, -1.0, 1.0),
        "parallel numbers": (1.0, 0.5, 0.25),
    }

    def pair_sum(a: Array, b: Array, c: Array) -> Array:
        moment, slope = activation.dual(GaussianPair(a, b, c))[:2]
        return jnp.sum(moment) + jnp.sum(slope)

    def own_sum(a: Array, b: Array, c: Array) -> Array:
        return sum((jnp.sum(p) for p in activation.moments(a)), jnp.zeros_like(a))

    for name, edge in edges.items():
        for fn in (pair_sum, own_sum):
            value, slopes = jax.value_and_grad(fn, (0, 1, 2))(*map(jnp.asarray, edge))
            if not np.isfinite([float(v) for v in (value, *slopes)]).all():
                raise ConformanceError(
                    f"{type(activation).__name__}: values and gradients must be finite for {name}, "
                    f"got {float(value)} with gradients {[float(s) for s in slopes]}."
                )


def normal_grid(kinks: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a composite Gauss-Legendre rule for `E[f(z)]`, with panels that end at the kinks."""
    inside = [k for k in kinks if abs(k) < _REACH]
    ends = np.unique([*np.arange(-_REACH, _REACH + _PANEL / 2, _PANEL), 0.0, *inside])
    x, w = np.polynomial.legendre.leggauss(_NODES)
    half, centre = np.diff(ends) / 2, (ends[1:] + ends[:-1]) / 2
    z = (centre[:, None] + half[:, None] * x).ravel()
    weights = (half[:, None] * w).ravel() * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return z, weights


def hermite_coefficients(f: Function, std: float, kinks: Sequence[float], terms: int) -> np.ndarray:
    """`E[f(std z) h_n(z)]` for the orthonormal Hermite polynomials `h_0 ... h_{terms - 1}`."""
    z, weights = normal_grid([k / std for k in kinks])
    values = weights * f(std * z)
    before, now = np.zeros_like(z), np.ones_like(z)
    out = []
    for n in range(terms):
        out.append(np.sum(values * now))
        before, now = now, (z * now - np.sqrt(n) * before) / np.sqrt(n + 1)
    return np.array(out)
