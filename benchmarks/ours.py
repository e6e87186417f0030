"""everwide's side: started by `run.py` with the project's Python."""

import json
import sys
from collections.abc import Callable

from protocol import peak_bytes, serve, timed, versions
from work import data

PACKAGES = ("everwide", "jax", "jaxlib", "numpy", "numba")


def network(spec: dict):
    """The network of a `work.Net`."""
    import everwide as ew

    activation = getattr(ew, spec["activation"])
    hidden = [layer for _ in range(spec["depth"]) for layer in (_affine(spec["end"]), activation())]
    end = [getattr(ew, spec["end"])()] if spec["end"] else []
    return ew.Serial(*hidden, *end, ew.Dense())


def _affine(end: str):
    import everwide as ew

    return ew.Conv((3, 3), w_std=2**0.5) if end else ew.Dense(w_std=2**0.5)


def floor(x) -> Callable[[], object]:
    """Half a GEMM and one write of both results, the least that a symmetric dense kernel costs."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    x, n = jnp.asarray(x), len(x)
    gemm = jax.jit(lambda a: a @ a.T)
    write = lambda: [np.full((n, n), 1, np.float32) for _ in range(2)]
    product = lambda: jax.block_until_ready(gemm(x))
    product()
    return lambda: timed(product) / 2 + timed(write)


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], object] = lambda: None
        self.floor: Callable[[], float] = lambda: 0.0

    def prepare(self, question: dict) -> dict:
        """Build the network, compile, and run once, untimed."""
        import everwide as ew

        x, net = data(question["n"], question["shape"]), network(question["net"])
        self.run = lambda: ew.gram(net, x)
        found = self.run()
        return {"sample": [float(found.nngp[0, 1]), float(found.ntk[0, 1])]}

    def prepare_floor(self, question: dict) -> dict:
        """The same data, no kernel."""
        self.floor = floor(data(question["n"], question["shape"]))
        return {}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}

    def time_floor(self, _: dict) -> dict:
        """One repetition of the floor."""
        return {"seconds": self.floor()}


def first_kernel(question: dict) -> None:
    """For the cold start: everything from the import to the first kernel, then a line."""
    import everwide as ew

    ew.gram(network(question["net"]), data(question["n"], question["shape"]))
    print("done", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        first_kernel(json.loads(sys.argv[1]))
    else:
        session = Session()
        answers = {name: getattr(session, name) for name in ("prepare", "prepare_floor", "time", "time_floor")}
        serve({**answers, "facts": lambda _: versions(PACKAGES)})
