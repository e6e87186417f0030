"""The exact posterior of deep linear networks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..._checks import InputError, positive
from ..._checks import hidden_widths as all_hidden
from ..._engine import as_rows
from ._evidence import Interpolation, interpolate
from ._law import ScaleLaw

_LARGEST = 1e10  # log evidence; differences are good to five digits then


class PosteriorPrediction(NamedTuple):
    """Mean and variance of the outputs at new points, each `(n,)`."""

    mean: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True)
class DeepLinearPosterior:
    """Deep linear networks that interpolate the data. Made by `posterior`.

    `theta = theta* + r u`: `theta` is the interpolant of least norm, `u` is uniform on the unit sphere orthogonal to
    the data, and `r^2` is `variance S / n0` times a chi-square variable; `S` is the squared scale of the hidden layers,
    1 for wide ones. The data speak about `S` through the norm of `theta` alone.
    """

    interpolation: Interpolation
    prior: ScaleLaw

    @property
    def theta(self) -> np.ndarray:
        """The posterior mean of the parameters: the interpolant of least norm."""
        return self.interpolation.theta

    @property
    def log_evidence(self) -> float:
        """`log p(y | x)`."""
        return self.interpolation.log_evidence(self.prior)

    @property
    def effective_depth(self) -> float:
        """`P sum_l 1 / n_l`: near 0 the network is as a wide, shallow one; far above 1 it forgets its prior scale."""
        return self.interpolation.count * sum(1 / width for width in self.prior.widths)

    @property
    def scale_mean(self) -> float:
        """`E[S | data]`."""
        return math.exp(self._log_scale_moment(1))

    @property
    def scale_variance(self) -> float:
        """`Var[S | data]`."""
        return self.scale_mean**2 * math.expm1(self._log_scale_moment(2) - 2 * self._log_scale_moment(1))

    @property
    def squared_norm(self) -> float:
        """`E[|theta|^2 | data]`."""
        data = self.interpolation
        return data.squared_norm + (data.inputs - data.count) * self.weight_variance

    @property
    def weight_variance(self) -> float:
        """The posterior variance of `theta` in every direction that the data leave open."""
        return self.prior.variance * self.scale_mean / self.interpolation.inputs

    def scale_logpdf(self, scale: Any) -> np.ndarray:
        """The log density of `S` given the data."""
        prior, values, data = self.prior.logpdf(scale), np.asarray(scale, np.float64), self.interpolation
        tilt = data.count / 2 * np.log(values) + data.rate(self.prior.variance) / values
        return np.asarray(prior - tilt - self._log_tilted(0))

    def predict(self, x: Any) -> PosteriorPrediction:
        """Mean and variance of the output at each row of `x`."""
        rows = as_rows(x).x.astype(np.float64)
        if rows.shape[1:] != (self.interpolation.inputs,):
            raise InputError(f"x has shape {rows.shape}, expected (n, {self.interpolation.inputs}) as in the data.")
        basis = self.interpolation.rows
        aside = rows - (rows @ basis.T) @ basis
        return PosteriorPrediction(rows @ self.theta, np.sum(aside**2, 1) * self.weight_variance)

    def _log_tilted(self, order: int) -> float:
        data = self.interpolation
        return self.prior.log_tilted(data.count / 2 - order, data.rate(self.prior.variance))

    def _log_scale_moment(self, order: int) -> float:
        evidence = self._log_tilted(0)
        if self.prior.widths and abs(evidence) > _LARGEST:
            raise InputError(
                f"The targets are too large for a w_std of {self.prior.variance**0.5:.6g}: the log evidence is "
                f"{evidence:.3g}, in whose rounding the scale of the layers is lost. Rescale y, or w_std."
            )
        return self._log_tilted(order) - evidence


def posterior(x: Any, y: Any, hidden_widths: Sequence[int], w_std: float = 1.0) -> DeepLinearPosterior:
    """The exact posterior of a deep linear network that interpolates `y`.

    Args:
        x: `(P, n0)`, independent rows.
        y: `(P,)`.
        hidden_widths: one for each hidden layer, narrower than `P` too; none is plain linear regression.
        w_std: weights have variance `w_std^2 / fan_in`.

    Returns:
        `theta`, the mean of the parameters; `log_evidence`, `log p(y | x)`, exact at every width and depth;
        `effective_depth`, `P sum_l 1 / n_l`, how far the hidden layers adapt to the data; `scale_mean`,
        `scale_variance`, `scale_logpdf(scale)` of the squared scale of the hidden layers; `squared_norm`;
        `weight_variance` in directions that the data leave open; `predict(x)`, `mean` and `variance` of outputs.

    >>> import numpy as np
    >>> from everwide.theory import deep_linear
    >>> wide = deep_linear.posterior(np.eye(3, 10), np.ones(3), [10**6])
    >>> round(wide.scale_mean, 4), wide.predict(np.ones((1, 10))).mean
    (1.0, array([3.]))
    >>> deep_linear.posterior(np.eye(3, 10), np.ones(3), [20] * 4).predict(np.eye(10)[[0, 9]]).variance.round(4)
    array([0.    , 0.3271])

    >>> deeper = [deep_linear.posterior(np.eye(3, 10), np.ones(3), [20] * depth).log_evidence for depth in (0, 1, 4)]
    >>> np.round(deeper, 3)
    array([-14.303, -11.103,  -8.668])

    The Meijer G-function of Hanin and Zlokapa, "Bayesian interpolation with deep linear networks" (2023), as an
    integral on its contour of steepest descent.
    """
    law = ScaleLaw(all_hidden(hidden_widths), positive(w_std, "w_std") ** 2)
    result = DeepLinearPosterior(interpolate(x, y), law)
    result.interpolation.log_evidence(result.prior)  # raises where there is none
    return result
