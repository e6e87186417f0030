"""How many linear regions a ReLU network of a given shape can have, and the network that bends most for its size."""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._checks import InputError, whole
from ..._checks import hidden_widths as checked_widths
from ...activations import Relu
from ...layers import AbstractLayer, Dense, Serial


def max_regions(inputs: int, hidden_widths: Sequence[int], *, bound: str = "upper") -> int:
    """Bounds on the largest number of linear regions that a ReLU network of this shape can have.

    With one hidden layer both are `sum_{j <= inputs} C(width, j)` (Zaslavsky). With more, a region on which few units
    of a layer are active has an image of few dimensions, which later layers cut into few pieces.

    Args:
        inputs: the dimension of the inputs.
        hidden_widths: one for each hidden layer.
        bound: `"upper"`: no such network has more; `"lower"`: some such network has so many, by folding.

    Returns:
        A whole number, of any size.

    >>> from everwide.theory import regions
    >>> regions.max_regions(2, [7]), regions.max_regions(1, [3, 3]), regions.max_regions(2, [4, 4])
    (29, 16, 121)
    >>> regions.max_regions(1, [3, 3], bound="lower"), regions.max_regions(2, [4, 4], bound="lower")
    (12, 44)

    Serra, Tjandraatmadja and Ramalingam, "Bounding and counting linear regions of deep neural networks" (2018);
    Montufar, Pascanu, Cho and Bengio, "On the number of linear regions of deep neural networks" (2014).

    """
    dimension, layers = _shape(inputs, hidden_widths)
    if bound not in ("upper", "lower"):
        raise InputError(f"bound={bound!r}: expected 'upper' or 'lower'.")
    if bound == "lower":
        return _reached(layers, dimension)
    # after[d]: pieces that the later layers can make of an image of d dimensions
    after = [1] * (dimension + 1)
    for n in reversed(layers):
        after = _one_layer_more(n, after)
    return after[dimension]


def _one_layer_more(n: int, after: list[int]) -> list[int]:
    """`sum_{j <= min(d, n)} C(n, j) after[min(d, n - j)]` for each `d`; `j` units are off."""
    top = len(after) - 1
    choose = [math.comb(n, j) for j in range(min(n, top) + 1)]
    plain = [0, *accumulate(choose)]
    # the same binomials, by the units that are on: k = n - j
    narrowed = [0, *accumulate(choose[k] * after[k] for k in range(len(choose)))]

    def pieces(d: int) -> int:
        most = min(d, n)
        full = min(most, n - d)  # so many may be off, and all d dimensions are left
        whole = after[d] * plain[full + 1] if full >= 0 else 0
        first, end = n - most, min(d, n + 1)
        return whole + (narrowed[end] - narrowed[first] if end > first else 0)

    return [pieces(d) for d in range(top + 1)]


def _reached(widths: list[int], dimension: int) -> int:
    """Every layer but the last folds its input `floor(width / inputs)` times along each of the `inputs` axes."""
    if any(n < dimension for n in widths[:-1]):
        raise InputError(
            f"hidden_widths={widths!r}: the construction needs layers at least as wide as the {dimension} inputs. The "
            "upper bound has no such condition."
        )
    folds = math.prod((n // dimension) ** dimension for n in widths[:-1])
    return folds * sum(math.comb(widths[-1], j) for j in range(dimension + 1))


def _shape(inputs: Any, widths: Any) -> tuple[int, list[int]]:
    dimension, layers = whole(inputs, "inputs"), checked_widths(widths)
    if not layers:
        raise InputError(f"hidden_widths={widths!r}: expected one or more hidden layers, as in [7].")
    return dimension, list(layers)


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
    times = whole(depth, "depth")
    net = Serial(*(Dense(2, b_std=1.0), Relu(), Dense(1), Relu()) * times, Dense(1))
    # in the standard parametrization factors are 1: what is given is what acts
    drawn = eqx.filter_eval_shape(lambda key: net.init(key, (1,), parametrization="standard"), jax.random.key(0))
    leaves = [[[1.0, 1.0]], [0.0, -0.5], [[2.0], [-4.0]]] * times + [[[1.0]]]
    dtype = jnp.result_type(float)
    return net, jax.tree.unflatten(jax.tree.structure(drawn), [jnp.asarray(a, dtype) for a in leaves])
