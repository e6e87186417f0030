"""Combinators: layers that contain layers."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from .._trees import Hyper, name
from ..kernel import Covariance, Example, Kernel, outer
from ..signal import ArchitectureError, Demand, Signal
from ._base import AbstractFixed, AbstractLayer, Dense, Params, Parts, demand_inside, step


class Serial(AbstractLayer):
    """Layers one after the other.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
    """

    layers: tuple[AbstractLayer, ...]

    def __init__(self, *layers: AbstractLayer):
        self.layers = layers

    def parts(self) -> Parts:
        return Parts(self.layers, "chain")

    def describe(self, signal: Signal) -> Signal:
        for i, layer in enumerate(self.layers):
            signal = replace(layer.describe(signal.at(i)), path=signal.path)
        return signal

    def demand(self, wanted: Demand) -> Demand:
        return self.parts().demands(wanted)[0]

    def sample(self, key: Array, signal: Signal) -> Params:
        params = []
        for i, layer in enumerate(self.layers):
            params.append(layer.sample(jr.fold_in(key, i), signal.at(i)))
            signal = replace(layer.describe(signal.at(i)), path=signal.path)
        return tuple(params)

    def forward(self, params: Params, example: Example) -> Example:
        for i, (p, layer) in enumerate(zip(params, self.layers, strict=True)):
            example = replace(layer.forward(p, example.at(i)), key=example.key)
        return example

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        for layer, after in zip(self.layers, self.parts().demands(wanted)[1:], strict=True):
            k = step(layer, k, after)
        return k


class Identity(AbstractFixed):
    """The signal itself: the skip of a residual connection.

    >>> import everwide as ew
    >>> block = ew.Sum(ew.Identity(), ew.Serial(ew.Relu(), ew.Dense()))
    """

    def describe(self, signal: Signal) -> Signal:
        return signal

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def forward(self, params: Params, example: Example) -> Example:
        return example

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        return k


class AbstractBranches(AbstractLayer):
    """Branches that read the same signal and are merged, channel by channel."""

    branches: eqx.AbstractVar[tuple[AbstractLayer, ...]]

    def describe_branches(self, signal: Signal) -> list[Signal]:
        """What comes out of each branch."""
        if not self.branches:
            raise ArchitectureError(f"{name(self)}() needs at least one branch.")
        return [replace(b.describe(signal.at(i)), path=signal.path) for i, b in enumerate(self.branches)]

    def describe_independent(self, signal: Signal, *, product: bool = False) -> list[Signal]:
        """The same; raises if two branches share randomness, or channels of both have laws of their own."""
        outs = self.describe_branches(signal)
        if signal.concrete:
            return outs
        for i, a in enumerate(outs):
            for j, b in enumerate(outs[:i]):
                if a.sources & b.sources:
                    raise ArchitectureError(
                        f"Branches {j} and {i} of {name(self)} share randomness: the same draws (or the raw input) are "
                        "visible in single channels of both, so the law of their combination is not known. End one of "
                        "them with a Dense or Conv layer, or write one function of the signal with Elementwise."
                    )
                if a.unlike(b, product=product):
                    raise ArchitectureError(
                        f"Channels of branches {j} and {i} of {name(self)} have laws of their own (Concat, Flatten): "
                        "which one meets which then matters, and only means over all of them are tracked. End one of "
                        "the branches with a Dense or Conv layer."
                    )
        return outs

    def demand(self, wanted: Demand) -> Demand:
        return reduce(Demand.join, (b.demand(wanted) for b in self.branches))

    def sample(self, key: Array, signal: Signal) -> Params:
        return tuple(b.sample(jr.fold_in(key, i), signal.at(i)) for i, b in enumerate(self.branches))

    def run(self, params: Params, example: Example) -> list[Example]:
        """Each branch at finite width."""
        return [b.forward(p, example.at(i)) for i, (b, p) in enumerate(zip(self.branches, params, strict=True))]

    def limits(self, k: Kernel, wanted: Demand) -> list[Kernel]:
        """Each branch at infinite width, tracking exactly what is wanted."""
        return [step(b, k.at(i), wanted).restrict(wanted) for i, b in enumerate(self.branches)]


def _merged(outs: list[Example], op: Callable[[Array, Array], Array]) -> Example:
    return outs[0].with_values(reduce(op, (out.x for out in outs)))


def _alike(layer: AbstractLayer, outs: list[Signal]) -> list[Signal]:
    """The same signals; raises unless they have one shape."""
    sites, channels = {o.sites for o in outs}, {o.channels for o in outs if o.channels is not None}
    if len(sites) > 1 or len(channels) > 1:
        shapes = ", ".join(str(o.shape) for o in outs)
        raise ArchitectureError(
            f"The branches of {name(layer)} must have one shape, got {shapes}. "
            "Give their last layers the same width, and the same strides and padding."
        )
    return outs


def joint_law(outs: list[Signal], *, gaussian: bool) -> Signal:
    channels = next((o.channels for o in outs if o.channels is not None), None)
    sources = frozenset[tuple[int, ...]]().union(*(o.sources for o in outs))
    law, sampled, centred = all(o.one_law for o in outs), any(o.sampled for o in outs), all(o.centred for o in outs)
    joined = replace(outs[0], gaussian=gaussian, sources=sources, one_law=law, centred=centred, sampled=sampled)
    return joined.reshaped(outs[0].sites, channels)


class Sum(AbstractBranches):
    """The sum of independent branches. `T = sum T_i`, and `K = sum K_i` plus the products of their channel means.

    Any branch may be the raw input, non-Gaussian or normalized; two branches must not share randomness.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.Sum(ew.Identity(), ew.Serial(ew.Relu(), ew.Dense())), ew.Relu(), ew.Dense(1))
    """

    branches: tuple[AbstractLayer, ...]

    def __init__(self, *branches: AbstractLayer):
        self.branches = branches

    def parts(self) -> Parts:
        return Parts(self.branches, "sum")

    def describe(self, signal: Signal) -> Signal:
        outs = _alike(self, self.describe_independent(signal))
        return joint_law(outs, gaussian=all(o.gaussian for o in outs))

    def forward(self, params: Params, example: Example) -> Example:
        return _merged(self.run(params, example), jnp.add)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        return reduce(add_kernels, self.limits(k, wanted))


def Residual(*layers: AbstractLayer) -> Sum:  # noqa: N802 - reads as a layer, like the others
    """`x + layers(x)`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.Residual(ew.Relu(), ew.Dense()), ew.Relu(), ew.Dense(1))
    """
    return Sum(Identity(), Serial(*layers))


def add_kernels(a: Kernel, b: Kernel) -> Kernel:
    """Independent signals: only the products of their means are added to the second moments."""
    means = {1: (a.mean1, b.mean1), 2: (a.mean2, b.mean2)}

    def add(ca: Covariance, cb: Covariance, i: int, j: int) -> Covariance:
        (ai, bi), (aj, bj) = means[i], means[j]
        nngp, ntk = ca.nngp + cb.nngp, None if ca.ntk is None or cb.ntk is None else ca.ntk + cb.ntk
        minus, plus = _added_distances(a, ca, b, cb)
        if ai is not None and aj is not None and bi is not None and bj is not None:

            def times(m1, m2):
                return outer(m1, m2, a.rank, ca.pairs, jnp.multiply)

            nngp = nngp + times(ai, bj) + times(bi, aj)
            minus = None if minus is None else minus + 2 * (ai - aj) * (bi - bj)
            plus = None if plus is None else plus + 2 * (ai + aj) * (bi + bj)
            minus, plus = (minus, plus) if plus is not None else (None, None)  # the sign is not known any more
        return replace(ca, nngp=nngp, ntk=ntk, minus=minus, plus=plus)

    return _merged_kernels(a, b, add, added_means)


def _merged_kernels(
    a: Kernel,
    b: Kernel,
    rule: Callable[[Covariance, Covariance, int, int], Covariance],
    mean: Callable[[Array | None, Array | None], Array | None],
) -> Kernel:
    """Two branches as one: `rule` knows whose covariances it merges, as in `Kernel.each_with`."""
    own1 = None if a.own1 is None or b.own1 is None else rule(a.own1, b.own1, 1, 1)
    own2 = None if a.own2 is None or b.own2 is None else rule(a.own2, b.own2, 2, 2)
    mean1, mean2 = mean(a.mean1, b.mean1), mean(a.mean2, b.mean2)
    facts = {"channels": a.channels or b.channels, "estimated": a.estimated or b.estimated}
    cross = rule(a.cross, b.cross, 1, 2)
    return replace(a, cross=cross, own1=own1, own2=own2, mean1=mean1, mean2=mean2, **facts)


def added_means(p: Array | None, q: Array | None) -> Array | None:
    return q if p is None else p if q is None else p + q


def _added_distances(a: Kernel, ca: Covariance, b: Kernel, cb: Covariance) -> tuple[Array | None, Array | None]:
    """`minus` and `plus` of a sum of independent, centred signals, where both are known."""
    if ca.minus is None or cb.minus is None or a.own1 is None:
        return None, None  # nobody will ask for the angle
    if ca.plus is None and cb.plus is None:
        return ca.minus + cb.minus, None
    (minus_a, plus_a), (minus_b, plus_b) = ca.distances(a.var1 + a.var2), cb.distances(b.var1 + b.var2)
    assert minus_a is not None and minus_b is not None and plus_a is not None and plus_b is not None
    return minus_a + minus_b, plus_a + plus_b


class Product(AbstractBranches):
    """The product of independent branches, element by element (gating).

    `K = prod K_i`, `T = sum_i T_i prod_{j != i} K_j`.

    >>> import everwide as ew
    >>> gate = ew.Product(ew.Serial(ew.Dense(), ew.Erf()), ew.Dense())
    """

    branches: tuple[AbstractLayer, ...]

    def __init__(self, *branches: AbstractLayer):
        self.branches = branches

    def parts(self) -> Parts:
        return Parts(self.branches, "product")

    def describe(self, signal: Signal) -> Signal:
        outs = _alike(self, self.describe_independent(signal, product=True))
        return joint_law(outs, gaussian=len(outs) == 1 and outs[0].gaussian)

    def forward(self, params: Params, example: Example) -> Example:
        return _merged(self.run(params, example), jnp.multiply)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        return reduce(_multiply, self.limits(k, wanted))


def Gated(activation: AbstractLayer, *, w_std: Hyper = 1.0, b_std: Hyper | None = None) -> Product:  # noqa: N802
    """`activation(W x + b) * (V x + c)`: a gated linear unit, without the layer that reads it.

    With `Sigmoid` it is GLU, with `Gelu` GEGLU, with `Silu` SwiGLU, with `Relu` ReGLU; with `Identity()` bilinear.

    Args:
        activation: Of the gate.
        w_std: Of both maps, as in `Dense`.
        b_std: Likewise.

    Returns:
        A layer. Its output is not Gaussian: put `Dense` behind it.

    >>> import everwide as ew
    >>> block = ew.Residual(ew.LayerNorm(), ew.layers.Gated(ew.Silu()), ew.Dense())

    Shazeer, "GLU variants improve transformer" (2020).
    """
    return Product(Serial(Dense(w_std=w_std, b_std=b_std), activation), Dense(w_std=w_std, b_std=b_std))


def _multiply(a: Kernel, b: Kernel) -> Kernel:
    def multiply(ca: Covariance, cb: Covariance, i: int, j: int) -> Covariance:
        ntk = None if ca.ntk is None or cb.ntk is None else ca.ntk * cb.nngp + ca.nngp * cb.ntk
        return replace(ca, nngp=ca.nngp * cb.nngp, ntk=ntk, minus=None, plus=None)

    return _merged_kernels(a, b, multiply, lambda p, q: None if p is None or q is None else p * q)


class Repeat(AbstractLayer):
    """A layer that keeps its shape, `times` over with fresh weights each time; compiles once for any depth.

    >>> import everwide as ew
    >>> deep = ew.Repeat(ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu()), 100)
    """

    layer: AbstractLayer
    times: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not isinstance(self.times, int) or self.times < 1:
            raise ArchitectureError(f"Repeat(times={self.times!r}): expected at least 1. Leave the layer out instead.")

    def parts(self) -> Parts:
        return Parts((self.layer,), "repeat", self.times)

    def describe(self, signal: Signal) -> Signal:
        path = signal.path
        first = self.layer.describe(signal.at(0))
        if self.times == 1:
            return replace(first, path=path)
        again = self.layer.describe(replace(first, path=(*path, 1)))

        def facts(s):
            return (s.shape, s.gaussian)

        if facts(again) != facts(first):
            raise ArchitectureError(
                f"Repeat needs a layer whose output can be its input, but {name(self.layer)} maps {signal.shape} to "
                f"{first.shape} and then to {again.shape}. Take the layers that change shape or law out of it."
            )
        return replace(again, path=path)

    def demand(self, wanted: Demand) -> Demand:
        return self.parts().demands(wanted)[0]

    def sample(self, key: Array, signal: Signal) -> Params:
        first = self.layer.sample(jr.fold_in(key, 0), signal.at(0))
        if self.times == 1:
            return first, ()
        inner = replace(self.layer.describe(signal.at(0)), path=(*signal.path, 1))
        if self.times > 2 and signal.parametrization.learns_features and inner.reaches_output():
            raise ArchitectureError(
                f"Repeat(times={self.times}) ends the network: in the {signal.parametrization} parametrization its "
                "last repetition is a readout and differs from the others. Put a Dense layer after it."
            )
        keys = jax.vmap(lambda i: jr.fold_in(key, i))(jnp.arange(1, self.times))
        return first, jax.vmap(lambda k: self.layer.sample(k, inner))(keys)

    def forward(self, params: Params, example: Example) -> Example:
        first, rest = params
        out = self.layer.forward(first, example.at(0))
        out = replace(out, key=example.key)
        if self.times == 1:
            return out

        def body(e: Example, numbered: tuple[Array, Params]) -> tuple[Example, None]:
            i, p = numbered
            keyed = e if e.key is None else replace(e, key=jr.fold_in(e.key, i))
            return replace(self.layer.forward(p, keyed), key=e.key), None

        return jax.lax.scan(body, out, (jnp.arange(1, self.times), rest))[0]

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        if self.times == 1:
            return step(self.layer, k, wanted)
        inside = demand_inside(self.layer, self.times, wanted)

        def again(k):
            return step(self.layer, k, inside).restrict(inside)

        k = again(again(k)) if self.times > 2 else again(k)  # by now shapes, laws and what is tracked have settled
        rest = self.times - (3 if self.times > 2 else 2)
        if rest:
            k = jax.lax.scan(lambda k, _: (again(k), None), k, None, length=rest)[0]
        return step(self.layer, k, wanted)
