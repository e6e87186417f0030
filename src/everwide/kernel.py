"""What a layer hands to the next one, at infinite and at finite width.

Layout, fixed once: **sites lead, examples trail**. A covariance between two batches has the shape
`(*sites, n1, n2)` or `(*sites, *sites, n1, n2)`; a quantity of the first batch alone has `(*sites, n1, 1)`, of the
second `(*sites, 1, n2)`. A formula that speaks of one pair of examples and addresses leading axes only is thereby
already vectorized, its row quantities are computed once a row, and the pairs lie contiguously in memory.
"""

import abc
import math
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .signal import Demand, Pairs, Parametrization


class Edges(eqx.Module):
    """A sparse graph: edge `e` adds `weights[e]` times node `senders[e]` to node `receivers[e]`.

    Unused places hold a negative sender. A batch of graphs stacks them along the first axis.

    >>> import everwide as ew, numpy as np
    >>> ring = ew.Edges(np.array([[0, 1, 2]]), np.array([[1, 2, 0]]), np.ones((1, 3)))
    """

    senders: Int[Array | np.ndarray, "..."]
    receivers: Int[Array | np.ndarray, "..."]
    weights: Float[Array | np.ndarray, "..."]


Graph = Float[Array | np.ndarray, "..."] | Edges


class Inputs(eqx.Module):
    """A batch of examples with what belongs to each: a mask of the sites that exist, a graph over its sites.

    Wherever an array of examples is accepted, `Inputs` is too.

    - `x`: `(n, *sites, channels)`
    - `mask`: `(n, *sites)`, true where a site exists; `None` if all do.
    - `graph`: `(n, *nodes, *nodes)` adjacency `A[i, j]` of the edge from `i` to `j`, or `Edges`.

    >>> import jax.numpy as jnp
    >>> inputs = Inputs(jnp.ones((2, 5, 3)), mask=jnp.arange(5) < jnp.array([[5], [3]]))
    """

    x: Float[Array | np.ndarray, "n *sites channels"]
    mask: Bool[Array | np.ndarray, "..."] | None = None
    graph: Graph | None = None


class Example(eqx.Module):
    """One example on its way through a network of finite width.

    >>> import everwide as ew, jax.numpy as jnp
    >>> shorter = ew.kernel.Example(jnp.ones((5, 3)), mask=jnp.arange(5) < 4)
    """

    x: Float[Array, "*sites channels"]
    mask: Bool[Array, "..."] | None = None
    graph: Graph | None = None
    key: Array | None = None  # randomness of this pass (dropout); None means inference

    def with_values(self, x: Array) -> "Example":
        """New values at the same sites; sites that do not exist hold zero."""
        x = x if self.mask is None else jnp.where(self.mask[..., None], x, 0)
        return replace(self, x=x)

    def at(self, step: int) -> "Example":
        """The same example, with the randomness of another branch."""
        return self if self.key is None else replace(self, key=jr.fold_in(self.key, step))


