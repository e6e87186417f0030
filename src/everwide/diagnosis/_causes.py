"""What may be wrong with a run: each cause is a rule over its records, with evidence and a remedy that has a number.

Causes come in the order in which they bring about each other: data, initialization, optimizer, labels. A rule that is
further down says nothing where one above it explains what it sees.
"""

import math
from collections.abc import Callable

import numpy as np

from . import _thresholds as lim
from ._log import Record
from ._signs import Cause, Signs
from ._steps import climbing, clipped, decay, ended, idle, in_trouble, small, spoiled, unshuffled, unstable


@np.errstate(all="ignore")  # figures may be as large as floats are
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


def inputs(s: Signs, before: list[str]) -> Cause | None:
    """Inputs that are not finite, or far from a standard deviation of 1."""
    x = s.facts.get("inputs")
    if not x:
        return None
    if x["finite"] < 1:
        share = f"{100 * (1 - x['finite']):.3g} % of the probe's rows hold NaN or infinity"
        return Cause("inputs not finite", share, "Drop or impute these rows")
    if x["constant"] > lim.SAME:
        return Cause("constant inputs", "the inputs of all rows of the probe are the same", "Look at how they are read")
    if x["repeated"] > lim.REPEATED:
        text = f"{100 * x['repeated']:.0f} % of the probe's rows are copies of others"
        return Cause("repeated rows", text, "Draw rows without replacement, and drop copies")
    limit = lim.SCALE_IN_TROUBLE if in_trouble(s) else lim.SCALE
    remedy = f"Subtract {x['mean']:.3g} and divide by {x['std'] or 1:.3g}, column by column if they differ"
    if x["rms"] > limit:
        return Cause("inputs not scaled", f"the root mean square of the inputs is {x['rms']:.3g}, not about 1", remedy)
    if x["std"] and abs(x["mean"]) / x["std"] > lim.OFFSET:
        text = f"the inputs lie around {x['mean']:.3g} with a standard deviation of {x['std']:.3g}"
        return Cause("inputs not scaled", text, remedy)
    spread = x["largest_std"] / x["smallest_std"] if x["smallest_std"] else 1.0
    if spread > lim.COLUMNS and x["largest_std"] > lim.SCALE_IN_TROUBLE:
        text = f"standard deviations of columns go from {x['smallest_std']:.2g} to {x['largest_std']:.2g}"
        return Cause("inputs not scaled", text, remedy)
    return None


def targets(s: Signs, before: list[str]) -> Cause | None:
    """Targets of a regression that are far from a standard deviation of 1."""
    y = s.facts.get("targets")
    if not y or s.facts["loss"] not in ("Mse", "Huber") or not y["std"]:
        return None
    if max(y["rms"], abs(y["mean"]) / y["std"]) < lim.SCALE:
        return None
    text = f"the targets lie around {y['mean']:.3g} with a standard deviation of {y['std']:.3g}"
    return Cause("targets not scaled", text, f"Subtract {y['mean']:.3g} and divide by {y['std']:.3g}")


def twice(s: Signs, before: list[str]) -> Cause | None:
    """Outputs that are probabilities already."""
    if s.facts.get("loss") != "SoftmaxCrossEntropy" or s.start is None or s.start.get("chances") != 1:
        return None
    text = "the outputs of all rows are probabilities already, and the loss takes their softmax once more"
    least = math.log(1 + (s.facts["outputs"] - 1) / math.e)
    return Cause("softmax twice", text, f"Leave out the last softmax: with it the loss cannot fall below {least:.2g}")


def initialization(s: Signs, before: list[str]) -> Cause | None:
    """One layer whose weights began on another scale than those of the others."""
    if s.start is None or before:
        return None
    layers = _as_begun(s)
    gains = {name: g["gain"] for name, g in layers.items() if g["gain"]}
    for name, gain in sorted(gains.items(), key=lambda item: -abs(math.log(item[1]))):
        others = [value for other, value in gains.items() if other != name]
        if len(others) < 2:
            return None
        ratio = gain / float(np.median(others))
        size = layers[name]["rms"] / float(np.median([g["rms"] for other, g in layers.items() if other != name]))
        small = ratio < 1 / lim.OUTLIER and size < 1 / lim.BESIDE and _is_hidden(s, name)
        if small or (ratio > lim.OUTLIER and size > lim.BESIDE):
            times = f"{ratio:.2g} times as large as those of the other layers (gain {gain:.2g})"
            text = f"the weights of {name} began {times}"
            return Cause("initialization", text, f"Multiply them by {1 / ratio:.2g} before training")
    return None


