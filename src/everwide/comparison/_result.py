"""What a comparison has found, as tables, exponents and pictures."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._words import axes


class Curves(NamedTuple):
    """Everything that was measured, each as `(widths, seeds, steps)`.

    - `loss_...`: the mean over the training examples of `1/2 |f - y|^2`: of the trained networks, of the infinitely
      wide network that starts from the same outputs, and of each network's own linearization.
    - `gap_...`: root mean square, over test examples and outputs, of the trained network minus the other.
    - `kernel_change`: `|T_t - T_0|_F / |T_0|_F` of the empirical tangent kernel of the training examples.
    - `movement`: `|theta_t - theta_0|`; `relative_movement`: over `|theta_0|`.
    """

    loss_finite: np.ndarray
    loss_infinite: np.ndarray
    loss_linearized: np.ndarray
    gap_infinite: np.ndarray
    gap_linearized: np.ndarray
    kernel_change: np.ndarray
    movement: np.ndarray
    relative_movement: np.ndarray


class PowerLaw(NamedTuple):
    """`quantity ~ width**exponent`, with the standard error of the exponent."""

    exponent: float
    error: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Networks of several widths beside their limit. Made by `everwide.compare`.

    - `widths`, `steps`: what was trained, and the steps at which it was looked at. `rates`: learning rates, by width.
    - `curves`: all that was measured, as `(widths, seeds, steps)`.
    - `finite`, `infinite`: outputs on the test examples after the last step, `(widths, seeds, examples, outputs)`.
    """

    widths: tuple[int, ...]
    steps: tuple[int, ...]
    rates: tuple[float, ...]
    curves: Curves
    finite: np.ndarray
    infinite: np.ndarray

    def table(self) -> list[dict[str, Any]]:
        """One row for each width, seed and step: `width`, `seed`, `step`, `time` (rate times step), then `curves`."""
        rows = []
        for at in np.ndindex(self.curves.loss_finite.shape):
            width, seed, step = self.widths[at[0]], at[1], self.steps[at[2]]
            known = {"width": width, "seed": seed, "step": step, "time": step * self.rates[at[0]]}
            rows.append(known | {name: float(values[at]) for name, values in self.curves._asdict().items()})
        return rows

    def largest(self) -> Curves:
        """The largest value over all steps, `(widths, seeds)`: what the theorems speak of."""
        return Curves(*(values.max(-1) for values in self.curves))

    def slopes(self) -> dict[str, PowerLaw]:
        """How gaps, kernel change and movement scale with the width: least squares through the logarithms of `largest`.

        The error is that of a straight line through all seeds of all widths. What is zero somewhere (the gap of a
        linear network) or not finite (training has diverged) has no exponent: `nan`.
        """
        largest = self.largest()._asdict().items()
        return {name: _power_law(self.widths, values) for name, values in largest if not name.startswith("loss")}

    @property
    def diverged(self) -> tuple[int, ...]:
        """Widths at which some network ended with a larger loss than it began with, or with none at all."""
        loss = self.curves.loss_finite
        stable = np.isfinite(loss).all(-1) & (loss[..., -1] <= loss[..., 0])
        return tuple(width for width, networks in zip(self.widths, stable, strict=True) if not networks.all())

    def interpolates(self, tolerance: float = 1e-6) -> tuple[int, ...]:
        """Widths at which every network ends with a loss below the tolerance: it has fitted its rows."""
        last = self.curves.loss_finite[..., -1]
        return tuple(width for width, losses in zip(self.widths, last, strict=True) if (losses < tolerance).all())

    def plot(self, ax: Any = None) -> Any:
        """Training losses: a line for each width (the mean over the seeds), and the infinitely wide network, dashed.

        `ax`: matplotlib axes; a new figure by default. Returns the axes. Needs matplotlib.
        """
        ax = axes(ax, "table()")
        for width, losses in zip(self.widths, self.curves.loss_finite, strict=True):
            ax.plot(self.steps, losses.mean(0), label=f"width {width}")
        limit = self.curves.loss_infinite[-1].mean(0)
        ax.plot(self.steps, limit, color="black", linestyle="--", label="infinite width")
        ax.set(xlabel="step", ylabel="mean of 1/2 |f - y|^2", yscale="log")
        ax.legend()
        return ax

    def plot_gaps(self, ax: Any = None) -> Any:
        """The largest gap to the infinitely wide network and to the linearization, against the width; as `plot`."""
        ax, largest, slopes = axes(ax, "table()"), self.largest(), self.slopes()
        for name in ("gap_infinite", "gap_linearized"):
            values, label = getattr(largest, name), name.replace("_", " to ")
            (line,) = ax.plot(self.widths, values.mean(1), label=f"{label}, width^{slopes[name].exponent:.2f}")
            ax.plot(self.widths, values, linestyle="", marker="o", alpha=0.4, color=line.get_color())
        ax.set(xlabel="width", ylabel="largest root mean square gap", xscale="log", yscale="log")
        ax.legend()
        return ax


def _power_law(widths: tuple[int, ...], values: np.ndarray) -> PowerLaw:
    if len(widths) < 2 or not (np.isfinite(values) & (values > 0)).all():
        return PowerLaw(float("nan"), float("nan"))
    x = np.log(np.broadcast_to(np.asarray(widths, float)[:, None], values.shape)).ravel()
    (exponent, _), squares, *_ = np.polyfit(x, np.log(values).ravel(), 1, full=True)
    freedom = len(x) - 2
    error = np.sqrt(squares[0] / freedom / np.sum((x - x.mean()) ** 2)) if freedom else np.nan
    return PowerLaw(float(exponent), float(error))
