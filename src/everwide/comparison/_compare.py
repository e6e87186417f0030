"""Train networks of several widths, and set them beside the infinitely wide one: tables, exponents, pictures."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .._checks import InputError, finite_array, positive, whole
from .._engine import Progress, Rows, as_rows, matching
from .._kernels import Infinite
from .._walk import walk
from .._words import axes
from ..kernel import Example
from ..layers import AbstractLayer, Dropout
from ..signal import ArchitectureError, Parametrization
from ..training import DivergenceWarning
from ._training import Curves, Problem, Trainer, limit_of, measure, train

_LOOKS = 12  # steps at which networks are looked at, at the most


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


def compare(
    net: AbstractLayer,
    x: Any,
    y: Any,
    widths: Sequence[int],
    *,
    x_test: Any = None,
    steps: int = 100,
    rate: float | None = None,
    seeds: int = 3,
    parametrization: Parametrization | str = Parametrization.NTK,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Comparison:
    """Train finite samples of a network, and set them beside the prediction at infinite width.

    Each network is trained by full-batch gradient descent on the mean over rows of `1/2 |f - y|^2`. Beside it stand
    its own linearization, and the infinitely wide network: gradient descent on the outputs with the analytic tangent
    kernel, from the outputs with which the finite network began. Training that diverges gives a `DivergenceWarning`.

    Args:
        net: leaves its hidden widths open, but not that of its last layer, as `Serial(Dense(), Relu(), Dense(1))`.
        x: inputs, `(n, *sites, channels)`.
        y: targets, `(n,)` or `(n, outputs)`.
        widths: what to train.
        x_test: where outputs are compared; `x` if not given.
        steps: of gradient descent.
        rate: the learning rate. By default half of the largest stable one at infinite width.
        seeds: networks of each width; they have the keys `split(key(seed), seeds)`.
        parametrization: "ntk" or "standard"; others have no kernel limit.
        seed: of the keys.
        progress: called after every width.

    Returns:
        `widths`, `steps` (those at which one looked), `rates` (by width); `curves`, arrays `(widths, seeds, steps)`:
        `loss_finite`, `loss_infinite`, `loss_linearized` (what is trained, on `x`), `gap_infinite`,
        `gap_linearized` (root mean squares on `x_test`), `kernel_change`, `movement`, `relative_movement`; `finite`,
        `infinite`: last outputs on `x_test`; `diverged`: widths. Methods `table` (rows, for `pandas.DataFrame`),
        `largest`, `slopes`, `interpolates(tolerance)` (widths whose networks fit all rows), `plot`, `plot_gaps`.

    >>> import everwide as ew, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 3))
    >>> net = ew.Serial(ew.Dense(), ew.Erf(), ew.Dense(1))
    >>> result = ew.compare(net, x, x[:, 0], widths=[64, 1024], steps=20)
    >>> result.slopes()["gap_infinite"].exponent < 0  # wider networks are nearer to their limit
    True

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent.

    """
    sizes, law = _widths(widths), Parametrization(parametrization)
    given = None if rate is None else positive(rate, "rate")
    problem = _problem(net, x, y, x_test, whole(steps, "steps"), law)
    data, test = _on_device(problem.x), _on_device(problem.x_test)
    targets, keys = jnp.asarray(problem.y, data.x.dtype), jr.split(jr.key(seed), whole(seeds, "seeds"))
    lengths = jnp.asarray(np.diff((0, *problem.steps)), jnp.int32)
    shared = limit_of(problem, sizes[0], given) if law is Parametrization.NTK else None  # the same at every width
    measured, begin = [], time.perf_counter()
    for done, width in enumerate(sizes, start=1):
        limit = limit_of(problem, width, given) if shared is None else shared
        trainer = Trainer(net, data, targets, test, width, law)
        trained = train(trainer, keys, jnp.asarray(limit.rate, targets.dtype), lengths)
        measured.append((limit.rate, *measure(problem, limit, trained)))
        if progress is not None:
            progress(Progress(done, len(sizes), time.perf_counter() - begin))
    rates, by_width, finite, infinite = zip(*measured, strict=True)
    curves = Curves(*(np.stack(values) for values in zip(*by_width, strict=True)))
    result = Comparison(sizes, problem.steps, rates, curves, np.stack(finite), np.stack(infinite))
    if result.diverged:
        warnings.warn(
            f"Training has diverged at width {', '.join(map(str, result.diverged))}: the rate {rates[0]:.6g} is too "
            "large there. Leave rate= out, or take less than everwide.training.max_learning_rate.",
            DivergenceWarning,
            stacklevel=2,
        )
    return result


def _widths(widths: Sequence[int]) -> tuple[int, ...]:
    if isinstance(widths, int) or not len(widths):
        raise InputError(f"widths={widths!r}: expected at least one width, such as [64, 256, 1024].")
    if len(set(widths)) < len(widths):
        raise InputError(f"widths={widths!r}: every width is trained once. Ask for more seeds instead.")
    return tuple(whole(width, "width") for width in widths)


def _problem(net: Any, x: Any, y: Any, x_test: Any, steps: int, law: Parametrization) -> Problem:
    """Raise `InputError` or `ArchitectureError` on what cannot be compared, before anything is trained."""
    if not isinstance(net, AbstractLayer):
        raise InputError(f"Expected a network (everwide.Serial, everwide.Dense, ...), got {type(net).__name__}.")
    if law not in (Parametrization.NTK, Parametrization.STANDARD):
        raise InputError(
            f"parametrization={law.value!r}: such networks learn features at any width, so there is no "
            'kernel to compare with. Use "ntk" or "standard".'
        )
    if any(isinstance(at.layer, Dropout) for at in walk(net)):
        raise ArchitectureError(
            "The network has a Dropout layer: its limit averages over noise, and gradient descent here has none. "
            "Leave Dropout out, to compare."
        )
    rows = as_rows(x)
    test = rows if x_test is None else matching(rows, as_rows(x_test, "x_test"))[1]
    looks = np.unique(np.round(np.geomspace(1, steps, _LOOKS - 1)).astype(int))
    return Problem(net, rows, _targets(y, len(rows), _outputs(net, rows)), test, (0, *looks.tolist()), law)


def _on_device(rows: Rows) -> Example:
    """All examples, stacked, in the dtype in which JAX draws parameters."""
    inputs, dtype = rows.cut(0, len(rows)), jnp.result_type(float)
    arrays = jax.tree.map(jnp.asarray, (inputs.x, inputs.mask, inputs.graph))
    return Example(*jax.tree.map(lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, arrays))


def _outputs(net: AbstractLayer, x: Rows) -> int:
    signal = Infinite(net, x.x.shape[1:]).output()
    if signal.sites:
        raise ArchitectureError(
            f"The network leaves sites: its output has shape {signal.shape}. End it with Flatten or GlobalAvgPool and "
            "a Dense layer, so that an example has one vector of outputs."
        )
    if signal.channels is None:
        raise ArchitectureError("The last layer leaves its width open. Give it the number of outputs, as in Dense(1).")
    return signal.channels


def _targets(y: Any, n: int, outputs: int) -> np.ndarray:
    given = finite_array(y, "y")
    shaped = given[:, None] if given.ndim == 1 and outputs == 1 else given
    if shaped.shape != (n, outputs):
        raise InputError(
            f"y has shape {given.shape}, expected ({n}, {outputs}): x has {n} examples and the network {outputs} "
            "outputs."
        )
    return shaped


def _power_law(widths: tuple[int, ...], values: np.ndarray) -> PowerLaw:
    if len(widths) < 2 or not (np.isfinite(values) & (values > 0)).all():
        return PowerLaw(float("nan"), float("nan"))
    x = np.log(np.broadcast_to(np.asarray(widths, float)[:, None], values.shape)).ravel()
    (exponent, _), squares, *_ = np.polyfit(x, np.log(values).ravel(), 1, full=True)
    freedom = len(x) - 2
    error = np.sqrt(squares[0] / freedom / np.sum((x - x.mean()) ** 2)) if freedom else np.nan
    return PowerLaw(float(exponent), float(error))
