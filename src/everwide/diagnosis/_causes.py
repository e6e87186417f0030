"""What may be wrong with a run: each cause is a rule over its records, with evidence and a remedy that has a number.

Causes come in the order in which they bring about each other: data, initialization, optimizer, labels. A rule that is
further down says nothing where one above it explains what it sees.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ._log import Record
from ._signs import Signs

# Inputs: root mean squares beyond which they are not scaled, at once or where the run is in trouble, and their offset.
SCALE, SCALE_IN_TROUBLE, OFFSET, COLUMNS = 30.0, 5.0, 10.0, 1e3
SAME, REPEATED = 0.999, 0.5  # share of constant columns, and of rows that are copies
OUTLIER, BESIDE = 5.0, 2.5  # times (or one over) the gain of the other layers, and their root mean square
EXPLODED = 5.0  # times the loss of knowing nothing, before anything was learned
UNEVEN = 1e4  # ratio of gradients between layers
DEAD, DIED, DYING = 0.5, 0.7, 0.6  # share of units of a layer: at the start, all but all, and more in the end
GROWTH, GROWTH_BY, SOON = 3.0, 0.5, 500  # times the weights at the start, by that part of the run and that step
RESTLESS = 3  # spikes after the beginning
FEW = 16  # rows in a batch, at most, for noise to explain what a rate may
OVER, FAR_OVER = 1.5, 2.5  # times the edge of stability: where the run is in trouble, and in any case
NOISY, NOISY_IN_TROUBLE = 8.0, 1.0  # noise scale over batch size, while there is much to learn
MISLABELLED, LEARNED = 0.09, 0.5  # share of rows whose label ranks third or worse; median loss, of the reference
# A tenth of the rows lies above so many times the loss of knowing nothing: as it is, and times what twice as many steps
# leave of the loss. A run that ended before that had taken this part of its steps.
SURPRISED, STAYS, LATE = 0.95, 0.92, 0.3
SMALL, STILL = 0.02, 2.0  # of the edge of stability; times the loss, where a step many times as long leads
UNFINISHED, UNLEARNED = 0.1, 0.25  # of the loss of knowing nothing: there is something, or much, left to learn
DECAY = 1.0  # length of what decay takes in a step, over that of what is learned
SEEN = 0.05  # of the run: one look beyond it, at least
LONG, UNLEARNT = 200, 0.97  # steps after which something must have been learned; of the loss of knowing nothing
STUCK = 0.9  # of the loss of knowing nothing, at the end


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong: its name, evidence, and a remedy."""

    name: str
    evidence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.evidence}. {self.remedy}."


def causes_of(facts: Record, records: list[Record]) -> tuple[tuple[Cause, ...], tuple[str, ...]]:
    """All that is wrong, the likeliest first; figures that rules have looked for and a log of another version lacks."""
    signs, causes, missing = Signs(facts, records), [], dict[str, None]()
    for rule in _RULES:
        try:
            cause = rule(signs, [c.name for c in causes])
        except KeyError as fault:
            missing[str(fault.args[0])] = None
            continue
        causes += [cause] if cause is not None else []
    return tuple(causes), tuple(missing)


def in_trouble(s: Signs) -> bool:
    """Whether the run broke down, jumped, or has learned next to nothing."""
    early, late = s.unrest()
    stuck = s.last is None or s.last > STUCK * s.reference
    return bool(s.vitals) and (s.broken is not None or bool(early) or bool(late) or stuck)


