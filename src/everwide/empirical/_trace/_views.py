"""Views of a parameter leaf: transposed, reshaped, sliced, broadcast, scaled, but not yet mixed with data.

Which entries of the leaf a view shows, and in which order, is what numpy's strides describe. So a view carries a numpy
array over memory that is never touched, and numpy does the bookkeeping.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import JaxprEqn


class Level(NamedTuple):
    """An enclosing loop. `stride` is the distance between the entries of two steps; 0: all steps use the same ones."""

    length: int
    stride: int


@dataclass(frozen=True)
class View:
    """`scale` times the entries `where` of the leaf.

    - `where`: a view of an int8 array as large as the leaf: its address and strides count entries. Never read.
    - `scale`: one number, or `None` for 1. It may depend on data: only the leaf itself must enter linearly.
    - `nest`: the loops around this place, outermost first; `where` is the view in their first steps.
    """

    leaf: int
    where: np.ndarray
    scale: Array | None = None
    nest: tuple[Level, ...] = ()

    def at(self, where: np.ndarray) -> "View":
        """The same with other entries."""
        return replace(self, where=where)

    def times(self, factor: Any) -> "View":
        """Multiplied by one number."""
        return replace(self, scale=product(self.scale, factor))

    def repeated(self, length: int) -> "View":
        """As a loop sees it that uses the same entries in every step."""
        return replace(self, nest=(*self.nest, Level(length, 0)))

    def scanned(self) -> "View":
        """As a loop sees it that takes one step along the first axis after the other."""
        level = Level(self.where.shape[0], self.where.strides[0])
        return replace(self, where=self.where[0], nest=(*self.nest, level))


def whole(leaf: int, shape: Sequence[int]) -> View:
    """All of a leaf."""
    return View(leaf, np.empty(tuple(shape), np.int8))


def product(scale: Array | None, factor: Any) -> Array:
    """The product of two numbers, one of which may be absent; the later dtype wins."""
    factor = jnp.asarray(factor).reshape(())
    return factor if scale is None else scale.astype(factor.dtype) * factor


def viewed(eqn: JaxprEqn, operands: Sequence[Any], position: int, view: View) -> list[View] | None:
    """What an equation makes of the view among its operands; `None` where that is no view."""
    name, params = eqn.primitive.name, eqn.params
    if name in _MOVES:
        moved = _MOVES[name](view.where, params)
        return None if moved is None else [view.at(moved)]
    if name == "split":
        cuts = np.cumsum(params["sizes"])[:-1]
        return [view.at(part) for part in np.split(view.where, cuts, params["axis"])]
    if name == "convert_element_type":
        return [view] if jnp.issubdtype(params["new_dtype"], jnp.floating) else None
    return [view.times(scaling(eqn, operands, position))] if scales(eqn, position) else None


def scales(eqn: JaxprEqn, position: int) -> bool:
    """Whether all that an equation does is to multiply the operand at `position` by a number."""
    name, shapes = eqn.primitive.name, [v.aval.shape for v in eqn.invars]  # pyright: ignore[reportAttributeAccessIssue]
    if name == "neg":
        return True
    if name != "mul" and (name, position) != ("div", 0):
        return False
    result: Any = eqn.outvars[0].aval
    return math.prod(shapes[1 - position]) == 1 and shapes[position] == result.shape


def scaling(eqn: JaxprEqn, operands: Sequence[Any], position: int) -> Array:
    """The number by which an equation multiplies the operand at `position`, where it `scales` that."""
    if eqn.primitive.name == "neg":
        return jnp.asarray(-1, operands[0].dtype)
    other = jnp.asarray(operands[1 - position])
    return other if eqn.primitive.name == "mul" else 1 / other


def _reshaped(where: np.ndarray, params: dict[str, Any]) -> np.ndarray | None:
    if params.get("dimensions") is not None:
        return None
    new = where.reshape(params["new_sizes"])
    return new if np.may_share_memory(new, where) else None  # else numpy has copied: no strides say this


def _sliced(where: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    steps = params["strides"] or (1,) * where.ndim
    return where[tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


def _broadcast(where: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    new = set(range(len(params["shape"]))) - set(params["broadcast_dimensions"])
    return np.broadcast_to(np.expand_dims(where, tuple(new)), params["shape"])


_MOVES: dict[str, Callable[[np.ndarray, dict[str, Any]], np.ndarray | None]] = {
    "transpose": lambda where, params: where.transpose(params["permutation"]),
    "reshape": _reshaped,
    "squeeze": lambda where, params: where.squeeze(tuple(params["dimensions"])),
    "expand_dims": lambda where, params: np.expand_dims(where, tuple(params["dimensions"])),
    "slice": _sliced,
    "rev": lambda where, params: np.flip(where, tuple(params["dimensions"])),
    "broadcast_in_dim": _broadcast,
    "copy": lambda where, _: where,
    "copy_p": lambda where, _: where,
}
