"""The moments of every activation are those of its function: small, by plain sampling in numpy."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide.activations as act
from everwide.activations import AbstractActivation, GaussianPair
from everwide.testing._draws import SAMPLED

pytestmark = pytest.mark.once

NORMALS = np.random.default_rng(0).standard_normal((2, 40_000))
CORRELATION = 0.6
WITH_ARGUMENTS = {
    "Elementwise": act.Elementwise(lambda x: jnp.sin(x) + 0.5 * x),
    "Exp": act.Exp(1.2, 0.5),
    "Hermite": act.Hermite(3),
    "Monomial": act.Monomial(3),
    "PiecewiseLinear": act.PiecewiseLinear((-0.5, 1.0), (0.2, 1.0, -0.3), at_zero=0.1),
    "Polynomial": act.Polynomial((0.3, -1.0, 0.5)),
    "RectifiedMonomial": act.RectifiedMonomial(2),
    "TwoSlope": act.TwoSlope(-0.3, 1.2),
}
JUMPS = ("Sign", "Step")  # their slope is no function
WITHOUT_FUNCTION = ("ExpNormalized",)
AT_UNIT_VARIANCE = ("Hermite",)


def classes():
    found = [c for c in vars(act).values() if inspect.isclass(c) and issubclass(c, AbstractActivation)]
    return {c.__name__: c for c in found if not inspect.isabstract(c) and c.__name__ not in WITHOUT_FUNCTION}


@pytest.mark.parametrize("name", sorted(classes()))
def test_moments_are_those_of_the_function(name):
    activation = WITH_ARGUMENTS[name] if name in WITH_ARGUMENTS else classes()[name]()
    variances = (1.0, 1.0) if name in AT_UNIT_VARIANCE else (0.8, 1.5)
    var1, var2 = (jnp.asarray(v, jnp.zeros(()).dtype) for v in variances)
    pair = GaussianPair(var1, CORRELATION * jnp.sqrt(var1 * var2), var2)
    dual, alone = eqx.filter_jit(lambda p: (activation.dual(p), activation.moments(p.var1)))(pair)
    first = NORMALS[0]
    second = CORRELATION * first + np.sqrt(1 - CORRELATION**2) * NORMALS[1]
    u, v = (np.sqrt(s) * z for s, z in zip(variances, (first, second), strict=True))
    run = eqx.filter_jit(lambda z: jax.vmap(jax.value_and_grad(activation))(z))
    (f_u, slope_u), (f_v, slope_v) = (
        [np.asarray(a, np.float64) for a in run(jnp.asarray(z, var1.dtype))] for z in (u, v)
    )
    assert SAMPLED.excess(f_u * f_v, float(dual.moment)) <= 1
    assert SAMPLED.excess(f_u, float(alone.mean)) <= 1
    assert SAMPLED.excess(f_u**2, float(alone.moment)) <= 1
    if name not in JUMPS:
        assert SAMPLED.excess(slope_u * slope_v, float(dual.slope)) <= 1
        assert SAMPLED.excess(slope_u**2, float(alone.slope)) <= 1
