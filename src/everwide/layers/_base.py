"""A layer: one object defines the finite network and its infinite-width limit.

Here are the contract, and `Dense`, the plainest layer with weights.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.tree_util import keystr
from jaxtyping import Array

from .._checks import example_shape, refuse_complex
from .._trees import Hyper
from ..kernel import Example, Kernel
from ..signal import Demand, Parametrization, Signal
from ._affine import Affine, RandomAffine, fans_of, known_channels

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
            x: an example `(*sites, channels)`, or an `Example` with a mask or a graph; integers are read as floats.
            key: a JAX key makes it a training pass: dropout is active.

        Returns:
            `(*sites, channels)` of the output.
        """
        refuse_complex(x.x if isinstance(x, Example) else jnp.asarray(x), "x")
        example = x if isinstance(x, Example) else Example(_floats(x))
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


def _floats(x: Any) -> Array:
    array = jnp.asarray(x)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)


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
    read = k.restrict(layer.demand(wanted))
    if read.key is None:
        return layer.propagate(read, wanted)
    here, after = jr.split(read.key)  # no two layers draw the same numbers
    return replace(layer.propagate(replace(read, key=here), wanted), key=after)


def demand_inside(layer: AbstractLayer, times: int, wanted: Demand) -> Demand:
    """One demand that holds after every repetition of a layer but the last."""
    inside = layer.demand(wanted)
    return inside if times == 1 else wanted.join(inside).join(layer.demand(wanted.join(inside)))


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
