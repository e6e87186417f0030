"""Rules about the steps of the optimizer: their direction, length, noise and decay."""

import itertools
import math

import numpy as np

from . import _thresholds as lim
from ._signs import Cause, Signs


def in_trouble(s: Signs) -> bool:
    """Whether the run broke down, jumped, or has learned next to nothing."""
    early, late = s.unrest()
    stuck = s.last is None or s.last > lim.STUCK * s.reference
    return bool(s.vitals) and (s.broken is not None or bool(early) or bool(late) or stuck)


def unstable(s: Signs, before: list[str]) -> Cause | None:
    """A rate that is too large, at the start only or throughout, or batches whose noise it cannot bear."""
    if before and before != ["frozen layer"]:
        return None
    step, ratio = max([] if s.adam else s.ratios(), key=lambda item: item[1], default=(0, 0.0))
    early, late = s.unrest()
    passed = _passed(s, late)
    upset = not passed and (s.broken is not None or bool(s.surges()) or len(late) >= lim.RESTLESS)
    well = s.last is not None and s.last < lim.UNFINISHED * s.reference
    rough = s.facts.get("optimizer") == "gd" and well and not early and not late  # the rate was measured, on few rows
    far = lim.ROUGHLY_OVER if rough else lim.FAR_OVER
    if not passed and (ratio > far or (ratio > lim.OVER and (upset or in_trouble(s)))):
        text = f"the curvature is {ratio:.2g} times over the edge of stability at step {step}{_leading_layer(s, step)}"
        return Cause("rate too large", text, _other_rate(s, 1 / (2 * ratio)))
    noise = _noise(s)
    if upset and noise is not None and noise[0] > lim.NOISY_IN_TROUBLE * noise[1] and noise[1] <= lim.FEW:
        return _batch(s, noise)
    first = s.surges()[:1]
    if hasty := _hasty(s) if first or upset else "":
        name, text = hasty
        return Cause("rate too large", text, f"Give {name} the rate of the other layers")
    if first and s.adam and s.broken is None and not s.ramped and first[0][0] <= s.early and len(late) < lim.RESTLESS:
        return _cold(s, *first[0])
    grown = _grown(s)
    if upset or grown:
        return Cause("rate too large", grown or _how_unstable(s, early, late), _other_rate(s, 1 / 3))
    most = lim.SEVERAL if in_trouble(s) else lim.TINY  # else all that is left may be noise, whatever the batch
    if noise and noise[1] <= most and noise[0] > (lim.NOISY_BUT_WELL if well else lim.NOISY) * noise[1]:
        return _batch(s, noise)
    return None


def _passed(s: Signs, late: list[int]) -> bool:
    """Whether curvature over the edge was of the beginning only, and the run has learned well since: a catapult."""
    over = [step for step, ratio in s.ratios() if ratio > lim.PASSED and step > s.early]
    return not (s.adam or over or len(late) >= lim.RESTLESS) and s.last is not None and s.last < lim.WELL * s.reference


def _hasty(s: Signs) -> tuple[str, str] | tuple[()]:
    """A layer whose steps are far longer than those of the others, though Adam makes them equal; what to say of it."""
    sizes, looks = s.facts.get("groups") or {}, [v for v in s.vitals if s.adam and v["update"]]
    paces = {n: np.median([v["groups"][n]["update"] for v in looks]) / math.sqrt(sizes[n]) for n in sizes if looks}
    name = max(paces, key=lambda n: paces[n], default="")
    others = [pace for other, pace in paces.items() if other != name and pace > 0]
    if len(others) < 2 or paces[name] < lim.HASTY * max(others):
        return ()
    return name, f"steps of {name} are {paces[name] / np.median(others):.2g} times as long as those of the other layers"


def _cold(s: Signs, step: int, times: float) -> Cause:
    rate = f"the rate was {_digits(s.rate)}" if s.rate else "it was full"
    text = f"the loss rose to {times:.2g} times its start at step {step}, where {rate} already, and not again"
    steps = max(50, int(0.1 * s.steps))
    remedy = f"Let the rate grow over the first {steps} steps, or take {_digits((s.rate or 0) / 5)}"
    return Cause("no warm-up", text, remedy)


