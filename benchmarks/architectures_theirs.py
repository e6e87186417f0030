"""The incumbent's side of `architectures.py`: the networks that neural-tangents has layers for."""

import jax
import neural_tangents as nt
import numpy as np
from neural_tangents import stax
from protocol import peak_bytes, serve, timed

W, B = 2**0.5, 0.1
PAIR = lambda b: (stax.Conv(1, (3, 3), padding="SAME", W_std=W, b_std=b), stax.Relu())


def _mlp(activation):
    hidden = [layer for _ in range(3) for layer in (stax.Dense(1, W, B), activation())]
    return stax.serial(*hidden, stax.Dense(1, W, B))


def _myrtle():
    pool = stax.AvgPool((2, 2), strides=(2, 2))
    return stax.serial(*PAIR(None) * 2, pool, *PAIR(None), pool, *PAIR(None), stax.GlobalAvgPool(), stax.Dense(1, W))


def _resnet(stages, norm):
    total = sum(stages)
    ready = (stax.LayerNorm(), stax.Relu()) if norm else (stax.Relu(),)
    last = W if norm else W / total**0.5

    def conv(side, stride=1, std=W):
        return stax.Conv(1, (side, side), (stride, stride), padding="SAME", W_std=std)

    def block(stride):
        skip = stax.Identity() if stride == 1 else conv(1, stride, 1.0)
        branch = stax.serial(*ready, conv(3, stride), *ready, conv(3, 1, last))
        return stax.serial(stax.FanOut(2), stax.parallel(skip, branch), stax.FanInSum())

    strides = [2 if stage and not i else 1 for stage, n in enumerate(stages) for i in range(n)]
    return stax.serial(conv(3, 1, 1.0), *map(block, strides), *ready, stax.GlobalAvgPool(), stax.Dense(1))


def _graph():
    one = stax.Aggregate(), stax.Dense(1, W, B), stax.Relu()
    return stax.serial(*one, *one, stax.GlobalAvgPool(), stax.Dense(1, W, B))


NETWORKS = {
    "mlp": lambda: _mlp(stax.Relu),
    "cnn": lambda: stax.serial(*PAIR(B) * 3, stax.Flatten(), stax.Dense(1, W, B)),
    "myrtle": _myrtle,
    "resnet": lambda: _resnet((2, 2, 2), norm=False),
    "resnet_norm": lambda: _resnet((2, 2, 2), norm=True),
    "wide_resnet": lambda: _resnet((2, 2, 2), norm=False),
    "graph_network": _graph,
}


def measure(question: dict) -> dict:
    """As `architectures_ours.measure`, compiled as a whole."""
    name, shape = question["net"], question["shape"]
    if name not in NETWORKS:
        return {"error": "has no such layers"}
    rng = np.random.default_rng(0)
    x = rng.normal(size=(question["n"], *shape)).astype(np.float32)
    kernel, extra = NETWORKS[name]()[2], {}
    if name == "graph_network":
        edges = rng.random((len(x), shape[0], shape[0])) < 0.15
        graph = (edges | edges.transpose(0, 2, 1) | np.eye(shape[0], dtype=bool)).astype(np.float32)
        extra = {"pattern": (graph / graph.sum(1, keepdims=True),) * 2}
    if len(shape) > 2 and len(x) > 4:
        run = nt.batch(lambda a, b, get: kernel(a, b, get), batch_size=4, device_count=0)
        call = lambda: jax.block_until_ready(run(x[: len(x) // 4 * 4], None, ("nngp", "ntk")))
    else:
        jitted = jax.jit(lambda a: kernel(a, a, ("nngp", "ntk"), **extra))
        call = lambda: jax.block_until_ready(jitted(x))
    first = timed(call)
    return {"first": first, "next": [timed(call) for _ in range(question["repeats"])], "peak": peak_bytes()}


if __name__ == "__main__":
    serve({"measure": measure})
