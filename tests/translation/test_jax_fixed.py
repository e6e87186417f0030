"""Fixed vectors of places in modules of JAX: constants are not trained, parameters are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flax import nnx

import everwide as ew
from everwide._walk import walk
from everwide.translation._fixed import FixedVectors
from translation.draws import equinox_kernels, nnx_kernels, require_agreement

pytestmark = pytest.mark.once
OUTPUTS = 256


def sines(length, width):
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    return jnp.asarray(np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, width), jnp.float32)


class Flax(nnx.Module):
    """A table that is a variable, but no parameter; longer than the sequences."""

    def __init__(self, width, rngs):
        self.embed, self.read = nnx.Linear(24, width, rngs=rngs), nnx.Linear(width, width, rngs=rngs)
        self.norm = nnx.LayerNorm(width, use_scale=False, use_bias=False, rngs=rngs)
        self.head, self.places = nnx.Linear(width, OUTPUTS, rngs=rngs), nnx.Variable(sines(9, width))

    def __call__(self, x):
        x = self.embed(x) + self.places[...][None, : x.shape[1]]
        return self.head(jax.nn.relu(self.read(self.norm(x))).mean(1))


class Equinox(eqx.Module):
    """A table in the call, or an array of the module: with its gradient stopped, or trained, or behind a factor."""

    embed: eqx.nn.Linear
    head: eqx.nn.Linear
    places: jax.Array
    how: str = eqx.field(static=True)

    def __init__(self, width, key, how="stopped"):
        a, b = jr.split(key)
        self.embed, self.head = eqx.nn.Linear(24, width, key=a), eqx.nn.Linear(width, OUTPUTS, key=b)
        self.places, self.how = sines(9, width), how

    def __call__(self, x):
        x, made = jax.vmap(self.embed)(x), sines(len(x), self.places.shape[1])
        kept, own = jax.lax.stop_gradient(self.places)[: len(x)], self.places[: len(x)]
        return self.head(jnp.mean(x + {"stopped": kept, "made": made, "own": own, "twice": 2 * own}[self.how], 0))


@pytest.mark.slow
def test_nnx():
    require_agreement(lambda width: Flax(width, nnx.Rngs(0)), (3, 24), nnx_kernels(Flax, 100))


@pytest.mark.slow
def test_equinox():
    require_agreement(lambda width: Equinox(width, jr.key(0)), (3, 24), equinox_kernels(Equinox, 100))


@pytest.mark.parametrize(
    "module", [Flax(8, nnx.Rngs(0)), Equinox(8, jr.key(0)), Equinox(8, jr.key(0), "made")], ids=lambda m: str(type(m))
)
def test_constants_are_fixed(module):
    (table,) = (v.layer.table for v in walk(ew.from_module(module, (3, 24)).net) if isinstance(v.layer, FixedVectors))
    np.testing.assert_allclose(table, sines(3, 8), rtol=1e-6)


def test_parameters_are_not():
    assert "vectors of places (9, 8)" in [
        row.module for row in ew.from_module(Equinox(8, jr.key(0), "own"), (3, 24)).rows
    ]
    with pytest.raises(ew.ArchitectureError, match="belongs to no layer"):
        ew.from_module(Equinox(8, jr.key(0), "twice"), (3, 24))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(wrong):
    module = Flax(8, nnx.Rngs(0))
    module.places[...] = module.places[...].at[1, 2].set(wrong)
    with pytest.raises(ew.ArchitectureError, match="NaN or infinite"):
        ew.from_module(module, (3, 24))
