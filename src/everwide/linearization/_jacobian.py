"""The tangent kernel of a batch as a matrix."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..empirical import ntk_block
from ._trees import Function, Params, parameters


def tangent_kernel(f: Function, params: Params, x1: Any, x2: Any) -> Float[Array, "n1 n2"]:
    """`J(x1) J(x2)^T`; several outputs follow each other within an example."""
    moving, rest = parameters(params)
    left, right = (jax.tree.map(jnp.asarray, x) for x in (x1, x2))
    kernel = ntk_block(lambda p, one: f(eqx.combine(p, rest), one).reshape(-1), moving, left, right)
    n1, n2, k, _ = kernel.shape
    return kernel.transpose(0, 2, 1, 3).reshape(n1 * k, n2 * k)
