"""NetKet's kernels of wave functions: started by `empirical.py` with the Python of an environment that holds it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import netket.jax as nkjax
import numpy as np
from empirical_models import MODELS
from empirical_work import examples, parameters
from netket.jax import _ntk as nt
from protocol import peak_bytes, serve, timed, versions

PACKAGES = ("netket", "jax", "jaxlib", "numpy")


def on_the_fly(f: Callable) -> Callable:
    """As `VMC_SR(use_ntk=True, on_the_fly=True)` does, without what follows the kernel."""

    def kernel(params, x):
        real, together = nkjax.tree_to_real(params)

        def parts(real, x):
            y = f(together(real), x)
            return jnp.stack([y.real, y.imag], -1)

        k = nt.empirical_ntk_by_jacobian(f=parts, trace_axes=(), vmap_axes=0)(x, x, real).real
        return k - k.mean(0, keepdims=True) - k.mean(1, keepdims=True) + k.mean((0, 1), keepdims=True)

    return kernel


def by_jacobian(f: Callable) -> Callable:
    """As `VMC_SR(use_ntk=True, on_the_fly=False)` does: the Jacobian, centred, and its product."""

    def kernel(params, x):
        apply = lambda variables, x: f(variables["params"], x)
        j = nkjax.jacobian(apply, params, x, mode="complex", dense=True, center=True)
        return jnp.einsum("nap,mbp->nmab", j, j)

    return kernel


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], np.ndarray] = lambda: np.zeros(0)

    def prepare(self, question: dict) -> dict:
        """Compile, and run once, untimed. NetKet's functions take batches."""
        f = jax.vmap(MODELS[question["model"]], (None, 0))
        kernel = jax.jit((on_the_fly if question["how"] == "on the fly" else by_jacobian)(f))
        params = jax.tree.map(jnp.asarray, parameters(question["model"]))
        x = jnp.asarray(examples(question["model"], question["n"]))
        self.run = lambda: np.asarray(kernel(params, x))
        return {"sample": [float(v) for v in self.run()[0, 1].ravel()]}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


if __name__ == "__main__":
    session = Session()
    serve({"prepare": session.prepare, "time": session.time, "facts": lambda _: versions(PACKAGES)})