def _as_begun(s: Signs) -> dict[str, Record]:
    """Layers that are at the first look what they were at the start: the step is short beside their weights."""
    layers = s.layers(s.start) if s.start is not None else {}
    moved = {n: (g["update"], (g["rms"] or 0.0) * math.sqrt(s.facts["groups"][n])) for n, g in layers.items()}
    return {n: layers[n] for n, (by, size) in moved.items() if by is not None and size >= 1.5 * by}


def _is_hidden(s: Signs, name: str) -> bool:
    """Whether a layer is not the last one, which may begin small."""
    return name != list(s.facts["groups"])[-1]


def exploding(s: Signs, before: list[str]) -> Cause | None:
    """Signals or gradients that grow, or vanish, from layer to layer."""
    if s.start is None or before:
        return None
    layers = s.layers(s.start)
    depth = max(1, len(layers))
    few = (s.facts.get("batch_size") or math.inf) <= lim.SEVERAL  # the first ones may be odd: the probe has a say
    begun = min(s.first or 0.0, (s.start["value"] or math.inf) if few else math.inf)
    if s.chance and begun > lim.EXPLODED * max(s.chance, s.blind):
        times = begun / s.chance
        text = f"before anything was learned the loss was {begun:.3g}, {times:.3g} times that of knowing nothing"
        name = max(layers, key=lambda n: layers[n].get("biases") or 0.0, default="")
        if name and _began_biased(layers[name]):
            began = f"the biases of {name} began at about {layers[name]['biases']:.2g}"
            return Cause("initialization", f"{began}, and {text}", f"Start the biases of {name} at 0")
        factor = times ** (-1 / depth)
        remedy = f"Multiply the weights of all {depth} layers by {factor:.2g}, or normalize"
        return Cause("exploding signals", text, remedy)
    slopes = [g["gradient"] / max(g["rms"], 1e-30) for g in layers.values() if g["gradient"]]
    least = 3
    if slopes and slopes[0] < slopes[-1]:  # the last layer may begin small, which all others feel alike
        slopes, least = slopes[:-1], 2
    if len(slopes) > least and max(slopes) > (lim.UNEVEN_IF_STUCK if s.stuck else lim.UNEVEN) * min(slopes):
        text = f"gradients of layers, relative to their weights, differ by a factor of {max(slopes) / min(slopes):.2g}"
        factor = (max(slopes) / min(slopes)) ** (1 / (2 * depth))
        kind = "exploding signals" if slopes[0] > slopes[-1] else "vanishing signals"
        change = f"{1 / factor:.2g}" if kind.startswith("exploding") else f"{factor:.2g}"
        return Cause(kind, text, f"Multiply the weights of all {depth} layers by {change}, or normalize")
    return None


def saturated(s: Signs, before: list[str]) -> Cause | None:
    """Weights of most layers that are so large that bounded units saturate, where rectifiers would explode."""
    gains = {n: g["gain"] for n, g in _as_begun(s).items() if g["gain"] and _is_hidden(s, n)}
    wide = [n for n in gains if gains[n] > lim.WIDE]
    dense = ((s.facts.get("inputs") or {}).get("rms") or 0.0) > lim.DENSE  # of sparse inputs few weights see something
    if before or not dense or len(wide) <= len(gains) / 2 or (s.last or math.inf) < lim.UNFINISHED * s.reference:
        return None
    gain = float(np.median([gains[n] for n in wide]))
    text = f"the weights of {', '.join(wide)} began with a gain of {gain:.2g}, where bounded units hardly have a slope"
    return Cause("initialization", text, f"Multiply them by {1 / gain:.2g} before training, for a gain of 1")


def _began_biased(layer: Record) -> bool:
    """Whether biases were large before the first step, which may have made them so."""
    biases, moved = layer.get("biases") or 0.0, layer["update"]
    return moved is not None and biases - moved > lim.BIASED


