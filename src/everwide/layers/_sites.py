"""Sites: who needs them, and fixed linear maps of them (indexing, resizing, any matrix)."""

from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._trees import name
from ..kernel import Example, Kernel
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._base import AbstractFixed, AbstractLayer, Params

Item = int | slice
Steps = Sequence[tuple[int, Array | np.ndarray]]  # site axes, and the matrices along them


def needs_sites(layer: AbstractLayer, signal: Signal, axes: int | None = None) -> None:
    """Raise unless the signal has site axes (`axes` of them, if given)."""
    have = len(signal.sites)
    if (axes is None and have == 0) or (axes is not None and have != axes):
        expected = "at least one site axis" if axes is None else f"{axes} site axes"
        raise ArchitectureError(
            f"{name(layer)} needs {expected}, got an input of shape {signal.shape} "
            f"({have} site axes, channels last). Reshape the data to (n, *sites, channels)."
        )


class Index(AbstractFixed):
    """Slices of the site axes, as in `x[1:4, ::2]`; an integer drops its axis.

    >>> import everwide as ew
    >>> last_token = ew.layers.Index(-1)
    >>> corner = ew.layers.Index(slice(0, 8), slice(0, 8))
    """

    items: tuple[Item, ...] = eqx.field(static=True)

    def __init__(self, *items: Item):
        self.items = items

    def describe(self, signal: Signal) -> Signal:
        if len(self.items) > len(signal.sites):
            raise ArchitectureError(
                f"Index{self.items} has {len(self.items)} items, the input of shape {signal.shape} has "
                f"{len(signal.sites)} site axes. Channels cannot be indexed: they are independent copies."
            )
        try:
            sites = np.empty(signal.sites, bool)[self.items].shape
        except IndexError as fault:
            raise ArchitectureError(f"Index{self.items} on sites of shape {signal.sites}: {fault}.") from None
        if 0 in sites:
            raise ArchitectureError(f"Index{self.items} leaves no sites of {signal.sites}. Widen the slices.")
        return signal.reshaped(sites, signal.channels)

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def forward(self, params: Params, example: Example) -> Example:
        mask = None if example.mask is None else example.mask[self.items]
        return replace(example, x=example.x[self.items], mask=mask)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        left = (*self.items, *(slice(None),) * (k.rank - len(self.items)))

        def pick(a, pairs):
            return a[(*left, *left)] if pairs is Pairs.ALL_SITES else a[left]

        k = k.each(lambda c: c.map(pick)).means(lambda m: m[left]).masks(lambda m: m[left])
        return replace(k, sites=np.empty(k.sites, bool)[left].shape)


def Crop(*margins: tuple[int, int]) -> Index:  # noqa: N802 - reads as a layer, like the others
    """Cut `(low, high)` sites off the ends of each site axis.

    >>> import everwide as ew
    >>> inner = ew.layers.Crop((1, 1), (0, 2))
    """
    return Index(*(slice(low, -high if high else None) for low, high in margins))


class SiteMap(AbstractFixed):
    """A fixed linear map along one site axis: `matrix` is `(out, in)`, or `(in,)` to sum the axis away.

    >>> import everwide as ew, numpy as np
    >>> difference = ew.layers.SiteMap(np.array([1.0, -1.0]), axis=0)
    """

    matrix: Float[Array | np.ndarray, "..."]
    axis: int = eqx.field(static=True)

    def __init__(self, matrix: Array | np.ndarray | Sequence, *, axis: int = 0):
        self.matrix = matrix if isinstance(matrix, jax.Array) else np.asarray(matrix, float)
        self.axis = axis
        if self.matrix.ndim not in (1, 2):
            raise ArchitectureError(f"SiteMap needs a matrix (out, in) or a vector (in,), got {self.matrix.shape}.")

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal)
        rank = len(signal.sites)
        if not -rank <= self.axis < rank or signal.sites[self.axis] != self.matrix.shape[-1]:
            raise ArchitectureError(
                f"SiteMap with a matrix of shape {self.matrix.shape} along axis {self.axis} needs "
                f"{self.matrix.shape[-1]} sites there, got sites of shape {signal.sites}."
            )
        return signal.reshaped(_mapped_sites(signal.sites, self._steps(rank)), signal.channels)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.all_sites()

    def forward(self, params: Params, example: Example) -> Example:
        return map_example(example, self._steps(example.x.ndim - 1))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        return map_kernel(k, self._steps(k.rank))

    def _steps(self, rank: int) -> list[tuple[int, Array | np.ndarray]]:
        return [(self.axis % rank, self.matrix)]


