"""A finite network as a short program of affine maps, bends and branches, in float64 on the host."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import layers
from ..._checks import InputError
from ..._walk import Visit, visit
from ...activations import AbstractActivation
from ...kernel import Example
from ...layers import AbstractLayer, Affine, Dense
from ._law import Bend, bend_of

_AFFINE = layers.Conv, layers.ConvLocal, layers.ConvTranspose, layers.AvgPool, layers.SumPool, layers.GlobalAvgPool
_AFFINE += layers.GlobalSumPool, layers.Flatten, layers.Index, layers.Mirror, layers.SiteMap, layers.Resize


@dataclass(frozen=True)
class Matrix:
    """`x -> x weight + bias`, on the last axis."""

    weight: np.ndarray
    bias: np.ndarray
    place: str

    def __call__(self, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Of values with homogeneous coordinates `weight`, one for each row: a direction meets no bias."""
        if values.shape[-1] != len(self.weight):
            raise InputError(
                f"{self.place} takes {len(self.weight)} numbers, and got {values.shape[-1]}: the points and the "
                "parameters do not belong together."
            )
        return values @ self.weight + self.bias * along(weight, values.ndim)

    def error(self, values: np.ndarray, error: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Rounding of the outputs: that of the inputs, as if it were random, and that of this product."""
        terms = np.max(np.abs(values), 0) @ np.abs(self.weight) + np.abs(self.bias)
        return np.sqrt(error**2 @ self.weight**2) + np.finfo(np.float64).eps * terms


@dataclass(frozen=True)
class Forward:
    """Any other affine layer, by its own code."""

    layer: AbstractLayer
    params: Any

    def __call__(self, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
        size = 1 << max(0, len(values) - 1).bit_length()  # few different shapes: each is compiled
        padded = np.zeros((size + 1, *values.shape[1:]))
        padded[: len(values)] = values
        with jax.enable_x64(True):
            layer, params = jax.tree.map(_widened, (self.layer, self.params))
            out = np.asarray(jax.vmap(lambda x: layer.forward(params, Example(x)).x)(jnp.asarray(padded)))
        return out[: len(values)] + out[-1] * (along(weight, out.ndim) - 1)

    def error(self, values: np.ndarray, error: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The same for all outputs: as much as the values themselves grow."""
        largest = np.max(np.abs(out))
        growth = largest / max(float(np.max(np.abs(values))), np.finfo(np.float64).tiny)
        return np.full(out.shape, np.max(error) * growth + 8 * np.finfo(np.float64).eps * largest)


@dataclass(frozen=True)
class Branches:
    """Programs that read the same values; their outputs are added, or laid side by side along `axis`."""

    programs: tuple["Program", ...]
    axis: int | None

    def join(self, parts: list[np.ndarray]) -> np.ndarray:
        """Of values, which have one leading axis more than `axis` counts, or of directions."""
        return sum(parts[1:], parts[0]) if self.axis is None else np.concatenate(parts, self.axis)


Step = Matrix | Forward | Bend | Branches
Program = tuple[Step, ...]


def along(weight: np.ndarray, ndim: int) -> np.ndarray:
    """One number for each row, against values with `ndim` axes."""
    return weight.reshape(-1, *(1,) * (ndim - 1))


def program_of(net: AbstractLayer, params: Any) -> Program:
    """The program of a network; of an activation with a list of `(W, b)`, of the plain network between these."""
    if isinstance(net, AbstractActivation) and len(params):
        return _plain(net, params)
    return _through(visit(net), params)


def _through(at: Visit, params: Any) -> Program:
    layer, join = at.layer, at.parts.join
    if join == "repeat":
        (part,), (first, rest) = at.inside(), params
        others = [jax.tree.map(lambda a, i=i: a[i], rest) for i in range(at.parts.times - 1)]
        return sum((_through(part, one) for one in (first, *others)), ())
    if join in ("chain", "sum", "concat"):
        inside = _inside(at, params)
        axis = at.parts.axis
        if join == "concat":
            return (Branches(inside, -1 if axis is None else axis + 1 if axis >= 0 else axis - 1),)
        return sum(inside, ()) if join == "chain" else (Branches(inside, None),)
    if isinstance(layer, layers.Identity | layers.Dropout):
        return ()
    if isinstance(layer, Dense):
        return (_dense(layer, params, at.place),)
    if isinstance(layer, layers.Scale):
        return (Bend(np.zeros(0), np.full(1, float(layer.factor)), np.zeros(1)),)
    if isinstance(layer, _AFFINE):
        return (Forward(layer, params),)
    return (bend_of(at),)


def _inside(at: Visit, params: Any) -> tuple[Program, ...]:
    parts = at.inside()
    if not isinstance(params, Sequence) or len(params) != len(parts):
        raise InputError(f"{at.place} has {len(parts)} parts, and params do not. Pass what net.init returned.")
    return tuple(_through(part, one) for part, one in zip(parts, params, strict=True))


def _dense(layer: Dense, params: Any, place: str) -> Matrix:
    if not isinstance(params, Affine):
        raise InputError(f"{place} needs a weight, and params has none there. Pass what net.init returned.")
    weight = np.asarray(params.weight, np.float64)
    bias = np.zeros(weight.shape[-1]) if params.bias is None else np.asarray(params.bias, np.float64)
    if not params.fans.parametrization.in_weights:
        weight = weight * (float(layer.affine.w_std) * params.fans.size)
        bias = bias if layer.affine.b_std is None else bias * float(layer.affine.b_std)
    return Matrix(*_finite(weight, bias, place), place)


def _plain(activation: AbstractActivation, matrices: Any) -> Program:
    """`W` is `(out, in)` and `b` is `(out,)`, as in PyTorch; the activation acts between them."""
    steps: list[Step] = []
    bend = bend_of(visit(activation))
    for i, pair in enumerate(matrices):
        place = f"matrix {i}"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"{place}: expected a pair (W, b), got {type(pair).__name__}.")
        weight, bias = (np.asarray(a, np.float64) for a in pair)
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise InputError(
                f"{place}: expected W of shape (out, in) and b of shape (out,), got {weight.shape} and {bias.shape}."
            )
        steps += [bend] if i else []
        steps.append(Matrix(*_finite(weight.T, bias, place), place))
    return tuple(steps)


def _finite(weight: np.ndarray, bias: np.ndarray, place: str) -> tuple[np.ndarray, np.ndarray]:
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise InputError(f"The parameters of {place} hold numbers that are not finite. Training may have diverged.")
    return weight, bias


def _widened(a: Any) -> Any:
    is_float = isinstance(a, jax.Array | np.ndarray) and jnp.issubdtype(a.dtype, jnp.floating)
    return jnp.asarray(a, jnp.float64) if is_float else a
