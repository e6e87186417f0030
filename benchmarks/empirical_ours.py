"""everwide, and naive Jacobians in JAX: started by `empirical.py` with the project's Python."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from empirical_models import MODELS
from empirical_work import examples, parameters
from protocol import peak_bytes, serve, timed, versions

PACKAGES = ("everwide", "jax", "jaxlib", "numpy")


def naive(f: Callable, outputs: str) -> Callable:
    """All Jacobians, and their products."""

    @jax.jit
    def kernel(params, x):
        jacobians = jax.tree.leaves(jax.vmap(jax.jacrev(f), (None, 0))(params, x))
        flat = [j.reshape(*j.shape[:2], -1) for j in jacobians]
        if outputs == "full":
            return sum(jnp.einsum("nap,mbp->nmab", j, j) for j in flat)
        return sum(jnp.einsum("nap,map->nm", j, j) for j in flat) / flat[0].shape[1]

    return lambda params, x: np.asarray(kernel(params, x))


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], np.ndarray] = lambda: np.zeros(0)

    def prepare(self, question: dict) -> dict:
        """Compile, and run once, untimed."""
        f, outputs = MODELS[question["model"]], question["outputs"]
        params = jax.tree.map(jnp.asarray, parameters(question["model"]))
        x = examples(question["model"], question["n"])
        if question["how"] == "naive":
            kernel = naive(f, outputs)
            self.run = lambda: kernel(params, x)
        else:
            import everwide.empirical as emp

            self.run = lambda: emp.empirical_ntk(f, params, x, outputs=outputs)
        return {"sample": [float(v) for v in self.run()[0, 1].ravel()]}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


if __name__ == "__main__":
    session = Session()
    serve({"prepare": session.prepare, "time": session.time, "facts": lambda _: versions(PACKAGES)})
