"""The network that bends most often for its size."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._checks import whole
from ...activations import Relu
from ...layers import AbstractLayer, Dense, Serial


def sawtooth(depth: int) -> tuple[AbstractLayer, Any]:
    """A ReLU network of one input and its parameters: `depth` tents, one inside the other.

    It has `3 depth` hidden units, `2^(depth - 1)` spikes and `2^depth` linear pieces on [0, 1], and two more outside:
    a number exponential in the depth. All of its parameters are exact in float32.

    Args:
        depth: the number of tents.

    Returns:
        The network, and its parameters.

    >>> from everwide.theory import regions
    >>> net, params = regions.sawtooth(5)
    >>> regions.line_regions(net, params, [0.0], [1.0]).count, regions.line_regions(net, params, [-1.0], [2.0]).count
    (32, 34)

    Telgarsky, "Benefits of depth in neural networks" (2016).
    """
    whole(depth, "depth")
    tent = (Dense(2, b_std=1.0), Relu(), Dense(1), Relu())
    net = Serial(*tent * int(depth), Dense(1))

    def build(key):
        return net.init(key, (1,), parametrization="standard")  # factors of 1: what is given is what acts

    like = eqx.filter_eval_shape(build, jax.random.key(0))
    numbers = [([[1.0, 1.0]], [0.0, -0.5]), ([[2.0], [-4.0]],)] * int(depth) + [([[1.0]],)]
    leaves = [jnp.asarray(np.array(a), jnp.float32) for group in numbers for a in group]
    structure = jax.tree.structure(like)
    dtype = jnp.result_type(float)
    return net, jax.tree.unflatten(structure, [leaf.astype(dtype) for leaf in leaves])
