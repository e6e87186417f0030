"""The Jacobian of a few examples, leaf by leaf, in the form in which it is cheapest to keep.

A factor holds `J[n, a, :]`, the derivatives of the outputs `a` of example `n` with respect to one parameter leaf (or to
a part of it, or to a weight and its bias). Nothing here knows where factors come from.
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Integer


class Outer(eqx.Module):
    """Weights that multiply data: `J[n, a, g] = sum over t of left[n, g, t] (x) right[n, a, g, t]`.

    `left` is what came in, `right` is the cotangent of what came out. Tokens are the places where the same weights are
    used (pixels, time steps, words); groups have weights of their own, so that the Jacobian is a block for each.
    A dense layer has one group and one token. A bias is one input that is always 1.
    """

    left: Float[Array, "n groups tokens inputs"]
    right: Float[Array, "n k groups tokens outputs"]

    def size(self) -> int:
        """Number of parameters."""
        return self.left.shape[1] * self.left.shape[3] * self.right.shape[4]


class Lookup(eqx.Module):
    """Rows of a table that are looked up: `J[n, a, row] = sum of right[n, a, t] over the t with indices[n, t] == row`.

    A negative index is no row at all.
    """

    indices: Integer[Array, "n tokens"]
    right: Float[Array, "n k tokens outputs"]
    rows: int = eqx.field(static=True)

    def size(self) -> int:
        """Number of parameters."""
        return self.rows * self.right.shape[3]


class Plain(eqx.Module):
    """The Jacobian itself, of parameters with no structure that helps."""

    jacobian: Float[Array, "n k size"]

    def size(self) -> int:
        """Number of parameters."""
        return self.jacobian.shape[2]


Factor = Outer | Lookup | Plain


class Part(eqx.Module):
    """What some parameters add to the Jacobian. The parts of a model add up: their parameters are disjoint.

    `names` are the leaves that `factor` speaks of. A leaf may be cut into several parts.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    factor: Factor


class AbstractTangents(eqx.Module):
    """The derivatives of a model at some parameters: where factors come from.

    - `names`: one path for each parameter leaf, such as `"['layers'][0]['weight']"`.
    - `outputs`: length of the output for one example (1 where it is a scalar).
    """

    names: eqx.AbstractVar[tuple[str, ...]]
    outputs: eqx.AbstractVar[int]

    @abc.abstractmethod
    def factors(self, x: Any, cotangents: Float[Array, "k outputs"]) -> tuple[Part, ...]:
        """The Jacobians of `cotangents @ f(params, x[i])` for a batch of examples, leading axis first.

        Parts whose `right` is one and the same array (a weight and its bias) share work. Leaves without a part, and
        those that are not floating point, have no derivative.
        """

    @abc.abstractmethod
    def example_bytes(self, k: int) -> int:
        """Bytes that `factors` needs for each example, results included, with `k` cotangents."""
