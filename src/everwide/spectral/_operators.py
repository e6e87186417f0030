"""Symmetric matrices that can only be multiplied with: leading eigenpairs, trace, and the density of eigenvalues."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Float

from .._checks import Choice, InputError, positive, whole
from .._engine import require

_SMALL = 96  # as a matrix, which costs so many products
_BATCH = 16  # random vectors in one product
_SPANNED = 100  # units of rounding of squared lengths: what is shorter is not a direction
_TINY = 10  # units of rounding: what is left of a vector that lies in the space already
_SPACE = 12  # vectors of a Krylov space beyond twice what is wanted
_LONG = 100_000  # entries of a vector, beyond which several do not fit into a cache together: one after the other
_FEW = 10_000  # rows up to which all vectors of a Krylov space are remembered
_MOST = 50  # times that a Krylov space is begun anew


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
    return _krylov(multiply, first if first.ndim == 1 else first.sum(1), k, side, far)


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
    basis = _orthonormal(_columns(multiply, _signs(rng, n, third, dtype)))
    exact = float(_inner(basis, _columns(multiply, basis)).sum()) if basis.shape[1] else 0.0
    rest = _signs(rng, n, third, dtype)
    rest = (rest.T - (rest.T @ basis) @ basis.T).T
    each = _inner(rest, _columns(multiply, rest))
    return Estimate(exact + float(each.mean()), float(each.std(ddof=1) / np.sqrt(third)))


def density(matrix: Any, *, samples: int = 8, length: int = 64, seed: int = 0) -> Density:
    """How the eigenvalues of a symmetric matrix are distributed, by Lanczos from random vectors (Ubaru et al. 2017).

    Args:
        matrix: as in `leading`.
        samples: random vectors, 2 or more; they are multiplied together.
        length: steps from each; eigenvalues that stand apart need few, details of a bulk many.
        seed: of the random vectors.

    Returns:
        `at(points, width)`: the density with its standard error; `moment(power)`; `values`, `weights` of each vector.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.density(np.diag([1.0, 1.0, 4.0]), samples=2, length=2).moment(1).value
    2.0

    """
    n, many = _size(matrix), whole(samples, "samples", 2)
    steps = min(whole(length, "length"), n)
    way_out = "Take fewer steps or samples."
    held = np.dtype(_dtype(matrix)).itemsize * n * many * (_remembered(n, steps) + 2)
    require(held, None, f"{many} Krylov spaces of {steps} vectors", way_out)
    first = _signs(np.random.default_rng(seed), n, many, _dtype(matrix))
    diagonals, besides = _lanczos(_products(matrix), first, steps)
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
        image = np.asarray(ready @ v) if together else np.array([ready @ column for column in v.T]).T
        if not np.isfinite(image).all():
            raise InputError(
                "A product with the matrix is not finite. Look for NaN in the parameters and the examples."
            )
        return image

    return multiply


def _columns(multiply: Callable[[np.ndarray], np.ndarray], columns: np.ndarray) -> np.ndarray:
    """A few at a time."""
    pieces = [multiply(columns[:, at : at + _BATCH]) for at in range(0, columns.shape[1], _BATCH)]
    return np.concatenate(pieces, axis=1)


def _signs(rng: np.random.Generator, n: int, many: int, dtype: Any) -> np.ndarray:
    """Columns, each of them in one piece of memory."""
    return (2 * rng.integers(0, 2, (many, n), dtype=np.int8) - 1).astype(dtype).T


def _inner(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The inner products of columns, added up in float64."""
    return np.array([np.einsum("i,i->", one, other, dtype=np.float64) for one, other in zip(a.T, b.T, strict=True)])


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """A basis of what columns span, by their inner products alone; twice, since these lose half of the digits."""
    for _ in range(2):
        values, vectors = scipy.linalg.eigh((columns.T @ columns).astype(np.float64))
        kept = values > _SPANNED * np.finfo(columns.dtype).eps * values.max()
        turn = vectors[:, kept] / np.sqrt(values[kept])
        columns = (turn.T.astype(columns.dtype) @ columns.T).T
    return columns


def _started(start: Any, n: int, k: int, dtype: Any) -> np.ndarray:
    first = np.asarray(start, dtype)
    if first.shape not in ((n,), (n, k)) or not np.isfinite(first).all() or not np.any(first):
        raise InputError(
            f"start has shape {first.shape}, expected a vector ({n},), or ({n}, {k}), of finite numbers, not all 0."
        )
    return first[:, 0] if first.shape == (n, 1) else first


def _dense(multiply: Callable[[np.ndarray], np.ndarray], n: int, k: int, end: End) -> Leading:
    whole_matrix = _columns(multiply, np.eye(n)).astype(np.float64)
    values, vectors = scipy.linalg.eigh((whole_matrix + whole_matrix.T) / 2)
    places = end.order(values)[:k]
    away = whole_matrix @ vectors[:, places] - vectors[:, places] * values[places]
    return Leading(values[places], vectors[:, places], np.linalg.norm(away, axis=0))


