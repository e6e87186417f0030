"""What `critical_init` returns."""

import enum
from dataclasses import dataclass
from typing import NamedTuple

from ...signal import ArchitectureError


class Kind(enum.StrEnum):
    """How an activation can be critical.

    >>> from everwide.theory.criticality import Kind
    >>> Kind("half-stable").name
    'HALF_STABLE'
    """

    SCALE_INVARIANT = "scale-invariant"
    ZERO = "K*=0"
    HALF_STABLE = "half-stable"
    NONE = "none"


class Numbers(NamedTuple):
    """Where a critical point is (see `CriticalPoint`)."""

    K_star: float
    C_w: float
    C_b: float
    a1: float
    b1: float
    depth_scale: float


@dataclass(frozen=True)
class CriticalPoint:
    """Variances at which a network of this activation keeps signals and their angles. Made by `critical_init`.

    - `kind`: "scale-invariant" (two slopes: every variance is kept), "K*=0" (variances fall as a power of the depth,
      not exponentially), "half-stable" (kept, and approached from one side only) or "none", with the `reason`.
    - `K_star`: the variance that is kept; 1 where all are. `C_w`, `C_b`: variances of weights (times the fan-in) and of
      biases: `Dense(w_std=C_w**0.5, b_std=C_b**0.5)`.
    - `a1`, `b1`: how variances and angles leave the point. With `d = K - K_star`, `d' = d - a1 d^2` and
      `chi_perpendicular = 1 - b1 d`, to leading order. For "K*=0" variances fall as `1 / (a1 depth)` and what is
      perpendicular as `depth^(-b1/a1)`; both are infinite where a kink at zero makes them fall faster.
    - `depth_scale`: layers after which a deviation `d` as large as `K_star` (as 1 for "K*=0") has halved, to leading
      order; infinite where nothing changes.

    Where there is no critical point, `kind` and `reason` are all there is: the numbers raise `ArchitectureError`.

    >>> import everwide as ew
    >>> from everwide.theory.criticality import critical_init
    >>> critical_init(ew.activations.Abs())
    CriticalPoint(Abs(), kind='scale-invariant', K_star=1, C_w=1, C_b=0, a1=0, b1=0, depth_scale=inf)
    >>> critical_init(ew.activations.Sign()).reason
    "it jumps at 0, so that E[s'^2], and with it chi_perpendicular, is infinite."
    """

    name: str
    kind: Kind
    reason: str
    numbers: Numbers | None

    def __getattr__(self, name: str) -> float:
        if name not in Numbers._fields:
            raise AttributeError(name)
        if self.numbers is None:
            raise ArchitectureError(f"{self.name} has no critical point: {self.reason}")
        return getattr(self.numbers, name)

    def __repr__(self) -> str:
        if self.numbers is None:
            return f"CriticalPoint({self.name}, kind='{self.kind}', reason={self.reason!r})"
        listed = ", ".join(f"{key}={value:.9g}" for key, value in self.numbers._asdict().items())
        return f"CriticalPoint({self.name}, kind='{self.kind}', {listed})"
