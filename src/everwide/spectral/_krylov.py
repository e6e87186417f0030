"""Krylov spaces of symmetric matrices whose products are numpy arrays: what `leading` and `density` are made of."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from .._engine import require

_TINY = 10  # units of rounding: what is left of a vector that lies in the space already
_SPACE = 12  # vectors of a Krylov space beyond twice what is wanted
_FEW = 10_000  # rows up to which all vectors of a Krylov space are remembered
_MOST = 50  # times that a Krylov space is begun anew
_ROWS = 100_000  # that are turned at the same time

Order = Callable[[np.ndarray], np.ndarray]  # places of the leading values, the first of them first


def krylov(
    multiply: Callable[[np.ndarray], np.ndarray], first: np.ndarray, k: int, order: Order, tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Krylov and Schur: columns of the basis, and the matrix between them. Values, vectors, residuals."""
    n, most = len(first), min(len(first), 2 * k + _SPACE)
    require(first.itemsize * n * (most + 1), None, f"A Krylov space of {most} vectors", "Ask for fewer eigenvalues.")
    rows, inside = np.empty((most + 1, n), first.dtype), np.zeros((most, most))
    basis, kept = rows.T, 0
    basis[:, 0] = first / np.linalg.norm(first)
    for _ in range(_MOST):
        size, left = _grow(multiply, basis, inside, kept, k, order, tolerance)
        values, vectors = scipy.linalg.eigh((inside[:size, :size] + inside[:size, :size].T) / 2)
        places = order(values)[: min(k + _SPACE // 2, size - 1)] if size < n else order(values)
        residuals = left * np.abs(vectors[-1, places])
        turned(basis, vectors[:, places])
        if (residuals[:k] <= tolerance * np.abs(values).max()).all() or size == n:
            break
        kept = len(places)
        basis[:, kept] = basis[:, size]
        inside[:] = 0
        inside[range(kept), range(kept)] = values[places]
    del basis
    rows.resize((k, n), refcheck=False)  # what is not wanted is given back without a copy
    return values[places][:k], rows.T, residuals[:k]


def _grow(
    multiply: Callable[[np.ndarray], np.ndarray],
    basis: np.ndarray,
    inside: np.ndarray,
    kept: int,
    k: int,
    order: Order,
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
            if (left * np.abs(vectors[-1, order(values)[:k]]) <= tolerance * np.abs(values).max()).all():
                return size, left
    return most, left


def tridiagonal(
    multiply: Callable[[np.ndarray], np.ndarray], first: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The tridiagonal matrices of several vectors, `(steps, samples)`; all are multiplied together.

    Of large matrices two vectors are remembered, not all: eigenvalues are then found several times, with weights that
    add up, which changes no density (Chen, Trogdon and Ubaru 2022).
    """
    n, many = first.shape
    memory = remembered(n, steps)
    axpy: Any = scipy.linalg.get_blas_funcs("axpy", dtype=first.dtype)
    bases = [np.ascontiguousarray((first / np.linalg.norm(first, axis=0)).T)]
    diagonals, besides = np.zeros((steps, many)), np.zeros((steps, many))
    rounding = _TINY * np.finfo(first.dtype).eps
    for step in range(steps):
        images = np.array(multiply(bases[-1].T).T, first.dtype, order="C")
        for sample, image in enumerate(images):
            earlier = [basis[sample] for basis in bases]
            diagonals[step, sample] = earlier[-1] @ image
            for _ in range(1 if memory < steps else 2):
                for vector in earlier[::-1]:
                    axpy(vector, image, a=-float(vector @ image))
            left = float(np.linalg.norm(image))
            besides[step, sample] = left if left > rounding * np.abs(diagonals[: step + 1, sample]).max() else 0.0
            image *= 1 / left if besides[step, sample] else 0.0
        bases = [*bases, images][-memory:]
    besides[-1] = 0
    return diagonals, besides


def remembered(n: int, steps: int) -> int:
    """Vectors of a Krylov space that are kept, to be orthogonal to."""
    return steps if n <= _FEW else min(2, steps)


def turned(columns: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """`columns @ turn` in the first of these columns, some rows after others: no second space is needed."""
    rows, many = turn.astype(columns.dtype).T, turn.shape[1]
    for at in range(0, len(columns), _ROWS):
        columns.T[:many, at : at + _ROWS] = rows @ columns.T[: len(turn), at : at + _ROWS]
    return columns[:, :many]
