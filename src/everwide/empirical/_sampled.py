"""The kernels of networks of finite width, averaged over their random draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array

from ..kernel import AbstractKernelFunction, Block, Inputs
from ..layers import AbstractLayer
from ..signal import Pairs, Parametrization
from ._finite import Finite


class Ensemble(eqx.Module):
    """Independent networks of one architecture and width, numbered from 0."""

    net: AbstractLayer
    key: Array
    shape: tuple[int, ...] = eqx.field(static=True)
    width: int | None = eqx.field(static=True)
    parametrization: Parametrization = eqx.field(static=True)
    pairs: Pairs = eqx.field(static=True)

    def __check_init__(self):
        self.typical()  # what cannot be sampled is found now

    def network(self, number: Array) -> Finite:
        """The kernels of one of them."""
        key = jr.fold_in(self.key, number)
        params = self.net.init(key, self.shape, width=self.width, parametrization=self.parametrization)
        return Finite(self.net, params, self.shape, pairs=self.pairs, width=self.width)

    def typical(self) -> Finite:
        """The shapes of any of them, without numbers."""
        return eqx.filter_eval_shape(self.network, jnp.array(0))


class Sampled(AbstractKernelFunction):
    """The mean of the empirical kernels (`Finite`) of `draws` random networks of a finite width.

    - `shape`, `pairs`: as in `Infinite`. `width`, `parametrization`: as in `net.init`.

    A pure JAX function, and a kernel function for `everwide.gram`. `sample_kernel` gives standard errors too, and stops
    when it is precise enough.

    >>> import everwide as ew, jax, numpy as np
    >>> from everwide.empirical import Sampled
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> ew.gram(Sampled(net, (3,), jax.random.key(0), draws=4, width=16), np.eye(3)).nngp.shape
    (3, 3)
    """

    ensemble: Ensemble
    draws: int = eqx.field(static=True)

    def __init__(
        self,
        net: AbstractLayer,
        shape: tuple[int, ...],
        key: Array,
        *,
        draws: int,
        width: int | None = None,
        parametrization: Parametrization | str = Parametrization.NTK,
        pairs: Pairs = Pairs.ALL_SITES,
    ):
        check_draws("draws", draws)
        self.ensemble = Ensemble(net, key, tuple(shape), width, Parametrization(parametrization), pairs)
        self.draws = draws

    def block(self, x1: Inputs, x2: Inputs) -> Block:
        return self._mean(lambda network: network.block(x1, x2))

    def diagonal(self, x: Inputs) -> Block:
        return self._mean(lambda network: network.diagonal(x))

    @property
    def pairs(self) -> Pairs:
        return self.ensemble.pairs

    def site_shape(self) -> tuple[int, ...]:
        return self.ensemble.typical().site_shape()

    def examples_per_tile(self, itemsize: int) -> int:
        return self.ensemble.typical().examples_per_tile(itemsize)

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        return self.ensemble.typical().tile_bytes(n1, n2, itemsize)

    def _mean(self, read) -> Block:
        of_draw = lambda number: read(self.ensemble.network(number))
        shapes = jax.eval_shape(of_draw, jnp.array(0))
        start = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        add = lambda sums, number: (jax.tree.map(jnp.add, sums, of_draw(number)), None)
        return jax.tree.map(lambda a: a / self.draws, lax.scan(add, start, jnp.arange(self.draws))[0])


def check_draws(label: str, draws: int) -> None:
    """Raise unless there is something to average."""
    if draws < 2:
        raise ValueError(
            f"{label}={draws}: expected at least 2 random networks, for a mean with a standard error. "
            "The kernels of one network are everwide.empirical.Finite(net, params, shape)."
        )
