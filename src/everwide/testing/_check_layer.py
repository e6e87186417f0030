"""Do the finite network and the limit of a layer belong together?"""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ..kernel import Graph, Inputs
from ..layers import AbstractLayer, Dense, Serial
from ..signal import Parametrization
from ._check_limit import Limit, Truth, check
from ._draws import (
    MEAN_SQUARE,
    SAMPLED,
    Draws,
    Sampled,
    Slope,
    exact_for,
    forward,
    quick_jit,
    require,
    require_equal,
    sample_kernels,
    standard_error,
)

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
    inputs: Inputs | None = None,
    parametrization: Parametrization | str = Parametrization.NTK,
    widths: tuple[int, ...] = (24, 96),
    draws: int = 200,
    key: Array | None = None,
    max_z: float = SAMPLED.max_z,
    slope_tolerance: float = MEAN_SQUARE.deviation,
) -> LayerReport:
    """Raise `ConformanceError` unless the finite networks of a layer converge to its limit.

    - The limit by itself: symmetry, positive semidefiniteness, the diagonal, tracked pairs of sites,
      masks, gradients in all numbers of the layer.
    - Kernels of sampled networks, extrapolated to infinite width, equal the limit up to `max_z` standard errors; with
      masked sites, where the input has sites, and with fresh noise in every pass, where the layer is noisy.
    - The squared deviation, relative to the kernel, falls like 1 / width.
    - What a masked site holds changes nothing, and a mask of sites that all exist changes nothing.
    - Limits of which a part is sampled (`layers.Sampled`, `StochasticDepth`) are estimated several times: what must be
      equal is so up to standard errors of both sides. Gradients of such estimates are not checked, nor is the fall of
      the deviation where every pass drops other branches.

    Args:
        layer: Put between a `Dense` layer, which makes its input Gaussian, and a `Dense` readout.
        input_shape: Of one example: `(*sites, channels)`.
        whole: The layer is a network of its own, whose last layer leaves its width open.
        graph: The graphs of three examples, for layers that need one.
        inputs: Three examples where random numbers will not do. Whole numbers are tokens.
        parametrization: As in `net.init`.
        widths: Of the sampled networks, in ascending order.
        draws: Networks of each width.
        key: A JAX key; another one is another set of examples and networks.
        max_z: Standard errors that a mean may be off.
        slope_tolerance: How far from -1 the exponent of the width may be.

    Returns:
        What was measured: `sampled`, the largest z-score in units of `max_z`, and the exponents of the mean squared
        deviation, `nngp_slope` and `ntk_slope`.

    >>> import everwide as ew
    >>> from everwide.testing import check_layer
    >>> report = check_layer(ew.Serial(ew.Relu(), ew.Dense(w_std=1.3)), (3,), draws=20)
    """
    net = layer if whole else Serial(Dense(w_std=1.2, b_std=0.3), layer, Dense(w_std=1.1, b_std=0.2))
    data_key, net_key, draw_key = jr.split(jr.key(0) if key is None else key, 3)
    inputs = example_inputs(data_key, input_shape, graph) if inputs is None else inputs
    limit = Limit(net, tuple(input_shape), Parametrization(parametrization), widths[-1])
    noisy = _check_finite(layer, limit, inputs, net_key)
    truths = [check(layer, limit, inputs, noisy=noisy)] * len(widths)
    drawn = [
        sample_kernels(net, inputs, width=w, draws=draws, key=jr.fold_in(draw_key, w), parametrization=parametrization)
        for w in widths
    ]
    if limit.parametrization is Parametrization.STANDARD:  # the tangent kernel grows with the width
        truths = [replace(limit, width=w).truth(inputs) for w in widths]
    # Where the limit itself must draw the noise, all channels share it, and it is there at every width.
    falls = None if noisy and len(limit.seeds) > 1 else Slope(MEAN_SQUARE.exponent, slope_tolerance)
    return _compare(layer, widths, drawn, truths, Sampled(max_z), falls)


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


def _compare(
    layer: AbstractLayer,
    widths: tuple[int, ...],
    drawn: list[Draws],
    truths: list[Truth],
    sampled: Sampled,
    falls: Slope | None,
) -> LayerReport:
    worst, slopes = 0.0, []
    for name in ("nngp", "ntk"):
        kernels = [getattr(t, name) for t in truths]
        scales = [np.abs(kernel).max() for kernel in kernels]  # kernels may grow with the width
        pairs = zip(drawn, kernels, scales, strict=True)
        deviations = [(getattr(d, name).astype(np.float64) - t) / scale for d, t, scale in pairs]
        mean, error = extrapolated(widths, deviations)
        error = np.hypot(error, getattr(truths[-1], f"{name}_error") / scales[-1])  # the same draws at all widths
        claim = f"the {name} of sampled networks, extrapolated to infinite width, is that of the limit"
        worst = max(worst, require(layer, claim, sampled.excess_of(mean + 1, error, np.ones_like(mean))))
        # the median over the draws: single networks of small width can be far off
        square = [float(np.median(np.mean(d.reshape(len(d), -1) ** 2, 1))) for d in deviations]
        slopes.append(MEAN_SQUARE.measured(widths, square))
        if falls is not None:
            power = f"width^{falls.exponent} (measured {slopes[-1]:.2f})"
            claim = f"the squared deviation of the {name} falls like {power}"
            require(layer, claim, falls.excess(widths, square))
    return LayerReport(worst, *slopes)


def extrapolated(widths: tuple[int, ...], deviations: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean deviation at infinite width and its standard error: the two largest widths, without their 1 / width part."""
    means = [d.mean(0) for d in deviations[-2:]]
    errors = [standard_error(d) for d in deviations[-2:]]
    if len(means) == 1:
        return means[0], errors[0]
    small, large = widths[-2:]
    a, b = large / (large - small), small / (large - small)
    return a * means[1] - b * means[0], np.hypot(a * errors[1], b * errors[0])


def _check_finite(layer: AbstractLayer, limit: Limit, inputs: Inputs, key: Array) -> bool:
    """Masks at finite width; returns whether the layer is noisy."""

    @quick_jit
    def run(batches: list[Inputs]) -> tuple[Array, list[Array]]:
        params = limit.net.init(key, limit.shape, width=8, parametrization=limit.parametrization)
        noise = forward(limit.net, params, batches[0], jr.split(key, len(inputs.x)))
        return noise, [forward(limit.net, params, batch, None) for batch in batches]

    batches, mask = [replace(inputs, mask=None)], inputs.mask
    if mask is not None:
        other = replace(inputs, x=jnp.where(mask[..., None], inputs.x, 7.0))
        batches += [replace(inputs, mask=jnp.ones_like(mask)), inputs, other]
    noise, (clean, *masked) = run(batches)
    if masked:
        full, expected, got = masked
        tolerance = exact_for(clean.dtype)
        require_equal(layer, "a mask of sites that all exist changes nothing at finite width", full, clean, tolerance)
        require_equal(layer, "what a masked site holds changes nothing at finite width", got, expected, tolerance)
    return not bool(jnp.array_equal(clean, noise))
