"""Functions as elements of a vector space, and the kernels that span it."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import InputError, complex_fault
from .._engine import as_rows
from ..kernel import AbstractKernelFunction, Inputs
from ..spectral import KernelError, Spectrum


class Element(NamedTuple):
    """The function `K(x, X) coefficients + start * f0(x)`, a column for each output.

    Sums and multiples of such functions are again such functions: parameters, gradients and momenta of an infinitely
    wide network all are, and what is linear in optax acts on them. `values` are `K coefficients` at the training rows,
    carried along because they are needed at every step, and cost no more than one product with the rows of a batch to
    keep. They are transposed: then that product runs along the rows of the kernel, twice as fast.
    """

    coefficients: Float[Array, "n k"]
    values: Float[Array, "k rows"]
    start: Float[Array, " k"]


def spread(factors: Float[Array, " k"]) -> Element:
    """One number for each output, as factors of the parts of a function."""
    return Element(factors[None], factors[:, None], factors)


def unvalued(coefficients: Float[Array, "n k"], start: Float[Array, " k"], value: float = 0.0) -> Element:
    """For steps that compute what they need of values: one stands for the rows that no gradient reaches any more."""
    return Element(coefficients, jnp.full((len(start), 1), value, coefficients.dtype), start)


def map_elements(fn: Callable[..., Element], memory: Any, *others: Any) -> Any:
    """Change the functions in an optimizer's memory, and leave the numbers; of several memories, those of the last."""

    def change(*parts: Any) -> Any:
        return fn(*parts) if _is_element(parts[0]) else parts[-1]

    return jax.tree.map(change, memory, *others, is_leaf=_is_element)


def _is_element(part: Any) -> bool:
    return isinstance(part, Element)


class Start(eqx.Module):
    """The initial function: its values at the training rows, and its squared norm for each output where it is known."""

    values: Float[Array, "n k"]
    power: Float[Array, " k"] | None

    def outputs(self, element: Element) -> Float[Array, "n k"]:
        """The element at the training rows."""
        return element.values.T + element.start * self.values

    def squared_norm(self, element: Element) -> Float[Array, " k"]:
        """For each output: of a gradient, what ADAM* averages over an infinite width."""
        if self.power is None:
            raise InputError(
                "AdamStar(l2=...) with an f0 needs f0_power, (k,): the squared norm of f0 for each output (with "
                "features G and f0 = G m, the sum of m^2). Use weight_decay instead where it is not known."
            )
        own = jnp.sum(element.coefficients.T * element.values, 1)
        mixed = jnp.sum(element.coefficients * self.values, 0)
        return own + 2 * element.start * mixed + element.start**2 * self.power


def zero_like(start: Start) -> Element:
    """The function that is 0."""
    zeros = jnp.zeros_like(start.values)
    return Element(zeros, zeros.T, zeros[0])


Batch = Int[Array, " batch"] | slice
ALL = slice(None)  # the batch of all rows

_LARGEST_CHECKED = 2000  # rows of a matrix whose eigenvalues are checked: beyond, it would take longer than training


class AbstractTrainKernel(eqx.Module):
    """The kernel of `n` training rows with themselves."""

    @property
    @abc.abstractmethod
    def data(self) -> Any:
        """What the kernel is made of: an array with a row for each training row, or the shape and dtype of one."""

    @property
    def rows(self) -> int:
        """Number of training rows."""
        return self.data.shape[0]

    @property
    def dtype(self) -> np.dtype:
        """Of the numbers."""
        return np.dtype(self.data.dtype)

    @abc.abstractmethod
    def product(self, batch: Batch, delta: Float[Array, "k batch"]) -> Float[Array, "k n"]:
        """`delta @ K[batch]`: all rows with those of the batch."""


class MatrixKernel(AbstractTrainKernel):
    """A symmetric matrix `(n, n)`; or `(n, n, k, k)` where the outputs share parameters."""

    matrix: Float[np.ndarray, "n n *k_k"] | Float[Array, "n n *k_k"]

    def __check_init__(self):
        shape = self.matrix.shape
        if len(shape) not in (2, 4) or shape[0] != shape[1] or shape[2:3] != shape[3:] or not shape[0]:
            raise KernelError(f"The kernel has shape {shape}, expected (n, n) or (n, n, outputs, outputs).")

    @property
    def data(self) -> Any:
        return self.matrix

    def product(self, batch: Batch, delta: Float[Array, "k batch"]) -> Float[Array, "k n"]:
        some = jnp.asarray(self.matrix)[batch]
        return delta @ some if some.ndim == 2 else jnp.einsum("bnij,ib->jn", some, delta)


class FeatureKernel(AbstractTrainKernel):
    """`G G^T` of explicit features `G`, `(n, features)`: scale them so that this is the kernel that you mean.

    >>> import everwide.training as tr, numpy as np
    >>> tr.FeatureKernel(np.ones((3, 100)) / 10).rows
    3
    """

    features: Float[np.ndarray, "n h"] | Float[Array, "n h"]

    def __check_init__(self):
        if self.features.ndim != 2 or 0 in self.features.shape:
            raise KernelError(f"Features have shape {self.features.shape}, expected (n, features).")
        if not np.isfinite(np.asarray(self.features)).all():
            raise KernelError("Features hold values that are not finite.")

    @property
    def data(self) -> Any:
        return self.features

    def product(self, batch: Batch, delta: Float[Array, "k batch"]) -> Float[Array, "k n"]:
        g = jnp.asarray(self.features)
        return (delta @ g[batch]) @ g.T


