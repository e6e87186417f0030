"""What a network that is really trained will do with more rows, beside its kernel."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import jax
import numpy as np
from scipy.special import ndtr, ndtri

from .._checks import InputError, probability, whole
from .._engine import Progress, as_rows
from .._gram import kernel_matrix
from .._losses import Loss, Mse, SoftmaxCrossEntropy
from .._networks import Trained, checked_optimizer, train_networks
from .._walk import with_outputs
from .._words import axes
from ..empirical import empirical_ntk
from ..layers import AbstractLayer
from ..linearization import kernel_distance, label_alignment
from ..signal import ArchitectureError
from ._beside import NETWORKS, kernel_log_errors
from ._fits import Design, design_of, run
from ._forecast import Curve, Forecast, draw, forecast_kernel
from ._identity import digest, optimizer_digest
from ._learning_curve import LearningCurve, continued, needed, pilot_of
from ._pilot import Targets

_WIDTH = 256
_FOLDS, _SIZES, _SMALLEST = 10, 5, 1 / 8  # networks at each size; sizes; the smallest, of the pilot
_HELD = 0.2  # of the rows say when to stop
_LOOKED_AT = 100  # rows at which kernels are compared
_SURE = 0.9  # probability, beyond which one is said to be better than the other


class Moved(NamedTuple):
    """How far training moved the tangent kernel of a network, on rows that it has not seen.

    `change`: relative to the kernel before, of what is left after the best rescaling: 0 if it only grew, at most 1.
    `alignment_before`, `alignment_after`: with the targets, centred: the cosine of the angle between both.
    """

    change: float
    alignment_before: float
    alignment_after: float


@dataclass(frozen=True, eq=False)
class NetworkForecast:
    """The error that a trained network will have, by the rows it learns from. Made by `forecast(of="network")`."""

    n: np.ndarray
    error: Curve
    low: Curve
    high: Curve
    unit: str
    level: float
    width: int
    kernel: Forecast
    kernel_error: Curve
    better: Curve
    moved: Moved | None
    curve: LearningCurve

    @property
    def accuracy(self) -> Curve | None:
        """Of classes; `None` for numbers. Its interval is `1 - high` to `1 - low`."""
        return 1 - self.error if self.kernel.accuracy is not None else None

    @property
    def failures(self) -> tuple[str, ...]:
        """Networks that diverged, or could not be trained, while others were."""
        return self.curve.failures

    def samples_needed(self, target: float, *, quantile: float = 0.5) -> float:
        """The fewest rows with which the target is reached: an accuracy for classes, a mean squared error for numbers.

        `quantile=0.9`: with which it is reached with that probability. Infinite where it is not.
        """
        classes = self.kernel.accuracy is not None
        if not 0 < target < (1 if classes else math.inf):
            expected = "an accuracy above 0 and below 1" if classes else "a mean squared error above 0"
            raise InputError(f"samples_needed(target={target!r}): expected {expected}.")
        return needed(self.curve.ahead, 1 - target if classes else target, quantile)

    def table(self) -> list[dict[str, float]]:
        """One row for each `n`: of the network `error`, `low`, `high`; `kernel_error`; `better`."""
        names = ("n", "error", "low", "high", "kernel_error", "better")
        columns = [getattr(self, name) for name in names]
        return [{name: float(c[at]) for name, c in zip(names, columns, strict=True)} for at in range(len(self.n))]

    def plot(self, ax: Any = None) -> Any:
        """Network and kernel: what was measured, the forecasts, the network's interval; on matplotlib axes."""
        ax, sizes = axes(ax, "table()"), self.curve.sizes
        ax.plot(np.sort(self.n), self.kernel_error[self.n.argsort()], "--", color="0.4", label="its kernel")
        errors, interval = np.nanmean(self.curve.errors, 0), f"{self.level:.0%} interval"
        return draw(ax, self, interval, sizes, errors, "networks, trained", f"{self.unit}, new rows")

    def advice(self) -> str:
        """Which to use with the most rows that were asked for, how far apart they are, and why; in words."""
        at = int(self.n.argmax())
        ratio, sure = self.error[at] / self.kernel_error[at], self.better[at]
        apart = f"With {self.n[at]} rows the network's error is {ratio:.2f} times that of its kernel"
        if sure > _SURE:
            which = f"Use the network. {apart}, and smaller with probability {sure:.0%}."
        elif sure < 1 - _SURE:
            which = f"Use the kernel. {apart}, and larger with probability {1 - sure:.0%}."
        else:
            which = f"Neither is surely better: take what is cheaper. {apart}, smaller with probability {sure:.0%}."
        if self.moved is None:
            return which
        change, before, after = self.moved
        return (
            f"{which} Training changed the shape of the tangent kernel by {change:.0%}; its alignment with the targets "
            f"went from {before:.2f} to {after:.2f}."
        )

    def __str__(self) -> str:
        lines = [f"{'rows':>10}  {'network':>9}  {self.level:.0%} interval  {'kernel':>9}"]
        for r in self.table():
            interval = f"{r['low']:.4g} .. {r['high']:.4g}"
            lines.append(f"{int(r['n']):10d}  {r['error']:9.4g}  {interval}  {r['kernel_error']:9.4g}")
        lines.append(f"The error is the {self.unit}; networks of width {self.width}. {self.advice()}")
        return "\n".join([*lines, *(f"Failed: {one}" for one in self.failures)])


