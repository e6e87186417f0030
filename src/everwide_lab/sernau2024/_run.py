"""Sernau 2024, "Infinite width models that work": its experiment with transformers."""

import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._claims import Claim
from .._report import Clock, Watcher, blank_figure, widths_on_axis, write_report
from .._resume import Ledger
from ._arms import MOST, Arm, Rates, Rest, tune
from ._claims import claims_of
from ._infinite import LIMITS, run_infinite
from ._setting import Setting
from ._text import Corpus, standard_library, text_file
from ._train import Losses, run

_FIRST = {Arm.FROZEN_SGD: 100.0, Arm.FROZEN_MOMENTUM: 10.0}  # where grids of read-out rates begin
_FIRST_ADAM, _FIRST_FEATURES = 0.3, 1e-2
_FIRST_REST = {Rest.ADAM: 1e-2, Rest.SGD: 1.0, Rest.MOMENTUM: 0.2}
_TUNING_SEED = 1_000_003  # rates are chosen on seeds that are not reported: this one and the next
_GUESS = 9  # runs that the rates of an arm take, with one seed
_INFINITE, _ANY = "infinite", "any"  # in place of a width


@dataclass(frozen=True, eq=False)
class Sernau2024:
    """What the experiment has found. Made by `reproduce`.

    - `rates`: learning rates of each arm, chosen on validation loss; `on_edges`: those that lie on the edge of a grid.
    - `train`, `validation`, `test`: final losses `(widths, seeds)` of each arm, nats a symbol. Where read-outs stand
      still the width does not matter, and losses are the same at each.
    - `infinite`: final losses with MLP blocks of infinite width, of the first seeds, for arms that have this limit.
    - `seconds`: of all runs, tuning included.

    >>> import numpy as np
    >>> from everwide_lab.sernau2024 import Arm, Rates, Sernau2024, Setting
    >>> losses = {arm: np.ones((4, 3)) for arm in Arm}
    >>> rates = {arm: Rates(0.1, 0.01) for arm in Arm}
    >>> result = Sernau2024(Setting(), "a text", rates, (), losses, losses, losses, {}, 1.0)
    >>> len(result.table())
    21
    """

    setting: Setting
    text: str
    rates: dict[Arm, Rates]
    on_edges: tuple[str, ...]
    train: dict[Arm, np.ndarray]
    validation: dict[Arm, np.ndarray]
    test: dict[Arm, np.ndarray]
    infinite: dict[Arm, tuple[Losses, ...]]
    seconds: float

    def table(self) -> list[dict[str, Any]]:
        """A row for each arm and width: mean over the seeds, and standard deviation between them (`spread`)."""
        rows = []
        for arm in Arm:
            for place, width in enumerate(self.setting.widths[:1] if arm is Arm.STILL else self.setting.widths):
                runs = zip(self.train[arm][place], self.validation[arm][place], self.test[arm][place], strict=True)
                rows.append(self._row(arm, _ANY if arm is Arm.STILL else width, tuple(Losses(*run) for run in runs)))
            if arm in self.infinite:
                rows.append(self._row(arm, _INFINITE, self.infinite[arm]))
        return rows

    def _row(self, arm: Arm, width: int | str, runs: tuple[Losses, ...]) -> dict[str, Any]:
        train, validation, test = np.asarray(runs).T
        told = len(test) > 1 and np.isfinite(test).all()
        row = {"arm": arm.value, "width": width, "test": float(np.mean(test))}
        row |= {"spread": float(np.std(test, ddof=1)) if told else math.nan}
        row |= {"validation": float(np.mean(validation)), "train": float(np.mean(train)), "seeds": len(test)}
        rates = self.rates[arm]
        return row | {"readout_rate": rates.readout, "rest_rate": rates.rest, "features_rate": rates.features}

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, each with a verdict that is computed from the test losses."""
        infinite = {arm: np.asarray(runs)[:, -1] for arm, runs in self.infinite.items()}
        return claims_of(self.setting.widths, self.test, infinite, self.setting.rest)

    def plot(self) -> Any:
        """Test loss against the width of the MLP blocks, up to infinity: a matplotlib figure."""
        figure, widths = blank_figure(7.4, 4.8), self.setting.widths
        ax = figure.subplots()
        beyond = widths[-1] * 4  # where infinity is drawn
        for arm in Arm:
            style = ":" if arm is Arm.STILL else "-"
            (line,) = ax.plot(widths, self.test[arm].mean(1), style, label=arm.value)
            dots = {"linestyle": "", "marker": "o", "markersize": 3, "alpha": 0.4, "color": line.get_color()}
            ax.plot(widths, self.test[arm], **dots)
            if arm in self.infinite:
                ends = np.asarray(self.infinite[arm])[:, -1]
                ax.plot([widths[-1], beyond], [self.test[arm][-1].mean(), ends.mean()], "--", color=line.get_color())
                ax.plot([beyond] * len(ends), ends, **dots)
        ax.set(xscale="log", xlabel="width of the MLP blocks", ylabel="test loss, nats a byte")
        widths_on_axis(ax, widths)
        if self.infinite:
            ax.set_xticks([*widths, beyond], [*(str(width) for width in widths), "infinite"])
        ax.legend(fontsize="small")
        return figure

    def write(self, folder: Path) -> None:
        """Write `results.csv`, `results.md` and `figure.png`."""
        write_report(folder, "Sernau 2024", self.table(), self.claims(), self.notes(), self.plot())

    def notes(self) -> str:
        """What was run."""
        s = self.setting
        edges = f" On the edge of their grids: {', '.join(self.on_edges)}." if self.on_edges else ""
        return (
            f"Decoder-only transformers (layers: {s.layers}, heads: {s.heads}, dimension: {s.dim}) on windows of "
            f"{s.context} bytes of {self.text}, {s.batch} of them a step, {s.steps} steps, {s.seeds} seeds. Everything "
            f"outside the MLP blocks is trained by {s.rest.value} in every arm; features, where they are trained, by "
            "ADAM. The learning rates of an arm (read-outs, the rest, features) are chosen one after the other at "
            f"width {s.tuning_width} with {s.tuning_steps} steps, on the mean validation loss of {s.tuning_seeds} "
            f"other seeds.{edges} Read-outs begin at zero: where they stand still, MLP blocks do nothing, and their "
            "width does not matter. Blocks of infinite width are kernels, exact, with the rates of finite ones; "
            f"they are run for the first {s.infinite} seeds. Losses are nats a byte on {s.test_windows} windows of "
            f"test text; spread is the standard deviation between seeds. {self.seconds:.0f} s of training in all. The "
            "paper does not state its learning rates, nor how they were chosen, and its models are far larger (6 "
            "layers, dimension 512, 40 000 steps on C4): whether what is found here explains its figure stays open."
        )


def reproduce(
    setting: Setting | None = None,
    *,
    text: Path | str | None = None,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> Sernau2024:
    """Train transformers whose MLP blocks are trained, or frozen with several optimizers on their read-outs.

    Args:
        setting: Sizes; `Setting.small()` takes minutes on two cores, `Setting.full()` is the model of the paper.
        text: A file to learn from; by default sources of the Python standard library, split by files.
        out: A folder. Every finished run is kept there in `runs.jsonl` at once, and a later call goes on from them; at
            the end table, figure and claims are written beside them.
        progress: Called with an `everwide.Progress` now and then; its total may grow, as grids of rates do.

    Returns:
        What was found: `table()`, `claims()`, `plot()`, `write(folder)`; rates and losses of each arm behind them.

    >>> from everwide_lab import sernau2024
    >>> result = sernau2024.reproduce(sernau2024.Setting.quick())  # doctest: +SKIP
    >>> print(result.claims()[0])  # doctest: +SKIP

    Sernau, "Infinite width models that work" (2024), section 6.

    """
    sizes = Setting.small() if setting is None else setting
    corpus = standard_library(sizes.text_bytes) if text is None else text_file(Path(text))
    folder = None if out is None else Path(out)
    bench = _Bench(sizes, corpus, Ledger(None if folder is None else folder / "runs.jsonl"), progress)
    rates = {arm: bench.tuned(arm) for arm in Arm}
    losses = {arm: bench.by_width(arm, rates[arm]) for arm in Arm}
    train, validation, test = ({arm: losses[arm][..., part] for arm in Arm} for part in range(3))
    seeds = range(sizes.infinite)
    infinite = {arm: tuple(bench.infinite(arm, seed, rates[arm]) for seed in seeds) for arm in LIMITS if seeds}
    edges = tuple(bench.on_edges)
    result = Sernau2024(sizes, corpus.name, rates, edges, train, validation, test, infinite, bench.seconds)
    if folder is not None:
        result.write(folder)
    return result


class _Bench:
    """Runs, known or new, and how many of them are done."""

    def __init__(self, setting: Setting, corpus: Corpus, ledger: Ledger, progress: Watcher):
        self.setting, self.corpus, self.ledger, self.clock = setting, corpus, ledger, Clock(progress)
        self.on_edges: list[str] = []
        self._seconds: dict[tuple, float] = {}  # a run may be asked for twice
        self._done, self._tuning, self._measuring = 0, 0, False

    @property
    def seconds(self) -> float:
        """Of all runs, those of earlier calls included."""
        return sum(self._seconds.values())

    def tuned(self, arm: Arm) -> Rates:
        """The learning rates of an arm, one after the other: of the read-outs, of the rest, of the features."""
        rates = Rates(0.0, _FIRST_REST[self.setting.rest], 0.0 if arm.frozen else _FIRST_FEATURES)
        if arm is not Arm.STILL:
            rates = self._improved(arm, rates, "readout", _FIRST.get(arm, _FIRST_ADAM))
        rates = self._improved(arm, rates, "rest", rates.rest)
        return rates if arm.frozen else self._improved(arm, rates, "features", rates.features)

    def _improved(self, arm: Arm, rates: Rates, name: str, first: float) -> Rates:
        """One of the rates chosen on the mean validation loss of several seeds, the others as they are."""
        width, steps = self.setting.tuning_width, self.setting.tuning_steps
        seeds = range(_TUNING_SEED, _TUNING_SEED + self.setting.tuning_seeds)

        def validation(rate: float) -> float:
            tried = rates._replace(**{name: rate})
            return float(np.mean([self.losses(arm, width, seed, tried, steps).validation for seed in seeds]))

        choice = tune(validation, first)
        if not choice.inside:
            self.on_edges.append(f"the rate {choice.rate:g} of {arm.value} ({name}, {MOST} tried)")
        return rates._replace(**{name: choice.rate})

    def by_width(self, arm: Arm, rates: Rates) -> np.ndarray:
        """Losses `(widths, seeds, 3)`. Where read-outs stand still there is one width, whatever it is called."""
        s = self.setting
        widths = s.widths[:1] if arm is Arm.STILL else s.widths
        rows = [[self.losses(arm, width, seed, rates, s.steps) for seed in range(s.seeds)] for width in widths]
        return np.broadcast_to(np.asarray(rows), (len(s.widths), s.seeds, 3))

    def losses(self, arm: Arm, width: int, seed: int, rates: Rates, steps: int) -> Losses:
        """Of one run."""
        work = partial(run, self.setting, self.corpus, arm, width, seed, rates, steps, self._watch)
        return self._known(arm, width, seed, rates, steps, work)

    def infinite(self, arm: Arm, seed: int, rates: Rates) -> Losses:
        """Of one run with MLP blocks of infinite width."""
        work = partial(run_infinite, self.setting, self.corpus, arm, seed, rates, self._watch)
        return self._known(arm, _INFINITE, seed, rates, self.setting.steps, work)

    def _known(self, arm: Arm, width: int | str, seed: int, rates: Rates, steps: int, work: Any) -> Losses:
        identity = self.setting.identity() | {"text": self.corpus.fingerprint, "arm": arm.name, "width": width}
        identity |= {"seed": seed, "steps": steps} | {f"{name}_rate": rate for name, rate in rates._asdict().items()}
        self._measuring = seed < _TUNING_SEED
        kept = self.ledger.result(identity, lambda: _timed(work))
        self._done += 1
        self._tuning += not self._measuring
        self._seconds[arm, width, seed, rates, steps] = kept["seconds"]
        self._watch(0.0)
        return Losses(*(math.inf if kept[name] is None else kept[name] for name in Losses._fields))

    def _watch(self, share: float) -> None:
        s = self.setting
        measured = ((len(Arm) - 1) * len(s.widths) + 1) * s.seeds + len(LIMITS) * s.infinite
        tuning = self._tuning if self._measuring else max(len(Arm) * _GUESS * s.tuning_seeds, self._tuning)
        self.clock(self._done + share, max(tuning + measured, self._done + share))


def _timed(work: Any) -> dict[str, Any]:
    begin = time.perf_counter()
    losses = work()
    kept = {name: value if math.isfinite(value) else None for name, value in losses._asdict().items()}
    return kept | {"seconds": round(time.perf_counter() - begin, 3)}
