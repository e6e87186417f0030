"""Sliding windows along site axes: their geometry, and sums over them."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .signal import ArchitectureError

Padding = str | tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Slide:
    """A window sliding along one axis of `size` sites: `out` positions, `low` and `high` sites of padding."""

    size: int
    window: int
    stride: int
    dilation: int
    low: int
    high: int
    circular: bool = False
    spread: int = 1  # distance between neighbouring input sites (transposed convolution)

    @property
    def reach(self) -> int:
        """Sites from the first to the last tap."""
        return (self.window - 1) * self.dilation + 1

    @property
    def spread_size(self) -> int:
        """Input sites after spreading; a circle keeps the gap after the last one."""
        return self.size * self.spread if self.circular else (self.size - 1) * self.spread + 1

    @property
    def out(self) -> int:
        """Number of positions of the window."""
        return (self.spread_size + self.low + self.high - self.reach) // self.stride + 1


def slides(
    layer: str,
    sites: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding: Padding,
) -> tuple[Slide, ...]:
    """Geometry of a window for every axis; raises if it does not fit."""
    out = []
    for axis, (size, w, s, d) in enumerate(zip(sites, window, strides, dilation, strict=True)):
        low, high = _amounts(padding, axis, size, (w - 1) * d + 1, s)
        slide = Slide(size, w, s, d, low, high, circular=padding == "CIRCULAR")
        if slide.out < 1:
            raise ArchitectureError(
                f"{layer}(window={tuple(window)}, dilation={tuple(dilation)}, padding={padding!r}) is larger than the "
                f"input: axis {axis} has {size} sites and {low + high} of padding, the window covers {slide.reach}. "
                "Use a smaller window or padding='SAME'."
            )
        out.append(slide)
    return tuple(out)


def _amounts(padding: Padding, axis: int, size: int, reach: int, stride: int) -> tuple[int, int]:
    if not isinstance(padding, str):
        return padding[axis]
    if padding == "VALID":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def transposed_slides(
    sites: Sequence[int], window: Sequence[int], strides: Sequence[int], dilation: Sequence[int], padding: Padding
) -> tuple[Slide, ...]:
    """Geometry of a transposed convolution: the input is spread by the stride, the window moves by one.

    Amounts as in `jax.lax.conv_transpose`.
    """
    out = []
    for axis, (size, w, s, d) in enumerate(zip(sites, window, strides, dilation, strict=True)):
        last = (w - 1) * d  # from the first tap to the last
        if not isinstance(padding, str):
            low, high = padding[axis]
        elif padding == "VALID":
            low, high = last, max(last, s - 1)
        else:
            total = last + s - 1
            low = last if s > last else -(-total // 2)
            # on a circle, the gap after the last site belongs to it already
            high = (last if padding == "CIRCULAR" else total) - low
        out.append(Slide(size, w, 1, d, low, high, circular=padding == "CIRCULAR", spread=s))
    return tuple(out)


def window_sum(a: Array, axes: tuple[int, ...], slide: Slide) -> Array:
    """Sum of `a` over the window, moving along all of `axes` together."""
    # Without the barrier XLA would compute what comes before once for every tap.
    a = lax.optimization_barrier(padded(a, axes, slide))
    total = None
    for tap in range(slide.window):
        start, limit, step = [0] * a.ndim, list(a.shape), [1] * a.ndim
        for axis in axes:
            start[axis] = tap * slide.dilation
            limit[axis] = start[axis] + (slide.out - 1) * slide.stride + 1
            step[axis] = slide.stride
        part = lax.slice(a, start, limit, step)
        total = part if total is None else total + part
    assert total is not None
    return total


def padded(a: Array, axes: tuple[int, ...], slide: Slide) -> Array:
    """Spread and pad `a` along `axes`."""
    if not slide.circular:
        return _pad(a, axes, slide.low, slide.high, slide.spread)
    a = _pad(a, axes, 0, slide.spread - 1, slide.spread) if slide.spread > 1 else a
    low, high = max(slide.low, 0), max(slide.high, 0)
    a = jnp.pad(a, [(low, high) if i in axes else (0, 0) for i in range(a.ndim)], mode="wrap")
    return _pad(a, axes, min(slide.low, 0), min(slide.high, 0), 1)


def _pad(a: Array, axes: tuple[int, ...], low: int, high: int, spread: int) -> Array:
    """Zeros around and between; less than none cuts off."""
    config = [(low, high, spread - 1) if i in axes else (0, 0, 0) for i in range(a.ndim)]
    return lax.pad(a, jnp.zeros((), a.dtype), config)


def centre_of_window(mask: Array, windows: Sequence[Slide]) -> Array:
    """A site exists after a window if the site under the window's centre does."""
    for axis, slide in enumerate(windows):
        centre = slide.low - (slide.reach - 1) // 2
        position = [max(0, min(slide.size - 1, (p * slide.stride - centre) // slide.spread)) for p in range(slide.out)]
        mask = jnp.take(mask, jnp.asarray(position), axis=axis)
    return mask


def per_axis(layer: str, field: str, value: int | Sequence[int] | None, axes: int, default: int = 1) -> tuple[int, ...]:
    """One positive number for every site axis."""
    values = (default,) * axes if value is None else (value,) * axes if isinstance(value, int) else tuple(value)
    if len(values) != axes or any(v < 1 for v in values):
        raise ArchitectureError(f"{layer}({field}={value!r}): expected {axes} positive integers, one for a site axis.")
    return values


def checked_padding(layer: str, padding: str | Sequence[Sequence[int]], axes: int) -> Padding:
    """`SAME`, `VALID`, `CIRCULAR`, or a pair `(low, high)` for every site axis."""
    if isinstance(padding, str):
        if padding.upper() in ("SAME", "VALID", "CIRCULAR"):
            return padding.upper()
    elif len(padding) == axes and all(len(pair) == 2 for pair in padding):
        return tuple((int(low), int(high)) for low, high in padding)
    raise ArchitectureError(
        f"{layer}(padding={padding!r}): expected 'SAME', 'VALID', 'CIRCULAR' or {axes} pairs (low, high)."
    )
