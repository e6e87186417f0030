"""The activations with closed forms, each with an independent account of what it is."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import everwide.activations as act
from activations import gaussian_reference as ref
from everwide.activations import AbstractActivation, Dual, GaussianPair, Moments


def dtype() -> type[np.floating]:
    """The dtype of this run."""
    return np.float64 if jax.config.jax_enable_x64 else np.float32


def tolerance(in64: float = 1e-12, in32: float = 3e-6) -> float:
    """Relative to the natural size of a kernel's entry, `sqrt(k(u, u) k(v, v))`."""
    return in64 if jax.config.jax_enable_x64 else in32


def array(value) -> jax.Array:
    """In the dtype of this run."""
    return jnp.asarray(np.asarray(value, dtype()))


@dataclass(frozen=True)
class Smooth:
    """`blur(mean, variance)` is `E[f(mean + sqrt(variance) z)]`; moments are representable for all of `stds`."""

    name: str
    activation: AbstractActivation
    blur: ref.Blur
    stds: tuple[float, ...] = (2.0**-10, 0.5, 5.5, 32.0)  # their squares are exact in float32 as well


@dataclass(frozen=True)
class Kinked:
    """A function with `f(r x) = r^degree f(x)` for positive `r`, not smooth at 0; `slope` is its derivative."""

    name: str
    activation: AbstractActivation
    degree: int
    function: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]

    @property
    def stds(self) -> tuple[float, ...]:
        """For which moments are representable."""
        return (2.0**-10, 0.5, 5.5, 32.0) if self.degree < 5 else (0.5, 5.5)


def _polynomial(*coefficients: float) -> ref.Blur:
    f = lambda x: sum(c * x**i for i, c in enumerate(coefficients)) + 0 * x
    return ref.blur_by_nodes(f, len(coefficients) + 1)


def _two_slope(name: str, activation: AbstractActivation, negative: float, positive: float) -> Kinked:
    function = lambda x: np.where(x < 0, negative * x, positive * x)
    return Kinked(name, activation, 1, function, lambda x: np.where(x < 0, negative, positive))


def _rectified(n: int) -> Kinked:
    function = lambda x: np.where(x < 0, 0.0, x**n)
    slope = lambda x: np.where(x < 0, 0.0, n * x ** max(n - 1, 0))
    return Kinked(f"rectified_{n}", act.RectifiedMonomial(n), n, function, slope)


SMOOTH = [
    Smooth("erf", act.Erf(), ref.blur_erf(1, 1, 0)),
    Smooth("erf_shifted", act.Erf(1.3, 0.7, -0.4), ref.blur_erf(1.3, 0.7, -0.4)),
    Smooth("sigmoid_like", act.SigmoidLike(), ref.blur_erf(0.5, 1 / 2.4020563531719796, 0.5)),
    Smooth("gelu", act.Gelu(), ref.blur_gelu),
    Smooth("sin", act.Sin(), ref.blur_sin(1, 1, 0)),
    Smooth("sin_shifted", act.Sin(1.2, 0.6, 0.9), ref.blur_sin(1.2, 0.6, 0.9)),
    Smooth("cos_shifted", act.Cos(1.2, 0.6, 0.9), ref.blur_sin(1.2, 0.6, 0.9 + np.pi / 2)),
    Smooth("rbf", act.Rbf(0.3), ref.blur_sin(2**0.5, 0.6**0.5, np.pi / 4)),
    Smooth("exp", act.Exp(1.2, 0.5), ref.blur_exp(1.2, 0.5), stds=(2.0**-10, 0.5, 5.5)),
    Smooth("gaussian", act.Gaussian(1.2, -0.7), ref.blur_gaussian(1.2, -0.7)),
    Smooth("gabor", act.Gabor(), ref.blur_gabor),
    Smooth("monomial_0", act.Monomial(0), _polynomial(1)),
    Smooth("monomial_1", act.Monomial(1), _polynomial(0, 1)),
    Smooth("monomial_4", act.Monomial(4), _polynomial(0, 0, 0, 0, 1)),
    Smooth("monomial_7", act.Monomial(7), _polynomial(0, 0, 0, 0, 0, 0, 0, 1), stds=(0.5, 5.5)),
    Smooth("polynomial", act.Polynomial((0.3, -1.0, 0.5, 0.2)), _polynomial(0.3, -1.0, 0.5, 0.2)),
    Smooth("constant", act.Polynomial((0.7,)), _polynomial(0.7)),
]

KINKED = [
    _two_slope("relu", act.Relu(), 0.0, 1.0),
    _two_slope("leaky_relu", act.LeakyRelu(0.2), 0.2, 1.0),
    _two_slope("abs", act.Abs(), -1.0, 1.0),
    _two_slope("two_slope", act.TwoSlope(-0.3, 1.2), -0.3, 1.2),
    Kinked("sign", act.Sign(), 0, np.sign, np.zeros_like),
    Kinked("step", act.Step(), 0, lambda x: (1 + np.sign(x)) / 2, np.zeros_like),
    *(_rectified(n) for n in (0, 1, 2, 3, 6)),
]

# Moments by rule, not by function.
RULES = [
    ("hermite_3", act.Hermite(3)),
    ("exp_normalized", act.ExpNormalized(1.3, -0.8)),
]

EVERY = [*((c.name, c.activation) for c in (*SMOOTH, *KINKED)), *RULES]


@dataclass(frozen=True)
class Line:
    """A pair given by standard deviations, `1 - |correlation|` and the sign of the correlation."""

    std1: float
    std2: float
    rest: float
    sign: int

    @property
    def exact(self) -> tuple[float, float, float]:
        """Variance, covariance, variance."""
        return self.std1**2, self.sign * self.std1 * self.std2 * (1 - self.rest), self.std2**2

    @property
    def distances(self) -> tuple[float, float]:
        """`E[(u - v)^2]` and `E[(u + v)^2]`."""
        near = (self.std1 - self.std2) ** 2 + 2 * self.std1 * self.std2 * self.rest
        far = self.std1**2 + self.std2**2 + 2 * self.std1 * self.std2 * (1 - self.rest)
        return (near, far) if self.sign > 0 else (far, near)

    @property
    def angle(self) -> float:
        """Between `u` and `v`."""
        folded = 2 * np.arcsin(np.sqrt(self.rest / 2))
        return folded if self.sign > 0 else np.pi - folded


def lines(stds: tuple[float, ...], rests: tuple[float, ...], *, equal: bool = False) -> list[Line]:
    """All combinations, or those with equal standard deviations."""
    pairs = [(a, b) for i, a in enumerate(stds) for b in stds[i:] if a == b or not equal]
    return [Line(a, b, r, s) for a, b in pairs for r in rests for s in (1, -1)]


def known(found: list[Line]) -> GaussianPair:
    """Pairs with their distances, as a network without sites has them."""
    return GaussianPair(*(array(a) for a in zip(*((*p.exact, *p.distances) for p in found), strict=True)))


@eqx.filter_jit
def dual(activation: AbstractActivation, pair: GaussianPair) -> Dual:
    """Compiled as a whole: op by op takes seconds."""
    return activation.dual(pair)


@eqx.filter_jit
def moments(activation: AbstractActivation, var: jax.Array) -> Moments:
    """Compiled as a whole."""
    return activation.moments(var)
