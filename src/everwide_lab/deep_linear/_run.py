"""Deep linear networks: Saxe et al. 2014, Hanin and Nica 2020, Hanin and Zlokapa 2023."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide import InputError
from everwide.theory import deep_linear

from .._claims import Claim
from .._digits import digits
from .._report import Clock, Watcher, blank_figure, write_report
from ._claims import Evidence, Posterior, Prior, Training, claims_of
from ._dynamics import DIRECTIONS, MODES, Learned, learn, task
from ._prior import log_norms
from ._sampler import draw

PRIORS = ((12, 3), (48, 12), (12, 12), (48, 3))  # width, layers
ROWS, TESTS = 12, 50
WIDTHS = ((18,), (36, 36), (54, 54, 54), (18, 18), (18, 18, 18, 18))
DEPTHS, SCALES = (0, 1, 2, 4, 8, 16, 32), (1.0, 3.0)
TRAINED = ((2, True), (3, True), (2, False))  # layers, aligned
_WIDTH, _START, _RATE = 16, 1e-3, 0.02
_CENTRE = 500  # rows that tell where the middle of the pixels is


@dataclass(frozen=True, eq=False)
class DeepLinear:
    """Random, fitting and trained networks without activations, beside what can be solved. Made by `reproduce`.

    - `priors`, `posteriors`, `evidences`, `trained`: one for each setting. `example`: modes of one seed, for the
      figure, with their strengths.

    >>> from everwide_lab import deep_linear
    >>> result = deep_linear.reproduce(seeds=2, draws=50, chains=4, sweeps=20)  # doctest: +SKIP
    >>> result.posteriors[0].variances  # doctest: +SKIP
    """

    priors: tuple[Prior, ...]
    posteriors: tuple[Posterior, ...]
    evidences: tuple[Evidence, ...]
    trained: tuple[Training, ...]
    example: Learned
    draws: int
    chains: int
    sweeps: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each setting: what was measured and predicted, means over the seeds."""
        return [
            *(row for one in self.priors for row in _prior_rows(one)),
            *(_row("posterior variance", str(one), one.variances, one.predicted) for one in self.posteriors),
            *(_row("half-times", str(one), one.half_times.mean(1), one.predicted.mean(1)) for one in self.trained),
        ]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the papers, each with a verdict that is computed from the numbers."""
        return claims_of(self.priors, self.posteriors, self.evidences, self.trained)

    def plot(self) -> Any:
        """Variances at the start, of networks that fit, the evidence, and modes over time: a matplotlib figure."""
        figure = blank_figure(14, 3.4)
        left, middle, right, last = figure.subplots(1, 4)
        for ax, seen, title in (
            (left, [(np.full(len(one.means), one.ratio), one.variances) for one in self.priors], "log norm"),
            (middle, [(one.predicted, one.variances) for one in self.posteriors], "networks that fit"),
        ):
            for x, y in seen:
                ax.plot(x, y, "o", markersize=4)
            ax.axline((0, 0), (1, 1), color="black", lw=0.8, ls="--")
            high = float(np.max([x for x, _ in seen]))
            ax.set(title=f"variance of {title}", ylabel="measured", xlim=(0, 1.2 * high))
            ax.set_ylim(0, 1.2 * high)
        left.set_xlabel("L / 2n")
        middle.set_xlabel("exact")
        for one in self.evidences:
            values = one.values - one.values[:, :1]
            right.plot(one.depths, values.mean(0), ".-", label=f"targets of size {one.scale:g}")
        right.set(title="evidence by depth", xlabel="hidden layers", ylabel="nats", xscale="symlog")
        right.legend(fontsize="small")
        for mode in range(MODES):
            last.plot(self.example.times, self.example.measured[:, mode], color=f"C{mode}", lw=1.2)
            last.plot(self.example.times, self.example.predicted[:, mode], color="black", lw=0.7, ls="--")
        last.set(title="modes (dashed: solution)", xlabel="time", ylabel="strength")
        return figure

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        write_report(folder, "Deep linear networks", self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        seeds = len(self.priors[0].means)
        return (
            f"Networks without activations, {seeds} seeds. Random ones: {self.draws} of each width and depth, all "
            "layers of one width, weights of variance 1 / fan_in, drawn and multiplied to a vector theta, whose "
            "norm is looked at; predicted: everwide.theory.deep_linear.prior_norm, the exact law. Networks that fit: "
            f"{ROWS} digits of scikit-learn (64 pixels), below five (+1) or not (-1), weights drawn from the posterior "
            f"layer by layer, {self.chains} chains of {self.sweeps} sweeps, a quarter of which does not count; exact: "
            "everwide.theory.deep_linear.posterior. Trained ones: classes of 500 digits from their leading "
            f"{DIRECTIONS} directions, whitened; gradient descent by all rows on half the mean square, rate {_RATE:g}, "
            f"width {_WIDTH}, modes that begin with {_START:g} (aligned) or random weights of that product; the "
            f"strongest {MODES} modes. A half-time is when half of a mode is learned; ratio: measured over "
            "predicted, by seed."
        )


def _row(what: str, setting: str, measured: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    ratios = measured / predicted
    error = float(np.std(ratios, ddof=1)) / len(ratios) ** 0.5 if len(ratios) > 1 else np.nan
    row = {"what": what, "setting": setting, "measured": float(measured.mean()), "predicted": float(predicted.mean())}
    return row | {"ratio": float(ratios.mean()), "ratio_se": error, "seeds": len(ratios)}


def _prior_rows(one: Prior) -> list[dict[str, Any]]:
    setting = f"{one.layers} layers of {one.width}"
    named = (("mean of log norm", one.means), ("variance of log norm", one.variances))
    return [
        _row(what, setting, values, np.full(len(values), exact))
        for (what, values), exact in zip(named, one.exact, strict=True)
    ]


def reproduce(
    *,
    seeds: int = 4,
    draws: int = 4000,
    chains: int = 48,
    sweeps: int = 200,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> DeepLinear:
    """Draw, sample and train deep linear networks, and hold them against what can be solved.

    Args:
        seeds: Times that everything is done, with rows of their own.
        draws: Random networks of each width and depth.
        chains: Networks that fit and are changed side by side.
        sweeps: Times that each of their layers is drawn anew.
        out: A folder for table, figure and claims.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `priors`, `posteriors`, `evidences` and
        `trained` behind them.

    >>> from everwide_lab import deep_linear
    >>> result = deep_linear.reproduce(seeds=2, draws=50, chains=4, sweeps=20)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks"
    (2014); Hanin, Nica, "Products of many large random matrices and gradients in deep neural networks" (2020); Hanin,
    Zlokapa, "Bayesian interpolation with deep linear networks" (2023).

    """
    if seeds < 1 or min(draws, chains) < 2 or sweeps < 8:
        raise InputError(
            f"seeds={seeds!r}, draws={draws!r}, chains={chains!r}, sweeps={sweeps!r}: expected a seed, two draws, two "
            "chains and 8 sweeps at the least."
        )
    clock, total, done = Clock(progress), len(PRIORS) + len(WIDTHS) + len(TRAINED), 0
    found: dict[str, list[Any]] = {"priors": [], "posteriors": [], "trained": []}
    for width, layers in PRIORS:
        clock(done := done + 1, total)
        found["priors"].append(_prior(width, layers, draws, seeds))
    for widths in WIDTHS:
        clock(done := done + 1, total)
        found["posteriors"].append(_posterior(widths, chains, sweeps, seeds))
    courses = []
    for layers, aligned in TRAINED:
        clock(done := done + 1, total)
        one, courses = _trained(layers, aligned, seeds)
        found["trained"].append(one)
    evidences = tuple(_evidence(scale, seeds) for scale in SCALES)
    several = {name: tuple(each) for name, each in found.items()}
    result = DeepLinear(**several, evidences=evidences, example=courses[0], draws=draws, chains=chains, sweeps=sweeps)
    clock(1, 1)
    if out is not None:
        result.write(Path(out))
    return result


def _prior(width: int, layers: int, draws: int, seeds: int) -> Prior:
    logs = np.stack([log_norms(width, layers, draws, seed) for seed in range(seeds)])
    law = deep_linear.prior_norm(width, [width] * (layers - 1))
    return Prior(width, layers, logs.mean(1), logs.var(1, ddof=1), (law.log_mean / 2, law.log_variance / 4))


def _rows(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that are fitted, their targets, and new rows; none of them tells where the middle is."""
    all_rows = digits(_CENTRE, seed)
    x, labels = all_rows.x_test, all_rows.labels_test
    return x[:ROWS], np.where(labels[:ROWS] < 5, 1.0, -1.0), x[ROWS : ROWS + TESTS]


