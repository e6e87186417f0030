"""Deep random networks: phases, depth scales and critical points, predicted and measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide import InputError
from everwide.theory.criticality import critical_init, phase_diagram

from .._claims import Claim
from .._report import Clock, Watcher, write_report
from ._claims import claims_of
from ._experiments import (
    GELU,
    TANH,
    Measured,
    Sizes,
    critical_weight,
    depth_scales,
    fluctuations,
    half_stability,
    power_law,
)
from ._figure import draw
from ._training import digits, trainability

_TANH_BIAS, _GELU_BIAS = 0.05, 0.2
_TANH_WEIGHTS, _GELU_WEIGHTS = (0.6, 1.0, 1.3, 2.0, 3.0, 4.0), (0.8, 1.4, 1.8)
_TRAINED_WEIGHTS = (0.5, 0.8, 1.2)  # and the critical one


@dataclass(frozen=True, eq=False)
class Criticality:
    """Numbers of theory beside those of networks. Made by `reproduce`.

    - `rows`: one for each prediction. `diagrams`: what `phase_diagram` returns, for tanh and for GELU.
    - `curves`: what was measured at every depth, for the figure. `sizes`: of the experiments.

    >>> from everwide_lab import criticality
    >>> result = criticality.reproduce(width=64, draws=0.05, steps=5)  # doctest: +SKIP
    >>> result.rows[0].predicted, result.rows[0].measured  # doctest: +SKIP
    """

    rows: tuple[Measured, ...]
    diagrams: tuple[Any, ...]
    curves: dict[str, dict[str, Any]]
    sizes: Sizes

    def table(self) -> list[dict[str, Any]]:
        """A row for each prediction: what theory says, what networks say, and two standard errors of that."""
        return [row._asdict() for row in self.rows]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of theory, each with a verdict that is computed from the numbers."""
        return claims_of(self.rows)

    def plot(self) -> Any:
        """Phase diagrams, predictions against measurements, variances over depth: a matplotlib figure."""
        return draw(self.rows, self.diagrams, self.curves, critical_init(np.tanh).a1)

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        write_report(folder, "Criticality", self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        width, nets = self.sizes.width, self.sizes.nets
        return (
            f"Random networks of width {width} beside the limit of infinite width. Lengths: {nets(400)} networks for "
            "each point, inputs at the fixed point of the variance, a line through the logarithms of mean differences. "
            f"Gradients: {nets(40)} networks of width 256 and depth 12, with drawn weights. All other networks but the "
            "trained ones are drawn layer by layer, from the exact law of the next layer given this one. "
            f"Variance at criticality: {nets(200)} networks of depth 100. Half-stable point: {nets(200)} mish networks "
            f"of width {8 * width}, 40 layers; gelu's point is so weakly half-stable (a1 = {_gelu_bend():.2g}) that "
            "fluctuations of finite networks hide it: its rows are one step of the limit, and no measurement. "
            f"Relative variance: {nets(4_000_000 // 64)} to {nets(4_000_000 // 1024)} networks. Trained accuracy: tanh "
            f"networks of width 64, {self.sizes.steps} steps of 32 digits, SGD with momentum 0.9, the better of two "
            "learning rates, two seeds; predicted is the rule of six correlation lengths, and errors are differences "
            "of the seeds. All other errors are two standard errors, from leaving out groups of networks."
        )


def _gelu_bend() -> float:
    return critical_init(GELU.fn).a1


def reproduce(
    *,
    width: int = 1024,
    draws: float = 1.0,
    steps: int = 200,
    seed: int = 1,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> Criticality:
    """Hold phase diagrams, depth scales and critical points against random networks of finite width.

    Args:
        width: Of the networks.
        draws: Multiplies the numbers of networks.
        steps: Of training.
        seed: Another one is another set of networks.
        out: A folder for table, figure and claims.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `rows`, `diagrams` and `curves` behind them.

    >>> from everwide_lab import criticality
    >>> result = criticality.reproduce(width=64, draws=0.05, steps=5)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Schoenholz et al., "Deep information propagation" (2017); Roberts, Yaida, Hanin, "The principles of deep learning
    theory" (2022).

    """
    if width < 8 or not draws > 0 or steps < 1:
        raise InputError(f"width={width}, draws={draws}, steps={steps}: expected at least 8, above 0 and at least 1.")
    sizes = Sizes(width, draws, steps, seed)
    watch = _Counter(progress)
    rows = _measured_scales(sizes, watch)
    curves: dict[str, dict[str, Any]] = {}
    for name, experiment in (("power law", power_law), ("half-stable", half_stability), ("fluctuations", fluctuations)):
        watch()
        more, curves[name] = experiment(sizes)
        rows += more
    data, weights = digits(), (*_TRAINED_WEIGHTS, critical_weight(TANH, _TANH_BIAS))
    for weight in weights:
        watch()
        rows += trainability(weight, _TANH_BIAS, data, sizes)
    watch()
    result = Criticality(tuple(rows), _diagrams(), curves, sizes)
    watch()
    if out is not None:
        result.write(Path(out))
    return result


def _measured_scales(sizes: Sizes, watch: "_Counter") -> list[Measured]:
    rows: list[Measured] = []
    for case, bias, weights in ((TANH, _TANH_BIAS, _TANH_WEIGHTS), (GELU, _GELU_BIAS, _GELU_WEIGHTS)):
        for weight in weights:
            watch()
            rows += depth_scales(case, weight, bias, sizes)
    return rows


def _diagrams() -> tuple[Any, ...]:
    grid: Sequence[tuple[Any, float, float]] = ((TANH, 4.2, 0.3), (GELU, 2.5, 0.5))
    return tuple(
        phase_diagram(case.fn, C_w=np.linspace(0.3, weight, 31), C_b=np.linspace(0, bias, 13))
        for case, weight, bias in grid
    )


class _Counter:
    """Counts the parts that have begun."""

    def __init__(self, progress: Watcher):
        self._clock = Clock(progress)
        self._begun = 0
        self._total = len(_TANH_WEIGHTS) + len(_GELU_WEIGHTS) + len(_TRAINED_WEIGHTS) + 5

    def __call__(self) -> None:
        self._clock(self._begun, self._total)
        self._begun += 1
