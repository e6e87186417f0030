"""Second derivatives of a loss over the parameters of any model, as operators: nothing is formed."""

import abc
import contextlib
import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from scipy.sparse.linalg import LinearOperator

from .._checks import InputError, finite_array
from .._losses import AbstractLoss
from ..empirical import as_model, jacobian_operator
from ..spectral import density, leading, trace
from ._groups import groups_of
from ._prepared import Parts, Prepared, applied, at_once, multiplied

_HELD = 6  # times the activations: what the passes of a second derivative keep


class Kind(enum.Enum):
    """Which second derivatives."""

    HESSIAN = "Hessian"
    GAUSS_NEWTON = "Gauss-Newton matrix"
    RESIDUAL = "Hessian without its Gauss-Newton part"
    EMPIRICAL = "empirical Fisher matrix"
    OWN_LABEL = "part of the Gauss-Newton matrix of the labels that rows have"


class AbstractCurvature(abc.ABC):
    """A symmetric matrix over the flattened parameters of a model, of the mean loss over some rows: see `hessian`."""

    kind: Kind

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Parameters and parameters."""

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """Of the parameters."""

    @property
    @abc.abstractmethod
    def groups(self) -> dict[str, tuple[slice, ...]]:
        """Layers by their names, and where their parameters are."""

    @abc.abstractmethod
    def __matmul__(self, v: Any) -> Any:
        """A vector `(p,)`, or many as columns `(p, m)`."""

    @abc.abstractmethod
    def prepared(self) -> Any:
        """The same matrix with the work done that all products share, where that fits into memory."""

    @abc.abstractmethod
    def of_kind(self, kind: Kind) -> "AbstractCurvature":
        """Another matrix of the same model and rows."""

    def split(self) -> tuple["AbstractCurvature", "AbstractCurvature"]:
        """Of a Hessian: the Gauss-Newton matrix `G` and the rest `E`, where `H = G + E`."""
        if self.kind is not Kind.HESSIAN:
            raise InputError(f"Only a Hessian is split, and this is the {self.kind.value}. Make it with hessian().")
        return self.of_kind(Kind.GAUSS_NEWTON), self.of_kind(Kind.RESIDUAL)

    def leading(self, size: int = 1, *, end: str = "largest", start: Any = None, tolerance: float = 1e-4) -> Any:
        """Leading eigenpairs: see `everwide.spectral.leading`."""
        return leading(self, size, end=end, start=start, tolerance=tolerance)

    def trace(self, *, samples: int = 96, seed: int = 0) -> Any:
        """The trace, with its error: see `everwide.spectral.trace`."""
        return trace(self, samples=samples, seed=seed)

    def density(self, *, samples: int = 8, length: int = 64, seed: int = 0) -> Any:
        """The density of eigenvalues: see `everwide.spectral.density`."""
        return density(self, samples=samples, length=length, seed=seed)

    def linear_operator(self) -> LinearOperator:
        """For `scipy.sparse.linalg`."""
        ready = self.prepared()

        def multiply(v: np.ndarray) -> np.ndarray:
            return np.asarray(ready @ v)

        products: Any = dict.fromkeys(("matvec", "matmat", "rmatvec", "rmatmat"), multiply)
        return LinearOperator(self.shape, **products | {"dtype": self.dtype})

    def _places(self, name: str) -> tuple[slice, ...]:
        """Where the parameters of a layer are."""
        if not isinstance(name, str) or name not in self.groups:
            raise InputError(f"There is no layer {name!r}. There are {', '.join(self.groups)}.")
        return self.groups[name]

    def _diagonal(self, preconditioner: Any) -> np.ndarray:
        """A preconditioner, flat and checked."""
        given = [np.ravel(leaf) for leaf in jax.tree.leaves(preconditioner)]
        flat = finite_array(np.concatenate(given) if given else given, "The preconditioner")
        if flat.shape != self.shape[:1] or not (flat > 0).all():
            raise InputError(
                f"The preconditioner has {flat.size} numbers, the smallest {flat.min()}, "
                f"expected {self.shape[0]} above 0: one for each parameter."
            )
        return flat.astype(self.dtype)


class Curvature(AbstractCurvature, eqx.Module):
    """The matrix of a JAX function, by its linearization."""

    kind: Kind = eqx.field(static=True)
    model: Any  # a Jacobian: function, parameters, examples, and what memory they take
    y: Array
    loss: AbstractLoss
    free: tuple[int, ...] = eqx.field(static=True)  # leaves of the parameters that the matrix is about
    scale: Array | None = None  # the root of a preconditioner, inverted

    @property
    def shape(self) -> tuple[int, int]:
        """Parameters and parameters."""
        size = sum(leaf.size for leaf in self._leaves())
        return size, size

    @property
    def dtype(self) -> Any:
        """Of the parameters; of them together, where they differ."""
        return self._leaves()[0].dtype

    @property
    def groups(self) -> dict[str, tuple[slice, ...]]:
        """Layers by their names, and where their parameters are."""
        return groups_of(self.model.params, self.free)

    def __matmul__(self, v: Any) -> Float[Array, "p *m"]:
        """A vector `(p,)`, or many as columns `(p, m)`."""
        ready = self.prepared() if np.ndim(v) == 2 else self
        if ready is not self:
            return ready @ v
        return multiplied(v, self, lambda parts: _product(self, parts))

    def prepared(self) -> Any:
        """The same matrix with the work done that all products share, where that fits into memory."""
        if self.chunks > 1 or self.kind is Kind.RESIDUAL:  # what that shares cannot leave its program in all of JAX
            return self
        many = self._at_once()
        linear = tuple(_linearized(self, many, jnp.asarray(place)) for place in range(many))
        return Prepared(linear, self.shape, self.dtype, self.shapes, self.scale)

    def of_kind(self, kind: Kind) -> "Curvature":
        return replace(self, kind=kind)

    def block(self, name: str) -> "Curvature":
        """The part of one layer, by the names that `groups` has: the others are held."""
        pieces = self._places(name)
        wanted = {piece.start for piece in pieces}
        starts = np.cumsum([0, *(leaf.size for leaf in self._leaves())])[:-1]
        free = tuple(leaf for leaf, start in zip(self.free, starts, strict=True) if int(start) in wanted)
        scale = None if self.scale is None else jnp.concatenate([self.scale[piece] for piece in pieces])
        return replace(self, free=free, scale=scale)

    def preconditioned(self, preconditioner: Any) -> "Curvature":
        """`P^(-1/2) M P^(-1/2)`, which has the eigenvalues of `P^-1 M`, for a diagonal `P`: see `preconditioner`."""
        flat = jnp.asarray(self._diagonal(preconditioner))
        return replace(self, scale=(1 if self.scale is None else self.scale) / jnp.sqrt(flat))

    def gradient(self) -> Float[Array, " p"]:
        """The gradient of the mean loss, preconditioned like the matrix: its inner products are with these vectors."""
        return _gradient(self) if self.scale is None else self.scale * _gradient(self)

    @property
    def chunks(self) -> int:
        """In how many pieces the examples are taken."""
        fit = max(1, self.model.memory // max(1, _HELD * self.model.bytes_each))
        return math.ceil(self.model.examples / fit)

    def _at_once(self) -> int:
        """In how many pieces the examples are taken at the same time, where products are prepared."""
        own = sum(leaf.size * leaf.dtype.itemsize for leaf in self._leaves())
        return at_once(own, self.model.bytes_each, self.model.examples)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the arrays that the parameters are."""
        return tuple(leaf.shape for leaf in self._leaves())

    def _leaves(self) -> list[Array]:
        """Of one type, as in a flat vector."""
        leaves = jax.tree.leaves(self.model.params)
        free = [leaves[place] for place in self.free]
        return [leaf.astype(jnp.result_type(*free)) for leaf in free]


