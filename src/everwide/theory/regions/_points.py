"""Which region a point lies in, and what the network is there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._checks import InputError
from ..._engine import as_rows
from ...layers import AbstractLayer
from ._bend import Bend
from ._program import Branches, Program, program_of


@dataclass(frozen=True)
class Region:
    """A convex polytope on which a network is affine: see `region_halfspaces`."""

    normals: np.ndarray
    bounds: np.ndarray
    slope: np.ndarray
    intercept: np.ndarray

    def contains(self, points: Any, *, tolerance: float = 0.0) -> np.ndarray:
        """Whether each row of `points` lies in the region, its boundary included, up to a tolerance in the inputs."""
        rows = as_rows(points, "points").x.astype(np.float64)
        rows = rows.reshape(len(rows), -1)
        if rows.shape[1] != self.normals.shape[1]:
            raise InputError(f"points have {rows.shape[1]} numbers each, expected {self.normals.shape[1]}.")
        slack = tolerance * np.linalg.norm(self.normals, axis=1)
        return np.all(rows @ self.normals.T <= self.bounds + slack, 1)


def activation_pattern(net: AbstractLayer, params: Any, x: Any) -> tuple[np.ndarray, ...]:
    """Which piece of its activation each unit is on: one array `(n, *units)` for each activation of the network.

    Pieces count from 0, from below: for a ReLU 0 is off and 1 is on. Points with one pattern lie in one convex region.

    Args:
        net: as in `line_regions`.
        params: as in `line_regions`.
        x: examples `(n, ...)`.

    Returns:
        One array of whole numbers for each activation.

    >>> from everwide.theory import regions
    >>> [layer.tolist() for layer in regions.activation_pattern(*regions.sawtooth(1), [[-1.0], [0.25], [0.75]])]
    [[[0, 0], [1, 0], [1, 1]], [[0], [1], [1]]]
    """
    patterns: list[np.ndarray] = []

    def record(bend: Bend, values: np.ndarray) -> np.ndarray:
        if len(bend.knots):
            patterns.append(bend.piece(values).astype(np.int8))
        return bend(values)

    rows = as_rows(x).x.astype(np.float64)
    _evaluated(program_of(net, params), rows, np.ones(len(rows)), record)
    return tuple(patterns)


def region_halfspaces(net: AbstractLayer, params: Any, x: Any) -> Region:
    """The region around one example `x`, as half-spaces, with the affine map that the network is there.

    A point on a boundary belongs to the side below the knot.

    Args:
        net: as in `line_regions`.
        params: as in `line_regions`.
        x: one example.

    Returns:
        `normals`, `bounds`: the points `x`, flattened, with `normals @ x <= bounds`; one row for every unit (and knot)
        that may bend at a boundary. Redundant rows are not removed. They fit `scipy.optimize.linprog(A_ub, b_ub)`.
        `slope`, `intercept`: inside, the flattened output is `slope @ x + intercept`.
        `contains(points, tolerance=0.0)`: whether each row lies in the region, its boundary included.

    >>> from everwide.theory import regions
    >>> region = regions.region_halfspaces(*regions.sawtooth(2), [0.3])
    >>> region.contains([[0.2], [0.26], [0.49], [0.51]])
    array([False,  True,  True, False])
    """
    point = np.asarray(x, np.float64)
    if point.ndim < 1 or not np.isfinite(point).all():
        raise InputError(f"x has shape {point.shape}: expected one example (*sites, channels) of finite numbers.")
    # homogeneous coordinates: the point, and a direction for each of its numbers
    values = np.concatenate([point.reshape(1, -1), np.eye(point.size)]).reshape(-1, *point.shape)
    weight = np.append(1.0, np.zeros(point.size))
    sides: list[tuple[np.ndarray, np.ndarray]] = []

    def record(bend: Bend, values: np.ndarray) -> np.ndarray:
        piece = bend.piece(values[0])
        flat = values.reshape(len(values), -1)
        sides.extend(_sides(bend, piece.ravel(), flat[1:].T, flat[0] - point.ravel() @ flat[1:]))
        bent = bend.slopes[piece] * values
        bent[0] += bend.offsets[piece]
        return bent

    out = _evaluated(program_of(net, params), values, weight, record)
    out = out.reshape(len(out), -1)
    normals = np.concatenate([np.zeros((0, point.size)), *(side[0] for side in sides)])
    bounds = np.concatenate([np.zeros(0), *(side[1] for side in sides)])
    cuts = np.any(normals != 0, 1)
    return Region(normals[cuts], bounds[cuts], out[1:].T, out[0] - point.ravel() @ out[1:])


def _sides(
    bend: Bend, piece: np.ndarray, slope: np.ndarray, intercept: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Half-spaces that keep each unit `slope @ x + intercept` below the knot above it, and above the one below."""
    under, over = piece < len(bend.knots), piece > 0
    top, bottom = bend.knots[piece[under]], bend.knots[piece[over] - 1]
    return [(slope[under], top - intercept[under]), (-slope[over], intercept[over] - bottom)]


def _evaluated(
    program: Program, values: np.ndarray, weight: np.ndarray, bent: Callable[[Bend, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Run a program on rows with homogeneous coordinates; `bent` looks at every bend and takes it."""
    for step in program:
        if isinstance(step, Bend):
            values = bent(step, values)
        elif isinstance(step, Branches):
            values = step.join([_evaluated(one, values, weight, bent) for one in step.programs])
        else:
            values = step(values, weight)
    return values
