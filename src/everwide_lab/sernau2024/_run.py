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
from ._arms import MOST, Arm, Rates, tune
from ._claims import claims_of
from ._resume import Ledger
from ._setting import Setting
from ._text import Corpus, standard_library, text_file
from ._train import Losses, run

_FIRST = {Arm.FROZEN_SGD: 30.0}  # where grids of read-out rates begin
_FIRST_ADAM, _FIRST_REST = 0.3, 1e-2
_TUNING_SEED = 1_000_003  # rates are chosen on a seed that is not reported
_GUESS = 9  # runs that the rates of an arm take


@dataclass(frozen=True, eq=False)
class Sernau2024:
    """What the experiment has found. Made by `reproduce`.

    - `rates`: learning rates of each arm, chosen on validation loss; `on_edges`: those that lie on the edge of a grid.
    - `train`, `validation`, `test`: final losses `(widths, seeds)` of each arm, nats a symbol.
    - `seconds`: of all runs, tuning included.

    >>> import numpy as np
    >>> from everwide_lab.sernau2024 import Arm, Rates, Sernau2024, Setting
    >>> losses = {arm: np.ones((4, 3)) for arm in Arm}
    >>> rates = {arm: Rates(0.1, 0.01) for arm in Arm}
    >>> result = Sernau2024(Setting(), "a text", rates, (), losses, losses, losses, 1.0)
    >>> len(result.table())
    16
    """

    setting: Setting
    text: str
    rates: dict[Arm, Rates]
    on_edges: tuple[str, ...]
    train: dict[Arm, np.ndarray]
    validation: dict[Arm, np.ndarray]
    test: dict[Arm, np.ndarray]
    seconds: float

    def table(self) -> list[dict[str, Any]]:
        """A row for each arm and width: mean over the seeds, and standard deviation between them (`spread`)."""
        rows = []
        for arm in Arm:
            for place, width in enumerate(self.setting.widths):
                test = self.test[arm][place]
                told = len(test) > 1 and np.isfinite(test).all()
                spread = float(np.std(test, ddof=1)) if told else math.nan
                row = {"arm": arm.value, "width": width, "test": float(np.mean(test)), "spread": spread}
                row |= {"validation": float(np.mean(self.validation[arm][place]))}
                row |= {"train": float(np.mean(self.train[arm][place])), "seeds": len(test)}
                rows.append(row | {"readout_rate": self.rates[arm].readout, "rest_rate": self.rates[arm].rest})
        return rows

    def claims(self) -> tuple[Claim, ...]:
        """The claims of the paper, each with a verdict that is computed from the test losses."""
        return claims_of(self.setting.widths, self.test)

    def plot(self) -> Any:
        """Test loss against the width of the MLP blocks: a matplotlib figure."""
        figure, widths = blank_figure(6.4, 4.4), self.setting.widths
        ax = figure.subplots()
        for arm in Arm:
            (line,) = ax.plot(widths, self.test[arm].mean(1), label=arm.value)
            ax.plot(widths, self.test[arm], linestyle="", marker="o", markersize=3, alpha=0.4, color=line.get_color())
        ax.set(xscale="log", xlabel="width of the MLP blocks", ylabel="test loss, nats a byte")
        widths_on_axis(ax, widths)
        ax.legend()
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
            f"outside the MLP blocks is trained by ADAM in every arm. Two learning rates an arm (read-outs; the rest), "
            f"chosen at width {s.tuning_width} with {s.tuning_steps} steps on validation loss.{edges} Losses are nats "
            f"a byte on {s.test_windows} windows of test text; spread is the standard deviation between seeds. "
            f"{self.seconds:.0f} s of training in all."
        )


def reproduce(
    setting: Setting | None = None,
    *,
    text: Path | str | None = None,
    out: Path | str | None = None,
    progress: Watcher = None,
) -> Sernau2024:
    """Train transformers whose MLP blocks are trained, or frozen with ADAM, SGD or ADAM* on their read-outs.

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
    seeds = range(sizes.seeds)
    losses = {
        arm: [[bench.losses(arm, width, seed, rates[arm], sizes.steps) for seed in seeds] for width in sizes.widths]
        for arm in Arm
    }
    train, validation, test = ({arm: np.asarray(losses[arm])[..., part] for arm in Arm} for part in range(3))
    edges = tuple(bench.on_edges)
    result = Sernau2024(sizes, corpus.name, rates, edges, train, validation, test, bench.seconds)
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
        """Both learning rates of an arm: that of the read-outs, then that of the rest."""
        width, steps = self.setting.tuning_width, self.setting.tuning_steps

        def validation(rates: Rates) -> float:
            return self.losses(arm, width, _TUNING_SEED, rates, steps).validation

        readout = tune(lambda rate: validation(Rates(rate, _FIRST_REST)), _FIRST.get(arm, _FIRST_ADAM))
        rest = tune(lambda rate: validation(Rates(readout.rate, rate)), _FIRST_REST)
        for name, choice in (("read-out", readout), ("rest", rest)):
            if not choice.inside:
                self.on_edges.append(f"the rate {choice.rate:g} of {arm.value} ({name}, {MOST} tried)")
        return Rates(readout.rate, rest.rate)

    def losses(self, arm: Arm, width: int, seed: int, rates: Rates, steps: int) -> Losses:
        """Of one run."""
        identity = self.setting.identity() | {"text": self.corpus.fingerprint, "arm": arm.name, "width": width}
        identity |= {"seed": seed, "steps": steps, "readout_rate": rates.readout, "rest_rate": rates.rest}
        self._measuring = seed != _TUNING_SEED
        work = partial(run, self.setting, self.corpus, arm, width, seed, rates, steps, self._watch)
        kept = self.ledger.result(identity, lambda: _timed(work))
        self._done += 1
        self._tuning += seed == _TUNING_SEED
        self._seconds[arm, width, seed, rates, steps] = kept["seconds"]
        self._watch(0.0)
        return Losses(*(math.inf if kept[name] is None else kept[name] for name in Losses._fields))

    def _watch(self, share: float) -> None:
        measured = len(Arm) * len(self.setting.widths) * self.setting.seeds
        tuning = self._tuning if self._measuring else max(len(Arm) * _GUESS, self._tuning)
        self.clock(self._done + share, max(tuning + measured, self._done + share))


def _timed(work: Any) -> dict[str, Any]:
    begin = time.perf_counter()
    losses = work()
    kept = {name: value if math.isfinite(value) else None for name, value in losses._asdict().items()}
    return kept | {"seconds": round(time.perf_counter() - begin, 3)}
