"""A JAX model under examination: few programs, compiled once for an architecture, that return few numbers."""

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from .._losses import AbstractLoss
from ._optimizers import Optimizer, read_state

PARTS = 4  # of the probe, whose gradients tell noise from signal
MOST = 32  # rows whose gradient and curvature are watched
FAR = 32.0  # times the last step: where a rate that is too small would still descend
MIXED = 0.05  # of the gradient, in the vector from which curvature is looked for
ROUNDED = 1e-3  # from 1: what probabilities add up to
SEEN = 8  # rows whose tangent kernel is watched
Leaves = list[Array]


class Setting(NamedTuple):
    """What a program is compiled for: the model, the loss, and where the units of each leaf are (`None`: nowhere)."""

    f: Callable[[Any, Any], Any]
    loss: AbstractLoss
    structure: Any
    units: tuple[int | None, ...]
    labelled: bool

    def outputs(self, leaves: Leaves, x: Any) -> Float[Array, "n k"]:
        """Of all rows."""
        params = jax.tree.unflatten(self.structure, leaves)
        return jax.vmap(lambda one: jnp.ravel(self.f(params, one)))(x)

    def mean_loss(self, leaves: Leaves, x: Any, y: Any) -> Float[Array, ""]:
        """Over the rows."""
        return jnp.mean(jax.vmap(self.loss)(self.outputs(leaves, x), y))


class Pulse(NamedTuple):
    """What one look at the probe says; arrays of `leaves` have a number for each leaf of the parameters."""

    losses: Float[Any, " n"]
    above: Int[Any, " n"]  # how many outputs are above that of the label
    signal: Float[Any, ""]  # the root mean square of the outputs
    chances: Float[Any, ""]  # the share of rows whose outputs are probabilities
    gradient: Float[Any, " leaves"]  # squared norms: of the gradient of all rows,
    parts: Float[Any, " leaves"]  # of that of one part, on average,
    weights: Float[Any, " leaves"]  # and of the parameters
    dead: Float[Any, " leaves"]  # share of units whose gradient is exactly 0


class Step(NamedTuple):
    """One step of the optimizer: squared norms, and products with its direction, parameters and gradient."""

    leaves: Float[Any, " leaves"]
    direction: Float[Any, " leaves"]
    along: Float[Any, " leaves"]  # step . direction
    shrinking: Float[Any, ""]  # step . parameters
    turned: Float[Any, ""]  # direction . parameters
    descent: Float[Any, ""]  # step . gradient
    start: Float[Any, ""]  # the loss before the step,
    after: Float[Any, ""]  # after it,
    far: Float[Any, ""]  # and `FAR` such steps further


class Curve(NamedTuple):
    """Curvature of the loss of the probe, as the optimizer sees it (preconditioned), and along some directions."""

    largest: Float[Any, ""]
    smallest: Float[Any, ""]
    plain: Float[Any, ""]  # along the same vector, not preconditioned
    shares: Float[Any, " leaves"]  # of the leading vector


class Readout(NamedTuple):
    """The last layer: what it reads, what it says, and its weights."""

    features: Float[np.ndarray, "n d"]
    outputs: Float[np.ndarray, "n k"]
    weights: Float[np.ndarray, "k d"]


def divisible(rows: int, parts: int) -> int:
    """How many rows gradients are taken of."""
    return min(rows, MOST) // parts * parts


def _packed(signs: Any) -> Array:
    """All numbers in one array: one transfer."""
    return jnp.concatenate([jnp.ravel(a).astype(jnp.float32) for a in signs])


def _unpacked(kind: Any, numbers: Array, sizes: list[int | None]) -> Any:
    """The inverse, on the host; a size of `None` is a scalar."""
    pieces = np.split(np.asarray(numbers, np.float64), np.cumsum([size or 1 for size in sizes])[:-1])
    return kind(*(p[0] if size is None else p for p, size in zip(pieces, sizes, strict=True)))


