"""The beginning of a learning curve in numbers, and the networks that continue it: a prior learned from real curves.

The prior, `_curves.npz`, was learned from the mean test errors of LCDB 1.1 (Yan, Mohr, Viering, 2025; CC BY 4.0) by
`benchmarks/curves_prior.py`.
"""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

SMALLEST = 2e-3  # an error below is not told from it
KNOTS = (0.75, 2.5, 4.0, 5.5)  # log2 of the factors at which intervals were calibrated
WIDTH = 0.01  # of the log error, least on either side of a forecast
SLOPE, RISE, LAST, POWER, CENTER, TOLD = 13, 19, 22, 33, 52, slice(55, 88)  # columns of what networks see
RISING = 0.05  # beyond, a beginning is not monotone

_PER_OCTAVE, _OCTAVES = 8, 6  # points of the grid, and how far back it goes
_NOISE, _MISFIT = 0.02, 0.03  # of an error without a standard error; by which real curves leave every shape

Numbers = Mapping[str, np.ndarray]


class Beginning(NamedTuple):
    """What was measured of curves at the same sizes, on a regular grid of log2 of the sizes."""

    grid: Float[np.ndarray, " grid"]
    errors: Float[np.ndarray, "curves grid"]
    stderr: Float[np.ndarray, "curves grid"]  # NaN where it was not given
    different: int  # sizes that can be told apart


def beginning(sizes: np.ndarray, errors: np.ndarray, stderr: np.ndarray) -> Beginning:
    """Errors `(curves, sizes)`, sizes rising. Those in one cell of the grid are averaged, gaps are interpolated."""
    logs = np.log2(sizes)
    steps = int(min((logs[-1] - logs[0]) * _PER_OCTAVE + 0.3, _OCTAVES * _PER_OCTAVE))
    grid = logs[-1] - np.arange(steps, -1, -1) / _PER_OCTAVE
    cells, cell = np.unique(np.round((logs - logs[-1]) * _PER_OCTAVE), return_inverse=True)
    means = np.eye(len(cells))[:, cell] / np.bincount(cell)[:, None]
    onto = np.stack([np.interp(grid, means @ logs, one) for one in np.eye(len(cells))], 1) @ means
    return Beginning(grid, errors @ onto.T, stderr @ onto.T, len(cells))


def _shapes(n: np.ndarray) -> Iterator[tuple[np.ndarray, bool]]:
    """Falling curves `(shapes, n)`, and whether errors are weighed by how well they are known."""
    power = n ** -np.linspace(0.02, 2.5, 60)[:, None]
    yield from ((power, False), (power, True))
    exponent, shift = _pairs(np.linspace(0.02, 3, 40), (-0.4, -0.25, -0.1, 0, 4, 16, 64, 128, 256, 512, 1024, 4096))
    shifted = ((n + np.where(shift < 0, shift * n[0], shift)) / 100) ** -exponent
    yield from ((shifted, False), (shifted, True))
    scale, exponent = _pairs(np.logspace(-1, 7, 25), np.linspace(0.05, 3, 25))
    yield scale / (scale + n**exponent), False  # Morgan, Mercer, Flodin
    scale, exponent = _pairs(np.logspace(-4, 1, 25), np.linspace(0.03, 2, 25))
    yield np.exp(-scale * n**exponent), False  # Weibull


def _pairs(*values: Any) -> list[np.ndarray]:
    return [each.ravel()[:, None] for each in np.meshgrid(*values)]


def _fit(shapes: np.ndarray, begun: Beginning, weights: np.ndarray) -> tuple[np.ndarray, ...]:
    """Least squares of `floor + height * shape`, neither below 0: best, mean and spread of the log forecast, misfit.

    How probable a shape is goes by its residuals; those of one curve are dependent, so that they count a third.
    """
    seen, ahead = np.split(shapes, [len(begun.grid)], axis=1)
    y, w = begun.errors.T, weights.T
    total, y1, y2 = w.sum(0), (w * y).sum(0), (w * y * y).sum(0)
    s1, s2, sy = seen @ w, seen**2 @ w, seen @ (w * y)
    height = np.maximum((sy - s1 * y1 / total) / np.maximum(s2 - s1**2 / total, 1e-30), 0)
    height = np.where(height * s1 > y1, sy / np.maximum(s2, 1e-30), height)
    floor = np.maximum(y1 - height * s1, 0) / total
    rest = y2 - 2 * height * sy - 2 * floor * y1 + height**2 * s2 + 2 * height * floor * s1 + floor**2 * total
    best, curves = rest.argmin(0), np.arange(y.shape[1])
    least = np.maximum(rest[best, curves], 0)
    probable = np.exp(-(rest - rest[best, curves]) * max(begun.different - 4, 1) / 6 / (least + 1e-7 * total))
    probable /= probable.sum(0)
    upper = np.maximum(begun.errors.max(1), 1)[:, None]
    logs = np.log(np.clip(floor[..., None] + height[..., None] * ahead[:, None], SMALLEST, upper))
    mean = np.einsum("sc,scn->cn", probable, logs)
    spread = np.sqrt(np.maximum(np.einsum("sc,scn->cn", probable, logs**2) - mean**2, 0))
    misfit = np.log(np.sqrt(least / total) / np.maximum(begun.errors[:, -1], SMALLEST) + 1e-4)
    return logs[best, curves], mean, spread, misfit