def _grown(s: Signs) -> str:
    """Weights that Adam has driven far away, and units that died on the way; empty where there is nothing to say."""
    by = max(s.early, min(lim.GROWTH_BY * s.steps, lim.SOON))
    looks = [v for v in s.vitals if v["weights"]]
    if not (s.adam or s.stuck) or len(looks) < 2:
        return ""
    soon = min(looks[1:], key=lambda v: abs(v["step"] - by))
    growth = soon["weights"] / looks[0]["weights"] if s.adam else 1.0
    start, end = (s.layers(v) for v in (looks[0], looks[-1]))  # those that are finite
    died = max(((end[n]["dead"] or 0) - (g["dead"] or 0) for n, g in start.items()), default=0.0)
    units = f"{100 * died:.0f} % of a layer's units died"
    if s.stuck and died > lim.DIED:
        return f"{units} after the start, and the loss is {s.last:.3g}, that of knowing nothing"
    if growth < lim.GROWTH or died < lim.DYING:
        return ""
    return f"the weights grew {growth:.2g} times in {soon['step']} steps, and {units}"


def _other_rate(s: Signs, factor: float) -> str:
    if not s.rate:
        return f"Take {factor:.2g} times the rate"
    return f"Take a rate of {_digits(s.rate * factor)} in place of {_digits(s.rate)}"


def _leading_layer(s: Signs, step: int) -> str:
    shares = next((c["groups"] for c in s.curves if c["step"] == step), {})
    name = max(shares, key=lambda n: shares[n] or 0.0, default=None)
    return "" if name is None or not shares[name] else f", and {name} holds {100 * shares[name]:.0f} % of it"


def _how_unstable(s: Signs, early: list[int], late: list[int]) -> str:
    if s.broken is not None:
        return f"the loss was not finite any more at step {s.broken}"
    step = min([*early, *late, *(at for at, _ in s.surges())], default=0)
    return f"the loss jumped {len(early) + len(late)} times, first at step {step}"


def _noise(s: Signs) -> tuple[float, float] | None:
    """The noise scale of gradients while there is much to learn, and the rows of a batch."""
    size = s.facts.get("batch_size")
    steps = {v["step"] for v in s.vitals if v["value"] is not None and v["value"] > lim.UNFINISHED * s.reference}
    scales = [n["scale"] for n in s.noises if n["scale"] is not None and n["step"] in steps]
    return None if not size or not scales else (min(float(np.median(scales)), 1e300), float(size))


def _batch(s: Signs, noise: tuple[float, float]) -> Cause:
    scale, size = noise
    text = f"a batch of {size:.0f} is mostly noise: signal and noise would be equal in one of {scale:.0f} rows"
    wanted = 2 ** math.ceil(math.log2(max(scale, 2 * size)))
    slower = _digits((s.rate or 0) * size / wanted)
    return Cause("batch too small", text, f"Take batches of {wanted}, or add up gradients, or a rate of {slower}")


def decay(s: Signs, before: list[str]) -> Cause | None:
    """Weights that decay faster than they learn."""
    if before or len(s.vitals) < 3 or s.last is None:
        return None
    first, last = (v["weights"] for v in (s.vitals[0], s.vitals[-1]))
    half = [v["value"] or 0.0 for v in s.vitals if v["step"] <= lim.HALF * s.vitals[-1]["step"]]
    stays = half and (s.vitals[-1]["value"] or 0.0) > max(lim.FALLS * half[-1], lim.UNLEARNED * s.reference)
    limit = lim.LIGHTER if s.last > lim.UNDONE * s.reference else lim.FAR_LIGHTER if stays else 0.0
    if first is None or last is None or not last < limit * first:
        return None
    text = f"the weights have shrunk to {100 * last / first:.2g} % of what they were, and the loss is {s.last:.3g}"
    return Cause("weight decay too large", text, "Take a tenth of it")


def climbing(s: Signs, before: list[str]) -> Cause | None:
    """Steps that go up the gradient."""
    looks = [v for v in s.vitals if v["update"] and v["gradient"] and v["descent"] is not None]
    cosines = [v["descent"] / (v["update"] * v["gradient"]) for v in looks]
    risen = s.last is None or (s.first is not None and lim.FALLS * s.last > s.first)
    if before or len(looks) < 2 or np.mean(np.array(cosines) > lim.UPHILL) < lim.MOSTLY or not risen:
        return None
    end = "not finite" if s.last is None else f"{s.last:.3g}"
    went = f"the loss went from {s.first or 0:.3g} to {end}"
    text = f"steps go up the gradient (cosine {np.median(cosines):.2g}), and {went}"
    return Cause("wrong sign", text, "Minimize the loss: subtract the gradient, or turn the sign of the loss")


