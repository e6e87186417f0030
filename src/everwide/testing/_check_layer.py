"""Do the finite network and the limit of a layer belong together?"""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ..kernel import Example, Graph, Inputs
from ..layers import AbstractLayer, Dense, Serial
from ..signal import Parametrization
from ._check_limit import Limit, check_limit
from ._compile import quick_jit
from ._draws import Draws, sample_kernels
from ._faults import require, require_equal
from ._tolerances import MEAN_SQUARE, SAMPLED, Sampled, Slope, exact_for

_EXAMPLES = 3


class LayerReport(NamedTuple):
    """What was measured: the largest z-score in units of the allowed one, and exponents of the mean squared error."""

    sampled: float
    nngp_slope: float
    ntk_slope: float


def check_layer(
    layer: AbstractLayer,
    input_shape: tuple[int, ...],
    *,
    whole: bool = False,
    graph: Graph | None = None,
    parametrization: Parametrization | str = Parametrization.NTK,
    widths: tuple[int, ...] = (24, 96),
    draws: int = 200,
    key: Array | None = None,
    sampled: Sampled = SAMPLED,
    convergence: Slope = MEAN_SQUARE,
) -> LayerReport:
    """Raise `ConformanceError` unless the finite networks of a layer converge to its limit.

    The layer is put between a `Dense` layer, which makes its input Gaussian, and a `Dense` readout; with `whole=True`
    it is a network of its own, and its last layer must leave its width open.

    - The limit by itself (`check_limit`): symmetry, positive semidefiniteness, the diagonal, tracked pairs of sites,
      masks, gradients in all numbers of the layer.
    - Kernels of sampled networks, extrapolated to infinite width, equal the limit up to `sampled` standard errors; with
      masked sites, where the input has sites, and with fresh noise in every pass, where the layer is noisy.
    - The squared deviation, relative to the kernel, falls like 1 / width.
    - What a masked site holds changes nothing, and a mask of sites that all exist changes nothing.

    `graph` holds the graphs of three examples, for layers that need one.

    >>> import everwide as ew
    >>> from everwide.testing import check_layer
    >>> report = check_layer(ew.Serial(ew.Relu(), ew.Dense(w_std=1.3)), (3,), draws=20)
    """
    net = layer if whole else Serial(Dense(w_std=1.2, b_std=0.3), layer, Dense(w_std=1.1, b_std=0.2))
    key = jr.key(0) if key is None else key
    data_key, net_key, draw_key = jr.split(key, 3)
    inputs = example_inputs(data_key, input_shape, graph)
    setup = Limit(net, tuple(input_shape), Parametrization(parametrization), widths[-1])
    noisy = _check_finite(layer, net, inputs, setup, net_key)
    nngp, ntk = check_limit(layer, setup, inputs, noisy=noisy).kernels()
    found = [
        sample_kernels(net, inputs, width=w, draws=draws, key=jr.fold_in(draw_key, w), parametrization=parametrization)
        for w in widths
    ]
    tangents = [ntk] * len(widths)
    if setup.parametrization is Parametrization.STANDARD:  # the tangent kernel grows with the width
        tangents = [replace(setup, width=w).compute(inputs).kernels()[1] for w in widths]
    return _compare(layer, widths, found, [nngp] * len(widths), tangents, sampled, convergence)


def example_inputs(key: Array, input_shape: tuple[int, ...], graph: Graph | None = None) -> Inputs:
    """Three random examples; where there are sites, the last example lacks one and the second a few."""
    x = jr.normal(key, (_EXAMPLES, *input_shape))
    sites = input_shape[:-1]
    if not sites or sites[0] < 2:
        return Inputs(x, graph=graph)
    mask = np.ones((_EXAMPLES, *sites), bool)
    mask[1, -1] = False
    mask[2].reshape(-1)[1] = False
    return Inputs(x, jnp.asarray(mask), graph)


def _compare(layer, widths, found: list[Draws], nngp, ntk, sampled: Sampled, convergence: Slope) -> LayerReport:
    worst, slopes = 0.0, []
    for name, truths in (("nngp", nngp), ("ntk", ntk)):
        scales = [np.abs(np.asarray(t)).max() for t in truths]  # kernels may grow with the width
        pairs = zip(found, truths, scales, strict=True)
        deviations = [(getattr(d, name).astype(np.float64) - t) / scale for d, t, scale in pairs]
        mean, error = extrapolated(widths, deviations)
        claim = f"the {name} of sampled networks, extrapolated to infinite width, is that of the limit"
        worst = max(worst, require(layer, claim, sampled.excess_of(mean + 1, error, np.ones_like(mean))))
        # the median over the draws: single networks of small width can be far off
        square = [float(np.median(np.mean(d.reshape(len(d), -1) ** 2, 1))) for d in deviations]
        slopes.append(convergence.measured(widths, square))
        power = f"width^{convergence.exponent} (measured {slopes[-1]:.2f})"
        claim = f"the squared deviation of the {name} falls like {power}"
        require(layer, claim, convergence.excess(widths, square))
    return LayerReport(worst, *slopes)


def extrapolated(widths: tuple[int, ...], deviations: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean deviation at infinite width and its standard error: the two largest widths, without their 1 / width part."""
    means = [d.mean(0) for d in deviations[-2:]]
    errors = [d.std(0, ddof=1) / np.sqrt(len(d)) for d in deviations[-2:]]
    if len(means) == 1:
        return means[0], errors[0]
    small, large = widths[-2:]
    a, b = large / (large - small), small / (large - small)
    return a * means[1] - b * means[0], np.hypot(a * errors[1], b * errors[0])


def _check_finite(layer: AbstractLayer, net: AbstractLayer, inputs: Inputs, setup: Limit, key: Array) -> bool:
    """Masks at finite width; returns whether the layer is noisy."""

    @quick_jit
    def run(others: Inputs) -> tuple[Array, ...]:
        params = net.init(key, setup.shape, width=8, parametrization=setup.parametrization)
        one = lambda e, noise: net.apply(params, Example(e.x, e.mask, e.graph), key=noise)
        each = lambda batch, noise=None: eqx.filter_vmap(lambda e: one(e, noise))(batch)
        bare = replace(inputs, mask=None)
        if inputs.mask is None:
            return each(bare), each(bare, key)
        full = replace(inputs, mask=jnp.ones_like(inputs.mask))
        return each(bare), each(bare, key), each(full), each(inputs), each(others)

    mask = inputs.mask
    clean, noise, *masked = run(
        inputs if mask is None else replace(inputs, x=jnp.where(mask[..., None], inputs.x, 7.0))
    )
    noisy = not bool(jnp.array_equal(clean, noise))
    if mask is None:
        return noisy
    full, expected, got = masked
    tolerance = exact_for(clean.dtype)
    require_equal(layer, "a mask of sites that all exist changes nothing at finite width", full, clean, tolerance)
    require_equal(layer, "what a masked site holds changes nothing at finite width", got, expected, tolerance)
    return noisy
