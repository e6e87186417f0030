"""Signals on their way down a deep network of infinite width, layer by layer."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import InputError, not_negative, whole
from ..._engine import trusted_filter_jit
from ...kernel import Covariance, Kernel, on_diagonal
from ...layers import AbstractLayer, Parts, step
from ...signal import ArchitectureError, Demand, Pairs, Signal

_WANTED = Demand(Pairs.SAME_SITE, Pairs.SAME_SITE)


class Propagation(NamedTuple):
    """Second moments of two inputs, at first and after every layer, averaged over the sites: see `propagate`."""

    variance: Float[np.ndarray, " looks"]
    covariance: Float[np.ndarray, " looks"]
    correlation: Float[np.ndarray, " looks"]


def propagate(
    net: AbstractLayer,
    depth: int | None = None,
    *,
    variance: float = 1.0,
    correlation: float = 0.5,
    sites: tuple[int, ...] = (),
) -> Propagation:
    """Variances and correlation of two signals on their way through an infinitely wide network.

    Computed in float64 whatever precision JAX runs in.

    Args:
        net: a block that is passed `depth` times, such as `Serial(Gelu(), Dense())`, each time with fresh weights.
            Without a `depth`, a network that is read layer by layer: chains are opened, branches are passed as one.
        depth: how often the block is passed.
        variance: of both inputs. A block that begins with an activation takes them as Gaussian.
        correlation: of the two inputs.
        sites: of the inputs, for convolutions and attention; different sites are independent at first.

    Returns:
        Arrays, at first and after every layer or pass, averaged over the sites. `variance`: `E[u^2]`, the same for both
        inputs; `covariance`: `E[u v]`; `correlation`: their ratio.

    >>> import everwide as ew
    >>> from everwide.theory.criticality import propagate
    >>> he = ew.Serial(ew.Relu(), ew.Dense(w_std=2**0.5))
    >>> signals = propagate(he, 3, correlation=0.0)
    >>> signals.variance.round(6).tolist()
    [1.0, 1.0, 1.0, 1.0]
    >>> signals.correlation.round(4).tolist()
    [0.0, 0.3183, 0.4937, 0.6048]

    """
    _check(net, depth, variance, correlation)
    sites = tuple(whole(n, "sites") for n in np.ravel(sites).tolist())
    layers = _opened(net) if depth is None else (net,) * depth
    _check_laws(net, layers, sites)
    demands = Parts(layers, "chain").demands(_WANTED) if depth is None else [_inside(net, depth)] * (depth + 1)
    with jax.enable_x64(True):
        k = _settled(_inputs(demands[0], variance, correlation, sites), layers, demands)
        looks = [_look(k)]
        for layer, wanted in zip(layers, demands[1:], strict=True):
            k = _one_step(layer, k, wanted)
            looks.append(_look(k))
        own, cross = np.array(jax.device_get(looks), np.float64).T
    return Propagation(own, cross, np.divide(cross, own, out=np.zeros_like(cross), where=own > 0))


@trusted_filter_jit
def _one_step(layer: AbstractLayer, k: Kernel, wanted: Demand) -> Kernel:
    return step(layer, k, wanted).restrict(wanted)


@trusted_filter_jit
def _look(k: Kernel) -> tuple[Array, Array]:
    return jnp.mean(k.var1), jnp.mean(k.cross.restrict(Pairs.SAME_SITE, k.rank).nngp)


def _inside(net: AbstractLayer, depth: int) -> Demand:
    """One demand that holds between all passes."""
    return _WANTED.join(Parts((net,), "repeat", min(depth, 3)).demands(_WANTED)[1])


def _settled(k: Kernel, layers: tuple[AbstractLayer, ...], demands: list[Demand]) -> Kernel:
    """Distances are of no use to layers that drop them; without them, every pass is compiled as the first one."""
    if not layers:
        return k
    after = jax.eval_shape(lambda k: step(layers[0], k, demands[1]), k)
    return k if after.cross.minus is not None else k.each(lambda c: replace(c, minus=None, plus=None))


def _opened(net: AbstractLayer) -> tuple[AbstractLayer, ...]:
    """The layers of a chain, in order; repetitions are written out."""
    parts = net.parts()
    return tuple(one for layer in parts.in_a_row() for one in _opened(layer)) if parts.is_chain else (net,)


def _inputs(demand: Demand, variance: float, correlation: float, sites: tuple[int, ...]) -> Kernel:
    """Two signals of one channel law: white over the sites."""

    def moments(value: float, pairs: Pairs, same: bool) -> Covariance:
        array = jnp.full((*sites, 1, 1), value, jnp.float64)
        array = on_diagonal(array, len(sites)) if pairs is Pairs.ALL_SITES and sites else array
        apart = (None, None) if sites or same else tuple(2 * (variance + sign * array) for sign in (-1, 1))
        return Covariance(array, None, *apart, pairs=pairs, same=same)

    own = moments(variance, demand.own or Pairs.SAME_SITE, True)
    return Kernel(moments(correlation * variance, demand.cross or Pairs.SAME_SITE, False), own, own, sites=sites)


def _check(net: Any, depth: Any, variance: float, correlation: float) -> None:
    if not isinstance(net, AbstractLayer):
        raise ArchitectureError(
            f"propagate({net!r}): expected a network or a block of layers, such as Serial(Tanh(), Dense()). A function "
            "of JAX arrays is made a layer by everwide.activations.Elementwise(function)."
        )
    if depth is not None:
        whole(depth, "depth", 0)
    not_negative(variance, "variance")
    if not -1 <= correlation <= 1:
        raise InputError(f"correlation={correlation}: expected a number from -1 to 1.")


def _check_laws(net: AbstractLayer, layers: tuple[AbstractLayer, ...], sites: tuple[int, ...]) -> None:
    """Raise `ArchitectureError` where the network is not legal; a block must keep its shape."""
    signal = Signal((*sites, None), gaussian=True)
    for i, layer in enumerate(layers):
        before, signal = signal, replace(layer.describe(signal.at(i)), path=())
        if i and layer is net and before.shape != signal.shape:
            raise ArchitectureError(
                f"propagate needs a block whose output can be its input, but {type(net).__name__} maps {before.shape} "
                f"to {signal.shape}. Leave depth out to read a whole network layer by layer."
            )
