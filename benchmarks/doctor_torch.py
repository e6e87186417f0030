"""The mlp of benchmarks/doctor.py in PyTorch, from the same weights."""

from typing import Any

import numpy as np
import torch
from doctor_runs import LOSS, PROBE, Plan, schedule

from everwide.diagnosis import Doctor


def module_of(params: list[dict[str, np.ndarray]]) -> torch.nn.Module:
    """Linear layers with rectifiers between them."""
    layers: list[torch.nn.Module] = []
    for layer in params:
        linear = torch.nn.Linear(*layer["w"].shape)
        with torch.no_grad():
            linear.weight.copy_(torch.as_tensor(layer["w"].T))
            linear.bias.copy_(torch.as_tensor(layer["b"]))
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def run(plan: Plan, seed: int) -> tuple[Doctor, np.ndarray]:
    """Train, watched."""
    steps = plan.steps
    torch.set_num_threads(1)
    rng, module = np.random.default_rng(2000 + seed), module_of(plan.params)
    for layer, mask in zip([m for m in module if isinstance(m, torch.nn.Linear)], plan.mask, strict=True):
        layer.requires_grad_(bool(mask["w"]))
    trained = [p for p in module.parameters() if p.requires_grad]
    adam = plan.optimizer == "adam"
    optimizer: Any = torch.optim.Adam(trained, plan.rate) if adam else torch.optim.SGD(trained, plan.rate, momentum=0.9)
    x, y = torch.as_tensor(plan.x), torch.as_tensor(plan.y).long()
    doctor = Doctor(module, LOSS, probe=(plan.x[:PROBE], plan.y[:PROBE]), batch_size=plan.batch)
    losses = []
    for i in range(steps):
        index = torch.as_tensor(rng.integers(0, len(y), plan.batch))
        optimizer.param_groups[0]["lr"] = plan.rate * schedule(i / steps, plan.warm_up)
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(module(x[index]), y[index])
        value.backward()
        optimizer.step()
        doctor(module, optimizer, value=value)
        losses.append(float(value.detach()))
    return doctor, np.array(losses)