class Covariance(eqx.Module):
    """Second moments `E[u v]` over the channels, and the tangent kernel that belongs to them.

    `minus` and `plus` are `E[(u - v)^2]` and `E[(u + v)^2]`, carried through networks without sites because the
    angle between two nearly parallel examples cannot be recovered from `nngp`: the subtraction cancels. `minus` without
    `plus` says that `nngp` is known to be non-negative.

    >>> import everwide as ew, jax.numpy as jnp
    >>> x = ew.Inputs(jnp.eye(2))
    >>> cross = ew.Infinite(ew.Dense(), (2,)).start(x, x).cross
    >>> cross.nngp.tolist()  # of the inputs: means over their channels
    [[0.5, 0.0], [0.0, 0.5]]
    >>> cross.scaled(4.0).nngp.tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    nngp: Float[Array, "*pairs_examples"]
    ntk: Float[Array, "*pairs_examples"] | None
    minus: Float[Array, "*pairs_examples"] | None = None
    plus: Float[Array, "*pairs_examples"] | None = None
    pairs: Pairs = eqx.field(static=True, default=Pairs.SAME_SITE)
    same: bool = eqx.field(static=True, default=False)  # both sides are the same example

    def map(self, fn: Callable[[Array, Pairs], Array]) -> "Covariance":
        """Apply one linear map of the sites to every second moment; it must not depend on single variances."""
        ntk = None if self.ntk is None else fn(self.ntk, self.pairs)
        return replace(self, nngp=fn(self.nngp, self.pairs), ntk=ntk, minus=None, plus=None)

    def scaled(self, factor: Array | float) -> "Covariance":
        """The covariance of `sqrt(factor)` times the signal."""
        ntk, minus, plus = (None if a is None else a * factor for a in (self.ntk, self.minus, self.plus))
        return replace(self, nngp=self.nngp * factor, ntk=ntk, minus=minus, plus=plus)

    def restrict(self, pairs: Pairs, rank: int) -> "Covariance":
        """Forget the pairs of sites that nobody will read."""
        if pairs >= self.pairs:
            return self
        rest = (None if a is None else same_site(a, rank) for a in (self.ntk, self.minus, self.plus))
        return Covariance(same_site(self.nngp, rank), *rest, pairs=pairs, same=self.same)

    def distances(self, total: Array) -> tuple[Array | None, Array | None]:
        """`minus` and `plus`, given the sum of both variances."""
        if self.minus is None or self.plus is not None:
            return self.minus, self.plus
        return self.minus, 2 * total - self.minus

    def variances(self, rank: int) -> Array:
        """`(*sites, *examples)`: second moments of each site with itself, where `same`."""
        return self.nngp if self.pairs is Pairs.SAME_SITE else same_site(self.nngp, rank)


class Kernel(eqx.Module):
    """Second moments of one layer's outputs at infinite width, between the examples of two batches.

    `cross` covers pairs of examples `(x1, x2)`; `own1` and `own2` each example with itself, as far as somebody reads
    them. Where `cross.same`, there is one batch, paired with itself, and `cross` is also `own1` and `own2`.
    Means are over the channels; `None` is zero. `data1` and `data2` are the inputs, `(*sites, channels, n1, 1)` and so
    on, for a first layer that demands them; `key` is the randomness of sampled layers, `estimated`: one came before.

    >>> import everwide as ew, jax.numpy as jnp
    >>> x = ew.Inputs(jnp.ones((2, 5, 3)))
    >>> kernel = ew.Infinite(ew.Conv((3,)), (5, 3)).start(x, x)
    >>> kernel.sites, kernel.rank, kernel.cross.nngp.shape  # sites lead, examples trail
    ((5,), 1, (5, 5, 2, 2))
    """

    cross: Covariance
    own1: Covariance | None
    own2: Covariance | None
    mean1: Float[Array, "..."] | None = None
    mean2: Float[Array, "..."] | None = None
    mask1: Bool[Array, "..."] | None = None
    mask2: Bool[Array, "..."] | None = None
    graph1: Graph | None = None
    graph2: Graph | None = None
    data1: Float[Array, "..."] | None = None
    data2: Float[Array, "..."] | None = None
    key: Array | None = None
    sites: tuple[int, ...] = eqx.field(static=True, default=())
    channels: int | None = eqx.field(static=True, default=None)
    width: int | None = eqx.field(static=True, default=None)
    parametrization: Parametrization = eqx.field(static=True, default=Parametrization.NTK)
    estimated: bool = eqx.field(static=True, default=False)

    @property
    def rank(self) -> int:
        """Number of site axes."""
        return len(self.sites)

    @property
    def full1(self) -> Covariance:
        """The first batch with itself."""
        return self.cross if self.own1 is None else self.own1

    @property
    def full2(self) -> Covariance:
        """The second batch with itself."""
        return self.cross if self.own2 is None else self.own2

    @property
    def var1(self) -> Array:
        """`(*sites, n1, 1)`: variances of the first batch."""
        return self.full1.variances(self.rank)

    @property
    def var2(self) -> Array:
        """`(*sites, 1, n2)`: variances of the second batch."""
        return self.full2.variances(self.rank)

    def each(self, fn: Callable[[Covariance], Covariance]) -> "Kernel":
        """Apply one rule to all covariances."""
        return self.each_with(lambda c, i, j: fn(c))

    def each_with(self, fn: Callable[[Covariance, int, int], Covariance]) -> "Kernel":
        """Apply one rule that knows whose covariance it is: batch 1 or 2 on its left and right side."""
        own1 = None if self.own1 is None else fn(self.own1, 1, 1)
        own2 = None if self.own2 is None else fn(self.own2, 2, 2)
        return replace(self, cross=fn(self.cross, 1, 2), own1=own1, own2=own2)

    def means(self, fn: Callable[[Array], Array]) -> "Kernel":
        """Apply one linear map to the channel means."""
        return self.means_with(lambda m, _: fn(m))

    def means_with(self, fn: Callable[[Array, int], Array]) -> "Kernel":
        """Apply one linear map that knows whose means they are: of batch 1 or 2."""
        mean1, mean2 = (None if m is None else fn(m, i) for m, i in ((self.mean1, 1), (self.mean2, 2)))
        return replace(self, mean1=mean1, mean2=mean2)

    def masks(self, fn: Callable[[Array], Array]) -> "Kernel":
        """Apply one rule to the masks."""
        mask1, mask2 = (None if m is None else fn(m) for m in (self.mask1, self.mask2))
        return replace(self, mask1=mask1, mask2=mask2)

    def centred(self) -> "Kernel":
        """The channel means are known to be zero."""
        return replace(self, mean1=None, mean2=None)

    def with_channels(self, channels: int | None) -> "Kernel":
        """The next layer's fan-in; `None` takes the default width of the network."""
        return replace(self, channels=self.width if channels is None else channels)

    def at(self, step: int) -> "Kernel":
        """The same second moments, with the randomness of another branch."""
        return self if self.key is None else replace(self, key=jr.fold_in(self.key, step))

    def restrict(self, demand: Demand) -> "Kernel":
        """Forget what nobody will read."""
        cross = max(demand.cross, demand.own) if self.cross.same else demand.cross
        owns = (self.own1, self.own2) if demand.own else (None, None)
        own1, own2 = (None if c is None else c.restrict(demand.own, self.rank) for c in owns)
        kept = replace(self, cross=self.cross.restrict(cross, self.rank), own1=own1, own2=own2)
        return kept if demand.data else replace(kept, data1=None, data2=None)

    def masked(self) -> "Kernel":
        """Sites that do not exist hold zero."""
        if self.mask1 is None or self.mask2 is None:
            return self
        mask = {1: self.mask1, 2: self.mask2}

        def zero(c: Covariance, left: int, right: int) -> Covariance:
            both = outer(mask[left], mask[right], self.rank, c.pairs, jnp.logical_and)
            return c.map(lambda a, _: jnp.where(both, a, 0))

        return self.each_with(zero).means_with(lambda m, i: jnp.where(mask[i], m, 0))


