"""Cohen et al. 2021, "Gradient descent on neural networks typically occurs at the edge of stability"; Adam in 2022."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide import InputError

from .._claims import Claim
from .._report import Clock, Watcher, blank_figure, write_report
from .._resume import Ledger
from ._arms import ARMS, B1, EPS, MOMENTUM, READOUT, Course, follow
from ._claims import ARRIVED, Followed, claims_of

_LOOKS = 50


@dataclass(frozen=True, eq=False)
class EdgeOfStability:
    """Sharpness beside the edge of the optimizer, while networks are trained by all rows. Made by `reproduce`.

    - `followed`: for each optimizer and rate, all runs. `n`, `width`, `steps`: rows, of the networks, of training.

    >>> from everwide_lab import edge_of_stability
    >>> result = edge_of_stability.reproduce(seeds=2, n=32, width=8, steps=60)  # doctest: +SKIP
    >>> result.followed[0].ratios()  # doctest: +SKIP
    """

    followed: tuple[Followed, ...]
    n: int
    width: int
    steps: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each optimizer and rate: means over the seeds, of the last loss the median."""
        return [_row(one) for one in self.followed]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the papers, each with a verdict that is computed from the numbers."""
        return claims_of(self.followed)

    def plot(self) -> Any:
        """Sharpness over the edge, and losses, over the steps: a matplotlib figure."""
        panels: dict[str, list[Followed]] = {}
        for one in self.followed:
            panels.setdefault(_panel(one), []).append(one)
        figure = blank_figure(3.4 * len(panels), 5.2)
        axes = figure.subplots(2, len(panels), squeeze=False, sharex=True)
        for (above, below), (name, arms) in zip(axes.T, panels.items(), strict=True):
            for place, one in enumerate(arms):
                for seed, run in enumerate(one.courses):
                    label, style = f"rate {one.arm.rate:g}" if seed == 0 else None, {"color": f"C{place}", "lw": 0.9}
                    above.plot(run.steps, run.sharpness / one.arm.edge, label=label, **style)
                    below.plot(run.steps, run.losses, **style)
            above.axhline(1, color="black", lw=0.8, ls="--")
            above.set(title=name, xscale="log", ylim=(0, 1.6))
            above.legend(fontsize="small")
            below.set(xlabel="steps", yscale="log", ylim=(_least(arms) / 2, 4))
        axes[0, 0].set_ylabel("sharpness / edge")
        axes[1, 0].set_ylabel("loss")
        return figure

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        title = "The edge of stability (Cohen et al. 2021, 2022)"
        write_report(folder, title, self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        return (
            f"Networks of two hidden layers of {self.width} hyperbolic tangents (standard parametrization, the last "
            f"layer {READOUT:g} times as large) learn the classes of {self.n} digits of scikit-learn by all rows at "
            f"every step, {self.steps} steps; half the square of centred indicators, or cross-entropy where it is "
            f"said. {len(self.followed[0].courses)} seeds, with rows of their own. Momentum {MOMENTUM:g}; Adam with b1 "
            f"= {B1:g}, b2 = 0.999, eps = {EPS:g}. sharpness: the largest eigenvalue of the Hessian of the mean loss, "
            "for Adam preconditioned by the root of the second moment; edge: the curvature above which steps of the "
            f"optimizer grow. A run arrives at the first look with a sharpness of {ARRIVED:g} of the edge or more; "
            "ratio is the median of sharpness over edge of all looks since then, low and high its 10th and 90th "
            "percentile. rises: the share of steps after which the loss was higher, before and after the arrival. A "
            "run that diverged has not arrived."
        )


def _least(followed: list[Followed]) -> float:
    return min(float(run.losses.min()) for one in followed for run in one.courses)


def _panel(one: Followed) -> str:
    return f"{one.arm.optimizer.value}{'' if one.arm.squared else ', cross-entropy'}"


def _row(one: Followed) -> dict[str, Any]:
    arrivals = one.arrivals()
    pairs = [(run, at) for run, at in zip(one.courses, arrivals, strict=True) if at is not None]
    since = np.concatenate([run.sharpness[at:] for run, at in pairs]) / one.arm.edge if pairs else np.full(1, np.nan)
    low, high = (float(value) for value in np.percentile(since, (10, 90)))
    return {
        "optimizer": one.arm.optimizer.value,
        "loss": "squared" if one.arm.squared else "cross-entropy",
        "rate": one.arm.rate,
        "edge": one.arm.edge,
        "first_sharpness": float(np.mean([run.sharpness[0] for run in one.courses])),
        "arrived": len(pairs) / len(arrivals),
        "arrival_step": float(np.mean([run.steps[at] for run, at in pairs])) if pairs else np.nan,
        "ratio": float(np.mean(one.ratios()[np.isfinite(one.ratios())])) if pairs else np.nan,
        "low": low,
        "high": high,
        "rises_before": float(one.rises(after=False).mean()),
        "rises_after": float(one.rises(after=True).mean()) if pairs else np.nan,
        "last_loss": float(np.median([run.losses[-1] for run in one.courses])),
        "seeds": len(arrivals),
    }


def _course(kept: dict[str, Any]) -> Course:
    seen = {name: np.asarray(kept[name]) for name in Course._fields[:-1]}
    return Course(**seen, finished=bool(kept["finished"]))


def reproduce(
    *,
    seeds: int = 3,
    n: int = 256,
    width: int = 32,
    steps: int = 2000,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> EdgeOfStability:
    """Train networks by all rows, and follow the sharpness to the edge of the optimizer.

    Args:
        seeds: Networks for each optimizer and rate, with rows of their own.
        n: Training rows.
        width: Of the hidden layers.
        steps: Of training.
        out: A folder. What a run has found is kept there in `runs.jsonl` at once, and a later call goes on from it; at
            the end table, figure and claims are written beside it.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `followed` behind them.

    >>> from everwide_lab import edge_of_stability
    >>> result = edge_of_stability.reproduce(seeds=2, n=32, width=8, steps=60)  # doctest: +SKIP
    >>> print(result.claims()[1])  # doctest: +SKIP

    Cohen, Kaur, Li, Kolter, Talwalkar, "Gradient descent on neural networks typically occurs at the edge of stability"
    (2021); Cohen et al., "Adaptive gradient methods at the edge of stability" (2022).

    """
    if min(seeds, width) < 1 or steps < 10:
        raise InputError(
            f"seeds={seeds!r}, width={width!r}, steps={steps!r}: expected whole numbers above 0, 10 steps or more."
        )
    folder, clock, found = None if out is None else Path(out), Clock(progress), []
    ledger, sizes = Ledger(None if folder is None else folder / "runs.jsonl"), {"n": n, "width": width, "steps": steps}
    for arm in ARMS:
        kept = []
        for seed in range(seeds):
            clock(len(found) * seeds + seed, len(ARMS) * seeds)
            run = {"arm": str(arm), "looks": _LOOKS, "seed": seed} | sizes
            kept.append(ledger.result(run, lambda arm=arm, seed=seed: follow(arm, looks=_LOOKS, seed=seed, **sizes)))
        found.append(Followed(arm, tuple(_course(one) for one in kept)))
    clock(1, 1)
    result = EdgeOfStability(tuple(found), n, width, steps)
    if folder is not None:
        result.write(folder)
    return result
