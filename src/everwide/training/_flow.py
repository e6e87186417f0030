"""Gradient flow of any loss, in continuous time."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import finite_array, positive, share
from .._losses import AbstractLoss, Loss, as_loss
from ..spectral import gradient_flow
from ._kernels import ALL, AbstractTrainKernel, as_kernel
from ._setup import data_of, predicted


class Flow(NamedTuple):
    """Outputs along gradient flow: `f(x) = f0(x) + K(x, X) coefficients` at each of the `times`.

    - `coefficients`, `outputs`: `(times, n, k)`; `loss`: `(times,)`, the mean over the training rows.
    - `stopped`: the time at which the loss fell below `until`, or `None`. Later times repeat that state.

    >>> import everwide.training as tr, numpy as np
    >>> flow = tr.kernel_flow(np.eye(2), [1.0, 3.0], [0.0, 1.0], loss=tr.Mse())
    >>> flow.predict(np.array([[1.0, 0.0]]))[1].round(6)
    array([[0.393469]])
    """

    times: Float[np.ndarray, " times"]
    coefficients: Float[np.ndarray, "times n k"]
    outputs: Float[np.ndarray, "times n k"]
    loss: Float[np.ndarray, " times"]
    stopped: float | None

    def predict(self, k_test_train: Any, f0: Any = None) -> np.ndarray:
        """Outputs `(times, m, k)` at other rows."""
        return predicted(self.coefficients, k_test_train, f0)


def kernel_flow(
    kernel: Any,
    y: Any,
    times: Any,
    *,
    loss: Loss,
    f0: Any = None,
    rate: float = 1.0,
    momentum: float | None = None,
    outputs: int | None = None,
    until: float | None = None,
    tolerance: float = 1e-8,
    max_steps: int = 100_000,
) -> Flow:
    """Train by gradient flow `df/dt = -rate K grad L(f)` of the mean loss `L`, by an adaptive solver in float64.

    On the squared loss `Regression` has the closed form. Needs the extra `train` (diffrax).

    Args:
        kernel: as in `train`.
        y: targets.
        times: ascending, from 0. With `rate=1` they are times of the flow; otherwise steps of that rate.
        loss: as in `train`.
        f0: outputs before training; 0 if not given.
        rate: of a step, where `times` count steps.
        momentum: `f'' + (1 - momentum) / sqrt(rate) f' = -K grad L`, at `sqrt(rate) * times`: momentum for small rates.
        outputs: their number, unless `y` tells.
        until: stop where the mean loss over the rows falls below this.
        tolerance: of the solver, relative.
        max_steps: of the solver; a `RuntimeError` says that it took them before the last time.

    Returns:
        `outputs`, `coefficients` and the mean `loss` at each of `times`; `stopped`: when the loss fell below `until`.

    >>> import everwide.training as tr, numpy as np
    >>> flow = tr.kernel_flow(np.eye(2), [0, 1], [0.0, 10.0, 100.0], loss=tr.SoftmaxCrossEntropy(), until=0.2)
    >>> flow.loss.round(4), round(flow.stopped, 2)
    (array([0.6931, 0.2   , 0.2   ]), 5.02)
    """
    rows, law = as_kernel(kernel), as_loss(loss)
    moments = finite_array(np.atleast_1d(gradient_flow(times).time), "times")
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda a: np.asarray(a, np.float64) if eqx.is_inexact_array(a) else a, rows)
        problem = _problem(wide, y, law, f0, outputs, rate, momentum)
        return _solve(problem, moments, until, tolerance, max_steps)


class Problem(eqx.Module):
    """The right-hand side, in coefficients: `(a,)` without momentum, `(a, b)` with it."""

    kernel: AbstractTrainKernel
    y: Array
    f0: Float[Array, "n k"]
    loss: AbstractLoss
    rate: float = eqx.field(static=True)
    friction: float | None = eqx.field(static=True)

    def outputs(self, a: Array) -> Array:
        """At the training rows."""
        return self.f0 + self.kernel.product(ALL, a.T).T

    def mean_loss(self, a: Array) -> Array:
        """Over the training rows."""
        return jnp.mean(jax.vmap(self.loss)(self.outputs(a), self.y))

    def slope(self, t: Any, state: Any, args: Any) -> Any:
        """The derivative of the state in time."""
        force = -jax.vmap(jax.grad(self.loss))(self.outputs(state[0]), self.y) / len(self.f0)
        return (force,) if self.friction is None else (state[1], force - self.friction * state[1])

    def begin(self) -> Any:
        """At rest, at the initial function."""
        zero = jnp.zeros_like(self.f0)
        return (zero,) if self.friction is None else (zero, zero)

    @property
    def unit(self) -> float:
        """The time of the equation for each unit of the time that was asked for."""
        return self.rate if self.friction is None else self.rate**0.5


def _problem(kernel, y, loss: AbstractLoss, f0, outputs, rate, momentum) -> Problem:
    data = data_of(loss, y, f0, outputs, kernel.rows, np.dtype(np.float64))
    rate = positive(rate, "rate")
    friction = None if momentum is None else (1 - share(momentum, "momentum")) / rate**0.5
    return Problem(kernel, jnp.asarray(data.y), jnp.asarray(data.f0), loss, rate, friction)


def _solve(problem: Problem, times: np.ndarray, until: float | None, tolerance, max_steps) -> Flow:
    scaled = times * problem.unit
    if until is not None and float(problem.mean_loss(jnp.zeros_like(problem.f0))) <= until:
        at_rest = _solve(problem, np.zeros_like(times), None, tolerance, max_steps)
        return at_rest._replace(times=times, stopped=0.0)
    solution, stopped = _integrated(problem, scaled, until, tolerance, max_steps)
    if solution is None:
        raise RuntimeError(
            f"The solver took {max_steps} steps without reaching the time {times[-1]:g}, or failed: the problem is "
            "stiff. Ask for earlier times, loosen the tolerance, or raise max_steps; Regression has the squared loss."
        )
    saved, stop = (np.asarray(state[0]) for state in solution)
    reached = saved if stopped is None else np.where((scaled <= stopped)[:, None, None], saved, stop[-1])
    look = jax.jit(jax.vmap(lambda one: (problem.outputs(one), problem.mean_loss(one))))
    outputs, losses = (np.asarray(v) for v in look(jnp.asarray(reached)))
    return Flow(times, reached, outputs, losses, None if stopped is None else stopped / problem.unit)


def _integrated(problem: Problem, times: np.ndarray, until, tolerance, max_steps) -> tuple[Any, float | None]:
    """States at the times and at the end, and where an event ended it; no states where the solver gave up."""
    try:
        import diffrax
        import optimistix
    except ImportError as fault:
        raise ImportError("kernel_flow needs diffrax: pip install 'everwide[train]'.") from fault

    def gap(t: Any, y: Any, args: Any, **_: Any) -> Array:  # diffrax names the arguments
        return problem.mean_loss(y[0]) - until

    last = max(float(times[-1]), np.finfo(np.float64).tiny)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(problem.slope),
        diffrax.Dopri8(),
        0.0,
        last,
        None,
        problem.begin(),
        saveat=diffrax.SaveAt(
            subs=[diffrax.SubSaveAt(ts=jnp.asarray(np.minimum(times, last))), diffrax.SubSaveAt(t1=True)]
        ),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance / 100),
        max_steps=max_steps,
        event=None if until is None else diffrax.Event(gap, optimistix.Newton(1e-6, 1e-9)),
        throw=False,
    )
    if bool(solution.result == diffrax.RESULTS.event_occurred):
        assert solution.ts is not None
        return solution.ys, float(solution.ts[1][-1])
    return (solution.ys if bool(solution.result == diffrax.RESULTS.successful) else None), None