def _block(multiply: Callable[[np.ndarray], np.ndarray], first: np.ndarray, end: End, tolerance: float) -> Leading:
    """LOBPCG from vectors that are near."""
    basis = _orthonormal(first)
    size = float(np.abs(np.sum(basis * multiply(basis), axis=0)).max()) or 1.0
    shape = (len(first), len(first))
    operator = scipy.sparse.linalg.LinearOperator(shape, matvec=multiply, matmat=multiply, dtype=first.dtype)  # pyright: ignore[reportCallIssue]
    values, vectors = scipy.sparse.linalg.lobpcg(
        operator, basis, largest=end is End.LARGEST, tol=tolerance * size, maxiter=200
    )[:2]
    places = end.order(values)
    values, vectors = values[places], vectors[:, places]
    return Leading(values, vectors, np.linalg.norm(multiply(vectors) - vectors * values, axis=0))


def _krylov(
    multiply: Callable[[np.ndarray], np.ndarray], first: np.ndarray, k: int, end: End, tolerance: float
) -> Leading:
    """Krylov and Schur: columns of the basis, and the matrix between them."""
    n, most = len(first), min(len(first), 2 * k + _SPACE)
    require(first.itemsize * n * (most + 1), None, f"A Krylov space of {most} vectors", "Ask for fewer eigenvalues.")
    basis, inside = np.zeros((n, most + 1), first.dtype, order="F"), np.zeros((most, most))
    basis[:, 0], kept = first / np.linalg.norm(first), 0
    for _ in range(_MOST):
        size, left = _grow(multiply, basis, inside, kept, k, end, tolerance)
        values, vectors = scipy.linalg.eigh((inside[:size, :size] + inside[:size, :size].T) / 2)
        places = end.order(values)[: min(k + _SPACE // 2, size - 1)] if size < n else end.order(values)
        residuals = left * np.abs(vectors[-1, places])
        ritz = basis[:, :size] @ vectors[:, places].astype(basis.dtype)
        if (residuals[:k] <= tolerance * np.abs(values).max()).all() or size == n:
            break
        kept = len(places)
        basis[:, kept], basis[:, :kept] = basis[:, size], ritz
        inside[:] = 0
        inside[range(kept), range(kept)] = values[places]
    return Leading(values[places][:k], ritz[:, :k], residuals[:k])


def _grow(
    multiply: Callable[[np.ndarray], np.ndarray],
    basis: np.ndarray,
    inside: np.ndarray,
    kept: int,
    k: int,
    end: End,
    tolerance: float,
) -> tuple[int, float]:
    """Vectors until the space is full or holds what is wanted; its size, and the length of what is left."""
    most, largest = inside.shape[0], 0.0
    for place in range(kept, most):
        image = np.array(multiply(basis[:, place]), basis.dtype)
        rounding, here = np.finfo(basis.dtype).eps, basis[:, : place + 1]
        for _ in range(2):
            along = here.T @ image
            image -= here @ along
            inside[: place + 1, place] += along
        inside[place, : place + 1] = inside[: place + 1, place]
        left, size = float(np.linalg.norm(image)), place + 1
        largest = max(largest, float(np.abs(inside[:size, place]).max()))
        if left <= _TINY * rounding * largest:  # the space is invariant: go on with another direction
            image, left = np.random.default_rng(size).standard_normal(len(image), basis.dtype), 0.0
            for _ in range(2):
                image -= here @ (here.T @ image)
        basis[:, size] = image / np.linalg.norm(image)
        if left and size > k and size % 5 == 0 and size < most:
            values, vectors = scipy.linalg.eigh(inside[:size, :size])
            if (left * np.abs(vectors[-1, end.order(values)[:k]]) <= tolerance * np.abs(values).max()).all():
                return size, left
    return most, left


def _lanczos(
    multiply: Callable[[np.ndarray], np.ndarray], first: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The tridiagonal matrices of several vectors, `(steps, samples)`; all are multiplied together.

    Of large matrices two vectors are remembered, not all: eigenvalues are then found several times, with weights that
    add up, which changes no density (Chen, Trogdon and Ubaru 2022).
    """
    n, many = first.shape
    remembered = _remembered(n, steps)
    axpy: Any = scipy.linalg.get_blas_funcs("axpy", dtype=first.dtype)
    bases = [np.ascontiguousarray((first / np.linalg.norm(first, axis=0)).T)]
    diagonals, besides = np.zeros((steps, many)), np.zeros((steps, many))
    rounding = _TINY * np.finfo(first.dtype).eps
    for step in range(steps):
        images = np.array(multiply(bases[-1].T).T, first.dtype, order="C")
        for sample, image in enumerate(images):
            earlier = [basis[sample] for basis in bases]
            diagonals[step, sample] = earlier[-1] @ image
            for _ in range(1 if remembered < steps else 2):
                for vector in earlier[::-1]:
                    axpy(vector, image, a=-float(vector @ image))
            left = float(np.linalg.norm(image))
            besides[step, sample] = left if left > rounding * np.abs(diagonals[: step + 1, sample]).max() else 0.0
            image *= 1 / left if besides[step, sample] else 0.0
        bases = [*bases, images][-remembered:]
    besides[-1] = 0
    return diagonals, besides


def _remembered(n: int, steps: int) -> int:
    """Vectors of a Krylov space that are kept, to be orthogonal to."""
    return steps if n <= _FEW else min(2, steps)
