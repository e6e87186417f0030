"""Random initializations of modules, beside the limit of their translation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import everwide as ew
from everwide.testing._check_layer import extrapolated
from everwide.testing._draws import SAMPLED, standard_error

WIDTHS = (8, 16, 64)
_AT_ONCE = 10


def rows(shape, n=3, tokens=0):
    """Examples of entries -1 and 1: sums of uniform weights over them are as nearly normal as such sums can be.

    Or tokens of a vocabulary of that size.
    """
    if tokens:
        return np.random.default_rng(0).integers(0, tokens, (n, *shape)).astype(np.int32)
    return np.random.default_rng(0).choice([-1.0, 1.0], (n, *shape)).astype(np.float32)


def require_agreement(make, shape, kernels, *, tokens=0, draws=None, widths=WIDTHS):
    """Kernels of draws come nearer to those of the translation with every width, and meet them at the end.

    At the end: two widths, without what falls like 1 / width. Nearer: the squared deviation of single draws.

    `make(width)` is a module; `kernels(width, x)` are the kernels of its draws, `(draws, n, n)` each: the covariance of
    the outputs, and the tangent kernel of the first. Returns the largest z-scores, and the standard errors. Where the
    translation is sampled, `draws` times, its standard errors count too.
    """
    x = rows(shape, tokens=tokens)
    apart, own, sizes = {"nngp": [], "ntk": []}, {}, {}
    for width in widths:
        limit = ew.from_module(make(width), shape)
        truth = ew.gram(limit.net, limit.examples(x), parametrization=limit.parametrization, draws=draws or 2)
        assert (truth.error is None) == (draws is None)
        for name, drawn in zip(apart, kernels(width, x), strict=True):
            exact = np.asarray(getattr(truth, name), np.float64)
            apart[name].append(np.asarray(drawn, np.float64) - exact)
            own[name] = 0.0 if truth.error is None else getattr(truth.error, name)
            sizes[name] = np.abs(exact).max()
    # Numbers, and tangent kernels by the width, are polynomials in 1 / width. Shares of a kernel are not: biases, whose
    # variance is 1 / width, may be most of a narrow network and little of a wide one.
    scales = {"nngp": [sizes["nngp"] for _ in widths], "ntk": [sizes["ntk"] * width / widths[-1] for width in widths]}
    found = {}
    for name, drawn in apart.items():
        deviations = [d / scale for d, scale in zip(drawn, scales[name], strict=True)]
        squares = [float(np.median(np.mean(d.reshape(len(d), -1) ** 2, 1))) for d in deviations]
        assert squares == sorted(squares, reverse=True), (name, squares)
        mean, error = extrapolated(widths, deviations)
        error = np.hypot(error, 2 * own[name] / sizes[name])  # of two widths, the larger of which counts 4/3
        found[name] = SAMPLED.excess_of(mean + 1, error, np.ones_like(mean)), float(error.max())
    assert found["nngp"][0] <= 1, found
    assert found["ntk"][0] <= 1, found
    assert found["nngp"][1] < (0.06 if draws is None else 0.12), found  # standard errors that would show a fault
    return found


def require_agreement_at(make, shape, kernels, width=64, *, draws=None):
    """The same at one width, for what fluctuates much, or has biases: a kernel that is off by 20 % fails.

    The translation of a module of that width has its biases, which an extrapolation leaves out.
    """
    x = rows(shape)
    limit = ew.from_module(make(width), shape)
    truth = ew.gram(limit.net, limit.examples(x), parametrization=limit.parametrization, draws=draws or 2)
    assert (truth.error is None) == (draws is None)
    found = {}
    for name, drawn in zip(("nngp", "ntk"), kernels(width, x), strict=True):
        exact = np.asarray(getattr(truth, name), np.float64)
        own = 0.0 if truth.error is None else getattr(truth.error, name)
        error = np.hypot(standard_error(drawn), own)
        excess = SAMPLED.excess_of(np.asarray(drawn, np.float64).mean(0), error, exact)
        found[name] = excess, float(error.max() / exact.max())
    assert max(excess for excess, _ in found.values()) <= 1, found
    assert max(error for _, error in found.values()) < 0.033, found
    return found


def both_kernels(f, params, x):
    """Of one draw: `f(params, one)` is a vector."""
    y = jax.vmap(lambda one: f(params, one))(x)
    slopes = jax.vmap(lambda one: jax.grad(lambda p: f(p, one)[0])(params))(x)
    flat = [leaf.reshape(len(x), -1) for leaf in jax.tree.leaves(slopes)]
    return y @ y.T / y.shape[-1], sum(leaf @ leaf.T for leaf in flat)


def drawn(one, draws):
    """Kernels of draws of a JAX module: `one(key)` are those of one."""
    keys = jr.split(jr.key(1), draws)
    return jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=_AT_ONCE))(keys)


def equinox_kernels(make, draws):
    """Of an Equinox module, `make(width, key)`."""

    def kernels(width, x):
        def one(key):
            params, static = eqx.partition(make(width, key), eqx.is_inexact_array)
            return both_kernels(lambda p, a: eqx.combine(p, static)(a).reshape(-1), params, jnp.asarray(x))

        return drawn(one, draws)

    return kernels


def nnx_kernels(make, draws):
    """Of a Flax NNX module, `make(width, rngs)`."""
    from flax import nnx

    def kernels(width, x):
        def one(key):
            graph, params, rest = nnx.split(make(width, nnx.Rngs(key)), nnx.Param, ...)
            return both_kernels(lambda p, a: nnx.merge(graph, p, rest, copy=True)(a[None])[0], params, jnp.asarray(x))

        return drawn(one, draws)

    return kernels
