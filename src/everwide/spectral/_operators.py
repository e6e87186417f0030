"""Symmetric matrices that can only be multiplied with: leading eigenpairs, trace, and the density of eigenvalues."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Float

from .._checks import Choice, InputError, positive, whole
from .._engine import require
from ._krylov import krylov, remembered, tridiagonal, turned

_SMALL = 96  # as a matrix, which costs so many products
_BATCH = 16  # random vectors in one product
_SPANNED = 100  # units of rounding of squared lengths: what is shorter is not a direction
_LONG = 100_000  # entries of a vector, beyond which several do not fit into a cache together: one after the other
_FEW_LONG = 4  # such vectors are held at the same time


class End(Choice):
    """Which eigenvalues lead."""

    LARGEST = "largest"
    SMALLEST = "smallest"
    MAGNITUDE = "magnitude"

    def order(self, values: np.ndarray) -> np.ndarray:
        """Places of the leading ones, the first of them first."""
        return np.argsort({"largest": -values, "smallest": values, "magnitude": -np.abs(values)}[self.value])


class Leading(NamedTuple):
    """Made by `leading`: eigenvalues, the leading one first, vectors in columns, and how far each is from one."""

    values: Float[np.ndarray, " k"]
    vectors: Float[np.ndarray, "n k"]
    residuals: Float[np.ndarray, " k"]

    def share(self, vectors: Any) -> float:
        """How much of the squared length of a vector (or of columns, on average) lies in the span of the leading."""
        v = np.asarray(vectors, np.float64)
        squares = np.sum(v**2, axis=0)
        if not np.all(squares > 0):
            raise InputError("A vector of zeros has no direction: expected vectors of a length above 0.")
        return float(np.mean(np.sum((self.vectors.T.astype(np.float64) @ v) ** 2, axis=0) / squares))

    def outliers(self) -> int:
        """How many stand apart: those before the largest ratio between an eigenvalue and the next.

        Ask for some more than there may be: the last of them must belong to the bulk.
        """
        sizes = np.maximum(np.abs(self.values.astype(np.float64)), np.finfo(np.float64).tiny)
        return int(np.argmax(sizes[:-1] / sizes[1:])) + 1 if len(sizes) > 1 else len(sizes)


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


class Density(NamedTuple):
    """Made by `density`: for every random vector, where eigenvalues are and which share of all is there."""

    values: Float[np.ndarray, "samples k"]
    weights: Float[np.ndarray, "samples k"]

    def at(self, points: Any, width: float) -> tuple[np.ndarray, np.ndarray]:
        """The density at some points, smoothed by Gaussians of that standard deviation, and its standard error."""
        deviation = positive(width, "width")
        far = (np.asarray(points, np.float64)[:, None, None] - self.values) / deviation
        smooth = np.sum(self.weights * np.exp(-(far**2) / 2), -1) / (deviation * np.sqrt(2 * np.pi))
        return smooth.mean(1), smooth.std(1, ddof=1) / np.sqrt(len(self.values))

    def moment(self, power: int) -> Estimate:
        """The mean of a power of the eigenvalues."""
        each = np.sum(self.weights * self.values**power, -1)
        return Estimate(float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each))))


def leading(
    matrix: Any,
    size: int = 1,
    *,
    end: str = "largest",
    start: Any = None,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> Leading:
    """Leading eigenvalues and eigenvectors of a symmetric matrix by products with vectors.

    A Krylov space that grows, and is begun anew from its best vectors when it is full (Stewart 2002). With several
    vectors of an earlier call to begin with, LOBPCG, which multiplies with all of them at once (Knyazev 2001).

    Args:
        matrix: an array, or anything that is symmetric and has a `shape` and a product `@`.
        size: how many.
        end: `"largest"`, `"smallest"`, or `"magnitude"`.
        start: a vector to begin with, or `size` of them in columns: those of a matrix that has changed a little.
        tolerance: of the residual of each pair, relative to the largest eigenvalue.
        seed: of the first vector.

    Returns:
        `values`, `vectors` in columns, and the `residuals`; `share(vectors)`: how much of them is in the leading space.

    >>> import everwide.spectral as sp, numpy as np
    >>> pairs = sp.leading(np.diag([1.0, 5.0, 3.0]), 2)
    >>> pairs.values, round(pairs.share([0.0, 1.0, 1.0]), 6)
    (array([5., 3.]), 1.0)

    """
    n, k, side = _size(matrix), whole(size, "size"), End(end)
    if k > n:
        raise InputError(f"size={k}: the matrix has {n} eigenvalues. Ask for {n} at most.")
    far = positive(tolerance, "tolerance")
    multiply = _products(matrix)
    if n <= max(_SMALL, 3 * k):
        return _dense(multiply, n, k, side)
    dtype = _dtype(matrix)
    first = np.random.default_rng(seed).standard_normal(n, dtype) if start is None else _started(start, n, k, dtype)
    if first.ndim == 2 and side is not End.MAGNITUDE:
        return _block(multiply, first, side, far)
    return Leading(*krylov(multiply, first if first.ndim == 1 else first.sum(1), k, side.order, far))


def trace(matrix: Any, *, samples: int = 96, seed: int = 0) -> Estimate:
    """The trace of a symmetric matrix by products with random vectors, with its error (Hutch++; Meyer et al. 2021).

    A third of the products finds where the matrix is large, and a third is exact there; what is left is averaged.

    Args:
        matrix: as in `leading`.
        samples: products, 6 or more.
        seed: of the random vectors.

    Returns:
        `value` and its standard `error`, 0 where the random vectors span everything.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.trace(np.diag([1.0, 5.0, 3.0]))
    Estimate(value=9.0, error=0.0)

    """
    n, third = _size(matrix), whole(samples, "samples", 6) // 3
    multiply = _products(matrix)
    if n <= 2 * third:
        return Estimate(float(np.trace(_columns(multiply, np.eye(n)).astype(np.float64))), 0.0)
    rng, dtype = np.random.default_rng(seed), _dtype(matrix)
    pieces, images = _together(n, third), np.empty((third, n), dtype)
    for piece in pieces:
        images[piece] = multiply(_signs(rng, n, len(images[piece]), dtype)).T
    basis = _orthonormal(images.T)
    inside = [_inner(basis[:, piece], multiply(basis[:, piece])) for piece in _together(n, basis.shape[1])]
    each = []
    for piece in pieces:
        rest = _signs(rng, n, len(images[piece]), dtype).T
        rest = (rest - (rest @ basis) @ basis.T).T
        each.append(_inner(rest, multiply(rest)))
    outside = np.concatenate(each)
    exact = float(sum(part.sum() for part in inside))
    return Estimate(exact + float(outside.mean()), float(outside.std(ddof=1) / np.sqrt(third)))


def density(
    matrix: Any,
    *,
    samples: int = 8,
    length: int = 64,
    start: Any = None,
    seed: int = 0,
) -> Density:
    """How the eigenvalues of a symmetric matrix are distributed, by Lanczos from random vectors (Ubaru et al. 2017).

    Args:
        matrix: as in `leading`.
        samples: random vectors, 2 or more.
        length: steps from each; eigenvalues that stand apart need few, details of a bulk many.
        start: vectors in columns, none of them 0, instead of random ones: weights are then the shares of their squared
            lengths.
        seed: of the random vectors.

    Returns:
        `at(points, width)`: the density with its standard error; `moment(power)`; `values`, `weights` of each vector.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.density(np.diag([1.0, 1.0, 4.0]), samples=2, length=2).moment(1).value
    2.0
    >>> sp.density(np.diag([1.0, 4.0]), start=np.array([[3.0], [1.0]])).weights.round(6)
    array([[0.9, 0.1]])

    """
    n, first = _size(matrix), None if start is None else _columns_of(start, _size(matrix))
    many, dtype = (whole(samples, "samples", 2), _dtype(matrix)) if first is None else (first.shape[1], first.dtype)
    steps = min(whole(length, "length"), n)
    way_out = "Take fewer steps or samples."
    held = np.dtype(dtype).itemsize * n * (many if n <= _LONG else 1) * (remembered(n, steps) + 2)
    require(held, None, f"{many} Krylov spaces of {steps} vectors", way_out)
    rng, multiply = np.random.default_rng(seed), _products(matrix)
    each = [slice(0, many)] if n <= _LONG else [slice(at, at + 1) for at in range(many)]

    def begun(piece: slice) -> np.ndarray:
        return _signs(rng, n, piece.stop - piece.start, dtype) if first is None else first[:, piece]

    runs = [tridiagonal(multiply, begun(piece), steps) for piece in each]
    diagonals, besides = (np.concatenate(sides, axis=1) for sides in zip(*runs, strict=True))
    values, weights = np.zeros((many, steps)), np.zeros((many, steps))
    for sample, (diagonal, beside) in enumerate(zip(diagonals.T, besides.T, strict=True)):
        size = int(np.argmax(beside == 0)) + 1 if (beside == 0).any() else steps
        nodes, vectors = scipy.linalg.eigh_tridiagonal(diagonal[:size], beside[: size - 1])
        values[sample, :size], weights[sample, :size] = nodes, vectors[0] ** 2
    return Density(values, weights)


def _size(matrix: Any) -> int:
    shape = getattr(matrix, "shape", ())
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise InputError(f"The matrix has shape {tuple(shape)}, expected (n, n): it must be symmetric.")
    return int(shape[0])


def _dtype(matrix: Any) -> Any:
    """That of the matrix, for what is kept of its size: float32 or float64."""
    return np.float32 if np.dtype(getattr(matrix, "dtype", np.float64)) == np.float32 else np.float64


def _products(matrix: Any) -> Callable[[np.ndarray], np.ndarray]:
    """What can be done once is done once."""
    ready = matrix.prepared() if hasattr(matrix, "prepared") else matrix
    alone = not isinstance(matrix, np.ndarray) and len(matrix.shape) == 2 and matrix.shape[0] > _LONG

    def multiply(v: np.ndarray) -> np.ndarray:
        together = v.ndim == 1 or not alone
        if together:
            image = np.asarray(ready @ v)
        else:
            rows = np.empty((v.shape[1], len(v)), _dtype(matrix))
            for row, column in zip(rows, v.T, strict=True):
                row[:] = ready @ column
            image = rows.T
        if not _finite(image):
            raise InputError(
                "A product with the matrix is not finite. Look for NaN in the parameters and the examples."
            )
        return image

    return multiply


def _finite(image: np.ndarray) -> bool:
    """Squares that add up to a number are fast to find; large numbers may add up to infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = sum(float(column @ column) for column in (image.T if image.ndim == 2 else image[None]))
    return bool(np.isfinite(total)) or bool(np.isfinite(image).all())


