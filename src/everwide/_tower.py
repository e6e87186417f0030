"""Dense networks of all depths at once: a deep one computes the kernels of the shallow ones on its way."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._compile import trusted_jit
from ._engine import Size, as_rows, tiles, write
from ._hyper import squared
from ._kernels import Infinite
from .activations import AbstractActivation
from .kernel import Inputs
from .layers import Dense, Serial, step
from .signal import Demand, Pairs

_TILES = (64, 256)  # few shapes, so that another number of rows compiles nothing
_READ = Demand(Pairs.SAME_SITE, Pairs.SAME_SITE)


class Floors(eqx.Module):
    """Covariances `K_0 .. K_L` of what the affine layers give, and what multiplies tangents on the way to the next."""

    nngp: Float[np.ndarray, "floors n1 n2"]
    slope: Float[np.ndarray, "depth n1 n2"]

    def ntk(self, depth: int, frozen: int = 0) -> Float[np.ndarray, "n1 n2"]:
        """The tangent kernel of the network with `depth` hidden layers, the first `frozen` of which are not trained.

        With all hidden layers frozen, it is the NNGP kernel.
        """
        kernel = self.nngp[frozen].copy()
        for floor in range(frozen, depth):
            kernel *= self.slope[floor]
            kernel += self.nngp[floor + 1]
        return kernel


class Tower(eqx.Module):
    """Networks `dense, activation, ..., dense` of up to `depth` hidden layers; all affine layers have the same law."""

    dense: Dense
    activation: AbstractActivation
    depth: int = eqx.field(static=True)

    def network(self, depth: int, frozen: int = 0) -> Serial:
        """One of them, with one output."""
        law = self.dense.affine
        hidden = [Dense(w_std=law.w_std, b_std=law.b_std, frozen=floor < frozen) for floor in range(depth)]
        layers = [layer for dense in hidden for layer in (dense, self.activation)]
        return Serial(*layers, Dense(1, w_std=law.w_std, b_std=law.b_std))

    def floors(self, x1: Float[np.ndarray, "n1 d"], x2: Float[np.ndarray, "n2 d"] | None = None) -> Floors:
        """In float64, tile by tile; `x2=None` is symmetric."""
        left = as_rows(np.asarray(x1, np.float64))
        right = left if x2 is None else as_rows(np.asarray(x2, np.float64))
        stacks = tuple(np.empty((depth, len(left), len(right))) for depth in (self.depth + 1, self.depth))
        size = Size(*(next((n for n in _TILES if len(x) <= n), _TILES[-1]) for x in (left, right)))
        pairs = Pairs.SAME_SITE if x2 is None else None
        for tile in tiles(len(left), len(right), size, symmetric=x2 is None):
            with jax.enable_x64(True):
                parts = _floors(self, left.cut(tile.rows.start, size.rows), right.cut(tile.cols.start, size.cols))
            for stack, part in zip(stacks, parts, strict=True):
                for matrix, values in zip(stack, np.asarray(part), strict=True):
                    inside = values[: tile.rows.stop - tile.rows.start, : tile.cols.stop - tile.cols.start]
                    write(matrix, tile, inside, pairs)
        return Floors(*stacks)


@trusted_jit
def _floors(tower: Tower, x1: Inputs, x2: Inputs) -> tuple[Array, Array]:
    nngp, slope = [], []
    k = Infinite(Serial(tower.dense, tower.activation), jnp.shape(x1.x)[1:]).start(x1, x2)
    for _ in range(tower.depth):
        k = step(tower.dense, k, _READ)
        nngp.append(k.cross.nngp)
        one = replace(k.cross, ntk=jnp.ones_like(k.cross.nngp))
        k = step(tower.activation, replace(k, cross=one), _READ)
        assert k.cross.ntk is not None
        slope.append(squared(tower.dense.affine.w_std, k.cross.nngp) * k.cross.ntk)
    nngp.append(step(tower.dense, k, _READ).cross.nngp)
    return jnp.stack(nngp), jnp.stack(slope)
