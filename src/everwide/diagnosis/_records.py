"""From what was measured to records of a log."""

import math

import numpy as np

from .._checks import InputError
from ._collapse import neural_collapse
from ._log import Record
from ._optimizers import Optimizer
from ._patient import PARTS, SEEN, Curve, Pulse, Readout, Step, divisible
from ._patients import Chart

_QUANTILES = (0.9, 0.75, 0.5, 0.25, 0.1)  # of the losses of rows, from above: the least surprising first
_CLOSE, _CALM = 0.9, 0.5  # of the edge of stability: a spike may come; it has passed, if two looks in a row say so
_LEARNED, _ROWS = 0.95, 4  # of the probe, and rows of a class on average, before collapse is looked for
_LINEAR = 1e-3  # of the spread of the outputs: what a last layer may leave over
_FLAT, _LOOKS, _HELD, _PART = 0.05, 4, 100, 0.25  # a loss within that band for so many looks, steps, and of the run
ENDED, _LEFT = 0.9, 0.1  # of its loss: a plateau has ended; of the first loss: one below it is no plateau
_SETTLED = 20  # steps before the second moments of Adam say something about curvature
_CLEAR = 0.3  # of the squared norm of a gradient, at least, that is no noise
_ALIGNED = 0.9  # the cosine from which a step is in the direction that the state of the optimizer gives


def event(step: int, name: str, figures: Record) -> Record:
    """Something that happened at a step."""
    return {"record": "event", "step": step, "name": name, "figures": figures}


