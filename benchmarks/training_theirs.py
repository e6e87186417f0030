"""neural-tangents: started by `training.py` with the Python of an environment that holds it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
from protocol import peak_bytes, serve, timed, versions
from training_work import TIMES, closed_problem

PACKAGES = ("neural-tangents", "jax", "jaxlib", "numpy", "scipy")


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], Any] = lambda: None

    def prepare(self, question: dict) -> dict:
        """Compile, and run once, untimed."""
        jax.config.update("jax_enable_x64", question["dtype"] == "float64")
        kernel, cross, y = (jnp.asarray(a, question["dtype"]) for a in closed_problem(**question["size"]))
        zero, zero_test = jnp.zeros_like(y), jnp.zeros((len(cross), y.shape[1]), y.dtype)
        times = jnp.asarray(TIMES * y.shape[1], question["dtype"])  # their loss is a mean over the outputs too

        def fit() -> Callable:
            return nt.predict.gradient_descent_mse(kernel, y)

        def ask(predict: Callable) -> np.ndarray:
            train, test = predict(times, zero, zero_test, cross)
            jax.block_until_ready(train)
            return np.asarray(test)

        fitted = fit()
        self.run = {"whole": lambda: ask(fit()), "again": lambda: ask(fitted)}[question["what"]]
        return {"sample": [float(v) for v in self.run()[-1, 0]]}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


if __name__ == "__main__":
    session = Session()
    serve({"prepare": session.prepare, "time": session.time, "facts": lambda _: versions(PACKAGES)})