def inputs(s: Signs, before: list[str]) -> Cause | None:
    """Inputs that are not finite, or far from a standard deviation of 1."""
    x = s.facts.get("inputs")
    if not x:
        return None
    if x["finite"] < 1:
        share = f"{100 * (1 - x['finite']):.3g} % of the probe's rows hold NaN or infinity"
        return Cause("inputs not finite", share, "Drop or impute these rows")
    if x["constant"] > SAME:
        return Cause("constant inputs", "the inputs of all rows of the probe are the same", "Look at how they are read")
    if x["repeated"] > REPEATED:
        text = f"{100 * x['repeated']:.0f} % of the probe's rows are copies of others"
        return Cause("repeated rows", text, "Draw rows without replacement, and drop copies")
    limit = SCALE_IN_TROUBLE if in_trouble(s) else SCALE
    remedy = f"Subtract {x['mean']:.3g} and divide by {x['std'] or 1:.3g}, column by column if they differ"
    if x["rms"] > limit:
        return Cause("inputs not scaled", f"the root mean square of the inputs is {x['rms']:.3g}, not about 1", remedy)
    if x["std"] and abs(x["mean"]) / x["std"] > OFFSET:
        text = f"the inputs lie around {x['mean']:.3g} with a standard deviation of {x['std']:.3g}"
        return Cause("inputs not scaled", text, remedy)
    spread = x["largest_std"] / x["smallest_std"] if x["smallest_std"] else 1.0
    if spread > COLUMNS and x["largest_std"] > SCALE_IN_TROUBLE:
        text = f"standard deviations of columns go from {x['smallest_std']:.2g} to {x['largest_std']:.2g}"
        return Cause("inputs not scaled", text, remedy)
    return None


def targets(s: Signs, before: list[str]) -> Cause | None:
    """Targets of a regression that are far from a standard deviation of 1."""
    y = s.facts.get("targets")
    if not y or s.facts["loss"] not in ("Mse", "Huber") or not y["std"]:
        return None
    if max(y["rms"], abs(y["mean"]) / y["std"]) < SCALE:
        return None
    text = f"the targets lie around {y['mean']:.3g} with a standard deviation of {y['std']:.3g}"
    return Cause("targets not scaled", text, f"Subtract {y['mean']:.3g} and divide by {y['std']:.3g}")


def initialization(s: Signs, before: list[str]) -> Cause | None:
    """One layer whose weights began on another scale than those of the others."""
    if s.start is None or before:
        return None
    layers = s.layers(s.start)
    gains = {name: g["gain"] for name, g in layers.items() if g["gain"]}
    for name, gain in sorted(gains.items(), key=lambda item: -abs(math.log(item[1]))):
        others = [value for other, value in gains.items() if other != name]
        if len(others) < 2:
            return None
        ratio = gain / float(np.median(others))
        size = layers[name]["rms"] / float(np.median([g["rms"] for other, g in layers.items() if other != name]))
        if layers[name]["update"] is None or _length(layers[name], s, name) < 1.5 * layers[name]["update"]:
            continue  # what it was at the start is gone
        small = ratio < 1 / OUTLIER and size < 1 / BESIDE and _is_hidden(s, name)
        if small or (ratio > OUTLIER and size > BESIDE):
            text = (
                f"the weights of {name} began {ratio:.2g} times as large as those of the other layers (gain {gain:.2g})"
            )
            return Cause("initialization", text, f"Multiply them by {1 / ratio:.2g} before training")
    return None


def _length(group: Record, s: Signs, name: str) -> float:
    return group["rms"] * math.sqrt(s.facts["groups"][name])


def _is_hidden(s: Signs, name: str) -> bool:
    """Whether a layer is not the last one, which may begin small."""
    return name != list(s.facts["groups"])[-1]


def exploding(s: Signs, before: list[str]) -> Cause | None:
    """Signals or gradients that grow, or vanish, from layer to layer."""
    if s.start is None or before:
        return None
    layers = s.layers(s.start)
    depth = max(1, len(layers))
    if s.chance and s.first is not None and s.first > EXPLODED * s.chance:
        times = s.first / s.chance
        text = f"before anything was learned the loss was {s.first:.3g}, {times:.3g} times that of knowing nothing"
        factor = times ** (-1 / depth)
        return Cause(
            "exploding signals", text, f"Multiply the weights of all {depth} layers by {factor:.2g}, or normalize"
        )
    slopes = [g["gradient"] / max(g["rms"], 1e-30) for g in layers.values() if g["gradient"]]
    if len(slopes) > 3 and max(slopes) > UNEVEN * min(slopes):
        text = f"gradients of layers, relative to their weights, differ by a factor of {max(slopes) / min(slopes):.2g}"
        factor = (max(slopes) / min(slopes)) ** (1 / (2 * depth))
        kind = "exploding signals" if slopes[0] > slopes[-1] else "vanishing signals"
        change = f"{1 / factor:.2g}" if kind.startswith("exploding") else f"{factor:.2g}"
        return Cause(kind, text, f"Multiply the weights of all {depth} layers by {change}, or normalize")
    return None


