"""everwide, and naive Jacobians in JAX: started by `empirical.py` with the project's Python."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from empirical_models import MODELS, residual, solution
from empirical_work import BOUNDARY, examples, parameters
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


def naive_complex(f: Callable) -> Callable:
    """Real and imaginary parts of the output, by those of the parameters, relative to their mean."""

    @jax.jit
    def kernel(params, x):
        def parts(real, one):
            y = f(jax.tree.map(jax.lax.complex, *real), one)
            return jnp.stack([y.real, y.imag])

        real = jax.tree.map(jnp.real, params), jax.tree.map(jnp.imag, params)
        jacobians = jax.tree.leaves(jax.vmap(jax.jacrev(parts), (None, 0))(real, x))
        flat = [j.reshape(*j.shape[:2], -1) for j in jacobians]
        return sum(jnp.einsum("nap,mbp->nmab", j - j.mean(0), j - j.mean(0)) for j in flat)

    return lambda params, x: np.asarray(kernel(params, x))


def naive_terms(params, x) -> Callable[[], np.ndarray]:
    """The Jacobians of residual and boundary, below each other, and their products."""

    @jax.jit
    def kernel(params, inside, boundary):
        pairs = (residual, inside), (solution, boundary)
        rows = [jax.tree.leaves(jax.vmap(jax.grad(f), (None, 0))(params, points)) for f, points in pairs]
        flat = [jnp.concatenate([j.reshape(len(j), -1) for j in both]) for both in zip(*rows, strict=True)]
        return sum(j @ j.T for j in flat)

    return lambda: np.asarray(kernel(params, x, x[: len(x) // BOUNDARY]))


def kernel_of(question: dict, params, x) -> Callable[[], np.ndarray]:
    """What is timed."""
    f, outputs, is_naive = MODELS[question["model"]], question["outputs"], question["how"] == "naive"
    if is_naive and outputs == "terms":
        return naive_terms(params, x)
    if is_naive:
        kernel = naive_complex(f) if outputs == "complex" else naive(f, outputs)
        return lambda: kernel(params, x)

    import everwide.empirical as emp

    if outputs == "terms":
        points = {"pde": x, "boundary": x[: len(x) // BOUNDARY]}
        return lambda: emp.ntk_blocks_of({"pde": residual, "boundary": solution}, params, points).matrix
    if outputs == "complex":
        return lambda: emp.empirical_ntk(f, params, x, centred=True)
    return lambda: emp.empirical_ntk(f, params, x, outputs=outputs)


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], np.ndarray] = lambda: np.zeros(0)

    def prepare(self, question: dict) -> dict:
        """Compile, and run once, untimed."""
        params = jax.tree.map(jnp.asarray, parameters(question["model"]))
        self.run = kernel_of(question, params, examples(question["model"], question["n"]))
        return {"sample": [float(v) for v in self.run()[0, 1].ravel()]}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


if __name__ == "__main__":
    session = Session()
    serve({"prepare": session.prepare, "time": session.time, "facts": lambda _: versions(PACKAGES)})
