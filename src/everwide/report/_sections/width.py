"""Networks of finite width that are really trained, all their layers, beside the kernel."""

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..._networks import Trained, train_networks
from ..._problem import Problem
from ..._walk import explain, unfrozen, with_outputs
from ..._words import count, number, percent, several
from ...empirical import ntk_block
from ...estimators import WideClassifier, WideRegressor
from ...layers import AbstractLayer
from ...linearization import kernel_distance, label_alignment
from ...signal import ArchitectureError
from ...training import Mse, SoftmaxCrossEntropy
from .._page import BLUE, GREY, INK, Fact, Figure, Section, Text
from .accuracy import NETWORK, Lead, Score, lead, losses_of, score_of

_WIDTH, _CHANNELS = 256, 32  # of dense layers; of convolutions, as people have them
_MOST_SITES = 100
_FEWEST = 40  # rows
_STOPPING, _PATIENCE = 0.2, 30  # of the training rows, those that say when to stop; looks at them without a gain
_KERNEL_ROWS = 64
Places = Int[np.ndarray, " _"]
Values = Float[np.ndarray, " _"]
_STILL, _GAIN = 0.1, 0.05  # change of a kernel, gain of alignment: what is less is little


@dataclass(frozen=True, eq=False)
class Width:
    """Networks of that width, trained as people do, beside the kernel: both learn from the same rows.

    - `n_train`: rows to learn from. `n_test`: rows that neither has seen, on which scores are measured: accuracies, or
      root mean square errors.
    - `network`: the mean over all networks, `each`: of every one; `kernel`: of the infinitely wide network.
      `ahead_of_kernel`: row by row. `useful`: whether one of them is better than the same answer
      for every row. `with_unit_readout`: the mean of networks whose outputs do not start near 0.
    - `steps`: of Adam. `n_diverged`: networks that were left out.
    - `kernel_change`: 1 less the alignment of their tangent kernels before and after training, 0 where these differ by
      a factor; `alignment_before`, `alignment_after`: with the targets. All centred, on rows that were not learned;
      without a number where these have one class.
    """

    width: int
    n_train: int
    n_test: int
    measure: str
    network: Score
    each: list[float]
    kernel: Score
    ahead_of_kernel: Lead
    useful: bool
    with_unit_readout: float | None
    steps: int
    n_diverged: int
    kernel_change: float
    alignment_before: float
    alignment_after: float

    @property
    def classes(self) -> bool:
        """Whether scores are accuracies."""
        return self.measure == "accuracy"

    def shown(self, score: float) -> str:
        """A score as it is printed."""
        return percent(score) if self.classes else number(score)


def width(problem: Problem) -> Width:
    """Train some networks and fit the kernel on the same rows, and look at both on others."""
    if len(problem.rows) < _FEWEST:
        raise ArchitectureError(f"it takes at least {_FEWEST} rows, and there are {len(problem.rows)}.")
    size, net = width_for(problem), trainable(problem)
    trained = _trained(problem, net, size, "mup")
    alive = np.flatnonzero(~trained.diverged)
    if not len(alive):
        raise ArchitectureError(f"all {len(trained.diverged)} networks diverged under Adam with a rate of 0.001.")
    losses = _losses(problem, trained)[alive]
    loss, same = _references(problem)
    other = None if problem.quick else _losses(problem, _trained(problem, net, size, "standard")).mean(0)
    moved = np.mean([_movement(problem, net, trained.before[at], trained.after[at]) for at in alive], axis=0)
    return Width(
        width=size,
        n_train=len(problem.train),
        n_test=len(problem.held),
        measure="accuracy" if problem.classes else "rmse",
        network=score_of(problem, losses.mean(0)),
        each=[score_of(problem, one).value for one in losses],
        kernel=score_of(problem, loss),
        ahead_of_kernel=lead(problem, loss - losses.mean(0)),
        useful=any(lead(problem, same - one).verdict == "better" for one in (loss, losses.mean(0))),
        with_unit_readout=None if other is None else score_of(problem, other).value,
        steps=int(trained.steps.max()),
        n_diverged=int(trained.diverged.sum()),
        kernel_change=float(moved[0]),
        alignment_before=float(moved[1]),
        alignment_after=float(moved[2]),
    )


def _references(problem: Problem) -> tuple[Values, Values]:
    """Losses at the held-out rows of the infinitely wide network, and of the same answer for every row."""
    x, y, chosen, held = problem.table.x[problem.rows], problem.labels, problem.train, problem.held
    kernel = problem.new(WideClassifier if problem.classes else WideRegressor).fit(x[chosen], y[chosen])
    usual = np.bincount(y[chosen]).argmax() if problem.classes else y[chosen].mean()
    said = (kernel.predict(x[held]), np.full(len(held), usual))
    loss, same = (losses_of(problem, one, y[held]) for one in said)
    return loss, same


