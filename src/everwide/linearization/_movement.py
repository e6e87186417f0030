"""How far training has moved: outputs from their linearization, parameters, features."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._expansion import linearize
from ._trees import Function, Params, displacement, named_leaves, norm, outputs, parameters


class Gap(NamedTuple):
    """Outputs of a network minus those of its linearization.

    - `values`: `(n, *outputs)`. `rms`: their root mean square. `largest`: the largest magnitude.
    - `relative`: `rms` over the root mean square by which the outputs have moved.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import linearization_gap
    >>> gap = linearization_gap(lambda p, x: p**2 * x, jnp.ones(()), 1.5 * jnp.ones(()), jnp.ones(4))
    >>> round(float(gap.rms), 4), round(float(gap.relative), 4)
    (0.25, 0.2)
    """

    values: Float[Array, "n *outputs"]
    rms: Float[Array, ""]
    largest: Float[Array, ""]
    relative: Float[Array, ""]


class Moved(NamedTuple):
    """The Euclidean length of a movement, and its ratio to the length of what moved.

    >>> from everwide.linearization import Moved
    >>> Moved(1.0, 0.5).relative
    0.5
    """

    absolute: Float[Array, "..."] | float
    relative: Float[Array, "..."] | float


class ParameterMovement(NamedTuple):
    """How far parameters have moved, all of them together and leaf by leaf.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import parameter_movement
    >>> parameter_movement({"w": jnp.ones(4)}, {"w": 2 * jnp.ones(4)}).leaves["['w']"].absolute
    Array(2., dtype=float...)
    """

    absolute: Float[Array, ""]
    relative: Float[Array, ""]
    leaves: dict[str, Moved]


@eqx.filter_jit
def linearization_gap(f: Function, params0: Params, params: Params, x: Any) -> Gap:
    """`f(params, x) - f_lin(params, x)` over a batch `x`, where `f_lin` is `f` linearized at `params0`.

    >>> import everwide as ew, jax, jax.numpy as jnp
    >>> from everwide.linearization import linearization_gap
    >>> net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(1))
    >>> start, end = (net.init(jax.random.key(seed), (3,), width=64) for seed in (0, 1))
    >>> linearization_gap(net.apply, start, end, jnp.ones((5, 3))).values.shape
    (5, 1)

    Lee et al. 2019, theorem 2.1: along gradient descent, `O(width**-0.5)`.
    """
    now, before = outputs(f, params, x), outputs(f, params0, x)
    values = now - outputs(linearize(f, params0), params, x)
    rms = _rms(values)
    return Gap(values, rms, jnp.max(jnp.abs(values)), _ratio(rms, _rms(now - before)))


@eqx.filter_jit
def parameter_movement(params0: Params, params: Params) -> ParameterMovement:
    """The Euclidean distance between two sets of parameters, and its ratio to the length of the first.

    Leaves are named by their place in the tree. A leaf that starts at zero and moves has an infinite ratio.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import parameter_movement
    >>> float(parameter_movement(jnp.array([3.0, 4.0]), jnp.array([3.0, 5.0])).relative)
    0.2

    Lee et al. 2019, theorem 2.1: `O(1)` in the ntk parametrization, `O(width**-0.5)` in the standard one.
    """
    start, end = parameters(params0, "params0")[0], parameters(params)[0]
    moved = displacement(start, end, ("params0", "params"))
    leaves = zip(named_leaves(moved), jax.tree.leaves(start), strict=True)
    named = {path: Moved(norm(d), _ratio(norm(d), norm(leaf))) for (path, d), leaf in leaves}
    return ParameterMovement(norm(moved), _ratio(norm(moved), norm(start)), named)


@eqx.filter_jit
def feature_movement(features: Function, params0: Params, params: Params, x: Any) -> Moved:
    """How far a function of parameters and inputs has moved: root mean squares over examples and coordinates.

    - `features(params, x)`: for one example, the hidden layer that is to be watched, for example.
    - `absolute`: of the change. `relative`: of the change, over that of the features at `params0`.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import feature_movement
    >>> hidden = lambda p, x: jnp.tanh(p @ x)
    >>> float(feature_movement(hidden, jnp.eye(2), jnp.eye(2), jnp.ones((3, 2))).absolute)
    0.0

    With the width it falls like `width**-0.5` in the ntk parametrization, and stays in a mean-field one.
    """
    before, now = (outputs(features, p, x) for p in (params0, params))
    change = _rms(now - before)
    return Moved(change, _ratio(change, _rms(before)))


def _rms(values: Array) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(jnp.square(values)))


def _ratio(change: Array, whole: Array) -> Float[Array, ""]:
    """Nothing that moves from nothing has moved by 0, something by infinity."""
    empty = jnp.where(change > 0, jnp.inf, 0).astype(change.dtype)
    return jnp.where(whole > 0, change / jnp.where(whole > 0, whole, 1), empty)
