"""A layer: one object defines the finite network and its infinite-width limit.

Here are the contract, the random affine map inside all layers with weights, and `Dense`, the plainest of them.
"""

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jax.tree_util import keystr
from jaxtyping import Array, Float

from .._checks import example_shape
from .._trees import Hyper, like, name, positive, squared
from ..kernel import Covariance, Example, Kernel
from ..signal import ArchitectureError, Demand, Pairs, Parametrization, Signal

Params = Any


@dataclass(frozen=True)
class Parts:
    """The layers inside a layer, in the order in which they run, and how they make its output.

    - `join`: `"chain"`: each reads the one before it, as in `Serial`; `"repeat"`: one layer, `times` over, as in
      `Repeat`; `"sum"`, `"product"`, `"concat"` (along the site `axis`): each reads the input, as in `Sum`, `Product`,
      `Concat`; `""`: there are none. Any other word is a way of your own, of which no rule knows anything.

    >>> import everwide as ew
    >>> ew.Serial(ew.Relu(), ew.Dense()).parts().join
    'chain'
    """

    layers: tuple["AbstractLayer", ...] = ()
    join: str = ""
    times: int = 1
    axis: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the join is one of ours."""
        return self.join in ("chain", "repeat", "sum", "product", "concat")

    @property
    def is_chain(self) -> bool:
        """Whether it is the same as its layers one after the other."""
        return self.join in ("chain", "repeat")

    def in_a_row(self) -> tuple["AbstractLayer", ...]:
        """The layers of a chain, repetitions written out."""
        return self.layers * self.times

    def demands(self, wanted: Demand) -> list[Demand]:
        """What is wanted of each layer, and, before them all, what the first of a chain reads."""
        if self.join == "repeat":
            inside = demand_inside(self.layers[0], self.times, wanted)
            return [inside if self.times == 1 else self.layers[0].demand(inside), inside]
        if self.join != "chain":
            return [wanted] * (len(self.layers) + 1)
        out = [wanted]
        for layer in reversed(self.layers):
            out.append(layer.demand(out[-1]))
        return out[::-1]


class AbstractLayer(eqx.Module):
    """A network, or a part of one: described once, at any width.

    Five methods make a layer. Two are static, `describe` (forward: shapes and laws) and `demand` (backward: which
    pairs of sites must be tracked); two are finite, `sample` and `forward`; one is the limit, `propagate`.
    `everwide.testing.check_layer` proves that they agree.

    >>> import everwide as ew, jax
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> isinstance(net, ew.layers.AbstractLayer)
    True
    >>> params = net.init(jax.random.key(0), (3,), width=16)
    >>> net.apply(params, jax.numpy.ones(3)).shape
    (1,)
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

    def parts(self) -> Parts:
        """The layers inside this one, and how they are joined: none, unless a container says otherwise.

        A container of your own that says it is a `"chain"` has the outputs and kernels of `Serial` of its parts, and so
        on; its parameters are a tuple, one entry a part, and those of a `"repeat"` a pair (the first, the others
        stacked). Then `explain`, `critical`, `optim` and the rooms of `theory` read it as they read ours.
        """
        return Parts()

    def with_parts(self, layers: Sequence["AbstractLayer"]) -> "AbstractLayer":
        """The same container around other layers."""
        return eqx.tree_at(lambda one: one.parts().layers, self, tuple(layers)) if layers else self

    def weights(self) -> dict[str, "RandomAffine"]:
        """The random affine maps of this layer itself, not of its parts, by the names of their parameters."""
        inside = () if self.parts().join else jax.tree.leaves_with_path(self, is_leaf=_is_affine)
        return {keystr(path).lstrip("."): value for path, value in inside if _is_affine(value)}

    def init(
        self,
        key: Array,
        input_shape: tuple[int, ...],
        *,
        width: int | None = None,
        parametrization: Parametrization | str = Parametrization.NTK,
    ) -> Params:
        """Draw the parameters of a finite network.

        Args:
            key: a JAX key.
            input_shape: shape of one example, `(*sites, channels)`.
            width: of every layer that leaves its own open.
            parametrization: see `everwide.Parametrization`; `everwide.optim` has the learning rates that belong to it.

        Returns:
            A tree of parameters, for `apply`.
        """
        law = Parametrization(parametrization)
        signal = Signal(example_shape(input_shape), width=width, parametrization=law, readouts=frozenset())
        return self.sample(key, replace(signal, readouts=self.describe(signal).sources))

    def apply(self, params: Params, x: Array | Example, *, key: Array | None = None) -> Array:
        """Output of a finite network for one example; `jax.vmap` it for a batch.

        Args:
            params: what `init` returned.
            x: an example `(*sites, channels)`, or an `Example` with a mask or a graph.
            key: a JAX key makes it a training pass: dropout is active.

        Returns:
            `(*sites, channels)` of the output.
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


class AbstractFixed(AbstractLayer):
    """A layer without parameters."""

    def sample(self, key: Array, signal: Signal) -> Params:
        return ()


def _is_affine(part: Any) -> bool:
    return isinstance(part, RandomAffine)


def step(layer: AbstractLayer, k: Kernel, wanted: Demand) -> Kernel:
    """The only way one layer runs another at infinite width: drop what it will not read, then run it.

    Args:
        layer: the one to run.
        k: what comes in.
        wanted: what will be read of its result.

    Returns:
        What comes out.

    >>> import everwide as ew, jax
    >>> kernel = ew.Infinite(ew.Dense(1), (3,))
    >>> x = ew.Inputs(jax.numpy.ones((2, 3)))
    >>> ew.layers.step(kernel.net, kernel.start(x, x), kernel.wanted).cross.nngp.shape
    (2, 2)
    """
    return layer.propagate(k.restrict(layer.demand(wanted)), wanted)


def demand_inside(layer: AbstractLayer, times: int, wanted: Demand) -> Demand:
    """One demand that holds after every repetition of a layer but the last."""
    inside = layer.demand(wanted)
    return inside if times == 1 else wanted.join(inside).join(layer.demand(wanted.join(inside)))


@dataclass(frozen=True)
class Fans:
    """What a weight connects: how much it reads and feeds, and whether that is data and output, or hidden channels.

    - `fan_in`: numbers that are summed for one output; `fan_out`: channels that read one input.
    - `reads_hidden`: random layers came before. `feeds_hidden`: random layers come after.
    """

    parametrization: Parametrization
    fan_in: int
    fan_out: int
    reads_hidden: bool
    feeds_hidden: bool

    @property
    def is_readout(self) -> bool:
        """Whether hidden channels become the output here."""
        return self.reads_hidden and not self.feeds_hidden

    @property
    def size(self) -> float:
        """The size of a weight: its factor times its initial standard deviation, for `w_std = 1`."""
        if self.is_readout and self.parametrization.learns_features:
            return 1 / self.fan_in
        return 1 / math.sqrt(self.fan_in)


def fans_of(signal: Signal, fan_in: int, fan_out: int) -> Fans:
    """The place of weights that read `signal` and are the last ones of their layer."""
    return Fans(signal.parametrization, fan_in, fan_out, not signal.is_data, not signal.reaches_output())


class Affine(eqx.Module):
    """Weights and biases of one random affine map.

    >>> import everwide as ew, jax
    >>> params = ew.Dense(4, b_std=0.1).init(jax.random.key(0), (3,))
    >>> params.weight.shape, params.bias.shape
    ((3, 4), (4,))
    """

    weight: Float[Array, "*fan_in out"]
    bias: Float[Array, "*sites channels"] | None
    fans: Fans = eqx.field(static=True)


class RandomAffine(eqx.Module):
    """What all layers with weights share: scales, speed, and the parametrizations (see `Parametrization`).

    The sizes `w_std / sqrt(fan_in)` of a weight and `b_std` of a bias are constant factors (ntk, mean_field), or
    standard deviations of what is drawn (standard, mup). Readouts that learn features have weights of size
    `w_std / fan_in`. A speed `s` other than 1 draws weights and biases `1 / sqrt(s)` as large and multiplies what they
    do by `sqrt(s)`: the function stays, and under gradient descent it changes `s` times as fast.

    >>> import everwide as ew
    >>> ew.Dense(w_std=1.3, frozen=True).weights()["affine"].w_std
    1.3
    """

    w_std: Hyper
    b_std: Hyper | None
    speed: Hyper
    frozen: bool = eqx.field(static=True)

    def __init__(self, w_std: Hyper = 1.0, b_std: Hyper | None = None, *, speed: Hyper = 1.0, frozen: bool = False):
        self.w_std, self.b_std, self.speed = w_std, b_std, speed
        self.frozen = frozen or (isinstance(speed, int | float) and speed == 0)

    def check(self, layer: Any, signal: Signal) -> None:
        """Raise on negative scales, and where the limit is not known."""
        positive(layer, "w_std", self.w_std)
        positive(layer, "b_std", self.b_std)
        positive(layer, "speed", self.speed)
        known_limit(layer, signal)

    def draw(self, key: Array, weight: tuple[int, ...], bias: tuple[int, ...], fans: Fans) -> Affine:
        """Parameters with a weight and a bias of these shapes."""
        wkey, bkey = jr.split(key)
        w, b = jr.normal(wkey, weight), None if self.b_std is None else jr.normal(bkey, bias)
        if fans.parametrization.in_weights:
            w = w * (like(self.w_std, w) * fans.size)
            b = None if b is None else b * like(self.b_std, b)
        root = self._root(w)
        return Affine(w / root, None if b is None else b / root, fans)

    def held(self, params: Affine) -> Affine:
        """The parameters as training sees them: frozen ones have no gradient."""
        if self.frozen:
            return lax.stop_gradient(params)
        if self._is_plain:
            return params
        return jax.tree.map(lambda p: jnp.where(like(self.speed, p) > 0, p, lax.stop_gradient(p)), params)

    def scaled(self, params: Affine, product: Array) -> Array:
        """`product` is the weight's bare action on the input; add the scales and the bias."""
        root = self._root(product)
        if params.fans.parametrization.in_weights:
            return product * root if params.bias is None else (product + params.bias) * root
        y = product * (like(self.w_std, product) * params.fans.size)
        return y * root if params.bias is None else (y + like(self.b_std, y) * params.bias) * root

    @property
    def _is_plain(self) -> bool:
        """Whether all is drawn as the parametrization says: learned at the speed 1, or not at all."""
        return self.frozen or (isinstance(self.speed, int | float) and self.speed == 1)

    def _root(self, array: Array) -> Array | float:
        """The root of the speed; 1 where nothing is learned."""
        if self._is_plain:
            return 1.0
        speed = jnp.asarray(self.speed, array.dtype)
        return jnp.sqrt(jnp.where(speed > 0, speed, 1))

    def propagate(self, k: Kernel, mean: Callable[[Array, Pairs], Array], fan_in: int | None) -> Kernel:
        """`mean` averages second moments over the taps of one output; `fan_in` counts taps times channels."""

        def affine(c: Covariance) -> Covariance:
            w2 = squared(self.w_std, c.nngp)
            b2 = 0.0 if self.b_std is None else squared(self.b_std, c.nngp)
            averaged = mean(c.nngp, c.pairs)
            nngp = w2 * averaged + b2
            ntk = None if c.ntk is None else w2 * mean(c.ntk, c.pairs) + self._trained(averaged, nngp, k, fan_in)
            minus = None if c.minus is None else w2 * mean(c.minus, c.pairs)
            plus = None if c.plus is None else w2 * mean(c.plus, c.pairs) + 4 * b2
            return replace(c, nngp=nngp, ntk=ntk, minus=minus, plus=plus)

        return k.each(affine).centred()

    def _trained(self, averaged: Array, nngp: Array, k: Kernel, fan_in: int | None) -> Array | float:
        """What this layer's own parameters add to the tangent kernel."""
        if self.frozen:
            return 0.0
        if k.parametrization is Parametrization.NTK:
            return like(self.speed, nngp) * nngp
        assert fan_in is not None  # `known_limit` has looked
        return like(self.speed, nngp) * (fan_in * averaged + (0.0 if self.b_std is None else 1.0))