def width_for(problem: Problem) -> int:
    """Every site of an image costs as much as a row: convolutions have few channels, and see small images only."""
    steps = explain(problem.net, problem.x.shape[1:]).to_dict()["steps"]
    sites = max((math.prod(step["output"][:-1]) for step in steps if step["output"][-1] is None), default=1)
    if sites > _MOST_SITES:
        raise ArchitectureError(f"networks that look at {sites} places of an image take too long to train here.")
    return _WIDTH if sites == 1 else _CHANNELS


def trainable(problem: Problem) -> AbstractLayer:
    """With an output for each class. Frozen layers make better kernels, and are chosen for that: nobody has them."""
    net = with_outputs(problem.net, problem.y.shape[1])
    return unfrozen(net) if problem.asked == "auto" else net


def _trained(problem: Problem, net: AbstractLayer, size: int, parametrization: str) -> Trained:
    """On all training rows, for as many steps as served rows that were kept back at first."""
    order = np.random.default_rng([problem.seed, 3]).permutation(problem.train)
    kept, seeds = order[: round(_STOPPING * len(order))], problem.limits.seeds
    mean, std = _units(problem)
    y = problem.y.argmax(1) if problem.classes else (problem.labels - mean) / std

    loss = SoftmaxCrossEntropy() if problem.classes else Mse()

    def train(rows: Places, judges: Places, steps: int, patience: int) -> Trained:
        return train_networks(
            net,
            _inputs(problem),
            y,
            [rows] * seeds,
            [judges] * seeds,
            loss=loss,
            width=size,
            steps=steps,
            patience=patience,
            parametrization=parametrization,
            seed=problem.seed,
        )

    first = train(order[len(kept) :], kept, problem.limits.steps, _PATIENCE)
    steps = max(1, round(float(np.mean(first.steps)) * len(order) / (len(order) - len(kept))))
    return train(order, order, steps, steps)


def _inputs(problem: Problem) -> Float[np.ndarray, "n *shape"]:
    """Columns, or channels of images, of mean 0 and variance 1 in the training rows; constant ones are 0."""
    x = problem.table.x[problem.rows]
    x = x if problem.input_shape is None else x.reshape(len(x), *problem.input_shape)
    axes = tuple(range(x.ndim - 1))
    mean, std = x[problem.train].mean(axes), x[problem.train].std(axes)
    return (x - mean) / np.where(std > 0, std, np.inf)


def _units(problem: Problem) -> tuple[float, float]:
    """Mean and standard deviation of the training rows' targets."""
    y = problem.labels[problem.train]
    return float(y.mean()), max(float(y.std()), 1e-300)


def _losses(problem: Problem, trained: Trained) -> Float[np.ndarray, "networks held"]:
    """Of the held-out rows, in the units of the target."""
    outputs, truth = trained.outputs[:, problem.held], problem.labels[problem.held]
    if problem.classes:
        said = np.unique(problem.labels)[outputs.argmax(-1)]
    else:
        mean, std = _units(problem)
        said = mean + std * outputs[..., 0].astype(np.float64)
    return np.stack([losses_of(problem, one, truth) for one in said])


def _movement(problem: Problem, net: AbstractLayer, before: Any, after: Any) -> tuple[float, float, float]:
    """The change of the tangent kernel, and its alignment with the targets before and after."""
    some = problem.held[:_KERNEL_ROWS]
    with jax.enable_x64(False):
        x = jnp.asarray(_inputs(problem)[some], jnp.float32)
        first, last = (np.asarray(_tangent_kernel(net, params, x), np.float64) for params in (before, after))
        before, after = (float(label_alignment(one, problem.y[some]).centred) for one in (first, last))
        return 1 - float(kernel_distance(first, last).cka), before, after


@eqx.filter_jit
def _tangent_kernel(net: AbstractLayer, params: Any, x: Any) -> Any:
    return ntk_block(net.apply, params, x, x, "trace")


def _text(problem: Problem, result: Width) -> Text:
    facts = (_network_fact(problem, result), _kernel_fact(result), _change_fact(result), *_start_fact(result))
    loss = "cross-entropy" if result.classes else "the squared error"
    note = (
        f"{several(len(result.each), 'network')} of width {result.width}, trained for {count(result.steps)} steps of "
        f"Adam at a rate of 0.001 on {loss} in batches of 64; a fifth of the rows, kept back at first, chose the "
        "number of steps. They start with hidden weights as in the kernel and outputs near 0; inputs have mean 0 and "
        f"variance 1. All learn from {count(result.n_train)} rows, and are judged on {count(result.n_test)} others."
    )
    return Text(facts, _warnings(result), (note,))


