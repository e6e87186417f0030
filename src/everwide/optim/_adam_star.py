"""ADAM* for networks of finite width, as an optax optimizer."""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._adam_star import scale_by_adam_star
from .._checks import InputError, not_negative

Axes = int | tuple[int, ...] | None


def adam_star(
    rate: Any,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    width_axes: Axes | Any | Callable[[Any, Any], Axes] = (),
) -> optax.GradientTransformation:
    """ADAM whose second moment is averaged over the axes of width: the step that has a limit at infinite width.

    On a readout `(width, outputs)` with `width_axes=0` it trains the function that `everwide.training.AdamStar` trains
    on the kernel of the features; `everwide.training.to_finite` converts `rate` and `eps`.

    Args:
        rate: a number, or a schedule of optax.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: added to the root of the second moment.
        width_axes: the axes of a parameter that grow with the width. An axis or a tuple of them for all parameters; a
            tree of such, or its upper part, like the parameters; or a function of the path and the parameter. A tuple
            of whole numbers is always read as axes. `None` and `()`, the default, average nothing: `optax.adam`.

    Returns:
        An optimizer of optax.

    >>> import everwide.optim, jax.numpy as jnp
    >>> params = {"hidden": jnp.ones((3, 64)), "readout": jnp.ones((64, 2))}
    >>> optimizer = everwide.optim.adam_star(1e-3, width_axes={"hidden": 1, "readout": 0})
    >>> optimizer.init(params)[0].second["readout"].shape
    (1, 2)

    Sernau, "Infinite width models that work" (2024).
    """
    _check_rate(rate)
    for name, share in (("b1", b1), ("b2", b2)):
        if isinstance(share, int | float) and not 0 <= share < 1:
            raise InputError(f"adam_star({name}={share!r}): expected a number from 0 to below 1.")
    return optax.chain(_scale_by_adam_star(b1, b2, eps, width_axes), optax.scale_by_learning_rate(rate))


def _check_rate(rate: Any) -> None:
    if callable(rate):  # a schedule
        return
    with contextlib.suppress(jax.errors.TracerArrayConversionError):  # what is traced is not known yet
        np.asarray(rate)
        not_negative(rate, "adam_star: rate")


def _scale_by_adam_star(b1: Any, b2: Any, eps: Any, width_axes: Any) -> optax.GradientTransformation:
    def averaged(tree: Any) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        pairs = zip(leaves, axes_of(width_axes, tree), strict=True)
        return jax.tree.unflatten(structure, [jnp.mean(jnp.square(leaf), axes, keepdims=True) for leaf, axes in pairs])

    def begin(params: Any) -> Any:
        return averaged(jax.tree.map(jnp.zeros_like, params))

    return scale_by_adam_star(b1, b2, eps, begin, lambda updates, _: averaged(updates), lambda factors: factors)


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


def _is_axes(given: Any) -> bool:
    if isinstance(given, tuple):
        return all(isinstance(axis, int) for axis in given)
    return given is None or isinstance(given, int)


def _spread(prefix: Any, tree: Any) -> list[Axes]:
    try:
        spread = jax.tree.map(lambda axes, part: jax.tree.map(lambda _: axes, part), prefix, tree, is_leaf=_is_axes)
    except (ValueError, TypeError) as fault:
        raise InputError(
            f"adam_star(width_axes={prefix!r}): expected axes, a function, or a tree of axes: the parameters' own "
            f"tree, or its upper part. {fault}"
        ) from fault
    return jax.tree.structure(tree).flatten_up_to(spread)


def _checked(axes: Any, path: Any, leaf: Any) -> tuple[int, ...]:
    if not _is_axes(axes):
        raise InputError(
            f"adam_star: width_axes of {_name(path)} are {axes!r}, expected an int, a tuple of them, or None."
        )
    some = () if axes is None else (axes,) if isinstance(axes, int) else axes
    rank = jnp.ndim(leaf)
    if any(not -rank <= axis < rank for axis in some) or len({axis % rank for axis in some}) < len(some):
        raise InputError(
            f"adam_star: width_axes of {_name(path)} are {axes!r}, but its shape is {jnp.shape(leaf)}. "
            "Give every parameter its own axes, by a tree or a function; None where there is no width."
        )
    return tuple(axis % rank for axis in some)


def _name(path: Any) -> str:
    return f"parameter {jax.tree_util.keystr(path)}" if path else "the parameter"