class FunctionKernel(AbstractTrainKernel):
    """A kernel function of two batches of rows, `(a, ...), (b, ...) -> (a, b)`, evaluated as it is needed.

    No matrix is kept: memory is that of `n` rows times a batch. `of` takes an `everwide.Infinite`.

    >>> import everwide.training as tr, jax.numpy as jnp
    >>> tr.FunctionKernel(lambda a, b: a @ b.T, jnp.ones((5, 2))).rows
    5
    """

    fn: Callable[[Any, Any], Any]
    x: Float[np.ndarray, "n ..."] | Float[Array, "n ..."]

    def __check_init__(self):
        if 0 in self.x.shape or not np.isfinite(np.asarray(self.x)).all():
            raise InputError(f"x has shape {self.x.shape}: expected at least one row, of finite numbers.")

    @classmethod
    def of(cls, kernel: AbstractKernelFunction, x: Any, which: str = "ntk") -> "FunctionKernel":
        """The `"ntk"` or `"nngp"` of a kernel function of the library.

        >>> import everwide as ew, everwide.training as tr, numpy as np
        >>> kernel = ew.Infinite(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), (2,))
        >>> tr.FunctionKernel.of(kernel, np.ones((5, 2))).rows
        5
        """
        if which not in ("ntk", "nngp"):
            raise InputError(f"which={which!r}: expected 'ntk' or 'nngp'.")
        return cls(_Field(kernel, which), as_rows(x).x)

    @property
    def data(self) -> Any:
        return self.x

    def product(self, batch: Batch, delta: Float[Array, "k batch"]) -> Float[Array, "k n"]:
        x = jnp.asarray(self.x)
        if isinstance(batch, slice):  # all rows: never the whole matrix
            return jax.lax.map(lambda row: delta @ self.fn(x, row[None])[:, 0], x, batch_size=256).T
        return delta @ self.fn(x[batch], x)


class OperatorKernel(AbstractTrainKernel):
    """A kernel that is known by its products with `(n, k)` only, such as `everwide.empirical.ntk_operator`.

    >>> import everwide.training as tr, jax.numpy as jnp
    >>> tr.OperatorKernel(lambda v: 2 * v, n=4, dtype="float32").rows
    4
    """

    operator: Any
    column: jax.ShapeDtypeStruct = eqx.field(static=True)

    def __init__(self, operator: Any, n: int, dtype: Any = np.float32):
        self.operator, self.column = operator, jax.ShapeDtypeStruct((n,), np.dtype(dtype))

    @property
    def data(self) -> Any:
        return self.column

    def product(self, batch: Batch, delta: Float[Array, "k batch"]) -> Float[Array, "k n"]:
        if not isinstance(batch, slice):
            delta = jnp.zeros((len(delta), self.rows), delta.dtype).at[:, batch].add(delta)
        return self.operator(delta.T).T


class _Field(eqx.Module):
    """One of the two kernels of a kernel function, of plain arrays."""

    kernel: AbstractKernelFunction
    which: str = eqx.field(static=True)

    def __call__(self, a: Any, b: Any) -> Any:
        return getattr(self.kernel.block(Inputs(a), Inputs(b)), self.which)


def as_kernel(kernel: Any) -> AbstractTrainKernel:
    """A matrix, or what already is a kernel of the training rows; finite."""
    if isinstance(kernel, AbstractTrainKernel):
        return kernel
    matrix = np.asarray(kernel)
    if np.iscomplexobj(matrix):
        raise KernelError(complex_fault("The kernel", matrix.dtype))
    if not np.issubdtype(matrix.dtype, np.number):
        raise KernelError(f"The kernel holds {matrix.dtype}, expected real numbers.")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    shaped = MatrixKernel(matrix)
    _check_matrix(matrix)
    return shaped


def _check_matrix(matrix: np.ndarray) -> None:
    if not np.isfinite(matrix).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        raise KernelError(f"The kernel holds {matrix[place]} at {place}. Compute it from finite data.")
    other = matrix.T if matrix.ndim == 2 else matrix.transpose(1, 0, 3, 2)
    off = float(np.abs(matrix - other).max())
    if off > 1e3 * np.finfo(matrix.dtype).eps * float(np.abs(matrix).max()):
        raise KernelError(
            f"The kernel is not symmetric: entries differ from their mirror images by up to {off:.3g}. "
            "Pass the kernel of the training rows with themselves."
        )
    if len(matrix) <= _LARGEST_CHECKED:
        Spectrum.check(flat(matrix))


def flat(kernel: np.ndarray) -> np.ndarray:
    """`(m, n, k, k)` as a matrix whose rows are outputs within examples; `(m, n)` as it is."""
    if kernel.ndim == 2:
        return kernel
    m, n, k, _ = kernel.shape
    return kernel.transpose(0, 2, 1, 3).reshape(m * k, n * k)
