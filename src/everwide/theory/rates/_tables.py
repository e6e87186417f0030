"""Which layer learns at which rate, and how rates scale with width and depth."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from ..._checks import positive, whole
from ...layers import AbstractLayer
from ...signal import Parametrization
from ...training import max_learning_rate
from .._kernel_of import kernel_matrix


class LayerRate(NamedTuple):
    """The learning rate of one parameter at one width: `factor` times the one rate of the network.

    `parameter` is its path in what `net.init` returns.

    >>> from everwide.theory import rates
    >>> rates.LayerRate(64, "[0].weight", (3, 64), 1.0, 0.5).rate
    0.5
    """

    width: int
    parameter: str
    shape: tuple[int, ...]
    factor: float
    rate: float


class DepthRate(NamedTuple):
    """At one depth: the largest eigenvalue of the kernel, and the largest stable rate of gradient descent.

    >>> from everwide.theory import rates
    >>> rates.DepthRate(3, 2.0, 1.0).rate
    1.0
    """

    depth: int
    lambda_max: float
    rate: float


def rate_table(
    net: AbstractLayer,
    shape: tuple[int, ...],
    widths: Sequence[int],
    *,
    rate: float = 1.0,
    rule: str = "sgd",
    parametrization: Parametrization | str = Parametrization.NTK,
) -> tuple[LayerRate, ...]:
    """The learning rate of every weight and bias, at each width, so that training does not depend on the width.

    - `shape`: of one example. `rate`: the rate in the NTK (or mean field) parametrization, such as
      `stable_rates(...).gradient_descent`; it is the same at every width.
    - `rule`: "sgd" or "adam", as in `everwide.optim.learning_rates`, which has the table and its sources.

    A network with `L` hidden layers has a kernel, and so a largest eigenvalue, that grows in proportion to `L + 1`:
    `rates_by_depth` measures it. Needs the extra `train`.

    >>> import everwide as ew

    >>> from everwide.theory import rates
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> table = rates.rate_table(net, (3,), [64, 128], parametrization="mup")
    >>> [round(row.factor * row.width, 3) for row in table[1::2]]
    [1.0, 1.0]
    """
    from ...optim import learning_rates

    rows, base = [], positive(rate, "rate_table: rate")
    for width in (whole(width, "widths") for width in widths):
        draw = lambda key, width=width: net.init(key, shape, width=width, parametrization=parametrization)
        params = jax.eval_shape(draw, jax.random.key(0))
        factors = jax.tree.leaves_with_path(learning_rates(net, params, rule))
        leaves = jax.tree.leaves(params)
        for (path, factor), leaf in zip(factors, leaves, strict=True):
            label = jax.tree_util.keystr(path)
            rows.append(LayerRate(width, label, leaf.shape, float(factor), float(factor) * base))
    return tuple(rows)


def rates_by_depth(
    build: Callable[[int], AbstractLayer],
    depths: Sequence[int],
    x: Any,
) -> tuple[DepthRate, ...]:
    """The largest stable rate of gradient descent for networks of several depths, `build(depth)`.

    >>> import everwide as ew, numpy as np

    >>> from everwide.theory import rates
    >>> block = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu())
    >>> build = lambda depth: ew.Serial(ew.Repeat(block, depth), ew.Dense(1))
    >>> shallow, deep = rates.rates_by_depth(build, [1, 7], np.eye(3))
    >>> round(shallow.rate / deep.rate)
    5
    """
    found = []
    for depth in depths:
        matrix = kernel_matrix(build(int(depth)), x)
        rate = max_learning_rate(matrix)
        largest = 2 * len(matrix) / rate
        found.append(DepthRate(int(depth), largest, rate))
    return tuple(found)
