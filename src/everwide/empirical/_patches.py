"""What a convolution sees at every site."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


class Window(NamedTuple):
    """The geometry of a convolution; `axes` are those of the data: examples, channels, then space."""

    axes: tuple[int, ...]
    size: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    data_dilation: tuple[int, ...]
    dilation: tuple[int, ...]


def patches(data: Array, window: Window) -> Array:
    """`(sites, taps, channels)`: one strided slice of the padded data for each tap."""
    examples, channels, *space = window.axes
    data = data.transpose(examples, *space, channels)
    inner = [
        (low, high, dilation - 1) for (low, high), dilation in zip(window.padding, window.data_dilation, strict=True)
    ]
    data = lax.pad(data, jnp.zeros((), data.dtype), [(0, 0, 0), *inner, (0, 0, 0)])
    strides = (1, *window.strides, 1)

    def tap(offset: tuple[int, ...]) -> Array:
        start = [o * d for o, d in zip(offset, window.dilation, strict=True)]
        stop = [s + (n - 1) * step + 1 for s, n, step in zip(start, window.out, window.strides, strict=True)]
        return lax.slice(data, (0, *start, 0), (data.shape[0], *stop, data.shape[-1]), strides)

    found = jnp.stack([tap(offset) for offset in np.ndindex(*window.size)], axis=-2)
    return found.reshape(-1, *found.shape[-2:])