class _Training(NamedTuple):
    """A network and its pilot: everything but which rows are learned."""

    net: AbstractLayer
    x: Any
    pilot: Targets
    targets: np.ndarray  # as the loss reads them
    loss: Loss
    optimizer: Any
    width: int
    seed: int

    def on(self, rows: np.ndarray) -> Trained:
        """One network; a fifth of the rows say when to stop."""
        held = max(2, round(_HELD * len(rows)))
        how = {"loss": self.loss, "optimizer": self.optimizer, "width": self.width, "seed": self.seed + int(rows.sum())}
        return train_networks(self.net, self.x, self.targets, [rows[held:]], [rows[:held]], **how)

    def about(self, y: Any) -> dict[str, Any]:
        """What tells its networks from those of another training."""
        rows, width = as_rows(self.x), whole(self.width, "width")
        params = jax.eval_shape(lambda key: self.net.init(key, rows.x.shape[1:], width=width), jax.random.key(0))
        return {
            "net": repr(self.net),
            "loss": repr(self.loss),
            "optimizer": optimizer_digest(checked_optimizer(self.optimizer), params),
            "width": width,
            "data": digest((rows.x, rows.mask, *jax.tree.leaves(rows.graph), y)),
            "seed": self.seed,
        }

    def error(self, train: np.ndarray, test: np.ndarray) -> float:
        """The share of wrong classes, or the mean squared error."""
        trained = self.on(train)
        if trained.diverged[0]:
            raise InputError("training diverged. Take a smaller rate, as optax.adam(1e-4)")
        outputs, labels = trained.outputs[0][test].astype(np.float64), self.pilot.labels
        if labels is not None:
            return float(np.mean(outputs.argmax(1) != labels[test]))
        return float(np.mean((outputs * _scale(self.pilot) - self.pilot.values[test]) ** 2))

    def moved(self, design: Design) -> Moved | None:
        """Of a network that learned all rows but a fold, on rows of that; `None` if it diverged, or rows have masks."""
        rows, trained, test = as_rows(self.x), self.on(design.orders[0]), design.tests[0][:_LOOKED_AT]
        if trained.diverged[0] or rows.mask is not None or rows.graph is not None:
            return None
        with jax.enable_x64(False):
            x = rows.x[test].astype(np.float32)
            ends = (trained.before[0], trained.after[0])
            before, after = (empirical_ntk(self.net.apply, params, x, outputs="trace") for params in ends)
        aligned = (float(label_alignment(kernel, self.pilot.values[test]).centred) for kernel in (before, after))
        cosine = float(kernel_distance(before, after).alignment)
        return Moved(max(1 - cosine**2, 0.0) ** 0.5, *aligned)


def _scale(pilot: Targets) -> float:
    """Numbers are learned with unit variance."""
    return pilot.variance**0.5


@overload
def forecast(
    kernel: Any,
    x: Any,
    y: Any,
    n: Any = None,
    *,
    ridge: float | None = None,
    task: str = "auto",
    which: str = "ntk",
    level: float = 0.9,
    seed: int = 0,
    of: Literal["kernel"] = "kernel",
) -> Forecast: ...


@overload
def forecast(
    kernel: Any,
    x: Any,
    y: Any,
    n: Any = None,
    *,
    of: Literal["network"],
    task: str = "auto",
    level: float = 0.9,
    seed: int = 0,
    optimizer: Any = None,
    width: int | None = None,
    loss: Loss | None = None,
    path: Any = None,
    progress: Callable[[Progress], None] | None = None,
) -> NetworkForecast: ...


