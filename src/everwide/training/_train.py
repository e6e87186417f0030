"""Train an infinitely wide network on any loss, without weights."""

import itertools
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from .._checks import InputError, warn, whole
from .._engine import trusted_filter_jit
from .._losses import AbstractLoss, Loss, as_loss
from ._kernels import ALL, AbstractTrainKernel, Element, MatrixKernel, Start, as_kernel, zero_like
from ._optimizers import AbstractOptimizer, as_optimizer, stepped
from ._setup import DivergenceWarning, chunks, data_of, predicted, warn_if_unstable


class History(NamedTuple):
    """The mean loss over all training rows after some of the steps."""

    steps: tuple[int, ...]
    loss: tuple[float, ...]


class Trained(NamedTuple):
    """An infinitely wide network after training: `f(x) = start * f0(x) + K(x, X) coefficients`.

    - `coefficients`: `(n, k)`. `outputs`: `(n, k)`, at the training rows.
    - `start`: `(k,)`, what decay has left of `f0`: 1 without decay.
    - `steps`: how many were taken. `diverged`: at which step the run diverged, or `None`.
    """

    coefficients: Float[np.ndarray, "n k"]
    outputs: Float[np.ndarray, "n k"]
    start: Float[np.ndarray, " k"]
    history: History
    steps: int
    diverged: int | None

    def predict(self, k_test_train: Any, f0: Any = None) -> np.ndarray:
        """Outputs `(m, k)` at other rows, from their kernel with the training rows and their `f0`."""
        return predicted(self.coefficients, k_test_train, f0, self.start)

    def gradient_norm(self, kernel: Any, y: Any, loss: Loss) -> Float[np.ndarray, " k"]:
        """The norm, for each output, of the gradient of the mean loss in the read-out.

        Where it vanishes, so does the gradient in the features of an infinitely wide network: training them would not
        go on from here.
        """
        matrix = np.asarray(kernel, np.float64)
        targets, _ = as_loss(loss).targets(y, self.outputs.shape[1])
        with jax.enable_x64(True):
            at = jnp.asarray(self.outputs, jnp.float64)
            slope = np.asarray(jax.vmap(jax.grad(as_loss(loss)))(at, jnp.asarray(targets))) / len(targets)
        return np.sqrt(np.maximum(np.sum(slope * (matrix @ slope), 0), 0))


class Run(eqx.Module):
    """What stays the same in a run."""

    kernel: AbstractTrainKernel
    y: Array
    start: Start
    loss: AbstractLoss
    optimizer: AbstractOptimizer

    def step(self, state: "State", batch: Int[Array, " batch"] | None) -> "State":
        """One step; the first one whose outcome is not finite is remembered."""
        gradient, squared_norm = self._gradient(state.here, batch)
        here, memory = stepped(self.optimizer, state.here, gradient, state.memory, squared_norm)
        step = state.step + 1
        fine = jnp.isfinite(jnp.sum(here.values)) | (state.diverged > 0)
        return State(here, memory, step, jnp.where(fine, state.diverged, step))

    def _gradient(self, here: Element, batch: Array | None) -> tuple[Element, Callable[[Element], Array]]:
        at = ALL if batch is None else batch
        outputs = here.values[:, at].T + here.start * self.start.values[at]
        delta = jax.vmap(jax.grad(self.loss))(outputs, self.y[at])
        delta = delta / len(delta)
        none = jnp.zeros_like(here.start)
        placed = delta if batch is None else jnp.zeros_like(here.coefficients).at[batch].add(delta)
        gradient = Element(placed, self.kernel.product(at, delta.T), none)

        def squared_norm(element: Element) -> Array:
            if isinstance(self.kernel, MatrixKernel) and self.kernel.matrix.ndim == 4:
                raise InputError(
                    "AdamStar has a second moment for each output, and this kernel (n, n, k, k) mixes them. Use SGD, "
                    'or a kernel that is the same for all outputs: empirical_ntk(..., outputs="trace").'
                )
            if element is gradient:
                return jnp.sum(delta.T * gradient.values[:, at], 1)  # other rows add nothing
            return self.start.squared_norm(element)

        return gradient, squared_norm

    def mean_loss(self, here: Element) -> Float[Array, ""]:
        """Over all training rows."""
        return jnp.mean(jax.vmap(self.loss)(self.start.outputs(here), self.y))


class State(NamedTuple):
    """What changes from step to step."""

    here: Element
    memory: Any
    step: Int[Array, ""]
    diverged: Int[Array, ""]  # the step that was the first to be not finite, or 0


