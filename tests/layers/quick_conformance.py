"""Does the limit of a layer belong to its finite networks? A cheap check: one width, one compilation on each side.

A finite network along a random direction `v` of its parameters has the derivative `J v`, and `E[J v (J v)^T]` is its
tangent kernel: a forward pass gives both kernels, averaged over all channels. The bias of a width, of order 1 / width,
is below the standard error, of order 1 / sqrt(width draws), as long as there are no more draws than channels.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import everwide as ew
from everwide.kernel import Example
from everwide.testing._check_layer import example_inputs
from everwide.testing._draws import Sampled

ENTRIES, WHOLE = Sampled(5.0), Sampled(4.0)  # there are many entries; keys are fixed, so that both are decided once


def network(layer):
    """Between a readout and a dense layer that makes its input Gaussian."""
    return ew.Serial(ew.Dense(w_std=1.2, b_std=0.3), layer, ew.Dense(w_std=1.1, b_std=0.2))


def assert_conforms(layer, shape, *, width=96, draws=96, graph=None, noisy=False, bias=0.0, inputs=None, whole=False):
    """Sampled kernels are those of the limit, entry by entry and as a whole.

    `noisy`: every pass is another one. `bias`: what small sizes may do to an entry, in units of the largest. `whole`:
    the layer is a network of its own, which reads `inputs` where it is given some.
    """
    net = layer if whole else network(layer)
    inputs = example_inputs(jr.key(1), shape, graph) if inputs is None else inputs
    drawn = _sampled(net, inputs, width, draws)
    for name, limit in _limit(net, inputs, noisy=noisy).items():
        mean, error = drawn[name].mean(0), drawn[name].std(0, ddof=1) / np.sqrt(draws)
        error = error + bias * np.abs(limit).max() / ENTRIES.max_z
        assert ENTRIES.excess_of(mean, error, limit) <= 1, f"entries of the {name}"
        sizes = (drawn[name] * limit).reshape(draws, -1).sum(1) / np.sum(limit**2)
        assert WHOLE.excess(sizes, 1.0) <= 1, f"the size of the {name}: {sizes.mean():.3f}"


def _limit(net, inputs, *, noisy):
    kernel = ew.Infinite(net, inputs.x.shape[1:])
    own = np.arange(len(inputs.x))

    @jax.jit
    def compute(x):
        return kernel.block(x, x), kernel.diagonal(x) if noisy else None

    block, diagonal = compute(inputs)
    out = {name: np.array(getattr(block, name), np.float64) for name in ("nngp", "ntk")}
    if diagonal is not None:  # one pass of an example, not two
        for name, values in out.items():
            values[own, own] = getattr(diagonal, name)
    return out


def _sampled(net, inputs, width, draws):
    """`(draws, n, n, *sites, *sites)`, each an unbiased estimate at this width."""

    def one(key):
        params_key, direction_key, noise_key = jr.split(key, 3)
        params = net.init(params_key, inputs.x.shape[1:], width=width)
        leaves, tree = jax.tree.flatten(params)
        keys = jr.split(direction_key, len(leaves))
        directions = [jr.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
        noise = jr.split(noise_key, len(inputs.x))

        def outputs(params):
            apply = lambda e, k: net.apply(params, Example(e.x, e.mask, e.graph), key=k)
            return eqx.filter_vmap(apply)(inputs, noise)

        y, slope = jax.jvp(outputs, (params,), (tree.unflatten(directions),))
        return _products(y), _products(slope)

    nngp, ntk = jax.jit(jax.vmap(one))(jr.split(jr.key(2), draws))
    return {"nngp": np.asarray(nngp, np.float64), "ntk": np.asarray(ntk, np.float64)}


def _products(y):
    """`(n, *sites, channels) -> (n, n, *sites, *sites)`."""
    n, *sites, channels = y.shape
    flat = y.reshape(n, -1, channels)
    return (jnp.einsum("ipc,jqc->ijpq", flat, flat) / channels).reshape(n, n, *sites, *sites)
