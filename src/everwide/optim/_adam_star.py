"""ADAM* for networks of finite width, as an optax optimizer."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

Axes = int | tuple[int, ...] | None
_LAST_COUNT = np.iinfo(np.int32).max


class AdamStarState(NamedTuple):
    """Steps so far and both moments; the second has length 1 along the axes of width."""

    steps: jax.Array
    first: Any
    second: Any


def adam_star(
    rate: Any,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    width_axes: Axes | Any | Callable[[Any, Any], Axes] = (),
) -> optax.GradientTransformation:
    """ADAM whose second moment is averaged over the axes of width: the step that has a limit at infinite width.

    - `rate`: a number, or a schedule of optax.
    - `width_axes`: the axes of a parameter that grow with the width. An axis or a tuple of them for all parameters; a
      tree of such, or its upper part, like the parameters; or a function of the path and the parameter. A tuple of
      whole numbers is always read as axes. `None` and `()`, the default, average nothing: this is `optax.adam`.

    On a readout `(width, outputs)` with `width_axes=0` it trains the function that `everwide.training.AdamStar` trains
    on the kernel of the features; `everwide.training.to_finite` converts `rate` and `eps`.

    >>> import everwide.optim, jax.numpy as jnp
    >>> params = {"hidden": jnp.ones((3, 64)), "readout": jnp.ones((64, 2))}
    >>> optimizer = everwide.optim.adam_star(1e-3, width_axes={"hidden": 1, "readout": 0})
    >>> optimizer.init(params)[0].second["readout"].shape
    (1, 2)

    Sernau, "Infinite width models that work" (2024).
    """
    for name, share in (("b1", b1), ("b2", b2)):
        if isinstance(share, int | float) and not 0 <= share < 1:
            raise ValueError(f"adam_star({name}={share!r}): expected a number from 0 to below 1.")
    return optax.chain(_scale_by_adam_star(b1, b2, eps, width_axes), optax.scale_by_learning_rate(rate))


def _scale_by_adam_star(b1: Any, b2: Any, eps: Any, width_axes: Any) -> optax.GradientTransformation:
    def init(params: Any) -> Any:
        leaves, tree = jax.tree.flatten(params)
        second = [
            _averaged(jnp.zeros_like(p), axes) for p, axes in zip(leaves, axes_of(width_axes, params), strict=True)
        ]
        first = jax.tree.map(jnp.zeros_like, params)
        return AdamStarState(jnp.zeros((), jnp.int32), first, jax.tree.unflatten(tree, second))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        assert isinstance(state, AdamStarState)
        count = jnp.where(state.steps < _LAST_COUNT, state.steps + 1, state.steps)
        leaves, tree = jax.tree.flatten(updates)
        firsts, seconds = jax.tree.leaves(state.first), jax.tree.leaves(state.second)
        moved = []
        for g, m, v, axes in zip(leaves, firsts, seconds, axes_of(width_axes, updates), strict=True):
            m = (1 - b1) * g + b1 * m
            v = (1 - b2) * _averaged(jnp.square(g), axes) + b2 * v
            size = jnp.sqrt(_unbiased(v, b2, count)) + eps
            moved.append((_unbiased(m, b1, count) / size, m, v))
        step, first, second = (jax.tree.unflatten(tree, [one[i] for one in moved]) for i in range(3))
        return step, AdamStarState(count, first, second)

    return optax.GradientTransformation(init, update)


def _unbiased(moment: jax.Array, decay: Any, count: jax.Array) -> jax.Array:
    return moment / (1 - jnp.asarray(decay, moment.dtype) ** count.astype(moment.dtype))


def _averaged(squares: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    return jnp.mean(squares, axes, keepdims=True) if axes else squares


def axes_of(width_axes: Any, tree: Any) -> list[tuple[int, ...]]:
    """The axes of width of every leaf, in the order of `jax.tree.leaves`."""
    places = jax.tree_util.tree_leaves_with_path(tree)
    if callable(width_axes):
        given = [width_axes(path, leaf) for path, leaf in places]
    elif _is_axes(width_axes):
        given = [width_axes] * len(places)
    else:
        given = _spread(width_axes, tree)
    return [_checked(axes, path, leaf) for axes, (path, leaf) in zip(given, places, strict=True)]


def _is_axes(found: Any) -> bool:
    if isinstance(found, tuple):
        return all(isinstance(axis, int) for axis in found)
    return found is None or isinstance(found, int)


def _spread(prefix: Any, tree: Any) -> list[Axes]:
    given: list[Axes] = []
    collect = lambda axes, part: given.extend([axes] * len(jax.tree.leaves(part)))
    try:
        jax.tree.map(collect, prefix, tree, is_leaf=_is_axes)
    except (ValueError, TypeError) as fault:
        raise ValueError(
            f"adam_star(width_axes={prefix!r}): expected axes, a function, or a tree of axes: the parameters' own "
            f"tree, or its upper part. {fault}"
        ) from fault
    return given


def _checked(axes: Any, path: Any, leaf: Any) -> tuple[int, ...]:
    if not _is_axes(axes):
        raise TypeError(
            f"adam_star: width_axes of {_name(path)} are {axes!r}, expected an int, a tuple of them, or None."
        )
    some = () if axes is None else (axes,) if isinstance(axes, int) else axes
    rank = jnp.ndim(leaf)
    if any(not -rank <= axis < rank for axis in some) or len({axis % rank for axis in some}) < len(some):
        raise ValueError(
            f"adam_star: width_axes of {_name(path)} are {axes!r}, but its shape is {jnp.shape(leaf)}. "
            "Give every parameter its own axes, by a tree or a function; None where there is no width."
        )
    return tuple(axis % rank for axis in some)


def _name(path: Any) -> str:
    return f"parameter {jax.tree_util.keystr(path)}" if path else "the parameter"
