"""Regions around points, and bounds on their number."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._checks import InputError, not_negative, whole
from ..._checks import hidden_widths as checked_widths
from ..._engine import as_rows
from ...activations import Relu
from ...layers import AbstractLayer, Dense, Serial
from ._law import Bend
from ._program import Branches, Program, program_of


def max_regions(inputs: int, hidden_widths: Sequence[int], *, bound: str = "upper") -> int:
    """Bounds on the largest number of linear regions that a ReLU network of this shape can have.

    With one hidden layer both are `sum_{j <= inputs} C(width, j)` (Zaslavsky). With more, a region on which few units
    of a layer are active has an image of few dimensions, which later layers cut into few pieces.

    Args:
        inputs: the dimension of the inputs.
        hidden_widths: one for each hidden layer.
        bound: `"upper"`: no such network has more; `"lower"`: some such network has so many, by folding.

    Returns:
        A whole number, of any size.

    >>> from everwide.theory import regions
    >>> regions.max_regions(2, [7]), regions.max_regions(1, [3, 3]), regions.max_regions(2, [4, 4])
    (29, 16, 121)
    >>> regions.max_regions(1, [3, 3], bound="lower"), regions.max_regions(2, [4, 4], bound="lower")
    (12, 44)

    Serra, Tjandraatmadja and Ramalingam, "Bounding and counting linear regions of deep neural networks" (2018);
    Montufar, Pascanu, Cho and Bengio, "On the number of linear regions of deep neural networks" (2014).

    """
    dimension, layers = whole(inputs, "inputs"), checked_widths(hidden_widths)
    if not layers:
        raise InputError(f"hidden_widths={hidden_widths!r}: expected one or more hidden layers, as in [7].")
    if bound not in ("upper", "lower"):
        raise InputError(f"bound={bound!r}: expected 'upper' or 'lower'.")
    if bound == "lower":
        return _reached(layers, dimension)
    # after[d]: pieces that the later layers can make of an image of d dimensions
    after = [1] * (dimension + 1)
    for n in reversed(layers):
        after = _one_layer_more(n, after)
    return after[dimension]


def _one_layer_more(n: int, after: list[int]) -> list[int]:
    """`sum_{j <= min(d, n)} C(n, j) after[min(d, n - j)]` for each `d`; `j` units are off."""
    top = len(after) - 1
    choose = [math.comb(n, j) for j in range(min(n, top) + 1)]
    plain = [0, *accumulate(choose)]
    # the same binomials, by the units that are on: k = n - j
    narrowed = [0, *accumulate(choose[k] * after[k] for k in range(len(choose)))]

    def pieces(d: int) -> int:
        most = min(d, n)
        full = min(most, n - d)  # so many may be off, and all d dimensions are left
        whole = after[d] * plain[full + 1] if full >= 0 else 0
        first, end = n - most, min(d, n + 1)
        return whole + (narrowed[end] - narrowed[first] if end > first else 0)

    return [pieces(d) for d in range(top + 1)]


def _reached(widths: tuple[int, ...], dimension: int) -> int:
    """Every layer but the last folds its input `floor(width / inputs)` times along each of the `inputs` axes."""
    if any(n < dimension for n in widths[:-1]):
        raise InputError(
            f"hidden_widths={widths!r}: the construction needs layers at least as wide as the {dimension} inputs. The "
            "upper bound has no such condition."
        )
    folds = math.prod((n // dimension) ** dimension for n in widths[:-1])
    return folds * sum(math.comb(widths[-1], j) for j in range(dimension + 1))


def sawtooth(depth: int) -> tuple[AbstractLayer, Any]:
    """A ReLU network of one input and its parameters: `depth` tents, one inside the other.

    It has `3 depth` hidden units, `2^(depth - 1)` spikes and `2^depth` linear pieces on [0, 1], and two more outside:
    a number exponential in the depth. All of its parameters are exact in float32.

    Args:
        depth: the number of tents.

    Returns:
        The network, and its parameters.

    >>> from everwide.theory import regions
    >>> net, params = regions.sawtooth(5)
    >>> regions.line_regions(net, params, [0.0], [1.0]).count, regions.line_regions(net, params, [-1.0], [2.0]).count
    (32, 34)

    Telgarsky, "Benefits of depth in neural networks" (2016).
    """
    times = whole(depth, "depth")
    net = Serial(*(Dense(2, b_std=1.0), Relu(), Dense(1), Relu()) * times, Dense(1))
    # in the standard parametrization factors are 1: what is given is what acts
    drawn = eqx.filter_eval_shape(lambda key: net.init(key, (1,), parametrization="standard"), jax.random.key(0))
    leaves = [[[1.0, 1.0]], [0.0, -0.5], [[2.0], [-4.0]]] * times + [[[1.0]]]
    dtype = jnp.result_type(float)
    return net, jax.tree.unflatten(jax.tree.structure(drawn), [jnp.asarray(a, dtype) for a in leaves])


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
        slack = not_negative(tolerance, "tolerance") * np.linalg.norm(self.normals, axis=1)
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
    if point.ndim < 1 or not point.size or not np.isfinite(point).all():
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