def _posterior(widths: tuple[int, ...], chains: int, sweeps: int, seeds: int) -> Posterior:
    sampled, predicted, off, depth = [], [], [], 0.0
    for seed in range(seeds):
        x, y, x_test = _rows(seed)
        drawn = draw(x, y, x_test, widths, chains=chains, sweeps=sweeps, seed=seed)
        exact = deep_linear.posterior(x, y, widths)
        guess, depth = exact.predict(x_test), exact.effective_depth
        apart = drawn.outputs.mean(0) - guess.mean
        off.append(float(np.sqrt(np.mean(apart**2) / np.mean(guess.variance))))
        sampled.append(float(drawn.variance.mean()))
        predicted.append(exact.weight_variance)
    return Posterior(widths, depth, np.array(sampled), np.array(predicted), np.array(off))


def _evidence(scale: float, seeds: int) -> Evidence:
    values = []
    for seed in range(seeds):
        x, y, _ = _rows(seed)
        values.append([deep_linear.posterior(x, scale * y, WIDTHS[0] * depth).log_evidence for depth in DEPTHS])
    return Evidence(scale, DEPTHS, np.array(values))


def _trained(layers: int, aligned: bool, seeds: int) -> tuple[Training, list[Learned]]:
    courses, distances, times, predicted, strengths = [], [], [], [], []
    for seed in range(seeds):
        data = task(seed)
        one = learn(data, layers, aligned=aligned, width=_WIDTH, start=_START, rate=_RATE, seed=seed)
        half, guess = one.half_times(data.strengths[:MODES])
        courses.append(one)
        distances.append(float(np.max(np.abs(one.measured - one.predicted) / data.strengths[:MODES])))
        times.append(half)
        predicted.append(guess)
        strengths.append(data.strengths[:MODES])
    arrays = (np.array(part) for part in (distances, times, predicted, strengths))
    return Training(layers, aligned, *arrays), courses