def idle(s: Signs, before: list[str]) -> Cause | None:
    """Weights that are where they were, at all looks; where gradients are added up, they move between these."""
    looks = {(v["update"], v["weights"], *(g.get("rms") for g in v["groups"].values())) for v in s.vitals}
    if len(s.vitals) < 2 or s.steps < lim.AT_ONCE or len(looks) > 1 or s.vitals[0]["update"] != 0:
        return None
    if not s.lost and all(not v["gradient"] for v in s.vitals):
        return None  # there is nowhere to go
    text = f"weights never moved in {s.steps} steps"
    if not s.lost:
        remedy = "Give the optimizer a rate above 0, and apply the change that it returns at each step"
        return Cause("no step", text, remedy)
    many, step = sum(count for count, _ in s.lost), min(first for _, first in s.lost)
    text = f"{text}, and {many} of the losses that were told were not finite: such steps may be skipped"
    return Cause("no step", text, f"Look for NaN and infinity in the rows of step {step}, and in those of the others")


def _torn(s: Signs) -> str:
    """Gradients that are not finite where the loss is, or weights one step later; empty where there are none."""
    look = next(v for v in s.vitals if v["value"] is None or v["gradient"] is None)
    here = look["weights"] is not None and (look["value"] or math.inf) < lim.SURGE * s.base
    if not here and (look["step"] or look["weights"] is not None or s.first is None):
        return ""
    names = [name for name, g in look["groups"].items() if g.get("gradient" if here else "rms") is None]
    begin = f"the loss was {look['value'] if here else s.first:.3g} at step {look['step']}"
    return f"{begin}, and the gradient of {', '.join(names)} was not finite"


def spoiled(s: Signs, before: list[str]) -> Cause | None:
    """Numbers that were not finite at once, where nothing had grown before."""
    if before or s.broken is None:
        return None
    step, text = s.broken, "the first loss that was told was not finite, before the first step: no rate made it so"
    if not s.spoiled and not (text := _torn(s)):
        grown = [v for v in s.vitals if (v["weights"] or 0.0) > lim.GROWTH * (s.vitals[0]["weights"] or math.inf)]
        jumps = [e for e in s.events if e["name"] == "spike" and e["figures"]["value"] is not None]
        over = [ratio for _, ratio in s.ratios() if ratio > lim.OVER and not s.adam]
        if not s.told or s.surges() or grown or jumps or over or s.vitals[0]["value"] is None:
            return None
        step = min([e["step"] for e in s.events if e["name"] == "spike"], default=s.broken)
        text = f"the loss was {s.told[-1]['last']:.3g}, and not finite from step {step} on: nothing had grown before"
    remedy = f"Look for NaN and infinity in the rows of step {step}, and for logarithms, roots and quotients of 0"
    return Cause("numbers not finite", text, remedy)


def unshuffled(s: Signs, before: list[str]) -> Cause | None:
    """Batches that are learned and forgotten in turn, while the probe, which has rows of all kinds, sees neither."""
    looks = [v for v in s.vitals if v["step"] > s.early and v.get("told") and v["value"] is not None]
    looks = [v for v in looks if None not in (v["told"]["smallest"], v["told"]["largest"])]
    high = [v for v in looks if lim.UNLEARNED * s.reference < v["value"] < lim.EXPLODED * s.base]
    apart = [v for v in high if lim.APART * v["told"]["smallest"] < v["value"] < v["told"]["largest"]]
    if before or (s.facts.get("batch_size") or 0) <= lim.FEW:
        return None
    if len(apart) < max(lim.TWICE, lim.MOSTLY * len(looks)):
        return _other_rows(s)
    last = apart[-1]
    went = f"went from {last['told']['smallest']:.2g} to {last['told']['largest']:.2g} before step {last['step']}"
    text = f"losses of batches {went}, where that of the probe was {last['value']:.2g}"
    return Cause("rows not shuffled", text, "Shuffle the rows before each epoch, so that batches are alike")


def _other_rows(s: Signs) -> Cause | None:
    """Batches whose losses are below and above that of the probe at the same weights, further than chance lets them."""
    looks = [v for v in s.vitals if None not in (v["value"], *v.get("quantiles", [None])) and v.get("told") in s.told]
    looks = [v for v in looks if lim.UNLEARNED * s.reference < v["value"] < 2 * v["quantiles"][2]]  # of many rows
    root = math.sqrt(1 / s.facts["batch_size"] + 1 / (s.facts.get("rows") or s.facts["batch_size"]))
    errors = [max(lim.BETWEEN * root * (v["quantiles"][-1] - v["quantiles"][0]), lim.EVEN * v["value"]) for v in looks]
    away = [(v["told"]["last"] - v["value"]) / e for v, e in zip(looks, errors, strict=True)]
    pairs = zip(itertools.pairwise(looks), errors[1:], strict=True)
    peaks = [(v["told"]["largest"] - max(v["value"], u["value"])) / e for (u, v), e in pairs]
    far = [(abs(z), v) for z, v in zip(away, looks, strict=True) if abs(z) > lim.AWAY]
    if len(far) < lim.THRICE or min(away) > -lim.ASIDE or max(away + peaks) < lim.ASIDE:
        return None
    z, last = max(far, key=lambda pair: pair[0])
    text = f"losses of {len(far)} batches in {len(looks)} are not those of chance: {last['told']['last']:.2g} at step "
    text += f"{last['step']}, where that of the probe was {last['value']:.2g}, {z:.2g} standard errors away"
    return Cause("rows not shuffled", text, "Shuffle the rows before each epoch, so that batches are alike")