def dead(s: Signs, before: list[str]) -> Cause | None:
    """Units that were silent from the start."""
    if s.start is None or before:
        return None
    if (s.start["value"] or math.inf) > 1.2 * (s.first or math.inf):
        return None  # the first step has killed them
    layers, again = s.layers(s.start), s.layers(s.vitals[:2][-1])
    silent = {name: g["dead"] for name, g in layers.items() if g["dead"]}
    mute = [name for name in silent if silent[name] >= lim.DEAD and _is_hidden(s, name)]
    mute = [name for name in mute if name in again and (again[name]["dead"] or 0.0) >= lim.STAYS_DEAD]
    if not mute:
        return None
    if empty := [name for name in mute if layers[name]["gain"] == 0]:
        text = f"the weights of {', '.join(empty)} began at 0, and have no gradient on any row of the probe"
        remedy = f"Draw those of {empty[0]} with a variance of 2 over the number of its inputs"
        return Cause("initialization", text, remedy)
    cut = [name for name in mute if layers[name]["gradient"] == 0]  # biases behind dead units have a gradient
    name = (cut or mute)[-1]  # those before it have no gradient because of it
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
    name, sizes = (pulled or cut)[0], s.facts["groups"]
    share = 100 * sum(sizes[n] for n in pulled or cut) / sum(sizes.values())
    pull = "though its gradient is not 0" if pulled else "and its gradient is exactly 0, as behind a stop_gradient"
    text = f"{', '.join(pulled or cut)} never moved in {s.steps} steps, {pull} ({share:.2g} % of the parameters)"
    rate = f" at the rate {s.rate:.2g}" if s.rate else ""
    return Cause("frozen layer", text, f"Give {name} to the optimizer{rate}, or take it out of the mask")


def _is_silent(vitals: Record, name: str) -> bool:
    """Whether a layer has no gradient because the units after it are dead."""
    names = list(vitals["groups"])
    after = names[names.index(name) + 1 : names.index(name) + 2]
    return any((vitals["groups"][n]["dead"] or 0) >= lim.DIED for n in after)


def labels(s: Signs, before: list[str]) -> Cause | None:
    """Rows whose labels stay surprising while the others are learned."""
    if [name for name in before if name != "frozen layer"]:
        return None
    if not s.facts.get("classes") or s.facts["outputs"] < 3:
        return None
    usual = max(s.facts["classes"]) / sum(s.facts["classes"])
    if s.stuck and s.vitals and (s.vitals[-1]["accuracy"] or 0.0) < 2 * usual:  # else the probe was learned, by and by
        text = f"after {s.steps} steps the loss is {s.last:.3g}, still that of knowing nothing ({s.reference:.3g})"
        return Cause("wrong labels", text, "See whether rows and labels belong together, in the first 10 rows, say")
    sure = [v for v in s.vitals if v["value"] is not None and v["step"] >= lim.SURE]  # no trace of what it began with
    learned = [v for v in sure if v["quantiles"][2] < lim.LEARNED * s.reference]
    looked = [v for v in learned if v["value"] > lim.UNLEARNED * s.reference]
    high = [v for v in looked if v["quantiles"][-1] > lim.SURPRISED * s.reference and _strange(v) > lim.MISLABELLED]
    near = [[_strange(w) for w in sure if v["step"] <= w["step"] < 4 * v["step"]] for v in high]
    high = [v for v, strange in zip(high, near, strict=True) if min(strange) > lim.REMAIN * strange[0]]
    stay = [v for v in high if v["quantiles"][-1] * _left(s, v) > lim.STAYS * s.reference]
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
    later = min((pair for pair in seen if None not in pair and pair[0] >= 2 * vitals["step"]), default=None)
    return later[1] / vitals["value"] if later is not None else float(vitals["step"] > lim.LATE * s.steps)


def _strange(vitals: Record) -> float:
    """The share of rows whose label ranks third or worse, where that is not how the model errs in general."""
    wrong = 1 - vitals["accuracy"]
    far = wrong - vitals["near"]
    return far if far > 0.4 * wrong else 0.0


Rule = Callable[[Signs, list[str]], Cause | None]
_RULES: tuple[Rule, ...] = (
    *(inputs, targets, twice, idle, climbing, initialization, exploding, saturated, dead, frozen, spoiled, decay),
    *(unshuffled, unstable, ended, clipped, small, labels),
)