def forecast(
    kernel: Any,
    x: Any,
    y: Any,
    n: Any = None,
    *,
    ridge: float | None = None,
    task: str = "auto",
    which: str = "ntk",
    level: float = 0.9,
    seed: int = 0,
    of: str = "kernel",
    optimizer: Any = None,
    width: int | None = None,
    loss: Loss | None = None,
    path: Any = None,
    progress: Callable[[Progress], None] | None = None,
) -> Forecast | NetworkForecast:
    """Predict the test error of a network for more rows than are labelled, from a labelled pilot.

    **Of the kernel**, which is the network of infinite width. Targets are centred. The pilot is learned in random
    orders, which measures the learning curve up to its size; shapes of curves (a power law, from some row on, down to a
    floor of noise) are weighed by how well they agree with it, and with what is left of the targets along the smallest
    eigenvectors of the kernel, where all but noise has faded. The interval holds the uncertainty of the shape, and, by
    resampling rows, that of the level; it is wider where a row lies far from the others. Of that, of kernels of rank 1
    or 2, and beyond `trusted_to` a `ForecastWarning` is given. The share of wrong classes is a power of the mean
    squared error, fitted to the pilot.

    **Of the network**, as people train it: all layers, at a finite width, by Adam in minibatches, from the critical
    initialization (`net.critical()`, where there is one) with outputs that start near 0, a fifth of the rows held out
    to say when to stop. Fifty such networks are trained on parts of the pilot, and their errors continued: beyond the
    last size they fall as `extrapolate` says of an "mlp" from their beginning, and as the kernel does, weighed as it
    was best on other data. The kernel is that of the network as given: at the critical start biases are 0, and learned
    by networks, but not by a kernel in which they have no variance. That takes a minute, not seconds.

    Args:
        kernel: a network, a kernel function of the library, a function of two batches, or the kernel matrix of `x`; or
            `everwide.operator(net, x)`, with `x=None`: of many rows, 4096 at random are the pilot.
        x: the pilot, 64 rows or more, drawn at random from what the network will see.
        y: its labels. Text, truth values, integers with few values and rows of indicators are classes, learned as
            indicators by the squared loss; everything else is numbers.
        n: for how many rows; by default from an eighth of the pilot to 20 times as many.
        ridge: on the kernel's diagonal, the same for all `n`; by default that with the smallest leave-one-out error.
            It is at least what the rounding of the kernel asks for.
        task: "classification", "regression", or "auto", by the labels.
        which: "ntk", the network trained; or "nngp", the Gaussian process.
        level: of the interval.
        seed: of the random orders, and of networks.
        of: "kernel" or "network". What follows is for networks only, `ridge` and `which` for kernels only.
        optimizer: of optax; Adam with a rate of 0.001 by default.
        width: of the layers that leave theirs open; 256 by default.
        loss: of `everwide.training`; by default cross-entropy for classes, the squared loss for numbers.
        path: a file in which finished networks are kept, so that a run that was cut off goes on. It is of one
            network, pilot, loss, optimizer and seed: others need a file of their own.
        progress: called after every network.

    Returns:
        Of the kernel: `n`; `error`: median of the mean squared error on new rows (over rows and outputs), at each `n`;
        `low`, `high`: the interval that should hold it with probability `level`; `accuracy`, `accuracy_low`,
        `accuracy_high`: for classes, or `None`; `task`; `rows` of the pilot; `ridge`; `noise`: the part of the error
        that more rows will not remove; `tail`: the part that is not learned yet, with all rows of the pilot (noise and
        a very long tail look alike in a small pilot: both are means over what is probable); `exponent`: of the power
        law in which the tail falls; `trusted_to`: the most rows for which the 90 % interval is narrow enough (its ends
        differ by less than a factor of two), from `rows` to 20 times as many. Methods `samples_needed(target)`,
        `table()`, `plot()`.

        Of the network: `n`; `error`, `low`, `high`, in the `unit` "share of wrong classes" or "mean squared error";
        `accuracy`; `kernel`: the forecast above, and `kernel_error`: in the same unit; `better`: the probability that
        the network's is smaller, half by the forecasts and half by what both had on the same rows; `moved`: `change`
        of the tangent kernel in training, `alignment_before` and `alignment_after` with the targets; `curve`: what
        `learning_curve_of` returns; `failures`: networks that diverged. Methods `advice()`: which of the two to use,
        and why; `samples_needed`, `table`, `plot`.

    >>> import everwide as ew, everwide.forecasting as fc, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> curve = fc.forecast(net, x, np.abs(x[:, 0]), n=[200, 800])
    >>> bool(curve.error[1] < curve.error[0]), curve.samples_needed(curve.error[1])
    (True, 800.0)

    Hestness et al., "Deep learning scaling is predictable, empirically" (2017), and Simon et al. (2021), for the laws.
    """
    if of == "kernel":
        networks = {"optimizer": optimizer, "width": width, "loss": loss, "path": path, "progress": progress}
        _refuse(networks, "of='kernel'", "of='network'")
        return forecast_kernel(kernel, x, y, n, ridge=ridge, task=task, which=which, level=level, seed=seed)
    if of != "network":
        raise InputError(f"forecast(of={of!r}): expected 'kernel' or 'network'.")
    _refuse({"ridge": ridge, "which": None if which == "ntk" else which}, "of='network'", "of='kernel'")
    if not isinstance(kernel, AbstractLayer):
        raise InputError(f"forecast(of='network'): expected a network of everwide, got {type(kernel).__name__}.")
    probability(level, "forecast: level")
    pilot = pilot_of(y, task, len(as_rows(x)), "forecast")
    law = loss or (Mse() if pilot.labels is None else SoftmaxCrossEntropy())
    net = _critical(with_outputs(kernel, pilot.values.shape[1]))
    width = _WIDTH if width is None else width
    training = _Training(net, x, pilot, _targets(pilot, law), law, optimizer, width, seed)
    design = design_of(pilot, whole(seed, "forecast: seed", least=0), folds=_FOLDS, sizes=_SIZES, smallest=_SMALLEST)
    about = {} if path is None else training.about(y)
    fits = run(design, training.error, path=path, about=about, threads=1, progress=progress)
    curve = continued(design, fits, pilot, n, kernel_matrix(kernel, x), "mlp", seed, NETWORKS[pilot.task])
    return _made(curve, training.moved(design), level, width)


