"""Tangent kernels of operators: residuals of differential equations, boundary and data terms, in blocks."""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._checks import InputError
from .._engine import Batches, Progress, Remembered, as_batch, count
from ..spectral import Spectrum
from ._factors import Job, Outputs
from ._models import Function, Model, TorchModel, as_model
from ._ntk import dtype_of, tangents_of
from ._refusals import output_for_one, refuse_not_finite
from ._tiles import kernels
from ._trace import JaxTangents, Plan, paired

_paired = Remembered[tuple[Plan, Plan]](32)  # of two plans: a loss that is trained is looked at again and again


@dataclass(frozen=True)
class NtkBlocks:
    """The tangent kernels between the terms of a loss. Made by `ntk_blocks_of`."""

    blocks: dict[tuple[str, str], Float[np.ndarray, "rows columns"]]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the terms."""
        return tuple(dict.fromkeys(name for name, _ in self.blocks))

    @property
    def matrix(self) -> Float[np.ndarray, "all all"]:
        """All blocks, one after the other."""
        return np.block([[self.blocks[a, b] for b in self.names] for a in self.names])

    @property
    def traces(self) -> dict[str, float]:
        """Of the kernel of every term with itself."""
        return {name: float(np.trace(self.blocks[name, name], dtype=np.float64)) for name in self.names}

    @property
    def weights(self) -> dict[str, float]:
        """With which all terms have kernels of the same trace: all traces together over that of the term."""
        traces = self.traces
        for name, trace in traces.items():
            if trace <= 0:
                raise InputError(f"The term {name!r} does not depend on the parameters: no weight makes it learn.")
        return {name: sum(traces.values()) / trace for name, trace in traces.items()}

    @property
    def spectra(self) -> dict[str, Float[np.ndarray, " rows"]]:
        """The eigenvalues of the kernel of every term with itself, the largest first."""
        spectra = {name: Spectrum.of(self.blocks[name, name], what=f"The kernel of {name!r}") for name in self.names}
        return {name: spectrum.values[::-1] for name, spectrum in spectra.items()}


@dataclass(frozen=True)
class Single:
    """A combination of the outputs of a function, as a function of an example and the weights: one number."""

    f: Function

    def __call__(self, params: Any, weighted: tuple[Any, Any]) -> Any:
        one, weights = weighted
        y = jnp.ravel(self.f(params, one))
        return jnp.sum(y * weights.astype(y.dtype))


class Term(NamedTuple):
    """Rows of a kernel: every output of a function at every point."""

    tangents: JaxTangents
    rows: Any
    n: int


def ntk_blocks_of(
    terms: Mapping[str, Callable[[Any, Any], Any]],
    params: Any,
    points: Mapping[str, Any],
    *,
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> NtkBlocks:
    """The tangent kernel of several functions of the same parameters, such as the terms of a PINN, in blocks; exact.

    A term is anything that is computed at one point: the residual of a differential equation, a boundary value, the
    difference to a measurement. Derivatives of the network with respect to its inputs may be taken inside, by
    `jax.grad`, `jax.jvp` or `jax.hessian`: the kernel is still made of the factors of the weights.

    Args:
        terms: Functions `f(params, point)` of one point that return a scalar or a vector, by their names.
        params: A tree of floating-point arrays.
        points: For every term, an array or a tree of arrays; points come first.
        memory: Bytes that may be used; `None`: half of what is free.
        progress: Called after every block.

    Returns:
        `blocks[a, b]`: the kernel of two terms, with a row for each point and output of `a` (outputs of a point are
        neighbours) and a column for each of `b`. `matrix`: all of them. `traces` and `spectra` (eigenvalues, largest
        first) of each term: how fast it learns alone. `weights`: of the terms of the loss, so that all have the same
        trace; for a loss that adds up squares. Of means over `n` points, multiply them by `n`, and divide them by
        what you like: only ratios matter.

    >>> import everwide.empirical as emp, jax, jax.numpy as jnp
    >>> u = lambda params, x: jnp.tanh(x * params["w"] + params["b"]) @ params["v"]
    >>> terms = {"pde": lambda p, x: jax.grad(jax.grad(u, 1), 1)(p, x) + u(p, x), "boundary": u}
    >>> params = {"w": jnp.ones(8), "b": jnp.linspace(-1, 1, 8), "v": jnp.ones(8)}
    >>> kernel = emp.ntk_blocks_of(terms, params, {"pde": jnp.linspace(0, 1, 5), "boundary": jnp.array([0.0, 1.0])})
    >>> kernel.blocks["pde", "boundary"].shape, sorted(kernel.weights)
    ((5, 2), ['boundary', 'pde'])

    Wang, Yu, Perdikaris 2022, "When and why PINNs fail to train: a neural tangent kernel perspective".

    """
    _check(terms, params, points)
    dtype, start = dtype_of(as_model(next(iter(terms.values())), params)), time.perf_counter()
    names, blocks = tuple(terms), {}
    pairs = list(itertools.combinations_with_replacement(names, 2))
    with jax.enable_x64(True) if dtype == np.float64 else contextlib.nullcontext():
        made = {name: _term(name, f, params, points[name]) for name, f in terms.items()}
        for done, (a, b) in enumerate(pairs, start=1):
            blocks[a, b] = _block(made[a], None if a == b else made[b], dtype, memory)
            blocks[b, a] = blocks[a, b].T
            refuse_not_finite({a: blocks[a, b]}, params)
            if progress is not None:
                progress(Progress(done, len(pairs), time.perf_counter() - start))
    return NtkBlocks({(a, b): blocks[a, b] for a in names for b in names})


def _check(terms: Any, params: Any, points: Any) -> None:
    for what, given in (("terms", terms), ("points", points)):
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"{what} is {type(given).__name__}: expected a dictionary, such as {{'pde': ...}}.")
    if set(terms) != set(points):
        raise InputError(f"terms has {sorted(terms)}, points has {sorted(points)}: expected the same names in both.")
    if params is None:
        raise InputError("params is None: terms are functions f(params, point) of common parameters. Pass these.")


def _term(name: str, f: Any, params: Any, points: Any) -> Term:
    """A term whose rows are single numbers."""
    x, model = as_batch(points, f"points[{name!r}]"), as_model(f, params)
    assert not isinstance(model, TorchModel)  # which have no params
    out = output_for_one(model.f, model.params, jax.tree.map(lambda a: jnp.asarray(a[0]), x))
    shape = getattr(out, "shape", None)
    if shape is None or len(shape) > 1 or 0 in shape or not jnp.issubdtype(out.dtype, jnp.floating):
        came = type(out).__name__ if shape is None else f"{out.dtype} of shape {shape}"
        raise InputError(
            f"The term {name!r} returns {came} for one point, expected a scalar or a vector of real numbers."
        )
    n, k = count(x), math.prod(shape)
    weights = np.tile(np.eye(k, dtype=out.dtype), (n, 1))
    rows = (jax.tree.map(lambda a: np.repeat(a, k, axis=0), x), weights)
    tangents = tangents_of(Model(Single(model.f), model.params), rows)
    assert isinstance(tangents, JaxTangents)
    return Term(tangents, rows, n * k)


def _block(a: Term, b: Term | None, dtype: np.dtype, memory: int | None) -> np.ndarray:
    """The kernel of two terms, or of one with itself."""
    groups = tuple((name, "") for name in a.tangents.names)
    if b is None:
        job = Job(a.n, a.n, Outputs.SUM, groups)
        return kernels(a.tangents, Batches(a.rows), job, dtype=dtype, memory=memory)[""]
    job = Job(a.n, b.n, Outputs.SUM, groups)
    plans = a.tangents.plan, b.tangents.plan
    left, right = _paired.get(plans, lambda: paired(*plans))
    columns = JaxTangents(b.tangents.leaves, right)
    rows, batches = JaxTangents(a.tangents.leaves, left), Batches(a.rows, b.rows)
    return kernels(rows, batches, job, dtype=dtype, memory=memory, columns=columns)[""]