def dead(s: Signs, before: list[str]) -> Cause | None:
    """Units that were silent from the start."""
    if s.start is None or before:
        return None
    if (s.start["value"] or math.inf) > 1.2 * (s.first or math.inf):
        return None  # the first step has killed them
    silent = {name: g["dead"] for name, g in s.layers(s.start).items() if g["dead"]}
    mute = [name for name in silent if silent[name] >= DEAD and _is_hidden(s, name)]
    if not mute:
        return None
    name = mute[-1]  # those before it have no gradient because of it
    text = f"{100 * silent[name]:.0f} % of the units of {name} have no gradient on any row of the probe, from the start"
    return Cause("dead units", text, f"Start the biases of {name} at 0 or 0.01, or use leaky rectifiers with slope 0.1")


def frozen(s: Signs, before: list[str]) -> Cause | None:
    """Layers that have a gradient and never move."""
    if len(s.vitals) < 2:
        return None
    moving = [v for v in s.vitals if v["update"]]
    if len(moving) < 2:
        return None
    still = [n for n in s.facts["groups"] if all(v["groups"][n]["update"] == 0 for v in moving)]
    pulled = [n for n in still if any(v["groups"][n]["gradient"] for v in moving)]
    cut = [n for n in still if n not in pulled and s.layers(moving[0]).get(n) and not _is_silent(moving[0], n)]
    if not pulled and (not cut or before):
        return None
    name = (pulled or cut)[0]
    share = 100 * s.facts["groups"][name] / sum(s.facts["groups"].values())
    pull = "though its gradient is not 0" if pulled else "and its gradient is exactly 0, as behind a stop_gradient"
    text = f"{', '.join(pulled or cut)} never moved in {s.steps} steps, {pull} ({share:.2g} % of the parameters)"
    rate = f" at the rate {s.rate:.2g}" if s.rate else ""
    return Cause("frozen layer", text, f"Give {name} to the optimizer{rate}, or take it out of the mask")


def _is_silent(vitals: Record, name: str) -> bool:
    """Whether a layer has no gradient because the units after it are dead."""
    names = list(vitals["groups"])
    after = names[names.index(name) + 1 : names.index(name) + 2]
    return any((vitals["groups"][n]["dead"] or 0) >= DIED for n in after)


def unstable(s: Signs, before: list[str]) -> Cause | None:
    """A rate that is too large, at the start only or throughout, or batches whose noise it cannot bear."""
    if before and before != ["frozen layer"]:
        return None
    step, ratio = max([] if s.adam else s.ratios(), key=lambda item: item[1], default=(0, 0.0))
    early, late = s.unrest()
    upset = s.broken is not None or bool(s.surges()) or len(late) >= RESTLESS
    if ratio > FAR_OVER or (ratio > OVER and (upset or in_trouble(s))):
        text = f"the curvature is {ratio:.2g} times over the edge of stability at step {step}{_leading_layer(s, step)}"
        return Cause("rate too large", text, _other_rate(s, 1 / (2 * ratio)))
    noise = _noise(s)
    if upset and noise is not None and noise[0] > NOISY_IN_TROUBLE * noise[1] and noise[1] <= FEW:
        return _batch(s, noise)
    first = s.surges()[:1]
    if first and s.adam and s.broken is None and not s.ramped and first[0][0] <= s.early and len(late) < RESTLESS:
        return _cold(s, *first[0])
    grown = _grown(s)
    if upset or grown:
        return Cause("rate too large", grown or _how_unstable(s, early, late), _other_rate(s, 1 / 3))
    if noise is not None and noise[0] > NOISY * noise[1]:
        return _batch(s, noise)
    return None


