"""everwide, and the floor of its steps: started by `training.py`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from protocol import peak_bytes, serve, timed, versions
from training_work import TIMES, closed_problem, step_problem

from everwide.spectral import gradient_flow
from everwide.training import AdamStar, Regression, SoftmaxCrossEntropy, train

PACKAGES = ("everwide", "jax", "jaxlib", "numpy", "scipy")


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], Any] = lambda: None

    def prepare(self, question: dict) -> dict:
        """Compile, and run once, untimed."""
        make = {"whole": _closed, "again": _closed, "steps": _steps, "floor": _floor}[question["what"]]
        self.run = make(question)
        return {"sample": [float(v) for v in np.ravel(self.run())[-10:]]}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


def _closed(question: dict) -> Callable[[], np.ndarray]:
    kernel, cross, y = closed_problem(**question["size"])
    flow = gradient_flow(TIMES)

    def ask(fit: Regression) -> np.ndarray:
        fit.train(flow)
        return fit.predict(cross, flow)[-1, 0]

    fitted = Regression(kernel, y)
    return (lambda: ask(Regression(kernel, y))) if question["what"] == "whole" else (lambda: ask(fitted))


def _steps(question: dict) -> Callable[[], np.ndarray]:
    kernel, labels, batches = step_problem(**question["size"])
    optimizer, k = AdamStar(0.01), question["size"]["outputs"]
    run = lambda: train(kernel, labels, loss=SoftmaxCrossEntropy(), optimizer=optimizer, batches=batches, outputs=k)
    return lambda: run().coefficients


def _floor(question: dict) -> Callable[[], np.ndarray]:
    """Read the kernel rows of every batch once."""
    kernel, _, batches = (jnp.asarray(a) for a in step_problem(**question["size"]))
    add = lambda total, batch: (total + jnp.sum(kernel[batch], 0), None)
    read = jax.jit(lambda b: jax.lax.scan(add, jnp.zeros(kernel.shape[1], kernel.dtype), b)[0])
    return lambda: np.asarray(read(batches))


if __name__ == "__main__":
    session = Session()
    serve({"prepare": session.prepare, "time": session.time, "facts": lambda _: versions(PACKAGES)})