@functools.partial(jax.jit, static_argnames=("setting", "parts"))
def pulse(setting: Setting, leaves: Leaves, x: Any, y: Any, parts: int) -> tuple[Array, Leaves, Leaves]:
    """With the gradient, and the parameters in arrays of their own."""
    some = jax.tree.map(lambda a: a[: divisible(len(y), parts)].reshape(parts, -1, *a.shape[1:]), (x, y))
    slopes = lax.map(lambda part: jax.grad(setting.mean_loss)(leaves, *part), some)
    outputs = setting.outputs(leaves, x)
    gradient = [jnp.mean(slope, 0) for slope in slopes]
    signs = Pulse(
        jax.vmap(setting.loss)(outputs, y),
        _above(outputs, y) if setting.labelled else jnp.zeros(len(outputs), jnp.int32),
        jnp.sqrt(jnp.mean(outputs**2)),
        chances(outputs, jnp),
        _squares(gradient),
        _squares(slopes) / parts,
        _squares(leaves),
        jnp.stack([_dead(g, axis) for g, axis in zip(gradient, setting.units, strict=True)]),
    )
    return _packed(signs), gradient, [jnp.copy(leaf) for leaf in leaves]


def _above(outputs: Float[Array, "n k"], y: Any) -> Int[Array, " n"]:
    labels = y if y.ndim == 1 else jnp.argmax(y, -1)
    own = jnp.take_along_axis(outputs, labels[:, None], 1)
    return jnp.sum(outputs > own, 1, dtype=jnp.int32)


def chances(outputs: Any, xp: Any) -> Any:
    """The share of rows that add up to 1 and have nothing below 0; `xp` is `jax.numpy` or `torch`."""
    sure = (xp.amin(outputs, -1) >= 0) & (xp.abs(xp.sum(outputs, -1) - 1) < ROUNDED)
    return xp.mean(xp.where(sure, xp.ones_like(outputs[:, 0]), xp.zeros_like(outputs[:, 0])))


def _squares(leaves: Leaves) -> Float[Array, " leaves"]:
    return jnp.stack([jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in leaves])


def _dead(gradient: Array, axis: int | None) -> Float[Array, ""]:
    if axis is None:
        return jnp.zeros((), jnp.float32)
    others = tuple(i for i in range(gradient.ndim) if i != axis % gradient.ndim)
    return jnp.mean(jnp.all(gradient == 0, others).astype(jnp.float32))


@functools.partial(jax.jit, static_argnames="setting")
def step(
    setting: Setting, leaves: Leaves, x: Any, y: Any, before: Leaves, gradient: Leaves, moments: Any, scale: Array
) -> Array:
    """From `before` to `leaves`, beside the direction that the moments of the optimizer give (else the gradient)."""
    first, second = moments
    change = [a - b for a, b in zip(leaves, before, strict=True)]
    direction = gradient if first is None else first
    if second is not None:
        direction = [_scaled(d, v, scale) for d, v in zip(direction, second, strict=True)]
    far = [a + FAR * c for a, c in zip(before, change, strict=True)]
    signs = Step(
        _squares(change),
        _squares(direction),
        _dots(change, direction),
        jnp.sum(_dots(change, before)),
        jnp.sum(_dots(direction, before)),
        jnp.sum(_dots(change, gradient)),
        *(setting.mean_loss(at, x, y) for at in (before, leaves, far)),
    )
    return _packed(signs)


def _scaled(first: Array, second: Array, scale: Array) -> Array:
    """A direction of Adam: its moments are divided by `scale[:2]`, and `scale[2]` keeps it from dividing by 0."""
    own = scale.astype(first.dtype)
    return first / own[0] / (jnp.sqrt(second.astype(first.dtype) / own[1]) + own[2])


def _dots(a: Leaves, b: Leaves) -> Float[Array, " leaves"]:
    return jnp.stack([jnp.sum((u * v).astype(jnp.float32)) for u, v in zip(a, b, strict=True)])


def moving(squares: Float[np.ndarray, " leaves"]) -> Float[np.ndarray, " leaves"]:
    """1 for leaves that the last step moved, and 0 for others, whose curvature it does not feel; 1 if it moved none."""
    moved = squares != 0
    return (moved if moved.any() else ~moved).astype(np.float32)


def mixed(start: Any, gradient: Any, xp: Any) -> Any:
    """A unit vector, most of it in the first direction; `xp` is `jax.numpy` or `torch`."""
    lengths = [xp.linalg.norm(v) for v in (start, gradient)]
    units = [v / xp.where(s > 0, s, xp.ones_like(s)) for v, s in zip((start, gradient), lengths, strict=True)]
    both = units[0] + MIXED * units[1]
    return both / xp.linalg.norm(both)