def same_site(cov: Array, rank: int) -> Array:
    """`(*sites, *sites, *examples) -> (*sites, *examples)`.

    Args:
        cov: over all pairs of sites.
        rank: how many axes of sites there are.

    Returns:
        Its entries at equal sites.

    >>> import everwide as ew, jax.numpy as jnp
    >>> ew.kernel.same_site(jnp.arange(4.0).reshape(2, 2), 1).tolist()
    [0.0, 3.0]
    """
    if rank == 0:
        return cov
    sites, examples = cov.shape[:rank], cov.shape[2 * rank :]
    size = math.prod(sites)
    diagonal = jnp.diagonal(cov.reshape(size, size, *examples))  # examples first, sites last
    return jnp.moveaxis(diagonal, -1, 0).reshape(*sites, *examples)


def on_diagonal(variances: Array, rank: int) -> Array:
    """`(*sites, *examples) -> (*sites, *sites, *examples)`, zero between different sites.

    Args:
        variances: one for each site.
        rank: how many axes of sites there are.

    Returns:
        A covariance over all pairs of sites.

    >>> import everwide as ew, jax.numpy as jnp
    >>> ew.kernel.on_diagonal(jnp.array([1.0, 2.0]), 1).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    sites, trailing = variances.shape[:rank], variances.shape[rank:]
    size = math.prod(sites)
    flat = variances.reshape(size, *trailing)
    eye = jnp.eye(size, dtype=bool).reshape(size, size, *(1,) * len(trailing))
    return jnp.where(eye, flat[:, None], 0).reshape(*sites, *sites, *trailing)


def row(a: Array, rank: int) -> Array:
    """`(*sites, *examples) -> (*sites, 1.., *examples)`: the left site of a pair.

    Args:
        a: a quantity of each site.
        rank: how many axes of sites there are.

    Returns:
        The same numbers, ready to be broadcast against those of `col`.

    >>> import everwide as ew, jax.numpy as jnp
    >>> ew.kernel.row(jnp.ones((5, 2)), 1).shape
    (5, 1, 2)
    """
    return a.reshape(*a.shape[:rank], *(1,) * rank, *a.shape[rank:])


def col(a: Array, rank: int) -> Array:
    """`(*sites, *examples) -> (1.., *sites, *examples)`: the right site of a pair.

    Args:
        a: a quantity of each site.
        rank: how many axes of sites there are.

    Returns:
        The same numbers, ready to be broadcast against those of `row`.

    >>> import everwide as ew, jax.numpy as jnp
    >>> ew.kernel.col(jnp.ones((5, 2)), 1).shape
    (1, 5, 2)
    """
    return a.reshape(*(1,) * rank, *a.shape)


def outer(left: Array, right: Array, rank: int, pairs: Pairs, op: Callable[[Array, Array], Array]) -> Array:
    """`op` of a row quantity and a column quantity, over the tracked pairs of sites.

    Args:
        left: of the first example's sites.
        right: of the second's.
        rank: how many axes of sites there are.
        pairs: which pairs are tracked.
        op: of two arrays, with broadcasting.

    Returns:
        One number for each tracked pair.

    >>> import everwide as ew, jax.numpy as jnp
    >>> means = jnp.array([1.0, 2.0])
    >>> ew.kernel.outer(means, means, 1, ew.signal.Pairs.ALL_SITES, jnp.multiply).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    return op(row(left, rank), col(right, rank)) if pairs is Pairs.ALL_SITES else op(left, right)


