"""The incumbent's side: started by `run.py` with the Python of an environment that holds neural-tangents."""

from collections.abc import Callable

import jax
import neural_tangents as nt
import numpy as np
from neural_tangents import stax
from protocol import peak_bytes, serve, timed, versions
from work import data

BOTH = ("nngp", "ntk")
PACKAGES = ("neural-tangents", "jax", "jaxlib", "numpy", "scipy")


def kernel_function(spec: dict):
    """The kernel function of a `work.Net`; widths do not matter in the limit."""
    activation = getattr(stax, spec["activation"])
    hidden = [layer for _ in range(spec["depth"]) for layer in (_affine(spec["end"]), activation())]
    end = [getattr(stax, spec["end"])()] if spec["end"] else []
    return stax.serial(*hidden, *end, stax.Dense(1))[2]


def _affine(end: str):
    return stax.Conv(1, (3, 3), padding="SAME", W_std=2**0.5) if end else stax.Dense(1, 2**0.5)


def runner(spec: dict, how: str) -> Callable:
    """`x -> (nngp, ntk)`, symmetric request."""
    kernel = kernel_function(spec)
    if how.startswith("batch"):
        batched = nt.batch(kernel, batch_size=int(how.split()[1]), device_count=0)  # compiles by itself
        return lambda x: batched(x, None, BOTH)
    both = lambda x: kernel(x, None, BOTH)
    return jax.jit(both) if how == "jit" else both


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], object] = lambda: None

    def prepare(self, question: dict) -> dict:
        """Build the kernel function, compile, and run once, untimed."""
        found = self._start(question, data(question["n"], question["shape"]))
        return {"sample": [float(found.nngp[0, 1]), float(found.ntk[0, 1])]}

    def kernels(self, question: dict) -> dict:
        """For `accuracy.py`: both kernels of given rows, through files."""
        found = self._start(question, np.load(question["rows"]))
        np.savez(question["out"], nngp=np.asarray(found.nngp), ntk=np.asarray(found.ntk))
        return {}

    def _start(self, question: dict, rows: np.ndarray):
        jax.config.update("jax_enable_x64", question["dtype"] == "float64")
        x, fn = jax.numpy.asarray(rows.astype(question["dtype"])), runner(question["net"], question["how"])
        self.run = lambda: jax.block_until_ready(fn(x))
        return self.run()

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


if __name__ == "__main__":
    session = Session()
    serve(
        {
            "prepare": session.prepare,
            "kernels": session.kernels,
            "time": session.time,
            "facts": lambda _: versions(PACKAGES),
        }
    )
