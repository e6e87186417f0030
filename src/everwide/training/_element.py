"""Functions as vectors: kernels at the training rows, and the initial function."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import InputError


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