def _warnings(result: Width) -> tuple[str, ...]:
    if not result.n_diverged:
        return ()
    return (f"{several(result.n_diverged, 'network has', 'networks have')} diverged, which these numbers leave out.",)


def _network_fact(problem: Problem, result: Width) -> Fact:
    label = "Accuracy of trained networks" if result.classes else "Error of trained networks (RMSE)"
    low, high = (result.shown(end(result.each)) for end in (min, max))
    spread = f"From {low} to {high} by their random start" if low != high else "The same from every random start"
    meaning = f"{spread}; {result.shown(result.network.low)} to {result.shown(result.network.high)} on new rows."
    trained = " All of their layers were trained." if problem.asked == "auto" else ""
    return Fact(label, result.shown(result.network.value), f"{meaning}{trained}")


def _kernel_fact(result: Width) -> Fact:
    meaning = {
        "better": "The networks are better, beyond chance: train one, and expect more of it than this page says of "
        "the infinitely wide network.",
        "worse": "The infinitely wide network is better, beyond chance: use it (everwide.estimators), unless you "
        "have time to tune another.",
        "a tie": f"{count(result.n_test)} rows do not tell them apart: take whichever is simpler for you.",
    }[result.ahead_of_kernel.verdict]
    if not result.useful:
        meaning = (
            f"Neither is better than the same answer for every row, as far as {count(result.n_test)} rows can tell."
        )
    return Fact("The infinitely wide network, on the same rows", result.shown(result.kernel.value), meaning)


def _change_fact(result: Width) -> Fact:
    before, after = result.alignment_before, result.alignment_after
    ends = f"its alignment with the targets went from {number(before, 2)} to {number(after, 2)}"
    meaning = "Of 0\u202f% to 100\u202f%, for the tangent kernel of the networks before and after training"
    if math.isnan(before + after):
        meaning += ", on rows that do not tell whether it served the targets."
    elif result.kernel_change < _STILL:
        meaning += f"; {ends}. It hardly moved: they learn nearly as kernels do."
    elif after - before > _GAIN:
        meaning += f"; {ends}. They learned features of their own, which a kernel does not."
    else:
        meaning += f"; {ends}. It moved, and little of that served the targets."
    return Fact("Change of the kernel", percent(result.kernel_change, 0), meaning)


def _start_fact(result: Width) -> tuple[Fact, ...]:
    """The other usual start."""
    other = result.with_unit_readout
    if other is None:
        return ()
    meaning = (
        f"The same networks, but with outputs that start with the size of the targets (read-outs of unit variance), "
        f"beside {result.shown(result.network.value)}. PyTorch's default start is small, too."
    )
    return (Fact("With another start", result.shown(other), meaning),)


def _draw(figure: Any, result: Width) -> None:
    scale, ax = 100.0 if result.classes else 1.0, figure.subplots()
    bars = ((1, "trained networks", result.network, BLUE), (0, NETWORK, result.kernel, GREY))
    for place, _, score, colour in bars:
        ax.plot([scale * score.low, scale * score.high], [place] * 2, color=colour, linewidth=5, alpha=0.35)
        ax.plot(scale * score.value, place, "o", color=colour, markersize=7)
    ax.plot(scale * np.array(result.each), np.ones(len(result.each)), "|", color=INK, markersize=11)
    ax.set_yticks([bar[0] for bar in bars], [bar[1] for bar in bars])
    ax.tick_params(axis="y", labelcolor=INK, length=0)
    ax.set(xlabel="accuracy, %" if result.classes else "root mean square error", ylim=(-0.6, 1.6))
    ax.grid(axis="y", visible=False)


def _tile(result: Width) -> Fact:
    label = "accuracy of trained networks" if result.classes else "error of trained networks (RMSE)"
    kernel = result.shown(result.kernel.value)
    meaning = f"width {result.width}, Adam, {count(result.n_train)} rows; infinitely wide, on the same rows: {kernel}"
    return Fact(label, result.shown(result.network.value), meaning)


_CAPTION = "Scores on rows that none has seen, bars their 95\u202f% intervals; strokes are single networks."
SECTION = Section(
    "width",
    "Networks that were trained",
    "What does a network of finite width make of these rows, when all of its layers are trained?",
    measure=width,
    describe=_text,
    figure=Figure(_draw, 1.5, _CAPTION),
    tile=_tile,
    beside=True,
)
