"""Logs of runs, written by hand as a Doctor writes them."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LAYERS = ("0", "1", "_hidden", "readout")
KINDS = ("vitals", "curvature", "noise", "kernel", "collapse", "event")
RATE, MOMENTUM, BATCH, ROWS, CLASSES = 0.05, 0.9, 64, 128, 10
EDGE = 2 * (1 + MOMENTUM) / RATE


def facts(layers: tuple[str, ...] = LAYERS) -> dict[str, Any]:
    inputs = {"mean": 0.0, "std": 1.0, "rms": 1.0, "most": 3.0, "finite": 1.0, "constant": 0.0}
    inputs |= {"smallest_std": 0.9, "largest_std": 1.1, "repeated": 0.0}
    return {
        "record": "run",
        "format": 1,
        "model": "0123456789abcdef",
        "groups": {name: 1000 * (at + 1) for at, name in enumerate(layers)},
        "loss": "SoftmaxCrossEntropy",
        "rows": ROWS,
        "outputs": CLASSES,
        "classes": [13] * 8 + [12] * 2,
        "targets": None,
        "inputs": inputs,
        "smooth": True,
        "batch_size": BATCH,
        "budget": 0.02,
        "optimizer": "momentum",
    }


def vitals(step: int, value: float, layers: tuple[str, ...] = LAYERS) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    told = {"mean": value * rng.uniform(0.9, 1.1), "smallest": 0.8 * value, "largest": 1.2 * value, "last": value}
    groups = {}
    for at, name in enumerate(layers):
        pace = value * rng.uniform(0.5, 2)
        groups[name] = {"rms": 0.1 + 0.01 * at, "gain": 1.4, "gradient": pace, "update": 0.01 * pace}
        groups[name]["dead"] = 0.3 if name == "_hidden" else 0.0
    accuracy = max(0.0, 1 - value / 2.6)
    return {
        "record": "vitals",
        "step": step,
        "seconds": 0.1 * step + 0.1,
        "cost": 0.0018 * step + 0.001,
        "compiling": 2.1,
        "value": value,
        "told": told | {"first": 2.35, "peak": step, "count": 5} if step else None,
        "accuracy": accuracy,
        "near": (1 - accuracy) / 2,
        "gradient": value,
        "update": 0.02 * value,
        "weights": 10.0,
        "descent": -0.01 * value,
        "start": value,
        "after": 0.99 * value,
        "far": 1.5 * value,
        "shrinking": 0.0,
        "rate": RATE,
        "signal": 1.0,
        "quantiles": [0.1 * value, 0.5 * value, value, 1.5 * value, 2 * value],
        "surprising": [3, 17, 44, *rng.integers(50, ROWS, 7).tolist()],
        "groups": groups,
    }


def records(looks: int = 60, layers: tuple[str, ...] = LAYERS) -> list[dict[str, Any]]:
    """Everything that may be recorded, of a run that is at its edge from step 240 on and spikes at step 305."""
    rng, lines = np.random.default_rng(0), []
    for look in range(looks):
        step = 10 * look
        lines.append(vitals(step, 2.3 * np.exp(-step / 150) + 0.05, layers))
        scale = None if look % 7 == 3 else 20 + step / 3
        lines.append(
            {"record": "noise", "step": step, "scale": scale, "spread": 1.0, "signal": 0.1, "batch_size": BATCH}
        )
        ratio = min(1.2, 0.2 + step / 300)
        shares = dict(zip(layers, rng.dirichlet(np.arange(1, len(layers) + 1) * 5.0).tolist(), strict=True))
        curve = {"sharpness": 0.9 * ratio * EDGE, "preconditioned": ratio * EDGE, "edge": EDGE, "ratio": ratio}
        lines.append({"record": "curvature", "step": step, **curve, "negative": -0.3, "groups": shares})
        if look in (1, 2, 4, 8, 16, 32):
            change = 1 - float(np.exp(-step / 300))
            lines.append({"record": "kernel", "step": step, "velocity": change, "alignment": 0.1 + step / 2000})
    lines.append({"record": "event", "step": 305, "name": "spike", "figures": {"value": 0.9, "before": 0.4}})
    for step, left in ((400, 1.0), (590, 0.25)):
        distances = {"nc1": 1.2 * left, "nc2": 0.3 * left, "nc3": 0.5 * left, "nc4": 0.1 * left}
        lines.append({"record": "collapse", "step": step, **distances})
    return lines


def write(path: Path, lines: list[dict[str, Any]], layers: tuple[str, ...] = LAYERS) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in [facts(layers), *lines]))
    return path


class FakeCause(NamedTuple):
    """One thing that is wrong."""

    name: str
    evidence: str
    remedy: str


class FakeVerdict(NamedTuple):
    """What is wrong with a run."""

    causes: tuple[FakeCause, ...]
    steps: int
    notes: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        return not self.causes


@dataclass(frozen=True)
class FakeRun:
    """A run whose verdict is given, whatever its records say."""

    facts: dict[str, Any] = field(default_factory=facts)
    records: tuple[dict[str, Any], ...] = ()
    causes: tuple[FakeCause, ...] = ()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["record"] == kind]

    def verdict(self) -> FakeVerdict:
        steps = max((record["step"] for record in self.records), default=0)
        return FakeVerdict(self.causes, steps, ("the model has kinks.",))
