"""How many linear regions a ReLU network of a given shape can have. Whole numbers of any size."""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ..._checks import InputError, hidden_widths, whole


def max_regions(inputs: int, widths: Sequence[int]) -> int:
    """No ReLU network with these hidden widths has more linear regions: an upper bound, reached by one hidden layer.

    With one hidden layer it is `sum_{j <= inputs} C(width, j)` (Zaslavsky). With more, a region on which few units of a
    layer are active has an image of few dimensions, which later layers cut into few pieces.

    >>> from everwide.theory import regions
    >>> regions.max_regions(2, [7]), regions.max_regions(1, [3, 3]), regions.max_regions(2, [4, 4])
    (29, 16, 121)

    Serra, Tjandraatmadja and Ramalingam, "Bounding and counting linear regions of deep neural networks" (2018).
    """
    dimension, layers = _shape(inputs, widths)
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


def reachable_regions(inputs: int, widths: Sequence[int]) -> int:
    """Some ReLU network with these hidden widths has at least so many linear regions: a lower bound of the maximum.

    Every layer but the last folds its input `floor(width / inputs)` times along each of the `inputs` axes.

    >>> from everwide.theory import regions
    >>> regions.reachable_regions(2, [7]), regions.reachable_regions(1, [3, 3]), regions.reachable_regions(2, [4, 4])
    (29, 12, 44)

    Montufar, Pascanu, Cho and Bengio, "On the number of linear regions of deep neural networks" (2014).
    """
    dimension, layers = _shape(inputs, widths)
    if any(n < dimension for n in layers[:-1]):
        raise InputError(
            f"widths={list(widths)!r}: the construction needs layers at least as wide as the {dimension} inputs. "
            "max_regions has no such condition."
        )
    folds = math.prod((n // dimension) ** dimension for n in layers[:-1])
    return folds * sum(math.comb(layers[-1], j) for j in range(dimension + 1))


def _shape(inputs: Any, widths: Any) -> tuple[int, list[int]]:
    dimension, layers = whole(inputs, "inputs"), hidden_widths(widths)
    if not layers:
        raise InputError(f"widths={widths!r}: expected one or more hidden layers, as in [7].")
    return dimension, list(layers)