def ritz(product: Callable[[Any], Any], v: Any, xp: Any) -> tuple[Any, Any, Any]:
    """The Ritz values of a symmetric matrix in the span of a unit vector and its image; the vector of the larger.

    `xp` is `jax.numpy` or `torch`.
    """
    image = product(v)
    first = v @ image
    rest = image - first * v
    beside = xp.linalg.norm(rest)
    other = rest / xp.where(beside > 0, beside, xp.ones_like(beside))
    last = other @ product(other)
    middle, radius = (first + last) / 2, xp.hypot((first - last) / 2, beside)
    largest = middle + radius
    vector = xp.where(first >= last, (largest - last) * v + beside * other, beside * v + (largest - first) * other)
    length = xp.linalg.norm(vector)
    return largest, middle - radius, vector / xp.where(length > 0, length, xp.ones_like(length))


@functools.partial(jax.jit, static_argnames="setting")
def curve(
    setting: Setting, leaves: Leaves, x: Any, y: Any, second: Any, scale: Array, moved: Array, start: Array
) -> tuple[Array, Array]:
    """Two steps of Lanczos from `start`; the vector that they lead to is where the next ones start.

    A little of the gradient is mixed in: it sees directions of negative curvature, which the leading vector does not.
    Leaves that were not `moved` are held.
    """
    flat, unflatten = ravel_pytree(leaves)
    slope = jax.grad(lambda v: setting.mean_loss(unflatten(v), x, y))
    sizes = np.array([leaf.size for leaf in leaves])
    free = root = jnp.repeat(jnp.asarray(moved, flat.dtype), sizes, total_repeat_length=flat.size)
    if second is not None:
        root = free * jnp.sqrt(_scaled(jnp.ones_like(flat), ravel_pytree(second)[0], scale))
    gradient, linear = jax.linearize(slope, flat)
    begin = mixed(free * start, root * gradient, jnp)
    largest, smallest, vector = ritz(lambda v: root * linear(root * v), begin, jnp)
    shares = jnp.stack([jnp.sum(part**2) for part in jnp.split(vector, np.cumsum(sizes)[:-1])])
    here = root * vector
    return _packed(Curve(largest, smallest, largest / (here @ here), shares)), vector


@functools.partial(jax.jit, static_argnames="setting")
def kernel(setting: Setting, leaves: Leaves, x: Any, weights: Array) -> Float[Array, "n n"]:
    """The tangent kernel of a few rows, of a random combination of the outputs."""

    def one(row: Any) -> Array:
        def value(now: Leaves) -> Array:
            return weights @ jnp.ravel(setting.f(jax.tree.unflatten(setting.structure, now), row))

        return ravel_pytree(jax.grad(value)(leaves))[0]

    slopes = jax.vmap(one)(x)
    return slopes @ slopes.T


@functools.partial(jax.jit, static_argnames=("setting", "leaf"))
def readout(setting: Setting, leaves: Leaves, x: Any, leaf: int) -> tuple[Float[Array, "n d"], Float[Array, "n k"]]:
    """The slope of the first output along its own weights in a leaf, which is what a last layer reads; the outputs."""
    weights = leaves[leaf]
    first = (0, slice(None)) if setting.units[leaf] == 0 else (slice(None), 0)

    def slope(row: Any) -> Array:
        def value(change: Array) -> Array:
            now = [*leaves[:leaf], weights.at[first].add(change), *leaves[leaf + 1 :]]
            return jnp.ravel(setting.f(jax.tree.unflatten(setting.structure, now), row))[0]

        return jax.grad(value)(jnp.zeros_like(weights[first]))

    return jax.vmap(slope)(x), setting.outputs(leaves, x)


def leaves_of(given: Any) -> list[Any]:
    """The parameters in what is handed over at a step."""
    return [leaf if is_nnx(given) else jnp.asarray(leaf) for leaf in jax.tree.leaves(tree_of(given))]


def tree_of(given: Any) -> Any:
    """The same, as a tree."""
    if is_nnx(given):
        return nnx().state(given, nnx().Param)
    return eqx.filter(given, eqx.is_inexact_array) if isinstance(given, eqx.Module) and callable(given) else given