def ended(s: Signs, before: list[str]) -> Cause | None:
    """A rate that has fallen to nothing long before the end."""
    looks = [v for v in s.vitals if v["update"] is not None and v["gradient"]]
    paces = [v["update"] if s.adam else v["update"] / v["gradient"] for v in looks]
    moving = [i for i, pace in enumerate(paces) if pace > lim.QUIET * max(paces)]
    still = looks[moving[-1] + 1 :] if moving else []
    done = (s.last or 0.0) < lim.UNFINISHED * s.reference / 2
    if before or done or len(still) < 2 or still[0]["step"] > lim.HALF * s.steps:
        return None
    text = f"since step {still[0]['step']} of {s.steps} steps are shorter than {lim.QUIET:g} of what they were"
    remedy = f"Let the rate fall over all {s.steps} steps"
    return Cause("schedule too short", f"{text}, and the loss is still {s.last:.3g}", remedy)


def clipped(s: Signs, before: list[str]) -> Cause | None:
    """Gradients of which little is left before the optimizer sees them."""
    looks = [v for v in s.learning(lim.UNFINISHED) if v["update"] and v["rate"] and v["gradient"]]
    shares = [v["update"] / (v["rate"] * v["gradient"]) for v in looks]
    if before or s.adam or not shares or np.median(shares) > lim.CLIPPED:
        return None
    pull = float(np.median([v["gradient"] for v in looks]))
    wanted = f"the rate {_digits(s.rate)} and a gradient of {pull:.2g}"
    text = f"steps are {np.median(shares):.2g} times as long as {wanted} would make them"
    return Cause("gradients clipped", text, f"Clip gradients that are longer than {10 * pull:.2g}, or none")


def small(s: Signs, before: list[str]) -> Cause | None:
    """A rate that could be many times as large."""
    if [name for name in before if name != "frozen layer"]:
        return None
    looked = [v for v in s.learning(lim.UNFINISHED) if v["far"] is not None and v["start"]]
    if not looked or looked[-1]["step"] < lim.SEEN * s.steps or (s.last or 0.0) < lim.UNFINISHED * s.reference / 2:
        return None
    further = [v["far"] / v["start"] for v in looked]
    since = min(looked[-lim.RECENT :][0]["step"], lim.HALF * looked[-1]["step"])  # looks may be few, or close together
    falls = looked[-1]["value"] < lim.FALLS * max(v["value"] for v in looked if v["step"] >= since)
    slight = s.adam and bool(s.rates) and np.median(s.rates) < lim.USUAL
    most = lim.STILL_FALLING if falls and slight else lim.STILL  # where much is noise, longer steps lead nowhere, too
    calm = all(np.median(some) < most for some in (further, further[-lim.RECENT :]))
    ratios = [r for step, r in s.ratios() if step in {v["step"] for v in looked}]
    slow = s.adam or (bool(ratios) and max(ratios) < lim.SMALL)
    pace = [-v["descent"] / v["start"] for v in looked if (v["descent"] or 0.0) < 0]
    halving = math.log(2) / np.median(pace) if pace else math.inf
    if not (calm and slow) or (s.adam and lim.HALVED * halving < s.steps):
        return None
    halved = f"; at this pace it halves in {halving:.0f} steps" if pace else ""
    left = f"{looked[-1]['value']:.2g} after {looked[-1]['step']} steps"
    text = f"a step 32 times as long would not raise the loss, which is {left}{halved}"
    most = 0.0 if s.adam else max(ratios, default=0.0)
    factor = min(32.0, 0.3 / most) if most > 0 else 32.0  # no longer step was looked at
    return Cause("rate too small", text, _other_rate(s, factor))


def _digits(value: float | None) -> str:
    return "another one" if not value else f"{value:.2g}"
