"""The mean tangent kernel of finite ReLU networks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, finite_array, layer_widths
from ..._gram import ntk
from ...activations import Relu
from ...layers import Dense, Serial


def expected_ntk(widths: Sequence[int], x: Any) -> Float[np.ndarray, "n n"]:
    """The mean over random weights of a finite ReLU network's tangent kernel, for one output. In float64.

    The network has no biases, weights in He's initialization and the NTK parametrization:
    `z' = sqrt(2 / n) W relu(z)`, `W` standard normal.

    - The diagonal, `2 (hidden layers + 1) |x|^2 / inputs`, is exact at every width.
    - The rest is that of the infinite network: exact at every width with one hidden layer, since neurons are
      independent there; with more, each is off by `O(1 / width)`.

    How far one network is from the mean: `ntk_fluctuation`.

    - `widths`: of all layers, from the inputs to the outputs. `x`: `(n, inputs)`.

    >>> import numpy as np

    >>> from everwide.theory import finite_width
    >>> finite_width.expected_ntk((2, 5, 1), np.eye(2)).round(4)
    array([[2.    , 0.3183],
           [0.3183, 2.    ]])

    Jacot, Gabriel and Hongler 2018, Neural tangent kernel; Cho and Saul 2009, Kernel methods for deep learning.
    """
    layers, rows = layer_widths(widths), finite_array(x, "x")
    if rows.ndim != 2 or rows.shape[1] != layers[0] or not len(rows):
        raise InputError(f"x has shape {rows.shape}, expected (n, {layers[0]}): as many inputs as widths={widths} say.")
    dense = Dense(w_std=2**0.5)
    hidden = [layer for _ in layers[1:-1] for layer in (dense, Relu())]
    return ntk(Serial(*hidden, Dense(1, w_std=2**0.5)), rows)