def _cold(s: Signs, step: int, times: float) -> Cause:
    rate = _digits(s.rate)
    text = (
        f"the loss rose to {times:.2g} times its start at step {step}, where the rate was {rate} already, and not again"
    )
    steps = max(50, int(0.1 * s.steps))
    remedy = f"Let the rate grow over the first {steps} steps, or take {_digits((s.rate or 0) / 5)}"
    return Cause("no warm-up", text, remedy)


def _grown(s: Signs) -> str:
    """Weights that Adam has driven far away, and units that died on the way; empty where there is nothing to say."""
    by = max(s.early, min(GROWTH_BY * s.steps, SOON))
    looks = [v for v in s.vitals if v["weights"]]
    if not s.adam or len(looks) < 2:
        return ""
    soon = min(looks[1:], key=lambda v: abs(v["step"] - by))
    growth = soon["weights"] / looks[0]["weights"]
    start, end = (s.layers(v) for v in (looks[0], s.vitals[-1]))
    died = max(((end[n]["dead"] or 0) - (g["dead"] or 0) for n, g in start.items()), default=0.0)
    if growth < GROWTH or died < DYING:
        return ""
    units = f"{100 * died:.0f} % of a layer's units died"
    return f"the weights grew {growth:.2g} times in {soon['step']} steps, and {units}"


def _other_rate(s: Signs, factor: float) -> str:
    return f"Take a rate of {_digits((s.rate or 0) * factor)} in place of {_digits(s.rate)}"


def _leading_layer(s: Signs, step: int) -> str:
    shares = (s.at(s.curves, step) or {"groups": {}})["groups"]
    name = max(shares, key=lambda n: shares[n] or 0.0, default=None)
    return "" if name is None else f", and {name} holds {100 * shares[name]:.0f} % of it"


def _how_unstable(s: Signs, early: list[int], late: list[int]) -> str:
    if s.broken is not None:
        return f"the loss was not finite any more at step {s.broken}"
    step = min([*early, *late, *(at for at, _ in s.surges())], default=0)
    return f"the loss jumped {len(early) + len(late)} times, first at step {step}"


def _noise(s: Signs) -> tuple[float, float] | None:
    """The noise scale of gradients while there is much to learn, and the rows of a batch."""
    size = s.facts.get("batch_size")
    steps = {v["step"] for v in s.vitals if v["value"] is not None and v["value"] > UNFINISHED * s.reference}
    scales = [n["scale"] for n in s.noises if n["scale"] is not None and n["step"] in steps]
    return None if not size or not scales else (float(np.median(scales)), float(size))


def _batch(s: Signs, noise: tuple[float, float]) -> Cause:
    scale, size = noise
    text = f"a batch of {size:.0f} is mostly noise: signal and noise would be equal in one of {scale:.0f} rows"
    wanted = 2 ** math.ceil(math.log2(max(scale, 2 * size)))
    slower = _digits((s.rate or 0) * size / wanted)
    return Cause("batch too small", text, f"Take batches of {wanted}, or add up gradients, or a rate of {slower}")


def decay(s: Signs, before: list[str]) -> Cause | None:
    """Weights that decay faster than they learn."""
    if before or len(s.vitals) < 3:
        return None
    pulls = [-v["shrinking"] / (v["update"] * v["weights"]) for v in s.vitals[1:] if v["update"] and v["weights"]]
    lighter = (s.vitals[-1]["weights"] or 0) < 0.5 * (s.vitals[0]["weights"] or 0)
    if not pulls or not lighter or s.last is None or s.last < 0.5 * s.reference:
        return None
    shrunk = s.vitals[-1]["weights"] / s.vitals[0]["weights"]
    text = f"the weights have shrunk to {100 * shrunk:.0f} % of what they were, and the loss is {s.last:.3g}"
    return Cause("weight decay too large", text, "Take a tenth of it")


