"""What is measured on random networks: how signals, differences and gradients change from layer to layer."""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from scipy.special import erf

from everwide.theory.criticality import critical_init, phase_diagram

from ._fit import decay_length, jackknife, mean_of, relative_variance
from ._networks import Block, Function, first_layer, gradient_sizes, layers

LENGTH, VARIANCE_LENGTH, GRADIENT = "correlation length", "variance length", "gradient factor"
POWER_LAW, EXPONENTIAL = "variance at criticality", "variance length off criticality"
HALF_STABLE, FLUCTUATION, TRAINED = "drift at the half-stable point", "relative variance", "trained accuracy"
LIMIT_DRIFT = "drift of the limit"  # computed, not measured: no verdict rests on it


class Sizes(NamedTuple):
    """Of the experiments: `draws` multiplies the numbers of networks, `steps` are those of training."""

    width: int = 1024
    draws: float = 1.0
    steps: int = 200
    seed: int = 1

    def nets(self, wanted: int) -> int:
        """That many networks, at `draws = 1`."""
        return max(2, round(wanted * self.draws))


class Measured(NamedTuple):
    """One number of theory beside one of networks, with two standard errors."""

    experiment: str
    activation: str
    C_w: float
    C_b: float
    place: str
    predicted: float
    measured: float
    error: float


class Case(NamedTuple):
    """An activation with its name and slope."""

    name: str
    fn: Function
    slope: Function


def gelu(z: np.ndarray) -> np.ndarray:
    """`z Phi(z)`."""
    return 0.5 * z * (1 + erf(z * math.sqrt(0.5)))


def _gelu_slope(z: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + erf(z * math.sqrt(0.5))) + z * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def mish(z: np.ndarray) -> np.ndarray:
    """`z tanh(log(1 + e^z))`."""
    grown = np.exp(np.minimum(z, 30.0))  # beyond, the factor is 1
    even = grown * (grown + 2)
    return z * (even / (even + 2))


TANH = Case("tanh", np.tanh, lambda z: 1 - np.tanh(z) ** 2)
GELU = Case("gelu", gelu, _gelu_slope)


def depth_scales(case: Case, weight: float, bias: float, sizes: Sizes) -> list[Measured]:
    """Both lengths at one point of the phase diagram, and the factor by which gradients change in a layer."""
    point = phase_diagram(case.fn, C_w=weight, C_b=bias)
    phase, fixed, settled = str(point.phase), float(point.K_star), float(point.correlation)
    rng = np.random.default_rng(sizes.seed)
    block, width = Block(case.fn, weight, bias), sizes.width
    step = min(0.1, 0.9 * (1 - settled)) if phase == "chaotic" else 0.0
    cosines = (settled + step, settled - step) if step else (0.98,)
    directions = np.array([[1.02, 0.0], *([c, math.sqrt(1 - c * c)] for c in cosines)])
    start = first_layer(rng, sizes.nets(400), width, fixed, directions)
    differences, gains = [], []
    for layer in layers(rng, block, start, 30):
        first = layer.complement(1)
        differences.append((layer.complement(2) - first) / 2 if step else first)
        gains.append(layer.gain(0))
    gradients = [gradient_sizes(rng, block, case.slope, fixed, 256, 12) for _ in range(sizes.nets(40))]
    rows = (
        (LENGTH, point.xi_perp, decay_length(np.array(differences).T, 1.0)),
        (VARIANCE_LENGTH, point.xi_par, decay_length(np.array(gains).T, math.inf)),
        (GRADIENT, point.chi_perp, jackknife(_factor, np.array(gradients))),
    )
    return [Measured(name, case.name, weight, bias, phase, float(predicted), *e) for name, predicted, e in rows]


def _factor(squares: np.ndarray) -> float:
    """Of mean squares from one layer to the one before it, in the geometric mean over the layers."""
    mean = squares.mean(0)
    return float((mean[0] / mean[-1]) ** (1 / (len(mean) - 1)))