class Findings:
    """Turns measurements of one run into records; remembers the first kernel, the last rate, and losses."""

    def __init__(self, chart: Chart, facts: Record, rate: float | None, targets: np.ndarray):
        self.chart, self.facts, self.rate, self._targets = chart, facts, rate, targets
        self._losses: list[tuple[int, float]] = []
        self._level = 0.0  # of the plateau on which the loss is
        self._escape: float | None = None
        self._kernel: np.ndarray | None = None
        self._ratio, self._highest = 0.0, 0.0  # the last, and the highest since a spike was announced
        self._broken = False

    @np.errstate(all="ignore")  # what is not finite is recorded, without a warning
    def records(
        self,
        at: int,
        clock: Record,
        signs: Pulse,
        step: Step,
        curve: Curve | None,
        kernel: np.ndarray | None,
        last: Readout | None,
        optimizer: Optimizer,
        told: Record | None,
    ) -> list[Record]:
        """Of one sitting."""
        rate = self._rate_of(signs, step, optimizer)
        records = [self._vitals(at, clock, signs, step, rate, told)]
        noise = self._noise(at, signs)
        records += [noise] if noise is not None else []
        if curve is not None and rate and optimizer.kind != "unknown":  # a schedule may end at 0
            records.append(self._curvature(at, curve, step, rate, optimizer))
        if kernel is not None:
            records.append(self._moved(at, kernel))
        collapse = None if last is None else self._collapse(at, last)
        records += [collapse] if collapse is not None else []
        return records + self._events(at, records, optimizer) + self._plateau(at, records[0])

    def _events(self, at: int, records: list[Record], optimizer: Optimizer) -> list[Record]:
        """What has just happened, or is about to."""
        if not (math.isfinite(records[0]["value"]) and math.isfinite(records[0]["gradient"])):
            first, self._broken = not self._broken, True
            return [event(at, "non-finite", {})] if first else []
        ratio = next((r["ratio"] for r in records if r["record"] == "curvature"), None)
        if ratio is None or (optimizer.kind == "adam" and (optimizer.seen or 0) < _SETTLED):
            return []
        before, self._ratio, highest = self._ratio, ratio, self._highest
        if highest and max(ratio, before) < _CALM:
            self._highest = 0.0
            return [event(at, "catapult", {"before": highest, "after": ratio})]
        if not highest and ratio <= _CLOSE:
            return []
        self._highest = max(highest, ratio)
        return [] if highest else [event(at, "announced", {"ratio": ratio})]

    def _rate_of(self, signs: Pulse, step: Step, optimizer: Optimizer) -> float | None:
        """As it is known, or as the last step was long in the direction of the optimizer."""
        if optimizer.rate is not None:
            return optimizer.rate
        if optimizer.kind == "unknown":
            return None
        moved = step.leaves > 0
        direction, along, change = (float(np.sum(v[moved])) for v in (step.direction, step.along, step.leaves))
        if not (direction > 0 and math.isfinite(along)):
            return self.rate
        cosine = -along / math.sqrt(max(change * direction, 1e-38))
        if cosine > _ALIGNED:
            self.rate = -along / direction
        elif optimizer.first is None and optimizer.second is None:  # a gradient of other rows than those of the step
            signal = _signal(float(np.sum(signs.gradient[moved])), float(np.sum(signs.parts[moved])))
            if cosine > 0 and (signal > _CLEAR * direction or self.rate is None):
                self.rate = -along / max(signal, _CLEAR * direction)
        elif optimizer.first is None and cosine > 0:
            self.rate = -along / direction
        else:
            self.rate = _beside_decay(step, direction, along, float(np.sum(signs.weights[moved])), change) or self.rate
        return self.rate

    def _vitals(
        self, at: int, clock: Record, signs: Pulse, step: Step, rate: float | None, told: Record | None
    ) -> Record:
        losses = np.asarray(signs.losses, float)
        groups = {name: self._group(leaves, signs, step) for name, leaves in self.chart.groups.items()}
        labelled = self.facts["classes"] is not None and np.isfinite(losses).all()
        order = np.argsort(-losses)
        ranked = losses[order]
        return {
            "record": "vitals",
            "step": at,
            **clock,
            "value": losses.mean(),
            "told": told,
            "accuracy": np.mean(signs.above == 0) if labelled else None,
            "near": np.mean(signs.above == 1) if labelled else None,
            "gradient": math.sqrt(np.sum(signs.gradient)),
            "update": math.sqrt(np.sum(step.leaves)),
            "weights": math.sqrt(np.sum(signs.weights)),
            "descent": step.descent,
            "start": step.start,
            "after": step.after,
            "far": step.far,
            "shrinking": step.shrinking,
            "rate": rate,
            "signal": signs.signal,
            "chances": signs.chances,
            "quantiles": [ranked[int(q * (len(ranked) - 1))] for q in _QUANTILES],
            "surprising": order[:10].tolist(),
            "groups": groups,
        }

    def _group(self, leaves: list[int], signs: Pulse, step: Step) -> Record:
        sizes = self.chart.sizes
        heavy = [leaf for leaf in leaves if self.chart.units[leaf] is not None]
        gains = [self.chart.gain(leaf, float(signs.weights[leaf])) for leaf in heavy]
        light = [leaf for leaf in leaves if leaf not in heavy]
        return {
            "rms": _rms(signs.weights, sizes, leaves),
            "gain": gains[0] if gains else None,
            "biases": _rms(signs.weights, sizes, light),
            "gradient": math.sqrt(sum(signs.gradient[leaf] for leaf in leaves)),
            "update": math.sqrt(sum(step.leaves[leaf] for leaf in leaves)),
            "dead": max((float(signs.dead[leaf]) for leaf in heavy), default=None),
        }

    def _noise(self, at: int, signs: Pulse) -> Record | None:
        """Rows in a batch at which noise and signal of its gradient are equal."""
        parts, n = PARTS, divisible(len(signs.losses), PARTS)
        if n < 2 * parts:
            return None
        whole, part = float(np.sum(signs.gradient)), float(np.sum(signs.parts))
        signal = _signal(whole, part)
        spread = (whole - signal) * n  # trace of the covariance of single rows
        scale = spread / signal if signal > 0 else None
        record = {"record": "noise", "step": at, "scale": scale, "spread": spread, "signal": signal}
        return record | {"batch_size": self.facts["batch_size"]}

    def _curvature(self, at: int, curve: Curve, step: Step, rate: float, optimizer: Optimizer) -> Record:
        edge = optimizer.edge(rate)
        pace = -rate * float(curve.smallest) / (1 - optimizer.b1 if optimizer.kind == "momentum" else 1)
        self._escape = 1 / pace if pace > 0 else None
        shares = {name: float(sum(curve.shares[leaf] for leaf in leaves)) for name, leaves in self.chart.groups.items()}
        return {
            "record": "curvature",
            "step": at,
            "sharpness": curve.plain,
            "preconditioned": curve.largest,
            "edge": edge,
            "ratio": float(curve.largest) / edge,
            "negative": curve.smallest,
            "groups": shares,
        }

    def _moved(self, at: int, kernel: np.ndarray) -> Record:
        """How far the tangent kernel is from the first one, and how much it looks like the labels."""
        if self._kernel is None:
            self._kernel = kernel
        product = np.sum(self._kernel * kernel)
        size = np.linalg.norm(self._kernel) * np.linalg.norm(kernel)
        velocity = 1 - product / size if 0 < size < math.inf else None
        return {"record": "kernel", "step": at, "velocity": velocity, "alignment": _alignment(kernel, self._targets)}

    def readout(self, signs: Pulse) -> int | None:
        """The leaf of the last layer, where the probe is learned and collapse may be looked for."""
        classes = self.facts["classes"]
        if classes is None or np.mean(signs.above == 0) < _LEARNED or sum(classes) < _ROWS * np.count_nonzero(classes):
            return None
        return self.chart.readout(self.facts["outputs"]) if np.count_nonzero(classes) > 1 else None

    def _collapse(self, at: int, last: Readout) -> Record | None:
        """Distances from neural collapse, if that is the last layer: linear, but for biases."""
        biases = last.outputs - last.features @ last.weights.T
        if not biases.std(0).max() <= _LINEAR * last.outputs.std():
            return None
        labels = self._targets if self._targets.ndim == 1 else self._targets.argmax(1)
        try:
            distances = neural_collapse(last.features, labels, last.weights, biases=biases.mean(0))
        except InputError:  # classes that are one point, or none: there is nothing to say
            return None
        return {"record": "collapse", "step": at, **distances._asdict()}

    def _plateau(self, at: int, vitals: Record) -> list[Record]:
        """A loss that stands still: how long it would take along its slope, and along negative curvature."""
        value = float(vitals["value"])
        if not math.isfinite(value):
            return []
        self._losses.append((at, value))
        since = at - max(_HELD, _PART * at)
        band = [v for step, v in self._losses if step >= since]
        flat = since >= 0 and len(band) >= _LOOKS and max(band) <= (1 + _FLAT) * min(band)
        if self._level and not value >= ENDED * self._level:
            self._level = 0.0
        if self._level or not flat or value < _LEFT * self._losses[0][1]:
            return []
        self._level = value
        slope = -vitals["descent"]
        halved = value / (2 * slope) if slope > 0 else None
        return [event(at, "plateau", {"value": value, "halves in": halved, "escapes in": self._escape})]


