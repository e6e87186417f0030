"""Four ways to train the MLP blocks of a transformer; all the rest is trained by ADAM in each of them."""

import enum
from typing import Any, NamedTuple

import equinox as eqx
import jax
import optax

from everwide.optim import adam_star

from ._transformer import Transformer

B1, B2, EPS = 0.9, 0.999, 1e-8


class Arm(enum.StrEnum):
    """What is trained in an MLP block, and by what.

    >>> from everwide_lab.sernau2024 import Arm
    >>> Arm.FROZEN_ADAM_STAR.frozen
    True
    """

    TRAINED = "trained"
    FROZEN_ADAM = "frozen, ADAM"
    FROZEN_SGD = "frozen, SGD"
    FROZEN_ADAM_STAR = "frozen, ADAM*"

    @property
    def frozen(self) -> bool:
        """Do the features stay as they were drawn?"""
        return self is not Arm.TRAINED

    def readout_rate(self, rate: Any, width: int) -> Any:
        """The rate of `M` in `f = features . M / sqrt(width)` with which `f` moves alike at every width.

        Steps of ADAM do not shrink with the gradient, which does with the width: hence the root. As `to_finite`.
        """
        return rate if self is Arm.FROZEN_SGD else rate * width**-0.5


class Rates(NamedTuple):
    """Learning rates: of the read-outs, as functions of any width; of all that is trained outside of them.

    >>> from everwide_lab.sernau2024 import Rates
    >>> Rates(readout=0.1, rest=0.003).rest
    0.003
    """

    readout: float
    rest: float


class Role(enum.StrEnum):
    """Of a parameter."""

    FEATURES = "features"
    READOUT = "readout"
    REST = "rest"


def roles(model: Transformer) -> Any:
    """A tree like the model, with a role for each parameter."""
    features = lambda m: [p for block in m.blocks for p in (block.mlp.features.weight, block.mlp.features.bias)]
    readouts = lambda m: [block.mlp.readout for block in m.blocks]
    names = jax.tree.map(lambda _: Role.REST, model)
    names = eqx.tree_at(features, names, replace_fn=lambda _: Role.FEATURES)
    return eqx.tree_at(readouts, names, replace_fn=lambda _: Role.READOUT)


def optimizer(arm: Arm, readout_rate: Any, rest_rate: Any, width: int) -> optax.GradientTransformation:
    """Of one arm; rates are numbers, or traced numbers."""
    adam = adam_star(1.0, B1, B2, EPS, width_axes=())  # without axes to average: ADAM, and strict about dtypes
    rest = optax.chain(adam, optax.scale(rest_rate))
    directions = {
        Arm.FROZEN_SGD: optax.sgd(1.0),
        Arm.FROZEN_ADAM_STAR: adam_star(1.0, B1, B2, EPS, width_axes=0),
    }
    direction = directions.get(arm, adam)
    readout = optax.chain(direction, optax.scale(arm.readout_rate(readout_rate, width)))
    features = optax.set_to_zero() if arm.frozen else rest
    return optax.multi_transform({Role.REST: rest, Role.FEATURES: features, Role.READOUT: readout}, roles)
