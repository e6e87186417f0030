"""Which parameter learns how fast, in which parametrization."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from .._checks import Choice, InputError
from .._walk import Visit, visit
from ..layers import AbstractLayer, Affine, RandomAffine

Factor = Any  # a number, or a scalar array where the network's own numbers are arrays


class Rule(Choice):
    """What the size of an update depends on: see `learning_rates`."""

    SGD = "sgd"
    ADAM = "adam"


def learning_rates(net: AbstractLayer, params: Any, rule: str = "sgd") -> Any:
    """A factor on the learning rate for every parameter, as a tree like `params`.

    With these factors one learning rate is right at every width. In the table `n` is the fan-in of hidden and readout
    weights, and the number of channels after input weights and biases; `n_in n_out` counts hidden channels only.

    | `sgd` | input | hidden | readout | bias |
    | --- | --- | --- | --- | --- |
    | `ntk` | 1 | 1 | 1 | 1 |
    | `mean_field` | `n` | `n` | `n` | `n` |

    | `adam` | input | hidden | readout | bias |
    | --- | --- | --- | --- | --- |
    | `ntk` | `(n_in n_out)^-1/2` | the same | the same | `n_out^-1/2` |
    | `mean_field` | 1 | `n^-1/2` | 1 | 1 |

    - `standard` and `mup` draw weights of size `s` where `ntk` and `mean_field` have a factor `s` in front. Their
      factors are those of `ntk` and `mean_field` times `s^2` (sgd) or `s` (adam), so that **standard training is ntk
      training, and mup training is mean_field training**, step by step, from the same draw.
    - In `standard` that is `w_std^2 / fan_in` for weights and `b_std^2` for biases. In `mup` it is, up to factors that
      do not depend on the width, the table of Yang et al.: `n`, 1, `1 / n` for input, hidden and readout weights (sgd),
      and 1, `1 / n`, `1 / n` (adam).
    - Where no hidden channels are read or fed (a bias of the output, a layer on the data that is the output), `n` is 1.
    - Frozen parameters have the factor 0.

    Features move in `mean_field` and `mup`; in `ntk` and `standard` they do not, and a wide network is linear in its
    parameters.

    Args:
        net: the network; containers of yours are opened by their `parts()`.
        params: what `net.init` returned, or a tree like it.
        rule: `"sgd"` where an update is proportional to the gradient (plain, with momentum, averaged), `"adam"` where
            it does not depend on the gradient's size (Adam, RMSProp, Lion, sign descent).

    Returns:
        A tree like `params`, with a number in place of every array.

    >>> import everwide as ew, everwide.optim, jax
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> params = net.init(jax.random.key(0), (3,), width=64, parametrization="mup")
    >>> rates = everwide.optim.learning_rates(net, params)
    >>> rates[2].weight * 64
    1.0

    Yang, Hu, "Feature learning in infinite-width neural networks" (2021); Yang et al., "Tensor Programs V" (2022).
    """
    return _rates(visit(net), params, Rule(rule))


def scale_by_parametrization(net: AbstractLayer, rule: str = "sgd") -> optax.GradientTransformation:
    """Multiply updates by the `learning_rates` of a network's parameters.

    Chain it after the optimizer: Adam forgets the size of what comes in, and heeds what is done to what comes out.
    The parameters say which parametrization they are in.

    Args:
        net: the network.
        rule: as in `learning_rates`.

    Returns:
        A step for `optax.chain`.

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
        rates = learning_rates(net, updates, chosen)
        return jax.tree.map(lambda update, rate: update * jnp.asarray(rate, update.dtype), updates, rates), state

    return optax.GradientTransformation(init, update)


def _rates(at: Visit, params: Any, rule: Rule) -> Any:
    if at.parts.join:
        inside = at.inside() * (2 if at.parts.join == "repeat" else 1)
        _matching(at, params, len(inside))
        return tuple(_rates(one, p, rule) if jax.tree.leaves(p) else p for one, p in zip(inside, params, strict=True))
    if not jax.tree.leaves(params):
        return params
    weights = at.layer.weights()
    if isinstance(params, Affine) and len(weights) == 1:
        return _affine_rates(next(iter(weights.values())), params, rule)
    if weights and all(isinstance(getattr(params, field, None), Affine) for field in weights):
        rates = [_affine_rates(affine, getattr(params, field), rule) for field, affine in weights.items()]
        return eqx.tree_at(lambda p: [getattr(p, field) for field in weights], params, rates)
    raise InputError(
        f"The learning rates of {at.place} are not known: its parameters are {type(params).__name__}, and not those of "
        "its weights(). Give its part of the tree factors of your own, and use learning_rates for the other layers."
    )


def _matching(at: Visit, params: Any, parts: int) -> None:
    given = f"tuple of {len(params)}" if isinstance(params, tuple) else type(params).__name__
    if given != f"tuple of {parts}":
        raise InputError(
            f"{at.place} has {parts} parts, but its parameters are a {given}. "
            "Pass what net.init returned for this network, or a tree like it."
        )


def _affine_rates(affine: RandomAffine, params: Affine, rule: Rule) -> Affine:
    """Factors in place of the weight and the bias; what is missing (masked trees) stays missing."""
    fans = params.fans
    moved = 0.0 if affine.frozen else 1.0 if rule is Rule.SGD else affine.speed**0.5  # its gradients know half of it
    weight = moved * _unit_rate(fans, rule, fans.reads_hidden) * _drawn_size(affine.w_std * fans.size, fans, rule)
    bias = None
    if affine.b_std is not None:
        bias = moved * _unit_rate(fans, rule, reads_hidden=False) * _drawn_size(affine.b_std, fans, rule)

    def filled(old, new):
        return jax.tree.map(lambda _: new, old)

    leaves = (filled(params.weight, weight), filled(params.bias, bias))
    return eqx.tree_at(lambda p: (p.weight, p.bias), params, leaves, is_leaf=lambda leaf: leaf is None)


def _drawn_size(size: Factor, fans: Any, rule: Rule) -> Factor:
    """What is drawn `size` times as large must move `size` times as far, and has gradients `1 / size` as large."""
    if not fans.parametrization.in_weights:
        return 1.0
    return size * size if rule is Rule.SGD else size


def _unit_rate(fans: Any, rule: Rule, reads_hidden: bool) -> float:
    """Of what is drawn with unit variance. A bias is a weight that reads no hidden channels."""
    n_in, n_out = fans.fan_in if reads_hidden else 1, fans.fan_out if fans.feeds_hidden else 1
    if not fans.parametrization.learns_features:
        return 1.0 if rule is Rule.SGD else (n_in * n_out) ** -0.5
    if rule is Rule.SGD:
        return float(n_in if reads_hidden else n_out)
    return n_in**-0.5 if fans.feeds_hidden else 1.0