def is_nnx(value: Any) -> bool:
    """Whether it is a module of Flax NNX, which need not be installed."""
    loaded = sys.modules.get("flax.nnx")
    return loaded is not None and isinstance(value, loaded.Module)


def nnx() -> Any:
    """Flax NNX, which whoever hands over a module has loaded."""
    return sys.modules["flax.nnx"]


class Patient:
    """A model with its probe: what the doctor asks of it, in numpy."""

    def __init__(self, setting: Setting, x: Any, y: Any, weights: Array):
        self.setting, self.x, self.y, self.weights = setting, x, y, weights
        self.parts = PARTS if len(y) >= 2 * PARTS else 1
        self._few = jax.tree.map(lambda a: a[: divisible(len(y), self.parts)], (x, y))
        self._gradient: Leaves = []
        self._before: Leaves = []
        self._moved = np.ones(len(setting.units), np.float32)
        self._leading: Array | None = None
        self.on_host = jax.default_backend() == "cpu"
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves((x, y)))
        self.mark = (setting, shapes)

    def leaves(self, given: Any) -> Leaves:
        """The parameters in what is handed over at a step."""
        return leaves_of(given)

    def optimizer(self, state: Any, given: Any) -> Optimizer:
        """What the state of the optimizer says."""
        return read_state(state, [leaf.shape for leaf in leaves_of(given)], tree_of(given))

    def ready(self, leaves: Leaves) -> None:
        """Wait for the training step, which is not the doctor's time."""
        jax.block_until_ready(leaves)

    def pulse(self, leaves: Leaves) -> Pulse:
        """A look at the probe."""
        numbers, self._gradient, self._before = pulse(self.setting, leaves, self.x, self.y, self.parts)
        rows, size = len(self.y), len(leaves)
        return _unpacked(Pulse, numbers, [rows, rows, None, None, *[size] * 4])

    def step(self, leaves: Leaves, optimizer: Optimizer) -> Step:
        """What the optimizer did since the last pulse."""
        moments, scale = (optimizer.first, optimizer.second), self._scale(optimizer)
        numbers = step(self.setting, leaves, *self._few, self._before, self._gradient, moments, scale)
        seen = _unpacked(Step, numbers, [*[len(leaves)] * 3, *[None] * 6])
        self._moved = moving(seen.leaves)
        return seen

    def curve(self, optimizer: Optimizer) -> Curve:
        """Curvature where the last pulse was, over what the last step moved."""
        start = self._start() if self._leading is None else self._leading
        args = (self.setting, self._before, *self._few, optimizer.second, self._scale(optimizer), self._moved, start)
        numbers, leading = curve(*args)
        seen = _unpacked(Curve, numbers, [None, None, None, len(self._before)])
        self._leading = leading if np.isfinite(seen.largest) else None
        return seen

    def _scale(self, optimizer: Optimizer) -> np.ndarray:
        return np.array([*optimizer.bias(), optimizer.eps], np.float32)

    @np.errstate(all="ignore")
    def _start(self) -> Array:
        """The gradient, and all other directions a little."""
        flat = np.concatenate([np.ravel(np.asarray(g)) for g in self._gradient])
        noise = np.random.default_rng(0).normal(size=flat.size)
        return jnp.asarray(flat / (np.linalg.norm(flat) or 1.0) + noise / (4 * np.linalg.norm(noise)), flat.dtype)

    def kernel(self, leaves: Leaves) -> Float[np.ndarray, "n n"]:
        """Of the first rows."""
        rows = jax.tree.map(lambda a: a[:SEEN], self.x)
        return np.asarray(kernel(self.setting, leaves, rows, self.weights), np.float64)

    def targets(self) -> np.ndarray:
        """Of all rows."""
        return np.asarray(self.y)

    def readout(self, leaves: Leaves, leaf: int) -> Readout:
        """What a last layer reads, says, and is."""
        read, said = readout(self.setting, leaves, self.x, leaf)
        weights = np.asarray(leaves[leaf], np.float64)
        return Readout(
            np.asarray(read, np.float64),
            np.asarray(said, np.float64),
            weights if self.setting.units[leaf] == 0 else weights.T,
        )
