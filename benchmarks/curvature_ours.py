"""everwide's operators: started by `curvature.py` with the project's Python."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from curvature_work import LENGTH, PAIRS, PRODUCTS, SAMPLES, in_a_row, labels
from empirical_models import MODELS
from empirical_work import examples, parameters
from protocol import peak_bytes, serve, timed, versions

from everwide.diagnosis import hessian
from everwide.training import SoftmaxCrossEntropy


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], Any] = lambda: None

    def prepare(self, question: dict) -> dict:
        """Compile, run once, untimed, and give numbers that do not depend on the order of parameters."""
        n, params = question["n"], parameters(question["model"])
        x, y = jnp.asarray(examples(question["model"], n)), labels(n)
        theta = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])

        def operator() -> Any:
            return hessian(MODELS[question["model"]], params, x, y, loss=SoftmaxCrossEntropy())

        ready = operator().prepared()
        work = {
            "20 products": lambda: in_a_row(lambda: np.asarray(ready @ theta)),
            "top 10": lambda: operator().leading(PAIRS, end="magnitude", tolerance=1e-4),
            "trace": lambda: operator().trace(samples=PRODUCTS),
            "density": lambda: operator().density(samples=SAMPLES, length=LENGTH),
        }
        self.run = work[question["work"]]
        result = self.run()
        numbers = {
            "20 products": lambda: [float(theta @ result), float(np.linalg.norm(result))],
            "top 10": lambda: [float(value) for value in result.values],
            "trace": lambda: [result.value, result.error],
            "density": lambda: [float(np.mean(np.sum(result.weights * result.values, 1))) * len(theta)],
        }
        return {"numbers": numbers[question["work"]]()}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


if __name__ == "__main__":
    session = Session()
    packages = ("everwide", "jax", "jaxlib", "numpy")
    serve({"prepare": session.prepare, "time": session.time, "facts": lambda _: versions(packages)})