def labels(s: Signs, before: list[str]) -> Cause | None:
    """Rows whose labels stay surprising while the others are learned."""
    if [name for name in before if name != "frozen layer"]:
        return None
    if not s.facts.get("classes") or s.facts["outputs"] < 3:
        return None
    if s.steps >= LONG and s.last is not None and s.last > UNLEARNT * s.reference and s.vitals:
        text = f"after {s.steps} steps the loss is {s.last:.3g}, still that of knowing nothing ({s.reference:.3g})"
        return Cause(
            "wrong labels", text, "See whether rows and labels belong together, of the first 10 rows for example"
        )
    learned = [v for v in s.vitals if v["value"] is not None and v["quantiles"][2] < LEARNED * s.reference]
    looked = [v for v in learned if v["value"] > UNLEARNED * s.reference]
    high = [v for v in looked if v["quantiles"][-1] > SURPRISED * s.reference and _strange(v) > MISLABELLED]
    stay = [v for v in high if v["quantiles"][-1] * _left(s, v) > STAYS * s.reference]
    if not stay:
        return None
    worst = max(stay, key=_strange)
    share = 100 * _strange(worst) * (1 + 1 / max(1, s.facts["outputs"] - 2))
    when = f"at step {worst['step']}, when the others were learned"
    text = f"about {share:.0f} % of the probe's labels were improbable {when}"
    return Cause("wrong labels", text, f"Look at rows {', '.join(map(str, worst['surprising']))} of the probe")


def _left(s: Signs, vitals: Record) -> float:
    """What twice as many steps left of the loss; 1 if the run ended soon."""
    seen = [(v["step"], v["value"]) for v in s.vitals] + [
        tuple(pair) for told in s.told for pair in told.get("course", ())
    ]
    later = min((pair for pair in seen if pair[0] >= 2 * vitals["step"] and pair[1] is not None), default=None)
    return later[1] / vitals["value"] if later is not None else float(vitals["step"] > LATE * s.steps)


def _strange(vitals: Record) -> float:
    """The share of rows whose label ranks third or worse, where that is not how the model errs in general."""
    wrong = 1 - vitals["accuracy"]
    far = wrong - vitals["near"]
    return far if far > 0.4 * wrong else 0.0


def small(s: Signs, before: list[str]) -> Cause | None:
    """A rate that could be many times as large."""
    if [name for name in before if name != "frozen layer"]:
        return None
    looked = [v for v in s.learning(UNFINISHED) if v["far"] is not None and v["start"]]
    if not looked or looked[-1]["step"] < SEEN * s.steps or (s.last or 0.0) < UNFINISHED * s.reference / 2:
        return None
    calm = np.median([v["far"] / v["start"] for v in looked]) < STILL
    ratios = [r for step, r in s.ratios() if step in {v["step"] for v in looked}]
    slow = s.adam or (bool(ratios) and max(ratios) < SMALL)
    if not (calm and slow):
        return None
    pace = [-v["descent"] / v["start"] for v in looked if v["descent"] < 0]
    halved = f"; at this pace it halves in {math.log(2) / np.median(pace):.0f} steps" if pace else ""
    left = f"{looked[-1]['value']:.2g} after {looked[-1]['step']} steps"
    text = f"a step 32 times as long would not raise the loss, which is {left}{halved}"
    factor = 0.3 / max(ratios) if ratios and not s.adam else 32.0
    return Cause("rate too small", text, f"Take {_digits((s.rate or 0) * factor)} in place of {_digits(s.rate)}")


def _digits(value: float | None) -> str:
    return "another one" if not value else f"{value:.2g}"


Rule = Callable[[Signs, list[str]], Cause | None]
_RULES: tuple[Rule, ...] = (inputs, targets, initialization, exploding, dead, frozen, unstable, decay, small, labels)
