"""How gradient flow comes to the largest margin: like the logarithm of time."""

from typing import Any, NamedTuple

import numpy as np
import scipy.integrate
from jaxtyping import Float

from ..._checks import InputError, finite_array
from ._margin import Features, MaxMargin, max_margin

_EARLIEST = -500.0
_FAR = 40.0  # from here on log(1 + e^-f) is e^-f


class MarginTrajectory(NamedTuple):
    """Made by `margin_trajectory`."""

    coefficients: Float[np.ndarray, "times n"]
    outputs: Float[np.ndarray, "times n"]
    margins: Float[np.ndarray, " times"]
    direction_errors: Float[np.ndarray, " times"]
    log_losses: Float[np.ndarray, " times"]
    asymptotes: Float[np.ndarray, "times s"]
    limit: MaxMargin


def margin_trajectory(kernel: Any, y: Any, log_times: Any, *, logistic: bool = True) -> MarginTrajectory:
    """Gradient flow from 0 on separable data, to times that no training sees: `w(t) = w_hat log(t) + w_tilde + o(1)`.

    `w_hat` is the solution of the largest margin. The flow is integrated in the logarithm of time, in the directions
    that the kernel has. The direction comes near that of `w_hat` like `1 / log(t)`, the loss falls like `1 / t`, and
    outputs of support vectors grow as `log(t) - log(n a)`, of their multipliers `a`.

    Args:
        kernel: `(n, n)`, of the training rows; of linear functions `x @ x.T`.
        y: `(n,)`, -1 or 1.
        log_times: logarithms of times, `(times,)`. Time is that of the mean loss.
        logistic: the loss `log(1 + exp(-y f))`; otherwise `exp(-y f)`.

    Returns:
        For every time, `coefficients` of the training rows; `outputs` there; `margins`: the smallest `y f / |w|`, which
        comes to `limit.margin`; `direction_errors`: `|w / |w| - w_hat / |w_hat||`; `log_losses`: logarithms of the mean
        loss; `asymptotes`: `y f` of the support vectors as theory has it for large times. `limit`: what `max_margin`
        returns.

    >>> import numpy as np
    >>> from everwide.theory import implicit_bias
    >>> x = np.array([[2.0, 0.0], [3.0, 5.0], [-4.0, 1.0]])
    >>> run = implicit_bias.margin_trajectory(x @ x.T, [1, 1, -1], [10.0, 100.0, 1000.0])
    >>> (run.margins / run.limit.margin).round(3), run.outputs[-1, :1].round(2), run.asymptotes[-1].round(2)
    (array([0.997, 1.   , 1.   ]), array([1000.29]), array([1000.29]))

    Soudry et al. 2018, The implicit bias of gradient descent on separable data.
    """
    logs, features, limit = finite_array(log_times, "log_times"), Features.of(kernel, y), max_margin(kernel, y)
    if logs.ndim != 1 or logs.min() < _EARLIEST:
        raise InputError(f"log_times={log_times!r}: expected (times,), from {_EARLIEST:g} on: nothing moved before.")
    weights = _integrated(features.signed, logs, logistic)
    held = features.signed @ weights.T
    sizes, best = np.linalg.norm(weights, axis=1), features.rows.T @ limit.coefficients * limit.margin
    losses = np.where(held > _FAR, -held, np.log(np.logaddexp(0, -np.minimum(held, _FAR)))) if logistic else -held
    return MarginTrajectory(
        weights @ features.combinations.T,
        features.labels * held.T,
        held.min(0) / sizes,
        np.linalg.norm(weights / sizes[:, None] - best, axis=1),
        np.logaddexp.reduce(losses, 0) - np.log(len(held)),
        logs[:, None] - np.log(len(held) * limit.multipliers[limit.support]),
        limit,
    )


def _integrated(
    signed: Float[np.ndarray, "n r"], logs: Float[np.ndarray, " times"], logistic: bool
) -> Float[np.ndarray, "times r"]:
    """Weights at times `t`, by `s = log(1 + t)`, which begins at 0 as time does."""
    clock, places = np.unique(np.logaddexp(0, logs), return_inverse=True)
    unit = float(np.linalg.norm(signed, axis=1).max())
    z, pace = signed / unit, unit**2 / len(signed)  # of rows of length 1: weights are of the size of outputs

    def pulls(s: float, weights: np.ndarray) -> np.ndarray:
        held = z @ weights
        return pace * np.exp(s - (np.logaddexp(0, held) if logistic else held))

    def velocity(s: float, weights: np.ndarray) -> np.ndarray:
        return z.T @ pulls(s, weights)

    def slope(s: float, weights: np.ndarray) -> np.ndarray:
        bend = np.exp(-np.logaddexp(0, -z @ weights)) if logistic else np.ones(len(z))
        return -(z.T * (bend * pulls(s, weights))) @ z

    course = scipy.integrate.solve_ivp(
        velocity, (0.0, clock[-1]), np.zeros(z.shape[1]), "Radau", clock, rtol=1e-9, atol=1e-10, jac=slope
    )
    if not course.success:
        raise InputError(f"margin_trajectory: the flow could not be integrated ({course.message}). Scale the kernel.")
    return course.y.T[places] / unit