class Batch(NamedTuple):
    """Examples, targets, and the weight of each row: `1/n`, and 0 where a chunk is filled up."""

    x: Any
    y: Array
    weight: Array


def curvature(kind: Kind, f: Any, params: Any, x: Any, y: Any, loss: AbstractLoss, memory: int | None) -> Curvature:
    """Everything checked."""
    given: Any = as_model(f, params)
    own = jnp.result_type(*jax.tree.leaves(given.params))
    model = jacobian_operator(given, None, jax.tree.map(lambda a: as_numbers(a, own), x), memory=memory)
    with _known():
        targets, _ = loss.targets(y, model.outputs)
    if len(targets) != model.examples:
        raise InputError(f"y has {len(targets)} rows and x {model.examples}: they must agree.")
    targets = jnp.asarray(targets, None if targets.dtype.kind in "iu" else model.dtype)
    return Curvature(kind, model, targets, loss, tuple(range(len(jax.tree.leaves(model.params)))))


@contextlib.contextmanager
def _known() -> Iterator[None]:
    """Where numbers are looked at, which have none while a function is compiled."""
    try:
        yield
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        raise InputError(
            "x or y is traced by jit or vmap, expected arrays of numbers. Make the operator outside, and pass it as an "
            "argument, or take one product of the Hessian: jax.jvp(jax.grad(mean_loss), (params,), (vector,))[1]."
        ) from None


@_known()
def as_numbers(value: Any, dtype: Any) -> Array:
    """Examples, checked, with floats of one type."""
    kind = getattr(value, "dtype", None) or np.asarray(value).dtype
    if isinstance(kind, np.dtype) and kind.kind in "OUS":
        raise InputError(f"x holds {kind}, expected numbers. Encode text and categories first.")
    array = jnp.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.floating) and not bool(jnp.isfinite(array).all()):
        raise InputError("x holds NaN or infinity. Drop such rows, or fill them.")
    return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array


