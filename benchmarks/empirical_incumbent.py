"""neural-tangents: started by `empirical.py` with the Python of an environment that holds it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
from empirical_models import MODELS
from empirical_work import examples, parameters
from protocol import peak_bytes, serve, timed, versions

PACKAGES = ("neural-tangents", "jax", "jaxlib", "numpy")


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], np.ndarray] = lambda: np.zeros(0)

    def prepare(self, question: dict) -> dict:
        """Compile, and run once, untimed. The model is written for one example, so it is given a batch of them."""
        f = jax.vmap(MODELS[question["model"]], (None, 0))
        axes, how = () if question["outputs"] == "full" else (-1,), nt.NtkImplementation(question["how"])
        fn = nt.empirical_ntk_fn(f, trace_axes=axes, vmap_axes=0, implementation=how)
        kernel = jax.jit(fn, static_argnums=(1,))
        params = jax.tree_util.tree_map(jnp.asarray, parameters(question["model"]))
        x = jnp.asarray(examples(question["model"], question["n"]))
        self.run = lambda: np.asarray(kernel(x, None, params))
        return {"sample": [float(v) for v in self.run()[0, 1].ravel()]}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


if __name__ == "__main__":
    session = Session()
    serve({"prepare": session.prepare, "time": session.time, "facts": lambda _: versions(PACKAGES)})