def _together(n: int, many: int) -> list[slice]:
    """Columns that are held and multiplied at the same time."""
    size = _BATCH if n <= _LONG else _FEW_LONG
    return [slice(at, min(at + size, many)) for at in range(0, many, size)]


def _columns(multiply: Callable[[np.ndarray], np.ndarray], columns: np.ndarray) -> np.ndarray:
    """A few at a time."""
    return np.concatenate([multiply(columns[:, piece]) for piece in _together(*columns.shape)], axis=1)


def _signs(rng: np.random.Generator, n: int, many: int, dtype: Any) -> np.ndarray:
    """Columns, each of them in one piece of memory."""
    signs = np.empty((many, n), dtype)
    for row in signs:
        np.multiply(np.unpackbits(np.frombuffer(rng.bytes(-(-n // 8)), np.uint8), count=n), 2, out=row, dtype=dtype)
    signs -= 1
    return signs.T


def _inner(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The inner products of columns, added up in float64."""
    return np.array([np.einsum("i,i->", one, other, dtype=np.float64) for one, other in zip(a.T, b.T, strict=True)])


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """A basis of what columns span, in their place, by inner products alone; twice: these lose half of the digits."""
    for _ in range(2):
        values, vectors = scipy.linalg.eigh((columns.T @ columns).astype(np.float64))
        kept = values > _SPANNED * np.finfo(columns.dtype).eps * values.max()
        columns = turned(columns, vectors[:, kept] / np.sqrt(values[kept]))
    return columns


def _started(start: Any, n: int, k: int, dtype: Any) -> np.ndarray:
    first = np.asarray(start, dtype)
    if first.shape not in ((n,), (n, k)) or not np.isfinite(first).all() or not np.any(first):
        raise InputError(
            f"start has shape {first.shape}, expected a vector ({n},), or ({n}, {k}), of finite numbers, not all 0."
        )
    return first[:, 0] if first.shape == (n, 1) else first


def _columns_of(start: Any, n: int) -> np.ndarray:
    first = np.asarray(start)
    first = first if first.dtype == np.float32 else first.astype(np.float64)
    if first.ndim != 2 or len(first) != n or not first.size or not np.isfinite(first).all() or not first.any(0).all():
        raise InputError(f"start has shape {first.shape}, expected ({n}, samples): finite columns, none of them 0.")
    return first


def _dense(multiply: Callable[[np.ndarray], np.ndarray], n: int, k: int, end: End) -> Leading:
    whole_matrix = _columns(multiply, np.eye(n)).astype(np.float64)
    values, vectors = scipy.linalg.eigh((whole_matrix + whole_matrix.T) / 2)
    places = end.order(values)[:k]
    away = whole_matrix @ vectors[:, places] - vectors[:, places] * values[places]
    return Leading(values[places], vectors[:, places], np.linalg.norm(away, axis=0))


def _block(multiply: Callable[[np.ndarray], np.ndarray], first: np.ndarray, end: End, tolerance: float) -> Leading:
    """LOBPCG from vectors that are near."""
    basis = _orthonormal(first.copy(order="F"))
    size = float(np.abs(np.sum(basis * multiply(basis), axis=0)).max()) or 1.0
    shape = (len(first), len(first))
    operator = scipy.sparse.linalg.LinearOperator(shape, matvec=multiply, matmat=multiply, dtype=first.dtype)  # pyright: ignore[reportCallIssue]
    values, vectors = scipy.sparse.linalg.lobpcg(
        operator, basis, largest=end is End.LARGEST, tol=tolerance * size, maxiter=200
    )[:2]
    places = end.order(values)
    values, vectors = values[places], vectors[:, places]
    return Leading(values, vectors, np.linalg.norm(multiply(vectors) - vectors * values, axis=0))