def known_limit(layer: Any, signal: Signal) -> None:
    """Raise where no fixed kernel exists at infinite width, or where it depends on a number that is open."""
    law = signal.parametrization
    if signal.infinite and law.learns_features:
        raise ArchitectureError(
            f"{name(layer)} in the {law} parametrization has no limit with a fixed kernel: the output of an infinitely "
            "wide network starts at zero, and its features move. Sample a finite network, "
            f"net.init(key, shape, width=..., parametrization='{law}'), or use parametrization='ntk'."
        )
    if law is Parametrization.STANDARD and signal.channels is None:
        raise ArchitectureError(
            f"{name(layer)} in the standard parametrization needs the number of its input channels, which is open. "
            "Give the layer before it a width, or pass width= for the whole network."
        )


def known_channels(layer: Any, signal: Signal) -> int:
    """Channels of a signal that is about to be sampled."""
    if signal.channels is None:
        raise ArchitectureError(
            f"{name(layer)} cannot be sampled: the number of its input channels is open. Pass width= to init."
        )
    return signal.channels


class Dense(AbstractLayer):
    """A random linear map of the channels, the same at every site.

    - `width`: output channels; `None` leaves it to `init(width=...)` and to infinity.
    - `w_std`, `b_std`: standard deviations of weights (times `sqrt(fan_in)`) and biases; `None` is no bias.
    - `speed`: how fast gradient descent changes what the layer does, 1 unless said.
    - `frozen`: the speed is 0: the parameters are not trained, and add nothing to the tangent kernel.

    `K' = w_std^2 K + b_std^2` and `T' = speed K' + w_std^2 T`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(10))
    """

    width: int | None = eqx.field(static=True)
    affine: RandomAffine

    def __init__(
        self,
        width: int | None = None,
        *,
        w_std: Hyper = 1.0,
        b_std: Hyper | None = None,
        speed: Hyper = 1.0,
        frozen: bool = False,
    ):
        self.width = width
        self.affine = RandomAffine(w_std, b_std, speed=speed, frozen=frozen)

    def describe(self, signal: Signal) -> Signal:
        self.affine.check(self, signal)
        return signal.drawn(signal.sites, self.width)

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def sample(self, key: Array, signal: Signal) -> Affine:
        fan_in, out = known_channels(self, signal), known_channels(self, self.describe(signal))
        return self.affine.draw(key, (fan_in, out), (out,), fans_of(signal, fan_in, out))

    def forward(self, params: Affine, example: Example) -> Example:
        params = self.affine.held(params)
        product = jnp.tensordot(example.x, params.weight, 1)
        return example.with_values(self.affine.scaled(params, product))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        k = self.affine.propagate(k, lambda cov, _: cov, k.channels)
        return k.with_channels(self.width).masked()