class Block(eqx.Module):
    """Both kernels of a tile `(n1, n2)` or of a diagonal `(n,)`; sites that are left follow.

    >>> import everwide as ew, jax.numpy as jnp
    >>> x = ew.Inputs(jnp.eye(3))
    >>> ew.Infinite(ew.Dense(1), (3,)).block(x, x).ntk.shape
    (3, 3)
    """

    nngp: Float[Array, "*tile"]
    ntk: Float[Array, "*tile"]


class AbstractKernelFunction(eqx.Module):
    """Where network code ends and numerics begins.

    `pairs`: whether the sites that follow the examples in a `Block` are those of both (all pairs), or shared ones.

    >>> import everwide as ew, jax.numpy as jnp
    >>> kernel = ew.Infinite(ew.Dense(1), (3,))
    >>> kernel.diagonal(ew.Inputs(jnp.eye(3))).nngp.shape
    (3,)
    """

    pairs: eqx.AbstractVar[Pairs]

    @abc.abstractmethod
    def block(self, x1: Inputs, x2: Inputs) -> Block:
        """Kernels of every example of `x1` with every example of `x2`."""

    @abc.abstractmethod
    def diagonal(self, x: Inputs) -> Block:
        """Kernels of every example with itself, free of the cancellation in `block`."""

    def quick(self) -> "AbstractKernelFunction":
        """The same function, sooner compiled, whose blocks may hold NaN: then this one is asked."""
        return self

    @abc.abstractmethod
    def site_shape(self) -> tuple[int, ...]:
        """Axes that follow the examples in a `Block`: none, `sites`, or `sites` twice."""

    @abc.abstractmethod
    def examples_per_tile(self, itemsize: int) -> int:
        """Rows and columns of the tiles in which it works best."""

    @abc.abstractmethod
    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        """Bytes of temporaries that `block` needs for `n1` by `n2` examples, at the most."""


class AbstractHostKernelFunction(AbstractKernelFunction):
    """A kernel function that runs on the host and must not be traced.

    >>> import everwide as ew
    >>> assert issubclass(ew.kernel.AbstractHostKernelFunction, ew.kernel.AbstractKernelFunction)
    """
