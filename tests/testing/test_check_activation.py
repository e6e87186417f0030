"""`check_activation` lets the right ones pass and names what is wrong with the others."""

import jax.numpy as jnp
import pytest

import everwide.activations as act
from everwide.activations import AbstractActivation, Dual, GaussianPair, Moments
from everwide.testing import ConformanceError, check_activation

pytestmark = pytest.mark.once

RIGHT = {
    "relu": (act.Relu(), {}),
    "two_slope": (act.TwoSlope(-0.3, 1.2), {}),
    "erf": (act.Erf(1.3, 0.7, 0.4), {}),
    "gelu": (act.Gelu(), {}),
    "sin": (act.Sin(1.1, 0.9, 0.3), {}),
    "cos": (act.Cos(0.8, 1.1, -0.2), {}),
    "rbf": (act.Rbf(0.6), {}),
    "exp": (act.Exp(0.7, 0.5), {}),
    "gaussian": (act.Gaussian(1.2, -0.7), {}),
    "gabor": (act.Gabor(), {}),
    "monomial": (act.Monomial(3), {}),
    "polynomial": (act.Polynomial((0.2, 1.0, 0.3, -0.1)), {}),
    "rectified_monomial": (act.RectifiedMonomial(2), {}),
    "hermite": (act.Hermite(3), {"variances": (1.0,)}),
    "sign": (act.Sign(), {"jumps": True}),
    "step": (act.Step(), {"jumps": True}),
}


SLOW = ("relu",)  # two other rectifiers are checked


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, case in RIGHT.items()]
)
def test_activations_of_the_library(case):
    activation, options = case
    report = check_activation(activation, **options)
    assert all(0 <= size <= 1 for size in report)


class Square(AbstractActivation):
    """`x^2`, with one fault at a time."""

    fault: str = "none"

    def __call__(self, x):
        return x**2

    def dual(self, pair: GaussianPair) -> Dual:
        moment = pair.var1 * pair.var2 + 2 * pair.cov**2
        if self.fault == "edge":
            moment = moment * jnp.where(pair.var1 == 0, jnp.nan, 1)
        if self.fault == "asymmetric":
            moment = moment + 1e-3 * (pair.var1 - pair.var2)
        return Dual(moment, (3.9 if self.fault == "slope" else 4) * pair.cov)

    def moments(self, var) -> Moments:
        mean = 1.01 * var if self.fault == "mean" else var
        return Moments(mean, (3.01 if self.fault == "same" else 3) * var**2, 4 * var)


def test_an_activation_of_your_own():
    assert check_activation(Square()).function <= 1


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("mean", r"moments\(var\).mean is the quadrature"),
        ("same", r"moments\(var\).moment is the quadrature"),
        ("slope", r"dual\(pair\).slope is the quadrature"),
        ("asymmetric", r"dual\(pair\).moment is the quadrature"),
        ("edge", "must be finite for two constants"),
    ],
)
def test_faults_are_named(fault, complaint):
    with pytest.raises(ConformanceError, match=complaint):
        check_activation(Square(fault))


def test_a_jump_contradicts_prices_theorem():
    with pytest.raises(ConformanceError, match="derivative of its moment"):
        check_activation(act.Sign())
