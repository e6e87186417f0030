"""What an estimator has chosen, and why."""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Choice:
    """The network and its training that an estimator has chosen on its training rows.

    >>> from everwide.estimators import WideRegressor
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(30, 2))
    >>> choice = WideRegressor().fit(x, x[:, 0] * x[:, 1]).choice_
    >>> choice.tried > 100
    True
    """

    description: str  # of the network
    depth: int | None  # hidden layers; None for a network that was given
    activation: str | None
    frozen: int | None  # hidden layers that are not trained
    kernel: str  # that is solved for: "ntk" or "nngp"
    ridge: float  # in units of the mean of the kernel's diagonal
    time: float  # of gradient flow, in units of its inverse
    score: float  # the smaller, the better: what was minimized
    scored_by: str
    jitter: float  # what had to be added to the diagonal, in units of its mean
    tried: int  # combinations that were compared
    rows: int  # that are learned from
    rows_compared: int  # on which networks were compared

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: an endless time is null."""
        found = asdict(self)
        return found | {"time": None if math.isinf(self.time) else self.time}

    def __str__(self) -> str:
        until = "to the end" if math.isinf(self.time) else f"for the time {self.time:.3g}"
        frozen = f", the first {self.frozen} of them frozen" if self.frozen and self.frozen != self.depth else ""
        frozen = ", only the last layer trained" if self.frozen and self.frozen == self.depth else frozen
        lines = [
            f"{self.description}{frozen}",
            f"{self.kernel} kernel, ridge {self.ridge:.2g}, trained {until}, on {self.rows} rows",
            f"{self.scored_by} {self.score:.4g}: the smallest of {self.tried}, compared on {self.rows_compared} rows",
        ]
        if self.jitter:
            lines.append(f"jitter {self.jitter:.2g} was added to the diagonal")
        return "\n".join(lines)
