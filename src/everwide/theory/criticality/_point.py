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
    """Variances at which a network of this activation keeps signals and their angles: see `critical_init`."""

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
