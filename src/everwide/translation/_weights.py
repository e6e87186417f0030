"""The laws from which frameworks draw their weights, and whether a module still has such weights."""

import math
from dataclasses import dataclass, field
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Array

from .._checks import Choice, refuse_complex
from .._words import listed, number
from ..signal import ArchitectureError

_MAX_Z = 6.0  # standard errors by which a variance may differ: a network has hundreds of them, and all are looked at
_MANY = 30  # numbers whose mean tells whether they are drawn around zero
_TRUNCATED_STD = 0.87962566103423978  # of a standard normal number between -2 and 2


class Variances(Choice):
    """Where variances of weights come from.

    `checked`: from the framework's initialization, and the module's own weights must agree with it. `framework`: the
    same, whatever the weights are. `measured`: from the weights as they are, their mean squares.
    """

    CHECKED = "checked"
    FRAMEWORK = "framework"
    MEASURED = "measured"


@dataclass(frozen=True)
class Law:
    """A law of centred numbers: its name, the largest one in standard deviations, and its fourth moment over var^2."""

    name: str
    largest: float
    kurtosis: float

    def draw(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Such numbers, of variance 1."""
        if self.name == "uniform":
            return jr.uniform(key, shape, minval=-self.largest, maxval=self.largest)
        if self.name == "truncated normal":
            return jr.truncated_normal(key, -2, 2, shape) / _TRUNCATED_STD
        return jr.normal(key, shape)


NORMAL = Law("normal", math.inf, 3.0)
UNIFORM = Law("uniform", math.sqrt(3.0), 1.8)
ORTHOGONAL = Law("orthogonal", math.inf, 3.0)
TRUNCATED = Law("truncated normal", 2 / _TRUNCATED_STD, 2.3654)


@dataclass(frozen=True)
class Drawn:
    """Weights of one layer: what tells them from others, their law, and how many inputs one output sums."""

    key: Any
    law: Law
    fan_in: int
    bias: str = ""  # in words, where its size depends on the width
    also: tuple[Any, ...] = ()  # what tells its other tensors from others


@dataclass
class Census:
    """Looks at all weights of a module, and remembers which cannot be an initialization."""

    framework: str
    variances: Variances
    strange: list[str] = field(default_factory=list)

    def variance(self, name: str, values: Any, expected: float, law: Law) -> float:
        """Of the weights of that name, by what was asked for; `values` are `None` where there are none to look at."""
        if values is not None:
            refuse_complex(values, name)
        if values is None or self.variances is Variances.FRAMEWORK:
            return expected
        array = np.asarray(values, np.float64)
        measured = float(np.mean(array**2)) if array.size else 0.0
        if self.variances is Variances.MEASURED:
            self._require_centred(name, array)
            return measured
        if expected and array.size and self._is_one_number(name, array, expected):
            return expected
        error = expected * math.sqrt((law.kurtosis - 1) / max(array.size, 1))
        beyond = float(np.abs(array).max(initial=0.0)) > law.largest * math.sqrt(expected) * (1 + 1e-4)
        if abs(measured - expected) > _MAX_Z * error or beyond:
            largest = f", the largest is {number(float(np.abs(array).max()), 3)}" if beyond else ""
            bound = f" and none beyond {number(law.largest * math.sqrt(expected), 3)}" if beyond else ""
            self.strange.append(
                f"{name} has the variance {number(measured, 3)}{largest} (drawn: {number(expected, 3)}{bound})"
            )
        return expected

    def _is_one_number(self, name: str, array: np.ndarray, expected: float) -> bool:
        """Zeros, or numbers that are all the same, are not drawn; variances of few numbers would not tell."""
        one = not array.any() or (array.size > 1 and bool((array == array.flat[0]).all()))
        if one:
            value = number(float(array.flat[0]), 3)
            self.strange.append(f"{name} is {value} everywhere (drawn: of the variance {number(expected, 3)})")
        return one

    def _require_centred(self, name: str, array: np.ndarray) -> None:
        """Weights and biases of a limit are drawn around zero: those that all begin with 0.1 are none of these."""
        others = array[array != 0]  # an identity is no draw either
        same = array.size > 1 and others.size > 0 and bool((others == others[0]).all())
        mean, error = float(array.mean()), float(array.std()) / math.sqrt(max(array.size, 1))
        if (same and mean != 0) or (array.size >= _MANY and abs(mean) > _MAX_Z * error):
            where = "everywhere" if others.size == array.size else "wherever it is not 0"
            what = f"is {number(float(others[0]), 3)} {where}" if same else f"has the mean {number(mean, 3)}"
            raise ArchitectureError(
                f"{name} {what}: a limit of infinite width has weights and biases that are drawn around zero. Let them "
                "begin with zeros, or with random numbers; the kernel of the module as it is: "
                "everwide.empirical_ntk(module, None, x)."
            )

    def constant(self, name: str, values: Any, expected: float) -> None:
        """Numbers that all begin with the same value."""
        if values is None or self.variances is not Variances.CHECKED:
            return
        off = np.abs(np.asarray(values, np.float64) - expected).max(initial=0.0)
        if off > 1e-6:
            self.strange.append(f"{name} is off by {number(float(off), 3)} (before training: {expected:g})")

    def require_untrained(self, module: str) -> None:
        """Raise where weights are not as the framework draws them."""
        if not self.strange:
            return
        raise ArchitectureError(
            f"{module} does not have the weights that {self.framework} draws: {listed(self.strange, most=3)}. It was "
            "trained, or initialized otherwise, and the limit of infinite width is about initialization. "
            "variances='framework' takes the variances that it was drawn with, variances='measured' those of the "
            "weights as they are; the kernel of a trained module is everwide.empirical_ntk(module, None, x)."
        )