def _rms(squares: np.ndarray, sizes: np.ndarray, leaves: list[int]) -> float | None:
    return math.sqrt(np.sum(squares[leaves]) / np.sum(sizes[leaves])) if leaves else None


def _signal(whole: float, part: float) -> float:
    """The squared norm of the true gradient, without bias, from those of the mean of the parts and of one of them."""
    return whole - (part - whole) / (PARTS - 1)


def _beside_decay(step: Step, direction: float, along: float, weights: float, change: float) -> float | None:
    """The rate of a step that is in the direction of the optimizer and, by decay, against the weights; else `None`."""
    turned, shrinking = float(step.turned), float(step.shrinking)
    area = direction * weights - turned**2
    if not area > 0:
        return None
    rate, decay = (along * weights - shrinking * turned) / -area, (shrinking * direction - along * turned) / -area
    seen = rate**2 * direction + 2 * rate * decay * turned + decay**2 * weights
    return rate if rate > 0 and decay > 0 and seen > _ALIGNED**2 * change else None


def _alignment(kernel: np.ndarray, targets: np.ndarray) -> float | None:
    """The cosine between a kernel and that of the targets, both centred: 1 where the kernel explains them."""
    if not np.isfinite(kernel).all():
        return None
    few = targets[:SEEN]
    flat = few.reshape(len(few), -1)
    labelled = few.ndim == 1 and np.issubdtype(few.dtype, np.integer)
    other = (few[:, None] == few).astype(float) if labelled else flat @ flat.T
    a, b = (k - k.mean(0) - k.mean(1)[:, None] + k.mean() for k in (kernel, other))
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return float(np.sum(a * b) / size) if size > 0 else None
