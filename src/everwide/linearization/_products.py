"""Products with the first and second derivatives of a batch of outputs by the parameters, never the derivatives."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float

from ._trees import Function, Params, as_vector, parameters, vector_function

Vector = Float[Array, " p"]
Outputs = Float[Array, " outputs"]


class Products(NamedTuple):
    """`Phi` is parameters by outputs; `Psi_a` is the matrix of second derivatives of output `a`."""

    push: Callable[[Vector], Outputs]  # Phi^T v
    pull: Callable[[Outputs], Vector]  # Phi w
    curve: Callable[[Outputs, Vector], Vector]  # sum_a w_a Psi_a v
    curvature: Callable[[Vector], Outputs]  # v^T Psi_a v


def products(f: Function, params: Params, x: Any) -> Products:
    """For a batch `x`, at `params`, with all parameters and all outputs in one vector each."""
    values, here = vector_function(f, params, x), as_vector(parameters(params)[0])

    def push(v: Vector, at: Vector = here) -> Outputs:
        return jax.jvp(values, (at,), (v,))[1]

    def pull(w: Outputs, at: Vector = here) -> Vector:
        return jax.vjp(values, at)[1](w)[0]

    def curve(w: Outputs, v: Vector) -> Vector:
        return jax.jvp(lambda at: pull(w, at), (here,), (v,))[1]

    def curvature(v: Vector) -> Outputs:
        return jax.jvp(lambda at: push(v, at), (here,), (v,))[1]

    return Products(push, pull, curve, curvature)
