"""Training runs for benchmarks/doctor.py: three architectures, healthy, or with one fault each."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import data
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import everwide.training as tr
from everwide.diagnosis import Doctor

LOSS = tr.SoftmaxCrossEntropy()
CLASSES, PROBE = 10, 128
WARM_UP = 0.1  # of the steps
FAULTS = (
    "rate too large",
    "rate too small",
    "no warm-up",
    "initialization",
    "dead units",
    "exploding depth",
    "wrong labels",
    "batch too small",
    "inputs not scaled",
    "frozen layer",
)


class Architecture(NamedTuple):
    """A network, its optimizer, and the rates that a sweep found: the best, and the largest that trains."""

    task: str
    init: Callable[[np.random.Generator, int, float], Any]
    f: Callable[[Any, Any], Any]
    optimizer: str
    batch: int
    steps: int
    best: float
    largest: float
    cold: float  # a rate of Adam that needs a warm-up
    depth: int
    deep: int


def dense(rng: np.random.Generator, n: int, m: int, gain: float) -> dict[str, np.ndarray]:
    """A layer of that gain: 1.41 is critical for rectifiers."""
    return {"w": rng.normal(size=(n, m)) * gain / n**0.5, "b": np.zeros(m)}


def mlp_init(rng: np.random.Generator, depth: int, scale: float = 1.0) -> Any:
    widths = [64, *[128] * depth]
    hidden = [dense(rng, n, m, scale * 2**0.5) for n, m in itertools.pairwise(widths)]
    return [*hidden, dense(rng, 128, CLASSES, 1.0)]


def mlp(params: Any, x: Any) -> Any:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def cnn_init(rng: np.random.Generator, depth: int, scale: float = 1.0) -> Any:
    channels = [1, *[12] * depth]
    convs = []
    for n, m in itertools.pairwise(channels):
        w = rng.normal(size=(3, 3, n, m)) * scale * (2 / (9 * n)) ** 0.5
        convs.append({"w": w, "b": np.zeros(m)})
    return [*convs, dense(rng, 12, CLASSES, 1.0)]


def cnn(params: Any, x: Any) -> Any:
    """Convolutions as products with patches, which a CPU does faster."""
    x = x.reshape(7, 7, 1)
    for i, layer in enumerate(params[:-1]):
        padded, n = jnp.pad(x, ((1, 1), (1, 1), (0, 0))), x.shape[0]
        patches = jnp.concatenate([padded[a : a + n, b : b + n] for a in range(3) for b in range(3)], -1)
        patches = patches[::2, ::2] if i == 1 else patches
        x = jax.nn.relu(patches @ layer["w"].reshape(-1, layer["w"].shape[-1]) + layer["b"])
    return jnp.mean(x, (0, 1)) @ params[-1]["w"] + params[-1]["b"]


WIDTH, HEADS = 24, 4


def transformer_init(rng: np.random.Generator, depth: int, scale: float = 1.0) -> Any:
    block = lambda: {
        "query_key_value": dense(rng, WIDTH, 3 * WIDTH, scale),
        "out": dense(rng, WIDTH, WIDTH, scale),
        "up": dense(rng, WIDTH, 4 * WIDTH, scale * 2**0.5),
        "down": dense(rng, 4 * WIDTH, WIDTH, scale),
    }
    place = rng.normal(size=(8, WIDTH)) * 0.5
    return {
        "0 read": dense(rng, 8, WIDTH, 1.0) | {"place": place},
        "1 blocks": [block() for _ in range(depth)],
        "2 readout": dense(rng, WIDTH, CLASSES, 1.0),
    }


def _norm(x: Any) -> Any:
    x = x - jnp.mean(x, -1, keepdims=True)
    return x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-5)


def _affine(layer: Any, x: Any) -> Any:
    return x @ layer["w"] + layer["b"]


def transformer(params: Any, x: Any) -> Any:
    """Rows of an image are tokens; normalization before each block."""
    x = _affine(params["0 read"], x.reshape(8, 8)) + params["0 read"]["place"]
    for block in params["1 blocks"]:
        q, k, v = jnp.split(_affine(block["query_key_value"], _norm(x)).reshape(8, HEADS, -1), 3, -1)
        weights = jax.nn.softmax(jnp.einsum("ihd,jhd->hij", q, k) / (WIDTH / HEADS) ** 0.5)
        x = x + _affine(block["out"], jnp.einsum("hij,jhd->ihd", weights, v).reshape(8, WIDTH))
        x = x + _affine(block["down"], jax.nn.relu(_affine(block["up"], _norm(x))))
    return _affine(params["2 readout"], jnp.mean(x, 0))


ARCHITECTURES = {  # rates: the best of a sweep, and the largest that trains
    "mlp": Architecture("digits", mlp_init, mlp, "momentum", 512, 800, 0.07, 0.2, 0.05, 3, 15),
    "cnn": Architecture("fashion", cnn_init, cnn, "adam", 256, 500, 0.1, 0.3, 0.2, 3, 10),
    "transformer": Architecture("digits", transformer_init, transformer, "adam", 256, 400, 0.02, 0.1, 0.1, 1, 6),
}


def rows(task: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images between 0 and 1 and their labels, others for each seed."""
    rng = np.random.default_rng(seed)
    if task == "digits":
        digits = load_digits()
        x, y = digits.data, digits.target
    else:
        with np.load(data.folder() / "fashion_mnist.npz") as file:
            some = rng.permutation(len(file["y_train"]))[:3000]
            x, y = file["x_train"][some].astype(float), file["y_train"][some]
        x = x.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(len(x), -1)
    order = rng.permutation(len(y))[:1600]
    x, y = x[order], y[order]
    return (x / x.max()).astype(np.float32), y.astype(np.int32)


