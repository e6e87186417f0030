"""The contract of an activation: an elementwise function and its Gaussian moments."""

import abc
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from .._hyper import name
from ..angle import safe_reciprocal as safe_reciprocal
from ..angle import safe_sqrt as safe_sqrt
from ..gaussian import Dual as Dual
from ..gaussian import GaussianPair as GaussianPair
from ..gaussian import Moments as Moments
from ..kernel import Covariance, Example, Kernel, col, row
from ..layers import AbstractLayer
from ..signal import ArchitectureError, Demand, Pairs, Signal


class AbstractActivation(AbstractLayer):
    """An elementwise nonlinearity, defined by its function and its Gaussian moments.

    `everwide.testing.check_activation` proves that the three methods agree.

    >>> import everwide as ew, jax.numpy as jnp
    >>> isinstance(ew.Erf(), ew.activations.AbstractActivation)
    True
    >>> float(ew.Erf()(jnp.array(0.0)))
    0.0
    """

    @abc.abstractmethod
    def __call__(self, x: Array) -> Array:
        """The function itself, element by element."""

    @abc.abstractmethod
    def dual(self, pair: GaussianPair) -> Dual:
        """Moments over two correlated Gaussians."""

    @abc.abstractmethod
    def moments(self, var: Array) -> Moments:
        """Moments over one Gaussian: `dual` at `u = v`, without its cancellation."""

    def describe(self, signal: Signal) -> Signal:
        if not signal.gaussian:
            raise ArchitectureError(
                f"{name(self)} needs a Gaussian signal, but its input is not: it is the raw input, the output of a "
                "nonlinearity, or mixes channels of different laws. Put a Dense or Conv layer before it."
            )
        return replace(signal, gaussian=False)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.with_variances()

    def sample(self, key: Array, signal: Signal) -> Any:
        return ()

    def forward(self, params: Any, example: Example) -> Example:
        return example.with_values(self(example.x))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        var = {1: k.var1, 2: k.var2}
        rank = k.rank
        moments = {i: self.moments(v) for i, v in var.items()}

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            dual = self._over_sites(c, var[i], var[j], moments[i], rank)
            ntk = None if c.ntk is None else c.ntk * dual.slope
            return replace(c, nngp=dual.moment, ntk=ntk, minus=dual.minus, plus=dual.plus)

        k = k.each_with(rule)
        return replace(k, mean1=moments[1].mean, mean2=moments[2].mean).masked()

    def _over_sites(self, c: Covariance, var1: Array, var2: Array, exact: Moments, rank: int) -> Dual:
        """`dual` over all tracked pairs of sites; `moments` where both sides are the same number."""
        if c.pairs is Pairs.SAME_SITE and c.same:
            return Dual(exact.moment, exact.slope)
        if c.pairs is Pairs.SAME_SITE:
            return self.dual(GaussianPair(var1, c.nngp, var2, c.minus, c.plus))
        cross = self.dual(GaussianPair(row(var1, rank), c.nngp, col(var2, rank)))
        if not c.same:
            return Dual(cross.moment, cross.slope)
        size = var1.size // max(1, var1[(0,) * rank].size)
        eye = jnp.eye(size, dtype=bool).reshape(*c.nngp.shape[: 2 * rank], *(1,) * (c.nngp.ndim - 2 * rank))
        moment = jnp.where(eye, row(exact.moment, rank), cross.moment)
        return Dual(moment, jnp.where(eye, row(exact.slope, rank), cross.slope))
