"""The contract of a layer: one object defines the finite network and its infinite-width limit."""

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..kernel import Example, Inputs, Kernel
from ..signal import ArchitectureError, Demand, Parametrization, Signal

Params = Any


class AbstractLayer(eqx.Module):
    """A network, or a part of one: described once, at any width.

    Five methods make a layer. Two are static, `describe` (forward: shapes and laws) and `demand` (backward: which
    pairs of sites must be tracked); two are finite, `sample` and `forward`; one is the limit, `propagate`.
    `everwide.testing.check_layer` proves that they agree.
    """

    @abc.abstractmethod
    def describe(self, signal: Signal) -> Signal:
        """Static forward pass: shape and law of the output. Raises `ArchitectureError`."""

    @abc.abstractmethod
    def demand(self, wanted: Demand) -> Demand:
        """Static backward pass: what this layer must read to produce `wanted`."""

    @abc.abstractmethod
    def sample(self, key: Array, signal: Signal) -> Params:
        """Draw the parameters of a finite network for the described input."""

    @abc.abstractmethod
    def forward(self, params: Params, example: Example) -> Example:
        """Finite width, one example."""

    @abc.abstractmethod
    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        """Infinite width: `k` covers `demand(wanted)`. Sites lead, examples trail (see `everwide.kernel`)."""

    def init(
        self,
        key: Array,
        input_shape: tuple[int, ...],
        *,
        width: int | None = None,
        parametrization: Parametrization | str = Parametrization.NTK,
    ) -> Params:
        """Draw a finite network for inputs of shape `(*sites, channels)`.

        `width` is given to every layer that leaves its own open. `everwide.optim` has the learning rates that belong
        to each parametrization.
        """
        law = Parametrization(parametrization)
        signal = Signal(tuple(input_shape), width=width, parametrization=law, readouts=frozenset())
        return self.sample(key, replace(signal, readouts=self.describe(signal).sources))

    def apply(self, params: Params, x: Array | Example, *, key: Array | None = None) -> Array:
        """Output of a finite network for one example; `jax.vmap` it for a batch.

        With a `key` the pass is a training pass (dropout is active).
        """
        example = x if isinstance(x, Example) else Example(jnp.asarray(x))
        example = example if key is None else Example(example.x, example.mask, example.graph, key)
        return self.forward(params, example.with_values(example.x)).x

    def critical(self) -> "AbstractLayer":
        """The same architecture with the variances of weights and biases at which deep signals are kept.

        Raises `ArchitectureError` where there are none, with the reason: see `everwide.theory.criticality.critical`.
        """
        from ..theory.criticality import critical  # theory knows layers, and not the other way round

        return critical(self)


def step(layer: AbstractLayer, k: Kernel, wanted: Demand) -> Kernel:
    """The only way one layer runs another: drop what it will not read, then run it."""
    return layer.propagate(k.restrict(layer.demand(wanted)), wanted)


def examples(inputs: Inputs, fn: Callable[[Example], Any]) -> Any:
    """Map `fn` over the examples of a batch."""
    return eqx.filter_vmap(lambda one: fn(Example(one.x, one.mask, one.graph)))(inputs)


def name(layer: AbstractLayer) -> str:
    """How a layer is called in messages."""
    return type(layer).__name__


def needs_sites(layer: AbstractLayer, signal: Signal, axes: int | None = None) -> None:
    """Raise unless the signal has site axes (`axes` of them, if given)."""
    have = len(signal.sites)
    if (axes is None and have == 0) or (axes is not None and have != axes):
        expected = "at least one site axis" if axes is None else f"{axes} site axes"
        raise ArchitectureError(
            f"{name(layer)} needs {expected}, got an input of shape {signal.shape} "
            f"({have} site axes, channels last). Reshape the data to (n, *sites, channels)."
        )


def positive(layer: AbstractLayer, field: str, value: Any, *, zero: bool = True) -> None:
    """Raise if a concrete hyperparameter is negative (traced ones are not looked at)."""
    if isinstance(value, int | float) and not (value >= 0 if zero else value > 0):
        bound = "at least 0" if zero else "above 0"
        raise ArchitectureError(f"{name(layer)}({field}={value!r}): {field} must be {bound}. Pass its absolute value.")


def like(value: Any, array: Array) -> Any:
    """A hyperparameter that meets arrays without widening them: Python numbers stay weakly typed."""
    return value if isinstance(value, int | float) else jnp.asarray(value, array.dtype)


def squared(value: Any, array: Array) -> Any:
    """The square of a hyperparameter, taken before it is rounded to the dtype of the array."""
    return value * value if isinstance(value, int | float) else jnp.asarray(value * value, array.dtype)