@eqx.filter_jit
def _product(op: Curvature, parts: Parts) -> Parts:
    """Piece by piece: what does not depend on the vectors is computed once for all of them."""
    pieces = _pieces(op, op.chunks)
    if op.chunks == 1:
        return applied(linearized(op, jax.tree.map(lambda a: a[0], pieces)), parts, op.shapes)

    def add(total: Parts, piece: Batch) -> tuple[Parts, None]:
        return jax.tree.map(jnp.add, total, applied(linearized(op, piece), parts, op.shapes)), None

    return lax.scan(add, jax.tree.map(jnp.zeros_like, parts), pieces)[0]


@eqx.filter_jit
def _linearized(op: Curvature, chunks: int, place: Array) -> Any:
    return linearized(op, jax.tree.map(lambda a: a[place], _pieces(op, chunks)))


@eqx.filter_jit
def _gradient(op: Curvature) -> Array:
    def add(total: Parts, piece: Batch) -> tuple[Parts, None]:
        leaves, outputs = _function(op, piece)
        return jax.tree.map(jnp.add, total, jax.grad(lambda p: _loss(op, piece, outputs(p)))(leaves)), None

    start = [jnp.zeros_like(leaf) for leaf in op._leaves()]
    return ravel_pytree(lax.scan(add, start, _pieces(op, op.chunks))[0])[0]


def _pieces(op: Curvature, chunks: int) -> Batch:
    """The rows in chunks; the last row fills up the last one, without weight."""
    n = op.model.examples
    size = math.ceil(n / chunks)
    index = np.arange(chunks * size)
    weight = jnp.asarray(np.where(index < n, 1 / n, 0).reshape(chunks, size), op.model.dtype)

    def cut(a: Array) -> Array:
        return a[np.minimum(index, n - 1)].reshape(chunks, size, *a.shape[1:])

    return Batch(jax.tree.map(cut, op.model.x), cut(op.y), weight)


def _function(op: Curvature, piece: Batch) -> tuple[Parts, Callable[[Parts], Array]]:
    """The free parameters, and the outputs `(n, k)` as a function of them."""
    leaves, structure = jax.tree.flatten(op.model.params)
    held = {place: leaf for place, leaf in enumerate(leaves) if place not in op.free}

    def outputs(parts: Parts) -> Array:
        now = held | {place: part.astype(leaves[place].dtype) for place, part in zip(op.free, parts, strict=True)}
        params = jax.tree.unflatten(structure, [now[place] for place in range(len(leaves))])
        return jax.vmap(lambda one: jnp.atleast_1d(op.model.f(params, one)))(piece.x)

    return op._leaves(), outputs


def _loss(op: Curvature, piece: Batch, outputs: Array) -> Array:
    return jnp.sum(piece.weight * jax.vmap(op.loss)(outputs, piece.y))


def linearized(op: Curvature, piece: Batch) -> Callable[[Parts], Parts]:
    """The product with one vector, for the rows of a piece, as a function that holds what does not depend on it."""
    leaves, outputs = _function(op, piece)
    if op.kind is Kind.HESSIAN:
        return jax.linearize(jax.grad(lambda p: _loss(op, piece, outputs(p))), leaves)[1]
    if op.kind is Kind.RESIDUAL:
        slopes = jax.grad(lambda out: _loss(op, piece, out))(outputs(leaves))
        return jax.linearize(lambda p: jax.vjp(outputs, p)[1](slopes)[0], leaves)[1]
    out, forward = jax.linearize(outputs, leaves)
    return Sandwich(forward, _metric(op, piece, out))


class Sandwich(eqx.Module):
    """`J^T M J`, from the Jacobian as a linear function and a linear function of the outputs."""

    forward: Any
    metric: Any

    def __call__(self, parts: Parts) -> Parts:
        return jax.linear_transpose(self.forward, parts)(self.metric(self.forward(parts)))[0]


class Rows(eqx.Module):
    """`w (s s^T)` of each row, with its weight: rank one."""

    slopes: Float[Array, "n k"]
    weight: Float[Array, " n"]

    def __call__(self, tangents: Float[Array, "n k"]) -> Array:
        return self.weight[:, None] * self.slopes * jnp.sum(self.slopes * tangents, -1, keepdims=True)


def _metric(op: Curvature, piece: Batch, out: Float[Array, "n k"]) -> Callable[[Array], Array]:
    """What stands between the Jacobians, with the weights of the rows."""
    if op.kind is Kind.GAUSS_NEWTON:
        return jax.linearize(jax.grad(lambda o: _loss(op, piece, o)), out)[1]
    slopes = jax.vmap(jax.grad(op.loss))(out, piece.y)
    if op.kind is Kind.EMPIRICAL:
        return Rows(slopes, piece.weight)
    chance = jnp.take_along_axis(jax.nn.softmax(out), piece.y[:, None], axis=1)[:, 0]
    return Rows(slopes, piece.weight * chance)