TRANSFORMS = {"momentum": optax.trace(0.9), "adam": optax.scale_by_adam(), "gd": optax.identity()}
_STEPS: dict[Any, Any] = {}


def training_step(f: Any, optimizer: str) -> Any:
    """One jitted step; rate and mask are numbers, so that all faults share it."""
    if (f, optimizer) not in _STEPS:

        @jax.jit
        def step(params: Any, state: Any, rows: Any, index: Any, rate: Any, mask: Any) -> Any:
            batch = jax.tree.map(lambda a: a[index], rows)

            def value(p: Any) -> Any:
                return jnp.mean(jax.vmap(LOSS)(jax.vmap(f, (None, 0))(p, batch[0]), batch[1]))

            loss, slope = jax.value_and_grad(value)(params)
            change, state = TRANSFORMS[optimizer].update(slope, state, params)
            params = jax.tree.map(lambda p, c, m: p - rate * m * c, params, change, mask)
            return params, state, loss

        _STEPS[f, optimizer] = step
    return _STEPS[f, optimizer]


class Plan(NamedTuple):
    """A run that is about to begin."""

    f: Any
    params: Any
    optimizer: str
    x: np.ndarray
    y: np.ndarray
    rate: float
    warm_up: float
    batch: int
    mask: Any
    steps: int


