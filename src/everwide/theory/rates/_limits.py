"""Where networks of finite width were seen to diverge."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._checks import InputError
from ..._engine import as_rows
from ..._walk import walk
from ...activations import AbstractActivation
from ...empirical import ntk_operator
from ...layers import AbstractLayer
from ...spectral import Spectrum

_FAR = 30.0  # where a bounded function is far below its argument
_DRAWN = 6
# Rates in units of n / lambda_max of the network's own kernel, the lowest and the highest that were seen, from so many
# hidden layers on (benchmarks/README.md). Functions that grow without end (ReLU, GELU) let the kernel shrink in time.
_GROWING = {1: (3.2, 7.0), 2: (8.0, 25.0), 4: (6.4, 35.0)}
_BOUNDED = {1: (3.0, 8.0)}
_PRODUCT = (4.0, 7.0)  # of several matrices, without functions between them
_FIXED = (2.0, 2.0)  # one matrix is trained, with nothing after it: the kernel cannot move


def multiples(net: Any) -> tuple[float, float]:
    """From where to where gradient descent on squares was seen to diverge; for what is no network, of all kinds."""
    if not isinstance(net, AbstractLayer):
        lows, highs = zip(*_GROWING.values(), *_BOUNDED.values(), _PRODUCT, strict=True)
        return min(lows), max(highs)
    visits = walk(net)
    acting = [place for place, at in enumerate(visits) if isinstance(at.layer, AbstractActivation)]
    trained = [place for place, at in enumerate(visits) for one in at.layer.weights().values() if not one.frozen]
    if len(trained) == 1 and trained[0] > max(acting, default=-1) and visits[trained[0]].times == 1:
        return _FIXED
    if not acting:
        return _PRODUCT
    depth = sum(visits[place].times for place in acting)
    kinds = [_GROWING if _grows(visits[place].layer) else _BOUNDED for place in acting]
    seen = [kind[max(least for least in kind if least <= depth)] for kind in kinds]
    return min(low for low, _ in seen), max(high for _, high in seen)


def _grows(activation: Any) -> bool:
    values = np.abs(np.asarray(activation(jnp.asarray([-_FAR, _FAR]))))
    return bool(values.max() > _FAR / 4)


def largest_of_width(net: Any, x: Any, width: int) -> float:
    """The mean of the largest eigenvalues of some networks of a width, all outputs together."""
    if not isinstance(net, AbstractLayer):
        raise InputError(f"width={width}: only a network has a width. Pass one, or net= beside its kernel, and x.")
    if x is None:
        raise InputError(f"width={width}: x is missing. Networks of that width are looked at on the examples.")
    rows = as_rows(x)
    if rows.mask is not None or rows.graph is not None:
        raise InputError(
            f"width={width}: expected examples without masks and graphs. Leave it out: rates are the limit's."
        )
    data = jnp.asarray(rows.x, float)
    values = []
    for key in jax.random.split(jax.random.key(0), _DRAWN):
        kernel = ntk_operator(net, net.init(key, data.shape[1:], width=width), data).linear_operator()
        values.append(Spectrum.largest(kernel.matvec, kernel.shape[0]))
    return float(np.mean(values))