def train(
    kernel: Any,
    y: Any,
    *,
    loss: Loss,
    optimizer: Any,
    batches: Any = None,
    f0: Any = None,
    steps: int | None = None,
    outputs: int | None = None,
    record: int | Sequence[int] | None = None,
    f0_power: Any = None,
) -> Trained:
    """Train an infinitely wide network: `f(x) = f0(x) + K(x, X) a`, coefficients `a` instead of weights.

    Every step is the step that the network itself would take in its limit, computed exactly.

    Args:
        kernel: `(n, n)`, such as `everwide.ntk(net, x)`; `(n, n, k, k)` of an empirical kernel; or a `FeatureKernel`,
            `FunctionKernel` (never a matrix) or `OperatorKernel`. Its dtype is the precision of the run.
        y: targets.
        loss: one of the losses of this module, or any JAX function `loss(outputs, target)` of a row; the loss of a
            batch is the mean over its rows.
        optimizer: `SGD(...)`, `AdamStar(...)`, or a linear transformation of optax.
        batches: rows of each step, `(steps, batch)` or an iterator of rows; `None` for all rows at every step.
            `minibatches` makes them.
        f0: outputs before training at the training rows, `(n, k)`; 0 if not given.
        steps: how many, where `batches` does not tell.
        outputs: their number `k`, unless `y` tells.
        record: steps after which the loss over all rows is kept in `history`, or the distance between two such steps.
        f0_power: `(k,)`, squared norm of `f0` as a function; only `AdamStar(l2=...)` asks for it.

    Returns:
        `coefficients`, `(n, k)`; `outputs` at the training rows; `history`, with `steps` and `loss`; `predict(cross)`
        for other rows, from their kernel with the training rows. A run that diverges stops at its last finite step,
        with a `DivergenceWarning` that names it.

    >>> import everwide as ew, everwide.training as tr, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> k = ew.ntk(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), x)
    >>> labels = (x[:, 0] > 0).astype(int)
    >>> run = tr.train(k, labels, loss=tr.SoftmaxCrossEntropy(), optimizer=tr.AdamStar(0.1), steps=50, record=25)
    >>> run.coefficients.shape, run.history.steps
    ((20, 2), (0, 25, 50))
    """
    rows = as_kernel(kernel)
    with jax.enable_x64(rows.dtype == np.float64):
        run = _prepared(rows, y, as_loss(loss), as_optimizer(optimizer), f0, outputs, f0_power)
        if batches is None:
            warn_if_unstable(run.kernel, run.loss, run.optimizer)
        return _run(run, batches, steps, record)


def _prepared(
    kernel: AbstractTrainKernel,
    y: Any,
    loss: AbstractLoss,
    optimizer: AbstractOptimizer,
    f0: Any,
    outputs: int | None,
    f0_power: Any,
) -> Run:
    dtype = kernel.dtype
    data = data_of(loss, y, f0, outputs, kernel.rows, dtype)
    power = 0.0 if f0 is None else f0_power
    powers = None if power is None else jnp.broadcast_to(jnp.asarray(power, dtype), data.f0.shape[1:])
    # A rate is an array, so that another one needs no other code.
    optimizer = jax.tree.map(lambda a: jnp.asarray(a, dtype) if isinstance(a, int | float) else a, optimizer)
    on_device = jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, kernel)
    return Run(on_device, jnp.asarray(data.y), Start(jnp.asarray(data.f0), powers), loss, optimizer)


def _run(run: Run, batches: Any, steps: int | None, record: int | Sequence[int] | None) -> Trained:
    if batches is None and steps is None:
        raise InputError("train(batches=None) needs steps=: how often to look at all rows.")
    if steps is not None:
        whole(steps, "steps", 0)
    if isinstance(record, int) and record < 1:
        raise InputError(f"record={record}: expected at least 1 step from one look to the next, or a list of steps.")
    looks = range(0, sys.maxsize, record) if isinstance(record, int) else frozenset(record or ())
    zero = zero_like(run.start)
    here = zero._replace(start=jnp.ones_like(zero.start))
    none = jnp.asarray(0, jnp.int32)
    state = State(here, run.optimizer.transform().init(zero), none, none)
    kept = [(0, float(_loss(run, here)))]
    taken = 0
    pieces = [None] if batches is None else chunks(batches, steps, run.kernel.rows)
    for piece in pieces:
        length = int(steps or 0) if piece is None else len(piece)
        for begin, end in _stretches(taken, taken + length, looks):
            part = None if piece is None else jnp.asarray(piece[begin - taken : end - taken])
            before, state = state, _stretch(run, state, part, end - begin)
            if failed := int(state.diverged):
                fine = failed - 1 - begin
                last = _stretch(run, before, None if part is None else part[:fine], fine) if fine else before
                return _diverged(run, last, kept)
            if end in looks:
                kept.append((end, float(_loss(run, state.here))))
        taken += length
    if kept[-1][0] != taken:
        kept.append((taken, float(_loss(run, state.here))))
    return _trained(run, state, kept)


def _stretches(begin: int, end: int, looks: Collection[int]) -> list[tuple[int, int]]:
    """From look to look."""
    ends = [step for step in range(begin + 1, end + 1) if step in looks or step == end]
    return list(itertools.pairwise([begin, *ends]))


@trusted_filter_jit
def _stretch(run: Run, state: State, batches: Array | None, steps: int) -> State:
    if batches is None:
        return lax.fori_loop(0, steps, lambda _, s: run.step(s, None), state)
    return lax.scan(lambda s, batch: (run.step(s, batch), None), state, batches)[0]


@trusted_filter_jit
def _loss(run: Run, here: Element) -> Array:
    return run.mean_loss(here)


def _trained(run: Run, state: State, kept: list[tuple[int, float]], diverged: int | None = None) -> Trained:
    history = History(tuple(s for s, _ in kept), tuple(value for _, value in kept))
    return Trained(
        np.asarray(state.here.coefficients),
        np.asarray(run.start.outputs(state.here)),
        np.asarray(state.here.start),
        history,
        int(state.step),
        diverged,
    )


def _diverged(run: Run, state: State, kept: list[tuple[int, float]]) -> Trained:
    step = int(state.step) + 1
    warn(
        f"Training diverged at step {step}: outputs are no longer finite. The result is that of step {step - 1}. "
        "Lower the rate (everwide.training.max_learning_rate names the limit for gradient descent).",
        DivergenceWarning,
    )
    return _trained(run, state, kept, diverged=step)
