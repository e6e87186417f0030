"""The learning rates of a parametrization as a step of an optax optimizer."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from ..layers import AbstractLayer
from ._rates import Rule, learning_rates


def scale_by_parametrization(net: AbstractLayer, rule: Rule | str = Rule.SGD) -> optax.GradientTransformation:
    """Multiply updates by the `learning_rates` of a network's parameters.

    Chain it after the optimizer: Adam forgets the size of what comes in, and heeds what is done to what comes out.
    The parameters say which parametrization they are in.

    >>> import everwide as ew, everwide.optim, jax, optax
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> params = net.init(jax.random.key(0), (3,), width=64, parametrization="mup")
    >>> optimizer = optax.chain(optax.adam(1e-2), everwide.optim.scale_by_parametrization(net, "adam"))
    >>> state = optimizer.init(params)
    """
    chosen = Rule(rule)

    def init(params: Any) -> Any:
        learning_rates(net, params, chosen)  # parameters of another network are found here, not in the first step
        return optax.EmptyState()

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        def scaled(update, rate):
            return update * jnp.asarray(rate, update.dtype)

        return jax.tree.map(scaled, updates, learning_rates(net, updates, chosen)), state

    return optax.GradientTransformation(init, update)
