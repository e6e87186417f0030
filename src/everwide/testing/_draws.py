"""Kernels of sampled networks of finite width, draw by draw.

`everwide.empirical.sample_kernel` gives means, and dropout is inactive there. A check wants every draw, noise in every
pass, and derivatives that share no code with what is checked.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ..kernel import Example, Inputs
from ..layers import AbstractLayer
from ..signal import Parametrization
from ._compile import quick_jit

_AT_ONCE = 8  # draws in one vectorized step: Jacobians of all of them are in memory


class Draws(NamedTuple):
    """Empirical kernels `(draws, n, n, *sites, *sites)` of independent networks of one width."""

    nngp: np.ndarray
    ntk: np.ndarray


def sample_kernels(
    net: AbstractLayer,
    inputs: Inputs,
    *,
    width: int,
    draws: int,
    key: Array,
    parametrization: Parametrization | str = Parametrization.NTK,
) -> Draws:
    """Kernels of `draws` finite networks: the NNGP averaged over all outputs, the NTK of the first.

    Every example has randomness of its own in each pass (dropout). Parameters of frozen layers do not count: their
    gradients are stopped in `forward`.

    >>> import everwide as ew, jax, jax.numpy as jnp
    >>> from everwide.testing._draws import sample_kernels
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense())
    >>> drawn = sample_kernels(net, ew.Inputs(jnp.ones((2, 3))), width=16, draws=8, key=jax.random.key(0))
    >>> drawn.ntk.shape
    (8, 2, 2)
    """
    one = partial(_one_draw, net, inputs, width, Parametrization(parametrization))
    nngp, ntk = quick_jit(partial(jax.lax.map, one, batch_size=min(_AT_ONCE, draws)))(jr.split(key, draws))
    return Draws(np.asarray(nngp), np.asarray(ntk))


def _one_draw(
    net: AbstractLayer, inputs: Inputs, width: int, parametrization: Parametrization, key: Array
) -> tuple[Array, Array]:
    init, passes = jr.split(key)
    params = net.init(init, inputs.x.shape[1:], width=width, parametrization=parametrization)
    keys = jr.split(passes, len(inputs.x))

    y = forward(net, params, inputs, keys)
    shape, sites = y.shape[:-1], y.shape[1:-1]
    flat = y.reshape(math.prod(shape), -1)
    nngp = flat @ flat.T / flat.shape[-1]
    jacobian = jax.jacrev(lambda p: forward(net, p, inputs, keys)[..., 0].reshape(-1))(params)
    rows = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(jacobian)]
    ntk = sum((r @ r.T for r in rows), jnp.zeros_like(nngp))
    return _by_example(nngp, shape[0], sites), _by_example(ntk, shape[0], sites)


def forward(net: AbstractLayer, params, inputs: Inputs, keys: Array | None) -> Array:
    """Outputs of all examples, each with noise of its own where there are keys."""

    def one(example: Any, key: Array | None) -> Array:
        return net.apply(params, Example(example.x, example.mask, example.graph), key=key)

    return eqx.filter_vmap(one)(inputs, keys)


def _by_example(flat: Array, n: int, sites: tuple[int, ...]) -> Array:
    """`(n P, n P) -> (n, n, *sites, *sites)`."""
    size = math.prod(sites)
    return flat.reshape(n, size, n, size).transpose(0, 2, 1, 3).reshape(n, n, *sites, *sites)
