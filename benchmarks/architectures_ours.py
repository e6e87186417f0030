"""everwide's side of `architectures.py`."""

import time

from protocol import peak_bytes, serve, timed


def network(name: str):
    """By its name in `architectures.WORK`."""
    import everwide as ew

    a = ew.architectures
    special = {
        "mlp_tanh": lambda: a.mlp(activation=ew.Tanh()),
        "resnet_norm": lambda: a.resnet(stages=(2, 2, 2), norm=ew.LayerNorm()),
        "resnet": lambda: a.resnet(stages=(2, 2, 2)),
        "wide_resnet": lambda: a.wide_resnet(depth=16),
        "vit": lambda: a.vit(depth=4, activation=ew.Gelu()),
        "mlp_mixer": lambda: a.mlp_mixer(depth=4),
        "gpt": lambda: a.gpt(1000, 1, length=128, depth=4),
        "recurrent_network": lambda: a.recurrent_network(activation=ew.Erf(), pooled=True),
    }
    return special.get(name, getattr(a, name, None))()


def inputs(name: str, n: int, shape: list[int]):
    """Random examples, in float32; tokens and graphs where the network reads them."""
    import numpy as np

    import everwide as ew

    rng = np.random.default_rng(0)
    if name == "gpt":
        return rng.integers(0, 1000, (n, *shape)).astype(np.float32)
    x = rng.normal(size=(n, *shape)).astype(np.float32)
    if name == "graph_network":
        edges = rng.random((n, shape[0], shape[0])) < 0.15
        graph = (edges | edges.transpose(0, 2, 1) | np.eye(shape[0], dtype=bool)).astype(np.float32)
        return ew.Inputs(x, graph=graph / graph.sum(1, keepdims=True))
    return x


def measure(question: dict) -> dict:
    """The first call, with compilation; the next ones; the largest size of the process; the floor."""
    import everwide as ew

    net = network(question["net"])
    x = inputs(question["net"], question["n"], question["shape"])
    before = time.process_time()
    first = timed(lambda: ew.gram(net, x))
    processor = time.process_time() - before
    found = [timed(lambda: ew.gram(net, x)) for _ in range(question["repeats"])]
    peak = peak_bytes()
    return {"first": first, "first_processor": processor, "next": found, "peak": peak, "floor": _floor(net, x)}


def _floor(net, x) -> float:
    """Seconds of the arithmetic of half of the pairs, at the rate of a product of matrices."""
    import jax
    import jax.numpy as jnp

    import everwide as ew

    rows = x if isinstance(x, ew.Inputs) else ew.Inputs(x)
    few = jax.tree.map(lambda a: jnp.asarray(a[:2]), rows)
    kernel = ew.Infinite(net, rows.x.shape[1:]).quick()
    counted = jax.jit(kernel.block).lower(few, few).compile().cost_analysis()
    pairs = len(rows.x) * (len(rows.x) + 1) / 2
    return counted["flops"] / 4 * pairs / _rate()


def _rate(size: int = 1500) -> float:
    import jax
    import jax.numpy as jnp

    a = jnp.ones((size, size))
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(a))
    best = min(_seconds(lambda: jax.block_until_ready(product(a))) for _ in range(5))
    return 2 * size**3 / best


def _seconds(fn) -> float:
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


if __name__ == "__main__":
    serve({"measure": measure})