def _refuse(given: dict[str, Any], of: str, other: str) -> None:
    """What is for the other kind of forecast would do nothing here."""
    named = ", ".join(name for name, value in given.items() if value is not None)
    if named:
        raise InputError(f"forecast({of}): {named} would do nothing, as it is for {other}. Leave it out.")


def _targets(pilot: Targets, loss: Loss) -> np.ndarray:
    """Labels for cross-entropy, indicators for other losses of classes, numbers of unit variance."""
    if pilot.labels is None:
        return pilot.values / _scale(pilot)
    return pilot.labels if isinstance(loss, SoftmaxCrossEntropy) else pilot.values + pilot.mean


def _critical(net: AbstractLayer) -> AbstractLayer:
    """With the variances at which signals keep their size; as it is, where there are none."""
    try:
        return net.critical()
    except ArchitectureError:
        return net


def _made(curve: LearningCurve, moved: Moved | None, level: float, width: int) -> NetworkForecast:
    kernel = curve.kernel
    assert kernel is not None  # there is a kernel matrix
    logs = kernel_log_errors(kernel, curve.n)
    theirs = np.exp(logs[:, 1])
    stretch = float(ndtri((1 + level) / 2) / ndtri(0.95))
    low, high = (curve.error * (end / curve.error) ** stretch for end in (curve.low, curve.high))
    spread = np.hypot(np.log(curve.high / curve.low), logs[:, 2] - logs[:, 0]) / (2 * ndtri(0.95))
    ahead = (np.log(curve.error / theirs) + _measured_ratio(curve, kernel.rows)) / 2
    better = np.clip(ndtr(-ahead / spread), 0.01, 0.99)  # nothing here is surer
    return NetworkForecast(
        n=curve.n,
        error=curve.error,
        low=low,
        high=high,
        unit=curve.unit,
        level=level,
        width=width,
        kernel=kernel,
        kernel_error=theirs,
        better=better,
        moved=moved,
        curve=curve,
    )


def _measured_ratio(curve: LearningCurve, rows: int) -> float:
    """Log of the networks' error over the kernel's on the same rows, at the last size that networks have learned."""
    assert curve.kernel_errors is not None  # there is a kernel matrix
    known = np.isfinite(curve.errors)
    last = int(np.flatnonzero(known.any(0))[-1])
    folds = known[:, last]
    least = 0.5 / rows if curve.unit != "mean squared error" else np.finfo(np.float64).tiny
    own, theirs = (max(float(e[folds, last].mean()), least) for e in (curve.errors, curve.kernel_errors))
    return math.log(own / theirs)
