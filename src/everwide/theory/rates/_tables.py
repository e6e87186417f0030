"""Which layer learns at which rate, and how rates scale with width and depth."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ..._checks import InputError, finite_array, positive, whole
from ...layers import AbstractLayer
from ...signal import Parametrization

_LOOKED_AT = (2**16, 2**28)  # steps at which a schedule is read: beyond its warm-up, within 32 bits
_FEWEST = 16
_NEAR = 0.03  # of an exponent


class LayerRate(NamedTuple):
    """The learning rate of one parameter at one width."""

    width: int
    parameter: str
    shape: tuple[int, ...]
    factor: float
    rate: float


class ScheduleCheck(NamedTuple):
    """Made by `schedule_check`."""

    exponent: float
    limit: float
    sum_diverges: bool
    squares_converge: bool

    @property
    def holds(self) -> bool:
        """Both."""
        return self.sum_diverges and self.squares_converge


def rate_table(
    net: AbstractLayer,
    input_shape: tuple[int, ...],
    widths: Sequence[int],
    *,
    rate: float = 1.0,
    rule: str = "sgd",
    parametrization: Parametrization | str = Parametrization.NTK,
    over_depth: bool = False,
) -> tuple[LayerRate, ...]:
    """The learning rate of every weight and bias, at each width, so that training does not depend on the width.

    A network with `L` hidden layers has a kernel, and so a largest eigenvalue, that grows in proportion to `L + 1`:
    `stable_rates` measures it. With `over_depth` the rates are divided by it, and one rate is right at every depth:
    `rate / (n_in (L + 1))` for weights in the standard parametrization. Needs the extra `train`.

    Args:
        net: the network.
        input_shape: of one example.
        widths: of layers that leave theirs open.
        rate: the rate in the NTK (or mean field) parametrization, such as `stable_rates(...).gradient_descent`.
        rule: "sgd" or "adam", as in `everwide.optim.learning_rates`, which has the table and its sources.
        parametrization: of the network.
        over_depth: divide by the number of trained weight matrices, `L + 1`.

    Returns:
        A row for each width and parameter: `width`, `parameter` (its path in what `net.init` returns), `shape`,
        `factor`, and `rate`, their product.

    >>> import everwide as ew
    >>> from everwide.theory import rates
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> table = rates.rate_table(net, (3,), [64, 128], parametrization="mup")
    >>> [round(row.factor * row.width, 3) for row in table[1::2]]
    [1.0, 1.0]
    """
    from ...optim import learning_rates

    rows, base = [], positive(rate, "rate_table: rate")
    shape = tuple(whole(n, "input_shape") for n in np.ravel(input_shape).tolist())
    for width in (whole(width, "widths") for width in widths):
        key = jax.random.key(0)
        params = eqx.filter_eval_shape(net.init, key, shape, width=width, parametrization=parametrization)
        factors = jax.tree.leaves_with_path(learning_rates(net, params, rule))
        named = [(jax.tree_util.keystr(path), float(factor)) for path, factor in factors]
        layers = sum(name.endswith(".weight") and factor > 0 for name, factor in named) if over_depth else 1
        for (name, factor), leaf in zip(named, jax.tree.leaves(params), strict=True):
            rows.append(LayerRate(width, name, leaf.shape, factor / layers, factor / layers * base))
    return tuple(rows)


def schedule_check(schedule: Any) -> ScheduleCheck:
    """Do these learning rates lead to rest in spite of noisy gradients? Their sum must diverge, that of squares not.

    Judged by the power of the step with which rates fall, `rate ~ step^-exponent`: between 1/2, exclusive, and 1. At a
    constant rate, noise of covariance `C` leaves a quadratic loss at `rate tr C / 4`, for small rates.

    Args:
        schedule: a function of the step, as in optax, or an array of rates, one for each step.

    Returns:
        `exponent`, over the last doublings of the step; `limit`: the last rate; `sum_diverges`, `squares_converge`,
        and `holds`, both.

    >>> import numpy as np
    >>> from everwide.theory import rates
    >>> rates.schedule_check(lambda step: 0.1 / (1 + step)).holds
    True
    >>> rates.schedule_check(np.full(1000, 0.1)).squares_converge
    False

    Robbins and Monro 1951, A stochastic approximation method.
    """
    steps = _LOOKED_AT if callable(schedule) else (np.size(schedule) // 4, np.size(schedule))
    rates = finite_array([schedule(step) for step in steps] if callable(schedule) else schedule, "schedule")
    if rates.ndim != 1 or steps[1] < _FEWEST:
        raise InputError(f"schedule has shape {rates.shape}: expected one rate for each of {_FEWEST} or more steps.")
    first, last = float(rates[0 if callable(schedule) else steps[0] - 1]), float(rates[-1])
    if min(first, last) < 0:
        raise InputError(f"schedule: expected rates of 0 or more, got {min(first, last):.6g}.")
    exponent = math.log(first / last) / math.log(steps[1] / steps[0]) if first > 0 and last > 0 else math.inf
    return ScheduleCheck(exponent, last, exponent <= 1 + _NEAR, exponent > 0.5 + _NEAR)
