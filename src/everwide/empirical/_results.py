"""Kernel matrices on the host while they are filled."""

import numpy as np

from ._forms import Outputs
from ._schedule import Block


def shape(n1: int, n2: int, k: int, outputs: Outputs) -> tuple[int, ...]:
    """Of the matrix that is filled: with all pairs of outputs, `(n1, k, n2, k)`."""
    return {Outputs.FULL: (n1, k, n2, k), Outputs.DIAGONAL: (n1, n2, k)}.get(outputs, (n1, n2))


def write(matrix: np.ndarray, row: Block, column: Block, values: np.ndarray, outputs: Outputs, *, same: bool) -> None:
    """Put a tile into its place; `same`: both sides are the same examples, and its mirror image goes in too."""
    if outputs is Outputs.FULL:
        values = values[: _size(row.examples), : _size(row.outputs), : _size(column.examples), : _size(column.outputs)]
        matrix[row.examples, row.outputs, column.examples, column.outputs] = values
        if same and row != column:
            matrix[column.examples, column.outputs, row.examples, row.outputs] = values.transpose(2, 3, 0, 1)
        return
    values = values[: _size(row.examples), : _size(column.examples)]
    part = (row.outputs,) if outputs is Outputs.DIAGONAL else ()
    values = values[:, :, : _size(row.outputs)] if part else values
    matrix[(row.examples, column.examples, *part)] += values
    if same and row != column:
        matrix[(column.examples, row.examples, *part)] += values.swapaxes(0, 1)


def finished(matrix: np.ndarray, k: int, outputs: Outputs) -> np.ndarray:
    """As it is returned."""
    if outputs is Outputs.TRACE:
        return np.divide(matrix, k, out=matrix)
    return matrix.transpose(0, 2, 1, 3) if outputs is Outputs.FULL else matrix


def _size(part: slice) -> int:
    return part.stop - part.start
