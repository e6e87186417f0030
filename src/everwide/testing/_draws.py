"""Draws of finite networks, and what randomness and rounding allow."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ..kernel import Example, Inputs
from ..layers import AbstractLayer
from ..signal import Parametrization


def quick_jit(fn: Callable) -> Callable:
    """`jax.jit` without the optimizations whose time a check never earns back; the mathematics is the same."""
    return jax.jit(fn, compiler_options={"xla_backend_optimization_level": 0})


Values = Any  # whatever numpy makes an array of


@dataclass(frozen=True)
class Exact:
    """Two computations of one array that differ by rounding only.

    No entry may differ by more than `relative` times the largest entry (or 1, if `floor`, where values near zero are
    differences of numbers of order one).

    >>> from everwide.testing._draws import EXACT64
    >>> EXACT64.excess([1.0, 2.0], [1.0, 2.0 + 1e-14]) < 1
    True
    """

    relative: float
    floor: bool = False

    def excess(self, got: Values, expected: Values) -> float:
        """The largest difference in units of what is allowed: at most 1 is equal. Not finite is never equal."""
        a, b = (np.asarray(v, np.float64) for v in (got, expected))
        if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
            return float("inf")
        if a.size == 0:
            return 0.0
        size = max(float(np.abs(b).max()), 1.0 if self.floor else np.finfo(np.float64).tiny)
        return float(np.abs(a - b).max()) / (self.relative * size)


def standard_error(draws: Values) -> np.ndarray:
    """Of the mean over the first axis; a single draw is no draw, but exact."""
    a = np.asarray(draws, np.float64)
    return np.asarray(a.std(0, ddof=1) / np.sqrt(len(a)) if len(a) > 1 else np.zeros(a.shape[1:]))


@dataclass(frozen=True)
class Sampled:
    """A sample mean against its expectation: no entry may be more than `max_z` standard errors away.

    With fewer than a million comparisons of nearly normal means, 5 standard errors do not happen by chance.

    >>> import numpy as np
    >>> from everwide.testing._draws import SAMPLED
    >>> SAMPLED.excess(np.random.default_rng(0).normal(size=(1000, 3)), np.zeros(3)) < 1
    True
    """

    max_z: float

    def excess(self, draws: Values, expected: Values) -> float:
        """The largest z-score in units of what is allowed; draws lie along the first axis."""
        a, b = np.asarray(draws, np.float64), np.asarray(expected, np.float64)
        return self.excess_of(a.mean(0), standard_error(a), b)

    def excess_of(self, mean: Values, error: Values, expected: Values) -> float:
        """The same, for a mean whose standard error is known. Rounding is no deviation."""
        mean, error, expected = (np.asarray(v, np.float64) for v in (mean, error, expected))
        if mean.shape != expected.shape or not np.isfinite(mean).all():
            return float("inf")
        rounding = EXACT32.relative * max(float(np.abs(expected).max(initial=0.0)), 1e-30)
        return float(((np.abs(mean - expected) - rounding).clip(0) / np.maximum(error, 1e-300)).max()) / self.max_z


@dataclass(frozen=True)
class Slope:
    """A power law: the exponent, measured as the slope between logarithms, is `exponent` up to `deviation`.

    >>> from everwide.testing._draws import Slope
    >>> Slope(-1.0, 0.1).excess([10, 100], [3.0, 0.3]) < 1
    True
    """

    exponent: float
    deviation: float

    def measured(self, sizes: Values, values: Values) -> float:
        """Least squares through the logarithms."""
        return float(np.polyfit(np.log(np.asarray(sizes, float)), np.log(np.asarray(values, float)), 1)[0])

    def excess(self, sizes: Values, values: Values) -> float:
        """Deviation of the measured exponent in units of what is allowed."""
        return abs(self.measured(sizes, values) - self.exponent) / self.deviation


EXACT64 = Exact(1e-10)
"""Float64, well-conditioned: a few thousand roundings of 2.2e-16, with three digits to spare."""

EXACT32 = Exact(2e-5)
"""Float32, well-conditioned: a few hundred roundings of 1.2e-7."""

CANCELLING64 = Exact(1e-6)
"""Float64 where nearly parallel examples meet a square root: half of the digits are lost, two more are allowed."""

CANCELLING32 = Exact(5e-3)
"""Float32 where nearly parallel examples meet a square root."""

DERIVATIVE64 = Exact(1e-6)
"""A float64 derivative against a central difference quotient with steps of 1e-5."""

DERIVATIVE32 = Exact(2e-2)
"""A float32 derivative against a central difference quotient with steps of 1e-2."""

SAMPLED = Sampled(5.0)
"""A Monte Carlo mean over independent draws."""

MEAN_SQUARE = Slope(-1.0, 0.7)
"""The mean squared deviation of a network of finite width from its limit falls like 1 / width."""


def exact_for(dtype: Any) -> Exact:
    """The class of well-conditioned results in a dtype.

    >>> import numpy as np
    >>> from everwide.testing._draws import EXACT32, exact_for
    >>> exact_for(np.float32) == EXACT32
    True
    """
    return EXACT32 if np.dtype(dtype).itemsize <= 4 else EXACT64


def cancelling_for(dtype: Any) -> Exact:
    """The class of results near a square root of zero in a dtype.

    >>> import numpy as np
    >>> from everwide.testing._draws import CANCELLING64, cancelling_for
    >>> cancelling_for(np.float64) == CANCELLING64
    True
    """
    return CANCELLING32 if np.dtype(dtype).itemsize <= 4 else CANCELLING64


def derivative_for(dtype: Any) -> tuple[Exact, float]:
    """The class of derivatives against difference quotients in a dtype, and the step to take.

    >>> import numpy as np
    >>> from everwide.testing._draws import DERIVATIVE64, derivative_for
    >>> derivative_for(np.float64)[0] == DERIVATIVE64
    True
    """
    return (DERIVATIVE32, 1e-2) if np.dtype(dtype).itemsize <= 4 else (DERIVATIVE64, 1e-5)


class ConformanceError(AssertionError):
    """A layer or an activation contradicts itself; the message names the object, the property and the sizes.

    >>> from everwide.testing import ConformanceError
    >>> issubclass(ConformanceError, AssertionError)
    True
    """


def require(who: object, claim: str, excess: float) -> float:
    """Raise unless a deviation, in units of what is allowed, is at most 1. Returns it."""
    if not excess <= 1:
        raise ConformanceError(f"{type(who).__name__}: {claim}, but it is off by {excess:.3g} times what is allowed.")
    return excess


def require_equal(who: object, claim: str, got, expected, tolerance: Exact) -> float:
    """Raise unless two arrays are equal in the sense of `tolerance`."""
    return require(who, claim, tolerance.excess(got, expected))


_AT_ONCE = 8  # draws in one vectorized step: Jacobians of all of them are in memory


class Draws(NamedTuple):
    """Empirical kernels `(draws, n, n, *sites, *sites)` of independent networks of one width."""

    nngp: np.ndarray
    ntk: np.ndarray


def sample_kernels(
    net: AbstractLayer,
    inputs: Inputs,
    *,
    width: int,
    draws: int,
    key: Array,
    parametrization: Parametrization | str = Parametrization.NTK,
) -> Draws:
    """Kernels of `draws` finite networks: the NNGP averaged over all outputs, the NTK of the first.

    Every example has randomness of its own in each pass (dropout). Parameters of frozen layers do not count: their
    gradients are stopped in `forward`.

    >>> import everwide as ew, jax, jax.numpy as jnp
    >>> from everwide.testing._draws import sample_kernels
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense())
    >>> drawn = sample_kernels(net, ew.Inputs(jnp.ones((2, 3))), width=16, draws=8, key=jax.random.key(0))
    >>> drawn.ntk.shape
    (8, 2, 2)
    """
    one = partial(_one_draw, net, inputs, width, Parametrization(parametrization))
    nngp, ntk = quick_jit(partial(jax.lax.map, one, batch_size=min(_AT_ONCE, draws)))(jr.split(key, draws))
    return Draws(np.asarray(nngp), np.asarray(ntk))


def _one_draw(
    net: AbstractLayer, inputs: Inputs, width: int, parametrization: Parametrization, key: Array
) -> tuple[Array, Array]:
    init, passes = jr.split(key)
    params = net.init(init, inputs.x.shape[1:], width=width, parametrization=parametrization)
    keys = jr.split(passes, len(inputs.x))

    y = forward(net, params, inputs, keys)
    shape, sites = y.shape[:-1], y.shape[1:-1]
    flat = y.reshape(math.prod(shape), -1)
    nngp = flat @ flat.T / flat.shape[-1]
    jacobian = jax.jacrev(lambda p: forward(net, p, inputs, keys)[..., 0].reshape(-1))(params)
    rows = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(jacobian)]
    ntk = sum((r @ r.T for r in rows), jnp.zeros_like(nngp))
    return _by_example(nngp, shape[0], sites), _by_example(ntk, shape[0], sites)


def forward(net: AbstractLayer, params, inputs: Inputs, keys: Array | None) -> Array:
    """Outputs of all examples, each with noise of its own where there are keys."""

    def one(example: Any, key: Array | None) -> Array:
        return net.apply(params, Example(example.x, example.mask, example.graph), key=key)

    return eqx.filter_vmap(one)(inputs, keys)


def _by_example(flat: Array, n: int, sites: tuple[int, ...]) -> Array:
    """`(n P, n P) -> (n, n, *sites, *sites)`."""
    size = math.prod(sites)
    return flat.reshape(n, size, n, size).transpose(0, 2, 1, 3).reshape(n, n, *sites, *sites)
