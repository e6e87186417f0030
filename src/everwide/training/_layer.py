"""An infinitely wide layer inside a trainable JAX model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from .._checks import InputError
from ..kernel import AbstractKernelFunction
from ..spectral import KernelError
from ._kernels import map_elements, unvalued
from ._optimizers import AbstractOptimizer, as_optimizer, stepped_on_batch
from ._stream import plain_kernel


class KernelLayer(eqx.Module):
    """A layer of infinite width with frozen features: `f(x) = sum_i k(x, x_i) a_i`, trained by its cotangents.

    - `kernel`: an `everwide.Infinite`, of which `which` names the kernel; or any JAX function `k(x1, x2) -> (n1, n2)`.
    - `optimizer`: as in `train`, without `l2`.
    - `input_shape`: of a row. `outputs`: how many.
    - `capacity`: rows that updates may add in all; `grown` makes room for more.

    `layer(x)` takes rows `(n, ...)` to `(n, outputs)`, with gradients in `x` but none in the layer's own numbers: it is
    no parameter of the model around it. That model's gradient in a `tap`, zeros that are added to the outputs, is what
    the layer must know: `layer.update(x, cotangents)` is its own step, as a new layer. All leaves are arrays, so `jit`
    and `scan` take layers as they are.

    >>> import everwide as ew, everwide.training as tr, jax, jax.numpy as jnp
    >>> kernel = ew.Infinite(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), (3,))
    >>> layer = tr.KernelLayer(kernel, tr.AdamStar(0.1), input_shape=(3,), outputs=2, capacity=100)
    >>> def loss(weight, tap):
    ...     hidden = jnp.tanh(jnp.ones((5, 4)) @ weight)
    ...     return jnp.mean((layer(hidden, tap) - 1) ** 2), hidden
    >>> of_both = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    >>> (to_weight, cotangents), hidden = of_both(jnp.ones((4, 3)), layer.tap(5))
    >>> layer = jax.jit(tr.KernelLayer.update)(layer, hidden, cotangents)
    >>> int(layer.size), layer(hidden).shape
    (5, (5, 2))

    Sernau, "Infinite width models that work" (2024).
    """

    x: Float[Array, "capacity ..."]
    coefficients: Float[Array, "capacity k"]
    memory: Any
    size: Int[Array, ""]
    steps: Int[Array, ""]
    numbers: Any  # of the kernel and the optimizer
    rest: Any = eqx.field(static=True)

    def __init__(
        self,
        kernel: AbstractKernelFunction | Callable[[Any, Any], Any],
        optimizer: Any,
        *,
        input_shape: tuple[int, ...],
        outputs: int,
        capacity: int,
        which: str = "ntk",
        dtype: Any = None,
    ):
        precision = np.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
        rule = as_optimizer(optimizer)
        rule.memory_length(precision)
        fn, known, _ = plain_kernel(kernel, which)
        if known is not None and known != tuple(input_shape):
            raise KernelError(
                f"KernelLayer(input_shape={tuple(input_shape)}), but its kernel takes rows of shape {known}."
            )
        if min(outputs, capacity, *input_shape) < 1:
            raise InputError(f"KernelLayer({input_shape=}, {outputs=}, {capacity=}): expected 1 or more.")
        zeros = jnp.zeros((capacity, outputs), precision)
        self.x = jnp.ones((capacity, *input_shape), precision)  # at 0 many kernels have no derivative
        self.coefficients = zeros
        self.memory = rule.transform().init(unvalued(zeros, zeros[0]))
        self.size, self.steps = jnp.asarray(0, jnp.int32), jnp.asarray(0, jnp.int32)
        self.numbers, self.rest = eqx.partition((fn, rule), eqx.is_array)

    def __call__(self, x: Float[Array, "n ..."], tap: Float[Array, "n k"] | None = None) -> Float[Array, "n k"]:
        """The outputs of rows, plus the tap."""
        kernel, _ = self._parts()
        outputs = kernel(x, lax.stop_gradient(self.x)) @ lax.stop_gradient(self.coefficients)
        return outputs if tap is None else outputs + tap

    def tap(self, rows: int) -> Float[Array, "n k"]:
        """Zeros, in which the gradient of a loss is the cotangents of these outputs."""
        return jnp.zeros((rows, self.coefficients.shape[1]), self.coefficients.dtype)

    def update(self, x: Float[Array, "n ..."], cotangents: Float[Array, "n k"]) -> "KernelLayer":
        """The layer after its own step, given the rows that it saw and the gradient of the loss in its outputs."""
        n, capacity = len(x), len(self.x)
        if n > capacity:
            raise InputError(f"An update adds {n} rows, but KernelLayer(capacity={capacity}). Use layer.grown first.")
        full = f"KernelLayer(capacity={capacity}) is full. Use layer.grown(capacity) between updates, outside of jit."
        size = eqx.error_if(self.size, self.size + n > capacity, full)
        kernel, optimizer = self._parts()
        rows, delta = lax.stop_gradient((x, cotangents))
        placed = lax.dynamic_update_slice_in_dim(jnp.zeros_like(self.coefficients), delta, size, 0)
        here = unvalued(self.coefficients, jnp.zeros_like(self.coefficients[0]))
        squared = jnp.sum(delta * (kernel(rows, rows) @ delta), 0)
        here, memory = stepped_on_batch(optimizer, here, placed, self.memory, squared)
        support = lax.dynamic_update_slice_in_dim(self.x, rows, size, 0)
        return self._with(support, here.coefficients, memory, size + n, self.steps + 1)

    def grown(self, capacity: int) -> "KernelLayer":
        """The same layer with room for more rows; what was compiled is compiled again."""
        more = capacity - len(self.x)
        if more < 0:
            raise InputError(f"grown(capacity={capacity}): the layer has {len(self.x)} already.")

        def longer(a: Array, fill: float = 0) -> Array:
            return jnp.concatenate([a, jnp.full((more, *a.shape[1:]), fill, a.dtype)])

        memory = map_elements(lambda e: e._replace(coefficients=longer(e.coefficients)), self.memory)
        return self._with(longer(self.x, 1), longer(self.coefficients), memory, self.size, self.steps)

    def _parts(self) -> tuple[Callable[[Any, Any], Any], AbstractOptimizer]:
        return eqx.combine(lax.stop_gradient(self.numbers), self.rest)

    def _with(self, *state: Any) -> "KernelLayer":
        return eqx.tree_at(
            lambda layer: [layer.x, layer.coefficients, layer.memory, layer.size, layer.steps],
            self,
            list(state),
            is_leaf=lambda leaf: leaf is None,
        )
