"""Papyan, Han, Donoho 2020, "Prevalence of neural collapse during the terminal phase of deep learning training"."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everwide import InputError

from .._claims import Claim
from .._report import Clock, Watcher, blank_figure, write_report
from .._resume import Ledger
from ._claims import Followed, claims_of
from ._network import ANNEALED, ARMS, BATCH, CLASSES, HIDDEN, MOMENTUM, RATE, SEEN, follow

_LOOKS = 25
_NAMES = {"within": "NC1, within classes", "norms": "NC2, lengths", "angles": "NC2, angles", "duality": "NC3, weights"}


@dataclass(frozen=True, eq=False)
class Collapse:
    """How far networks are from neural collapse while they are trained, and what leads their curvature. By `reproduce`.

    - `followed`: for each kind of network and decay, all runs. `n`, `width`, `steps`: rows, of networks, of training.

    >>> from everwide_lab import collapse
    >>> result = collapse.reproduce(seeds=2, n=50, width=16, steps=100)  # doctest: +SKIP
    >>> result.followed[0].seen["within"][:, -1]  # doctest: +SKIP
    """

    followed: tuple[Followed, ...]
    n: int
    width: int
    steps: int

    def table(self) -> list[dict[str, Any]]:
        """A row for each kind of network and each of two times: where errors ended, and the end; means over seeds."""
        return [row for one in self.followed for row in _rows(one)]

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the papers, each with a verdict that is computed from the numbers."""
        return claims_of(self.followed)

    def plot(self) -> Any:
        """Distances from collapse over the steps, and spectra at the end: a matplotlib figure."""
        figure = blank_figure(3.2 * (len(_NAMES) + 1), 3.4)
        *axes, last = figure.subplots(1, len(_NAMES) + 1)
        for place, one in enumerate(self.followed):
            fitted = one.fitted()
            for ax, name in zip(axes, _NAMES, strict=True):
                for seed, values in enumerate(one.seen[name]):
                    label, steps = str(one.arm) if seed == 0 else None, one.seen["steps"][seed]
                    ax.plot(steps, values, color=f"C{place}", lw=0.9, label=label)
                    if fitted is not None:
                        ax.plot(steps[fitted[seed]], values[fitted[seed]], "o", color=f"C{place}", markersize=3)
            values = np.mean([end["end"]["values"] / np.max(end["end"]["values"]) for end in one.spectra], 0)
            last.plot(np.arange(1, len(values) + 1), values, ".-", color=f"C{place}", label=str(one.arm))
        for ax, name in zip(axes, _NAMES, strict=True):
            ax.set(title=_NAMES[name], xscale="log", yscale="log", xlabel="steps")
        axes[0].legend(fontsize="small")
        last.axvline(CLASSES + 0.5, color="black", lw=0.8, ls="--")
        last.set(title="Gauss-Newton eigenvalues", yscale="log", xlabel="place")
        return figure

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        title = "Neural collapse (Papyan, Han, Donoho 2020)"
        write_report(folder, title, self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        return (
            f"Networks of {HIDDEN} hidden layers of {self.width} rectifiers with biases (standard parametrization), "
            f"plain or with layer normalization before the rectifiers, learn the {CLASSES} classes of {self.n} digits "
            f"of scikit-learn, as many of each: cross-entropy, {self.steps} steps of {min(BATCH, self.n)} rows, rate "
            f"{RATE:g}, a tenth of it after {ANNEALED:.0%} of the steps, momentum {MOMENTUM:g}, weight decay (decay / "
            f"2 times the squares of all parameters) where it is said. {len(self.followed[0].spectra)} seeds, with "
            "rows of their own. within to centres are the distances of everwide.diagnosis.neural_collapse, NC1 to NC4, "
            "of training rows. outliers: eigenvalues of the Gauss-Newton matrix before the largest ratio between "
            f"neighbours, of {CLASSES + 5}; share: of the sum of the {CLASSES} largest, what comes from the means of "
            "classes (everwide.diagnosis.gradient_levels), pairs: from means of classes under another label; left: "
            "the largest eigenvalue without means of classes over the largest. fitted: the first look without an error "
            "on training rows. A dot in the figure marks it."
        )


def _rows(one: Followed) -> list[dict[str, Any]]:
    seeds, fitted = np.arange(len(one.spectra)), one.fitted()
    places = {"end": np.full(len(seeds), -1)} if fitted is None else {"fitted": fitted, "end": np.full(len(seeds), -1)}
    rows = []
    for when, at in places.items():
        seen = {name: float(one.seen[name][seeds, at].mean()) for name in SEEN}
        known = [spectrum.get(when) for spectrum in one.spectra]
        shares, pairs = ([each[name] for each in known if each is not None] for name in ("share", "pairs"))
        lefts = [each["without"] / each["values"][0] for each in known if each is not None]
        rows.append(
            {"network": str(one.arm), "when": when}
            | seen
            | {"outliers": float(np.median([each["outliers"] for each in known if each is not None]))}
            | {"share": float(np.mean(shares)), "pairs": float(np.mean(pairs)), "left": float(np.mean(lefts))}
            | {"seeds": len(seeds)}
        )
    return rows


def reproduce(
    *,
    seeds: int = 3,
    n: int = 1000,
    width: int = 64,
    steps: int = 6000,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> Collapse:
    """Train classifiers long after their last error, and see whether their features collapse.

    Args:
        seeds: Networks of each kind, with rows of their own.
        n: Training rows, in tens: as many of each class.
        width: Of the hidden layers.
        steps: Of training.
        out: A folder. What a run has found is kept there in `runs.jsonl` at once, and a later call goes on from it; at
            the end table, figure and claims are written beside it.
        progress: Called with an `everwide.Progress` now and then.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; `followed` behind them.

    >>> from everwide_lab import collapse
    >>> result = collapse.reproduce(seeds=2, n=50, width=16, steps=100)  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Papyan, Han, Donoho, "Prevalence of neural collapse during the terminal phase of deep learning training" (2020);
    Papyan, "Traces of class/cross-class structure pervade deep learning spectra" (2020).

    """
    if seeds < 1 or width < CLASSES or steps < 10:
        raise InputError(
            f"seeds={seeds!r}, width={width!r}, steps={steps!r}: expected a seed, a width of {CLASSES} and 10 steps at "
            "the least."
        )
    folder, clock, found = None if out is None else Path(out), Clock(progress), []
    ledger, sizes = Ledger(None if folder is None else folder / "runs.jsonl"), {"n": n, "width": width, "steps": steps}
    for arm in ARMS:
        kept = []
        for seed in range(seeds):
            clock(len(found) * seeds + seed, len(ARMS) * seeds)
            run = {"arm": str(arm), "looks": _LOOKS, "seed": seed} | sizes
            kept.append(ledger.result(run, lambda arm=arm, seed=seed: follow(arm, looks=_LOOKS, seed=seed, **sizes)))
        seen = {name: np.array([one["looks"][name] for one in kept]) for name in SEEN}
        found.append(Followed(arm, seen, tuple(one["spectra"] for one in kept)))
    clock(1, 1)
    result = Collapse(tuple(found), n, width, steps)
    if folder is not None:
        result.write(folder)
    return result