def plan(name: str, fault: str, seed: int) -> Plan:
    """A healthy run, or one with a fault."""
    kind, rng = ARCHITECTURES[name], np.random.default_rng(1000 + seed)
    x, y = rows(kind.task, seed)
    deep = fault == "exploding depth"
    params = kind.init(rng, kind.deep if deep else kind.depth, 2.0 if deep else 1.0)
    x = 255 * x if fault == "inputs not scaled" else (x - x.mean()) / x.std()
    optimizer = "adam" if fault == "no warm-up" else kind.optimizer
    factor = {
        "rate too large": 3 * kind.largest / kind.best,
        "rate too small": 0.01,
        "no warm-up": kind.cold / kind.best,
    }
    rate = kind.best * factor.get(fault, (1 / 3, 0.6, 1.0, 1.5)[seed % 4] if fault == "healthy" else 1.0)
    if fault == "wrong labels":
        wrong = rng.random(len(y)) < 0.2
        y = np.where(wrong, (y + rng.integers(1, CLASSES, len(y))) % CLASSES, y).astype(np.int32)
    layers = hidden_layers(params)
    chosen = layers[rng.integers(len(layers))]
    if fault == "initialization":
        chosen["w"] *= 10.0 if seed % 2 else 0.03
    if fault == "dead units":
        for layer in dying_layers(name, params):
            layer["b"] -= 4.0
    mask = jax.tree.map(lambda _: 1.0, params)
    if fault == "frozen layer":
        at = next(i for i, layer in enumerate(layers) if layer is chosen)
        hidden_layers(mask)[at].update(w=0.0, b=0.0)
    warm = 0.0 if optimizer != "adam" or fault == "no warm-up" else WARM_UP
    batch = 2 if fault == "batch too small" else kind.batch
    return Plan(
        kind.f,
        params,
        optimizer,
        x.astype(np.float32),
        y,
        float(rate),
        warm,
        batch,
        mask,
        kind.steps if batch > 2 else 4 * kind.steps,
    )


def hidden_layers(params: Any) -> list[Any]:
    """Layers between the first and the last, and the first."""
    if isinstance(params, list):
        return params[:-1]
    return [layer for block in params["1 blocks"] for layer in block.values()]


def dying_layers(name: str, params: Any) -> list[Any]:
    """Layers before rectifiers whose units will be silent."""
    return [block["up"] for block in params["1 blocks"]] if name == "transformer" else params[1:-1]


def schedule(progress: float, warm_up: float) -> float:
    """The rate over its peak: up in a straight line, where there is a warm-up, and down to a tenth."""
    if progress < warm_up:
        return (progress + 1e-3) / (warm_up + 1e-3)
    return 1 - 0.9 * (progress - warm_up) / (1 - warm_up)


RISING = {  # optimizer, steps, and a rate at their end with which no such network trains
    "mlp": ("momentum", 2000, 1.3),
    "cnn": ("adam", 3000, 0.75),
    "transformer": ("adam", 1500, 0.22),
}


def spike_run(name: str, seed: int) -> Any:
    """A warm-up that goes too far: the rate grows until the loss jumps; wrong labels keep those on digits busy."""
    busy = plan(name, "wrong labels" if ARCHITECTURES[name].task == "digits" else "spike", seed)
    optimizer, steps, rate = RISING[name]
    return run(busy._replace(optimizer=optimizer, steps=steps, rate=rate, warm_up=1.0), seed)


def run(plan: Plan, seed: int, *, log: Any = None, budget: float = 0.02) -> Any:
    """Train, watched; returns the doctor and the losses."""
    steps = plan.steps
    rng = np.random.default_rng(2000 + seed)
    step, transform = training_step(plan.f, plan.optimizer), TRANSFORMS[plan.optimizer]
    params = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), plan.params)
    state = transform.init(params)
    x, y = jnp.asarray(plan.x), jnp.asarray(plan.y)
    index = rng.integers(0, len(y), (steps, plan.batch)).astype(np.int32)
    doctor = Doctor(plan.f, LOSS, probe=(plan.x[:PROBE], plan.y[:PROBE]), budget=budget, log=log, batch_size=plan.batch)
    jax.block_until_ready(step(params, state, (x, y), index[0], plan.rate, plan.mask))  # compiled before the clock runs
    losses = []
    for i in range(steps):
        rate = plan.rate * schedule(i / steps, plan.warm_up)
        params, state, value = step(params, state, (x, y), index[i], rate, plan.mask)
        doctor(params, state, value=value)
        losses.append(value)
    return doctor, np.array([float(value) for value in losses])
