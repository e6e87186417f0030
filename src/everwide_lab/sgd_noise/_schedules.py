"""Schedules of the rate: set by hand, constant, or lowered whenever training has settled."""

from typing import NamedTuple

import numpy as np

from everwide.theory.sgd_noise import FluctuationDissipation

from ._descent import BLOCK, DECAY, Task, Walker, rested

FIRST, FACTOR = 0.4, 4.0
TOLERANCE = 0.3
_RELAXATIONS = 2.0  # times in which weight decay forgets, in a window
_LAST = 0.05  # of the steps, over which the loss is averaged in the end


class Scheduled(NamedTuple):
    """A run: its loss in the end above that of its valley, its last rate, and the steps at which the rate fell."""

    name: str
    raised: float
    rate: float
    falls: tuple[int, ...]


def schedules(one: Task, blocks: int, seed: int) -> list[Scheduled]:
    """One run of each."""
    rates = [FIRST, FIRST / FACTOR, FIRST / FACTOR**2]
    half, quarter = blocks // 2, blocks // 4
    by_hand = [(rates[0], half), (rates[1], quarter), (rates[2], blocks - half - quarter)]
    plans = {f"constant {rate:g}": [(rate, blocks)] for rate in rates} | {"by hand": by_hand}
    runs = [_planned(one, name, plan, seed) for name, plan in plans.items()]
    return [*runs, _adaptive(one, blocks, seed)]


def _ended(name: str, one: Task, walker: Walker, losses: np.ndarray, rate: float, falls: tuple[int, ...]) -> Scheduled:
    last = losses[-max(1, round(_LAST * len(losses))) :].mean()
    return Scheduled(name, float(last) - float(one.loss(rested(one, walker.w))), rate, falls)


def _planned(one: Task, name: str, plan: list[tuple[float, int]], seed: int) -> Scheduled:
    walker = Walker(one, seed)
    losses = np.concatenate([walker.walk(rate, blocks).losses for rate, blocks in plan])
    ends = np.cumsum([blocks for _, blocks in plan])[:-1]
    return _ended(name, one, walker, losses, plan[-1][0], tuple(int(end) * BLOCK for end in ends))


def _adaptive(one: Task, blocks: int, seed: int) -> Scheduled:
    walker, rate, falls, losses, taken = Walker(one, seed), FIRST, [], [], 0
    monitor = _monitor(rate)
    while taken < blocks:
        part = min(monitor.window, blocks - taken)
        looks = walker.walk(rate, part)
        losses.append(looks.losses)
        taken, monitor = taken + part, monitor.update(looks.products, looks.squares)
        if monitor.stationary:
            rate, falls = rate / FACTOR, [*falls, taken * BLOCK]
            monitor = _monitor(rate)
    return _ended("by the relation", one, walker, np.concatenate(losses), rate, tuple(falls))


def _monitor(rate: float) -> FluctuationDissipation:
    """Of blocks, which are averages of steps."""
    window = max(1, round(_RELAXATIONS / (rate * DECAY) / BLOCK))
    return FluctuationDissipation(rate, window=window, tolerance=TOLERANCE)
