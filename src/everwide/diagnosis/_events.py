"""Losses that a doctor is told at every step: kept until there is time, then searched for spikes."""

import itertools
from typing import Any

import numpy as np

from .._checks import InputError
from ._log import Record

WINDOW = 20  # steps whose median is what a loss is compared with
JUMP = 2.0  # times that median: a spike
LEAST = 0.2  # of the first loss: less is no spike
FLUCTUATION = 6.0  # median deviations above it
PIECE = 1.3  # from one step to the next at which the course of losses is kept


class Watch:
    """Losses as they come, on whatever device they are."""

    def __init__(self):
        self.waiting: list[Any] = []
        self._known = np.zeros(0)  # of the last steps
        self._high = False
        self._first: float | None = None

    @np.errstate(all="ignore")  # what is not finite is recorded, without a warning
    def look(self, step: int) -> tuple[Record | None, list[Record]]:
        """A summary of what came since the last look, up to this step, and its events."""
        if not self.waiting:
            return None, []
        fresh = np.array([_number(value) for value in self.waiting])
        self.waiting.clear()
        values = np.concatenate([self._known, fresh])
        self._first = float(fresh[0]) if self._first is None else self._first
        events = self._spikes(values, step)
        self._known = values[-WINDOW:]
        begin, good = step - len(fresh) + 1, fresh[np.isfinite(fresh)]
        figures: Record = dict.fromkeys(("mean", "smallest", "largest", "last"))
        if len(good):
            figures = {"mean": good.mean(), "smallest": good.min(), "largest": good.max(), "last": good[-1]}
        peak = begin + int(np.argmax(np.where(np.isfinite(fresh), fresh, -np.inf)))
        figures |= {"first": self._first, "count": len(fresh), "peak": peak, "course": _course(fresh, begin)}
        broken = np.flatnonzero(~np.isfinite(fresh))
        return figures | {"broken": [len(broken), begin + int(broken[0])] if len(broken) else None}, events

    def _spikes(self, values: np.ndarray, step: int) -> list[Record]:
        """Where losses jump over what they were; one event for each time that they do."""
        start = max(len(self._known), WINDOW)
        if len(values) <= start:
            return []
        before = np.lib.stride_tricks.sliding_window_view(values, WINDOW)[start - WINDOW : -1]
        level = np.median(before, 1)
        spread = FLUCTUATION * np.median(np.abs(before - level[:, None]), 1)
        limit = np.maximum(JUMP * level, level + np.maximum(spread, LEAST * abs(self._first or 0.0)))
        high = ~(values[start:] <= limit) & np.isfinite(level)
        first = np.flatnonzero(high & ~np.concatenate([[self._high], high[:-1]]))
        self._high = bool(high[-1])
        steps = step - (len(values) - 1 - (start + first))
        figures = [{"value": values[start + at], "before": level[at]} for at in first]
        return [
            {"record": "event", "step": int(when), "name": "spike", "figures": f}
            for when, f in zip(steps, figures, strict=True)
        ]


def _course(values: np.ndarray, first: int) -> list[list[float]]:
    """Steps further and further apart, and the mean loss from one to the next."""
    begin, end = max(1, first), first + len(values)
    edges = np.unique(np.geomspace(begin, max(begin, end), 2 + int(np.log(end / begin) / np.log(PIECE))).astype(int))
    return [[int(a), float(np.mean(values[a - first : b - first]))] for a, b in itertools.pairwise(edges)]


def _number(value: Any) -> float:
    given = value.detach().cpu() if hasattr(value, "detach") else value
    try:
        return float(given if isinstance(given, int | float) else np.asarray(given).item())
    except (TypeError, ValueError):
        raise InputError(f"value is a {type(value).__name__}, expected the loss of the step, one number.") from None