def power_law(sizes: Sizes) -> tuple[list[Measured], dict[str, np.ndarray]]:
    """Tanh at its critical point, and beside it; variances of all networks at all depths, for a figure."""
    rng, depth = np.random.default_rng(sizes.seed + 1), 100
    point = critical_init(np.tanh)

    def run(weight: float) -> np.ndarray:
        start = first_layer(rng, sizes.nets(200), sizes.width, 1.0, np.zeros((0, 2)))
        return np.array([layer.variance for layer in layers(rng, Block(np.tanh, weight, 0.0), start, depth)]).T

    at, off = run(point.C_w), run(0.9)
    rows = [
        Measured(POWER_LAW, "tanh", point.C_w, 0.0, f"depth {layer}", 1 / (point.a1 * layer), *mean_of(at[:, layer]))
        for layer in (30, 60, 100)
    ]
    off_row = Measured(EXPONENTIAL, "tanh", 0.9, 0.0, "ordered", -1 / math.log(0.9), *decay_length(off, 0.02))
    return [*rows, off_row], {"C_w = 1": at, "C_w = 0.9": off}


def half_stability(sizes: Sizes) -> tuple[list[Measured], dict[str, np.ndarray]]:
    """Wide mish networks that start at either side of their critical point; gelu's own drift is far too slow to see."""
    rng, depth = np.random.default_rng(sizes.seed + 2), 40
    rows, paths = [], {}
    for name, fn, shares in (("mish", mish, (0.5, 1.5)), ("gelu", gelu, (0.99, 1.01))):
        point = critical_init(fn)
        block = Block(fn, point.C_w, point.C_b)
        for share in shares:
            start = share * point.K_star
            if name == "gelu":
                drift = _infinite_path(block, start, 1)[-1] - start
                rows.append(_drift_row(block, name, share, -point.a1, point.K_star, drift))
                continue
            first = first_layer(rng, sizes.nets(200), 8 * sizes.width, start, np.zeros((0, 2)))
            path = np.array([layer.variance for layer in layers(rng, block, first, depth)]).T
            expected = _infinite_path(block, start, depth)
            place = f"{depth} layers from {share:g} K*"
            e = mean_of(path[:, -1] - start)
            rows.append(Measured(HALF_STABLE, name, block.weight, block.bias, place, expected[-1] - start, *e))
            paths |= {f"from {share:g} K*": path, f"from {share:g} K*, infinite width": expected[None]}
    return rows, paths


def _drift_row(block: Block, name: str, share: float, bend: float, fixed: float, drift: float) -> Measured:
    predicted = bend * ((share - 1) * fixed) ** 2
    return Measured(LIMIT_DRIFT, name, block.weight, block.bias, f"1 layer from {share:g} K*", predicted, drift, 0.0)


def _infinite_path(block: Block, start: float, depth: int) -> np.ndarray:
    """The recursion of the variance at infinite width, by a fine sum over a Gaussian."""
    x = np.linspace(-10, 10, 2001)
    density = np.exp(-x * x / 2)
    density /= density.sum()
    path = [start]
    for _ in range(depth):
        path.append(block.bias + block.weight * float(density @ block.fn(math.sqrt(path[-1]) * x) ** 2))
    return np.array(path)


def fluctuations(sizes: Sizes) -> tuple[list[Measured], dict[str, Any]]:
    """ReLU networks at criticality: how much their variance differs from network to network."""
    rng, depth = np.random.default_rng(sizes.seed + 3), 16
    rows, curves = [], {}
    for width in (64, 256, 1024):
        nets = sizes.nets(4_000_000 // width)
        path = np.ones((depth + 1, nets))
        for layer in range(depth):  # the function is homogeneous: every layer multiplies by a number of its own
            drawn = rng.standard_normal((nets, width), dtype=np.float32)
            path[layer + 1] = path[layer] * 2 * np.mean(np.maximum(drawn, 0) ** 2, axis=1, dtype=np.float64)
        estimates = [relative_variance(path[layer]) for layer in range(1, depth + 1)]
        curves[f"width {width}"] = (width, estimates)
        for layer in (4, 10):
            place, predicted = f"width {width}, depth {layer}", (1 + 5 / width) ** layer - 1
            rows.append(Measured(FLUCTUATION, "relu", 2.0, 0.0, place, predicted, *estimates[layer - 1]))
    return rows, curves


def critical_weight(case: Case, bias: float) -> float:
    """`C_w` on the critical line, for this `C_b`."""
    weights, biases = phase_diagram(case.fn, C_w=1.0, C_b=bias).line.T
    near = float(np.interp(bias, biases, weights))

    def excess(weight: float) -> float:
        return float(phase_diagram(case.fn, C_w=weight, C_b=bias).chi_perp) - 1

    root: Any = scipy.optimize.brentq(excess, 0.9 * near, 1.1 * near, xtol=1e-12)
    return float(root)
