"""Ways to train the MLP blocks of a transformer, and ways to train all the rest."""

import enum
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import optax

from everwide.optim import adam_star

from ._transformer import Transformer

B1, B2, EPS = 0.9, 0.999, 1e-8
MOMENTUM = 0.9
FACTOR = math.sqrt(10)  # between the points of a grid of rates
MOST = 7  # points of a grid


class Rest(enum.StrEnum):
    """What trains everything outside the MLP blocks, in every arm.

    >>> from everwide_lab.sernau2024 import Rest
    >>> Rest("momentum").name
    'MOMENTUM'
    """

    ADAM = "adam"
    SGD = "sgd"
    MOMENTUM = "momentum"


class Arm(enum.StrEnum):
    """What is trained in an MLP block, and by what.

    >>> from everwide_lab.sernau2024 import Arm
    >>> Arm.FROZEN_ADAM_STAR.frozen
    True
    """

    TRAINED = "trained"
    FROZEN_ADAM = "frozen, ADAM"
    FROZEN_SGD = "frozen, SGD"
    FROZEN_MOMENTUM = "frozen, momentum"
    FROZEN_ADAM_STAR = "frozen, ADAM*"
    STILL = "read-outs still"

    @property
    def frozen(self) -> bool:
        """Do the features stay as they were drawn?"""
        return self is not Arm.TRAINED

    def readout_rate(self, rate: Any, width: int) -> Any:
        """The rate of `M` in `f = features . M / sqrt(width)` with which `f` moves alike at every width.

        Steps of ADAM do not shrink with the gradient, which does with the width: hence the root. As `to_finite`.
        """
        return rate if self in (Arm.FROZEN_SGD, Arm.FROZEN_MOMENTUM) else rate * width**-0.5


class Rates(NamedTuple):
    """Learning rates: of the read-outs, as functions of any width; of all outside the MLP blocks; of the features.

    >>> from everwide_lab.sernau2024 import Rates
    >>> Rates(readout=0.1, rest=0.003).features
    0.0
    """

    readout: float
    rest: float
    features: float = 0.0


class Role(enum.StrEnum):
    """Of a parameter."""

    FEATURES = "features"
    READOUT = "readout"
    REST = "rest"


def roles(model: Transformer) -> Any:
    """A tree like the model, with a role for each parameter."""
    names = jax.tree.map(lambda _: Role.REST, model)
    names = eqx.tree_at(_features, names, replace_fn=lambda _: Role.FEATURES)
    return eqx.tree_at(_readouts, names, replace_fn=lambda _: Role.READOUT)


def _features(model: Transformer) -> list[Any]:
    return [p for block in model.blocks for p in (block.mlp.features.weight, block.mlp.features.bias)]


def _readouts(model: Transformer) -> list[Any]:
    return [block.mlp.readout for block in model.blocks]


def optimizer(arm: Arm, rest: Rest, rates: Any, width: int, schedule: optax.Schedule) -> Any:
    """Of one arm; `rates` (readout, rest, features) are numbers, or traced numbers, times those of the schedule."""
    readout_rate, rest_rate, features_rate = rates
    adam = adam_star(1.0, B1, B2, EPS, width_axes=())  # without axes to average: ADAM, and strict about dtypes
    sgd, momentum, still = optax.sgd(1.0), optax.sgd(1.0, MOMENTUM), optax.set_to_zero()
    others = {Rest.ADAM: adam, Rest.SGD: sgd, Rest.MOMENTUM: momentum}[rest]
    directions = {
        Arm.FROZEN_SGD: sgd,
        Arm.FROZEN_MOMENTUM: momentum,
        Arm.FROZEN_ADAM_STAR: adam_star(1.0, B1, B2, EPS, width_axes=0),
        Arm.STILL: still,
    }
    rules: dict[Any, Any] = {
        Role.REST: optax.chain(others, optax.scale(rest_rate)),
        Role.FEATURES: still if arm.frozen else optax.chain(adam, optax.scale(features_rate)),
        Role.READOUT: optax.chain(directions.get(arm, adam), optax.scale(arm.readout_rate(readout_rate, width))),
    }
    return optax.chain(optax.multi_transform(rules, roles), optax.scale_by_schedule(schedule))


class Choice(NamedTuple):
    """The best rate of a grid, all that was tried, and whether the best lies inside."""

    rate: float
    tried: dict[float, float]  # rate: loss
    inside: bool


def tune(loss: Callable[[float], float], first: float, most: int = MOST) -> Choice:
    """Try `first` and its neighbours, then go on towards the best until there are worse rates on both sides of it.

    Rates that diverge have an infinite loss: where all do, the grid grows downwards.
    """
    tried = {power: loss(_rate(first, power)) for power in (-1, 0, 1)}
    best = _best(tried)
    while best in (min(tried), max(tried)) and len(tried) < most:
        power = best + 1 if best == max(tried) else best - 1
        tried[power] = loss(_rate(first, power))
        best = _best(tried)
    inside = min(tried) < best < max(tried)
    return Choice(_rate(first, best), {_rate(first, p): tried[p] for p in sorted(tried)}, inside)


def _best(tried: dict[int, float]) -> int:
    return min(tried, key=lambda power: (tried[power], power))


def _rate(first: float, power: int) -> float:
    """Four digits are enough, and look the same in every file."""
    return float(f"{first * FACTOR**power:.4g}")
