"""Functions as vectors: kernels at the training rows, and the initial function."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

Factor = float | Float[Array, ""] | Float[Array, " k"]


class Element(NamedTuple):
    """The function `K(x, X) coefficients + start * f0(x)`, a column for each output.

    Sums and multiples of such functions are again such functions: parameters, gradients and momenta of an infinitely
    wide network all are. `values` are `K coefficients` at the training rows, carried along because they are needed at
    every step, and cost no more than one product with the rows of a batch to keep. They are transposed: then that
    product runs along the rows of the kernel, twice as fast.
    """

    coefficients: Float[Array, "n k"]
    values: Float[Array, "k rows"]
    start: Float[Array, " k"]

    def times(self, factor: Factor) -> "Element":
        """A multiple, the same for all outputs or one for each."""
        return Element(self.coefficients * factor, self.values * _down(factor), self.start * factor)

    def plus(self, other: "Element", factor: Factor = 1.0) -> "Element":
        """The sum with a multiple of another."""
        return Element(
            self.coefficients + other.coefficients * factor,
            self.values + other.values * _down(factor),
            self.start + other.start * factor,
        )


def unvalued(coefficients: Float[Array, "n k"], start: Float[Array, " k"]) -> Element:
    """Without values: for steps that compute what they need of them."""
    return Element(coefficients, jnp.zeros((len(start), 0), coefficients.dtype), start)


def _down(factor: Any) -> Any:
    """For outputs along the first axis."""
    return factor[:, None] if jnp.ndim(factor) else factor


class Start(eqx.Module):
    """The initial function: its values at the training rows, and its squared norm for each output."""

    values: Float[Array, "n k"]
    power: Float[Array, " k"]

    def outputs(self, element: Element) -> Float[Array, "n k"]:
        """The element at the training rows."""
        return element.values.T + element.start * self.values

    def squared_norm(self, element: Element) -> Float[Array, " k"]:
        """For each output: of a gradient, what ADAM* averages over an infinite width."""
        own = jnp.sum(element.coefficients.T * element.values, 1)
        mixed = jnp.sum(element.coefficients * self.values, 0)
        return own + 2 * element.start * mixed + element.start**2 * self.power


def zero_like(start: Start) -> Element:
    """The function that is 0."""
    zeros = jnp.zeros_like(start.values)
    return Element(zeros, zeros.T, jnp.zeros_like(start.power))
