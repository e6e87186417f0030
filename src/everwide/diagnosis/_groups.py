"""Layers of a model, by the paths of their parameters."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np


def groups_of(params: Any, free: Sequence[int] | None = None) -> dict[str, tuple[slice, ...]]:
    """Names of layers, and the slices of the flattened parameters that belong to each.

    Leaves that share all of their path but the last step are a layer.
    """
    paths = [path for path, _ in jax.tree.leaves_with_path(params)]
    leaves = jax.tree.leaves(params)
    places = range(len(leaves)) if free is None else free
    starts = np.cumsum([0, *(leaves[place].size for place in places)])
    groups: dict[str, tuple[slice, ...]] = {}
    for place, start in zip(places, starts[:-1], strict=True):
        name = layer_name(paths[place])
        groups[name] = (*groups.get(name, ()), slice(int(start), int(start) + leaves[place].size))
    return groups


def layer_name(path: tuple[Any, ...]) -> str:
    """`layers.0` for the weight `layers[0].weight`."""
    steps = [jax.tree_util.keystr((step,), simple=True) for step in path]
    steps = steps[:-1] if steps[-1:] == ["value"] else steps  # Flax wraps its arrays
    return ".".join(steps[:-1] or steps) or "params"
