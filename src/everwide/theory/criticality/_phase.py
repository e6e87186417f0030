"""Ordered or chaotic: what depth does to the difference of two inputs, for all variances of weights and biases."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ..._checks import InputError
from ..._words import axes
from .._host import Activation, at_least_zero
from .._response import Response
from ._critical_init import VarianceMap, critical_init, settled_correlation
from ._susceptibility import SMALLEST, Values, at_zero, continuous

_CRITICAL = 1e-8
_ON_LINE = 240


@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """Fixed points and depth scales, a row for each `C_b` and a column for each `C_w`: see `phase_diagram`."""

    name: str
    C_w: Float[np.ndarray, "*columns"]
    C_b: Float[np.ndarray, "*rows"]
    K_star: Float[np.ndarray, "*grid"]
    chi_par: Float[np.ndarray, "*grid"]
    chi_perp: Float[np.ndarray, "*grid"]
    correlation: Float[np.ndarray, "*grid"]
    xi_par: Float[np.ndarray, "*grid"]
    xi_perp: Float[np.ndarray, "*grid"]
    phase: np.ndarray
    line: Float[np.ndarray, "points 2"]

    def plot(self, ax: Any = None) -> Any:
        """Depth scales of correlations as colours, and the critical line, on matplotlib axes, which are returned."""
        if self.C_w.size < 2 or self.C_b.size < 2 or self.C_w.ndim != 1 or self.C_b.ndim != 1:
            raise InputError(
                f"A picture needs at least two values of C_w and of C_b, got arrays of shape {self.C_w.shape} and "
                f"{self.C_b.shape}. Pass C_w=np.linspace(...), C_b=np.linspace(...) to phase_diagram."
            )
        ax = axes(ax, "the fields")
        shown = np.log10(np.clip(self.xi_perp, 0.1, 100.0))
        mesh = ax.pcolormesh(self.C_w, self.C_b, shown, shading="nearest", cmap="viridis")
        ax.figure.colorbar(mesh, ax=ax, label="log10 depth scale of correlations (at most 2)")
        ax.plot(self.line[:, 0], self.line[:, 1], color="white", linewidth=2, label="chi_perp = 1")
        if len(self.line) and np.ptp(self.line[:, 0]) < 1e-6:
            ax.plot(self.line[0, 0], self.line[0, 1], "o", color="white")
        ax.set(xlabel="C_w", ylabel="C_b", title=self.name)
        ax.set(xlim=(self.C_w.min(), self.C_w.max()), ylim=(self.C_b.min(), self.C_b.max()))
        return ax


def phase_diagram(
    activation: Activation,
    *,
    C_w: Values | None = None,  # noqa: N803 - as in the literature
    C_b: Values | None = None,  # noqa: N803
) -> PhaseDiagram:
    """Where a deep network of this activation comes to, for every variance of weights and biases.

    Args:
        activation: a layer such as `Gelu()`, or any function of numpy or JAX arrays, element by element.
        C_w: variances of weights, times their fan-in: a number, or an array. By default 31 from 0.25 to 4.
        C_b: variances of biases. By default 21 from 0 to 1.

    Returns:
        Arrays with a row for each `C_b` and a column for each `C_w`.
        `K_star`: the variance that signals of variance 1 come to; infinite where they grow without end.
        `chi_par`, `chi_perp`: the susceptibilities there (for an infinite `K_star`, at the largest variance looked at).
        `correlation`: to which two different inputs come: 1 in the ordered phase, less in the chaotic one.
        `xi_par`, `xi_perp`: layers over which deviations from `K_star` and from `correlation` fall by `e`,
        `-1 / log chi` with the susceptibility at that correlation. Infinite where nothing falls.
        `phase`: depth makes different inputs equal ("ordered"), parts them ("chaotic"), or neither ("critical"); or
        signals explode ("unbounded").
        `line`: points `(C_w, C_b)` at which `chi_perp = 1`, one for each of many `K_star`.
        `plot(ax)` draws it, on matplotlib axes.

    >>> import everwide as ew
    >>> from everwide.theory.criticality import phase_diagram
    >>> diagram = phase_diagram(ew.activations.Tanh(), C_w=[0.5, 1.0, 2.0], C_b=0.0)
    >>> [str(phase) for phase in diagram.phase]
    ['ordered', 'critical', 'chaotic']
    >>> diagram.xi_perp.round(3).tolist()
    [1.443, inf, 21.724]

    Schoenholz, Gilmer, Ganguli, Sohl-Dickstein, "Deep information propagation" (2017).

    """
    weights = at_least_zero("C_w", np.linspace(0.25, 4.0, 31) if C_w is None else C_w)
    biases = at_least_zero("C_b", np.linspace(0.0, 1.0, 21) if C_b is None else C_b)
    moments = continuous(activation, 1.0)
    variances = VarianceMap(moments, critical_init(activation))
    points = [_settled(variances, float(w), float(b)) for b in biases.ravel() for w in weights.ravel()]
    shape = (*biases.shape, *weights.shape)
    columns = (np.array(column).reshape(shape) for column in zip(*points, strict=True))
    fixed, par, perp, correlation, xi_par, xi_perp, phase = columns
    line = _critical_line(moments, variances.largest)
    return PhaseDiagram(moments.name, weights, biases, fixed, par, perp, correlation, xi_par, xi_perp, phase, line)


def _settled(variances: VarianceMap, weight: float, bias: float) -> tuple[Any, ...]:
    """The numbers of `PhaseDiagram`, from `K_star` to `xi_perp`, and the phase."""
    moments = variances.moments
    fixed = variances.fixed_point(weight, bias)
    at = moments.at_one(min(fixed, variances.largest)) if fixed > SMALLEST else None
    par, perp = at_zero(moments) if at is None else (at.growth, at.slope)
    par, perp = weight * par, weight * perp
    if fixed == math.inf:
        return fixed, par, perp, 1.0, math.inf, math.inf, "unbounded"
    if abs(perp - 1) <= _CRITICAL:
        return fixed, par, perp, 1.0, _length(par), math.inf, "critical"
    if perp < 1:
        return fixed, par, perp, 1.0, _length(par), _length(perp), "ordered"
    correlation, slope = settled_correlation(moments, fixed, weight, bias)
    return fixed, par, perp, correlation, _length(par), _length(slope), "chaotic"


def _length(susceptibility: float) -> float:
    """`-1 / log chi`; what changes sign from layer to layer falls as fast as its size."""
    size = abs(susceptibility)
    if size == 0:
        return 0.0
    return -1 / math.log(size) if size < 1 - _CRITICAL else math.inf


def _critical_line(moments: Response, largest: float) -> np.ndarray:
    """`chi_perp = 1` fixes `C_w` for every `K_star`, and then `C_b`; negative ones do not exist."""
    variances = np.geomspace(1e-8, largest, _ON_LINE)
    at = moments.at(variances)
    known = at.slope * variances > 1e-13 * at.second
    weight = 1 / at.slope[known]
    bias = variances[known] - weight * at.second[known]
    bias = np.where(np.abs(bias) < 1e-12 * variances[known], 0, bias)
    return np.stack([weight, bias], 1)[bias >= 0]