class Resize(AbstractFixed):
    """Interpolate the sites to another shape, as `jax.image.resize` does; `-1` keeps an axis.

    >>> import everwide as ew
    >>> half = ew.layers.Resize((16, 16), method="linear")
    """

    shape: tuple[int, ...] = eqx.field(static=True, converter=tuple)
    method: str = eqx.field(static=True, kw_only=True, default="linear")
    antialias: bool = eqx.field(static=True, kw_only=True, default=True)

    def __check_init__(self) -> None:
        known = ("nearest", "linear", "bilinear", "trilinear", "triangle", "cubic", "bicubic", "tricubic")
        if self.method not in (*known, "lanczos3", "lanczos5"):
            raise ArchitectureError(f"Resize(method={self.method!r}): expected one of {known} or lanczos3, lanczos5.")
        if any(s < 1 and s != -1 for s in self.shape):
            raise ArchitectureError(f"Resize(shape={self.shape}): expected positive sizes, or -1 to keep an axis.")

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal, len(self.shape))
        sites = tuple(have if want == -1 else want for have, want in zip(signal.sites, self.shape, strict=True))
        return signal.reshaped(sites, signal.channels)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.all_sites()

    def forward(self, params: Params, example: Example) -> Example:
        out = map_example(replace(example, mask=None), self._steps(example.x.shape[:-1]))
        return out if example.mask is None else replace(out, mask=self._mask(example.mask)).with_values(out.x)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        mask1, mask2 = k.mask1, k.mask2
        out = map_kernel(replace(k, mask1=None, mask2=None), self._steps(k.sites))
        return replace(out, mask1=mask1, mask2=mask2).masks(self._mask).masked()

    def _steps(self, sites: tuple[int, ...]) -> list[tuple[int, Array]]:
        pairs = enumerate(zip(sites, self.shape, strict=True))
        return [(axis, self._matrix(have, want)) for axis, (have, want) in pairs if want not in (-1, have)]

    def _matrix(self, have: int, want: int) -> Array:
        eye = jnp.eye(have)
        return jax.image.resize(eye, (want, have), self.method, antialias=self.antialias)

    def _mask(self, mask: Array) -> Array:
        """A site exists if the one nearest to it did."""
        shape = [m if s == -1 else s for m, s in zip(mask.shape, self.shape, strict=False)]
        return jax.image.resize(mask, (*shape, *mask.shape[len(self.shape) :]), "nearest")


def map_kernel(k: Kernel, steps: Steps) -> Kernel:
    """Apply matrices along site axes, to both sites of every pair."""
    sites, right = _mapped_sites(k.sites, steps), [(k.rank + axis, matrix) for axis, matrix in steps]
    k = k.each(lambda c: c.map(lambda a, _: _mapped(_mapped(a, right), steps)))
    k = k.means(lambda m: _mapped(m, steps)).masks(lambda m: _reached(m, steps))
    return replace(k, sites=sites).masked()


def map_example(example: Example, steps: Steps) -> Example:
    """The same at finite width."""
    mask = None if example.mask is None else _reached(example.mask, steps)
    return replace(example, mask=mask).with_values(_mapped(example.x, steps))


def _mapped(a: Array, steps: Steps) -> Array:
    """Contract each axis with the last one of its matrix; the result takes its place, or nobody does."""
    for axis, matrix in sorted(steps, key=lambda s: s[0], reverse=True):
        out = jnp.tensordot(jnp.asarray(matrix, a.dtype), a, (-1, axis))
        a = out if matrix.ndim == 1 else jnp.moveaxis(out, 0, axis)
    return a


def _reached(mask: Array, steps: Steps) -> Array:
    """A site exists if any site that contributes to it does."""
    touched = [(axis, jnp.asarray(matrix != 0, jnp.float32)) for axis, matrix in steps]
    return _mapped(mask.astype(jnp.float32), touched) > 0


def _mapped_sites(sites: tuple[int, ...], steps: Steps) -> tuple[int, ...]:
    out: list[int | None] = list(sites)
    for axis, matrix in steps:
        out[axis] = None if matrix.ndim == 1 else matrix.shape[0]
    return tuple(s for s in out if s is not None)