def _levels(begun: Beginning) -> np.ndarray:
    """Levels and slopes at several scales, roughness, rise, noise, size: of logarithms, relative to the last."""
    grid, logs = begun.grid, np.log(np.maximum(begun.errors, SMALLEST))
    last, span = logs[:, -1], grid[-1] - grid[0]

    def local(back: float, width: float, room: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
        near = np.exp(-(((grid - grid[-1] + back) / width) ** 2) / 2)
        near /= near.sum()
        aside = grid - near @ grid
        slope = logs @ (near * aside / max(near @ aside**2, 1e-9)) + (np.nan if back > span + room else 0.0)
        return logs @ near + slope * (grid[-1] - back - near @ grid) - last, slope

    ends = [part for width in (0.4, 0.8, 1.6) for part in local(0, width)]
    before = local(2, 0.6, room=0.5)[1]
    columns = [*(local(half / 2, 0.2)[0] for half in range(1, 11)), *ends, before, ends[1] - before]
    columns += [np.diff(logs, axis=1).std(1), (logs - np.minimum.accumulate(logs, 1)).max(1)]
    columns += [np.log(np.mean((begun.stderr / np.exp(logs))[:, -5:], 1) + 1e-3), last - logs.min(1), last]
    columns += [np.log(np.maximum(1 - begun.errors[:, -1], 0.01))]
    columns += [np.full(len(last), value) for value in (grid[-1], np.log2(begun.different), span)]
    return np.column_stack(columns)


def features(begun: Beginning, n: np.ndarray) -> tuple[Float[np.ndarray, "curves n inputs"], np.ndarray]:
    """What the networks see of curves at sizes `n`; and the shapes' log forecast, which they correct."""
    noise = np.where(np.isnan(begun.stderr), _NOISE * begun.errors, begun.stderr)
    weights = 1 / (noise**2 + (_MISFIT * begun.errors) ** 2 + 1e-6)
    weights = (np.ones_like(weights), weights / weights.mean(1, keepdims=True))
    fits = [_fit(shapes, begun, weights[known]) for shapes, known in _shapes(np.append(2**begun.grid, n))]
    best, mean, spread, misfit = (np.stack(part, -1) for part in zip(*fits, strict=True))
    levels = _levels(begun)
    last = levels[:, [LAST]]
    best, mean = best - last[..., None], mean - last[..., None]
    center, factor = np.median(mean, -1), np.log2(n) - begun.grid[-1] + 0 * mean[..., 0]
    once = np.repeat(np.column_stack([levels, misfit])[:, None], len(n), 1)
    several = np.stack([np.median(best[..., [0, 2, 4, 5]], -1), center, mean.std(-1), factor], -1)
    return np.concatenate([once, best, mean, spread, several], -1), center + last


def beside(inputs: np.ndarray, centers: np.ndarray) -> Float[np.ndarray, "n 10"]:
    """What curves on the same rows say about the first of them: levels, slopes and forecasts of the others."""
    level, slope = inputs[1:, 0, LAST] - inputs[0, 0, LAST], inputs[1:, 0, SLOPE]
    ahead = centers[1:] - inputs[0, 0, LAST]
    if not len(level):
        return np.full((inputs.shape[1], 10), np.nan)
    falls, best = ahead - level[:, None], level.argmin()
    each = (level.min(), np.median(level), np.median(falls, 0), ahead.min(0), np.median(ahead, 0), falls[best])
    return np.stack(np.broadcast_arrays(*each, np.median(slope), slope[best], falls.min(0), ahead.max(0)), -1)


@functools.cache
def prior() -> Numbers:
    """What was learned; and `words` for learners, what networks are `told` for each, and whose intervals hold."""
    with np.load(Path(__file__).with_name("_curves.npz")) as file:
        return {name: file[name] for name in file.files}


def members(numbers: Numbers, network: str, x: np.ndarray) -> Float[np.ndarray, "members rows 3"]:
    """What each network of an ensemble says, in rising order: two hidden layers, on inputs that are scaled."""
    center, scale, *layers = (numbers[f"{network}.{part}"].astype(np.float64) for part in range(8))
    h = np.clip(np.nan_to_num((x - center[:, None]) / scale[:, None]), -4, 4)
    for at in (0, 2, 4):
        h = h @ layers[at] + layers[at + 1][:, None]
        h = h / (1 + np.exp(-h)) if at < 4 else h
    return np.sort(h, -1)


def ensemble(numbers: Numbers, network: str, group: int, x: np.ndarray) -> Float[np.ndarray, "rows 3"]:
    """The mean of networks, for some groups half of them without other curves, drawn a little to the power law."""
    own, pull = numbers[f"{network}.mix"][group]
    less = "learner" if x[0, TOLD].any() else "alone"
    said = own * members(numbers, network, x).mean(0) + (1 - own) * members(numbers, less, x).mean(0)
    return said + pull * (x[:, [POWER]] - x[:, [CENTER]] - said[:, [1]])


def log_quantiles(numbers: Numbers, network: str, group: int, x: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Of the error over the shapes' forecast, at 5, 50 and 95 %, `(rows, 3)`: the mean of an ensemble, stretched.

    Intervals held so on other data sets, by `group` of learners, for beginnings that rise, and by log2 of `factor`.
    """
    said = ensemble(numbers, network, group, x)
    stretch = np.stack([np.interp(factor, KNOTS, side) for side in numbers[f"{network}.knots"].T], 1)
    stretch *= numbers[f"{network}.groups"][group][(x[:, RISE] > RISING).astype(int)]
    low, high = ((WIDTH + np.abs(said[:, [0, 2]] - said[:, [1]])) * stretch).T
    return said[:, [1]] + np.stack([-low, 0 * low, high], 1)
