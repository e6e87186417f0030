"""Functions of one number that a module spells out, step by step, and the activations that they are."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import activations as act
from ..activations import AbstractActivation, Elementwise
from ..layers import AbstractLayer, Identity, Scale


@dataclass(frozen=True)
class Of:
    """What a step reads: the result of another step, 0 being the input."""

    step: int


@dataclass(frozen=True)
class Step:
    """One operation, by its name in `OPERATIONS`, of earlier steps and of numbers."""

    name: str
    operands: tuple[Of | float, ...]


@dataclass(frozen=True)
class Formula:
    """A function of one number, equal to any other of the same steps, also after pickling: nothing compiles twice.

    >>> import jax.numpy as jnp
    >>> from everwide.translation._formula import Formula, Of, Step
    >>> double = Formula((Step("mul", (Of(0), 2.0)),))
    >>> float(double(jnp.array(3.0)))
    6.0
    """

    steps: tuple[Step, ...] = ()

    def __call__(self, x: Array) -> Array:
        results = [x]
        for step in self.steps:
            read = [results[one.step] if isinstance(one, Of) else one for one in step.operands]
            results.append(OPERATIONS[step.name](*read))
        return results[-1]

    @classmethod
    def joined(cls, name: str, operands: Sequence[float | None], inputs: Sequence["Formula"]) -> "Formula":
        """An operation of functions of the same number, and of numbers; `None` stands for the next function."""
        steps: list[Step] = []
        ends = []
        for formula in inputs:
            shift = len(steps)
            steps += [Step(step.name, tuple(_shifted(one, shift) for one in step.operands)) for step in formula.steps]
            ends.append(Of(len(steps) if formula.steps else 0))
        waiting = iter(ends)
        return cls((*steps, Step(name, tuple(next(waiting) if one is None else float(one) for one in operands))))


def _shifted(one: Of | float, shift: int) -> Of | float:
    return Of(one.step + shift) if isinstance(one, Of) and one.step else one


def _select(which: Array, if_false: Any, if_true: Any) -> Array:
    return jnp.where(which, if_true, if_false)


def _clipped(x: Array, low: float, high: float) -> Array:
    return jnp.clip(x, low, high)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "abs": jnp.abs,
    "add": lambda a, b: a + b,
    "and": jnp.logical_and,
    "celu": lambda x, alpha: jax.nn.celu(x, alpha),
    "clip": _clipped,
    "cos": jnp.cos,
    "div": lambda a, b: a / b,
    "elu": lambda x, alpha: jax.nn.elu(x, alpha),
    "eq": lambda a, b: a == b,
    "erf": jax.lax.erf,
    "erfc": jax.lax.erfc,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "ge": lambda a, b: a >= b,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "gt": lambda a, b: a > b,
    "hard_sigmoid": jax.nn.hard_sigmoid,
    "hard_swish": jax.nn.hard_swish,
    "le": lambda a, b: a <= b,
    "leaky_relu": lambda x, slope: jnp.where(x > 0, x, slope * x),
    "log1p": jnp.log1p,
    "logistic": jax.nn.sigmoid,
    "lt": lambda a, b: a < b,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "mish": lambda x: x * jnp.tanh(jnp.logaddexp(x, 0.0)),
    "mul": lambda a, b: a * b,
    "ne": lambda a, b: a != b,
    "neg": jnp.negative,
    "not": jnp.logical_not,
    "or": jnp.logical_or,
    "pow": lambda a, b: a**b,
    "relu": lambda x: jnp.maximum(x, 0),
    "select": _select,
    "selu": jax.nn.selu,
    "sign": jnp.sign,
    "silu": jax.nn.silu,
    "sin": jnp.sin,
    "softplus": lambda x: jnp.logaddexp(x, 0.0),
    "softsign": jax.nn.soft_sign,
    "sqrt": jnp.sqrt,
    "square": jnp.square,
    "sub": lambda a, b: a - b,
    "tanh": jnp.tanh,
}

# What has closed moments, or known kinks, is better than a quadrature of the same function.
_KNOWN: tuple[Callable[[], AbstractActivation], ...] = (
    act.Erf,
    act.Gelu,
    act.Tanh,
    act.Sigmoid,
    act.Silu,
    act.Softplus,
    act.Mish,
    act.Elu,
    act.Selu,
    act.HardTanh,
    act.Relu6,
    act.Sin,
    act.Cos,
    act.Exp,
    act.Sign,
)
_GRID = np.concatenate([np.linspace(-7.3, 7.1, 64), [0.0]])
_FAR = np.geomspace(8.0, 1e4, 40)  # clip(x, 0, 20) is a rectifier on the grid alone
_ALL = np.concatenate([_GRID, -_FAR, _FAR])
_WIDE = np.sinh(np.linspace(-10.0, 10.0, 4001))  # where kinks are looked for: narrow steps near 0, to 1e4 on both sides
_MOST = 16  # kinks: those of periodic functions have no end

# Where the function of a step bends, by its name; `None`: at the numbers that it compares with.
_BENDS: dict[str, tuple[float, ...] | None] = {
    **dict.fromkeys(("max", "min", "clip", "gt", "ge", "lt", "le")),
    **dict.fromkeys(("abs", "celu", "elu", "leaky_relu", "relu", "selu", "sign"), (0.0,)),
    **dict.fromkeys(("hard_sigmoid", "hard_swish"), (-3.0, 3.0)),
}


@functools.cache
def layer_of(formula: Formula) -> AbstractLayer:
    """The layer that a formula is: one with moments in closed form where its values are those of one of them.

    Compared on a grid, and far outside of it where the formula does not overflow, to the rounding of float32.
    """
    values = _values(formula)
    straight = _two_slopes(values)
    if straight is not None:
        return straight
    for known, its_values in _known_values():
        if _same(values, its_values):
            return known
    named = _named(formula)
    if named is not None:
        return named
    names = ", ".join(step.name for step in formula.steps)
    return Elementwise(formula, kinks=_kinks(formula), name=f"Elementwise({names})")


@functools.cache
def _known_values() -> tuple[tuple[AbstractActivation, np.ndarray], ...]:
    return tuple((known, _values(known)) for known in (make() for make in _KNOWN))


def _values(fn: Callable[[Array], Array]) -> np.ndarray:
    with jax.ensure_compile_time_eval():
        return np.asarray(fn(jnp.asarray(_ALL, jnp.float32)), np.float64)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    near, size = len(_GRID), min(1.0, float(np.abs(b[: len(_GRID)]).max()))
    seen = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore"):  # of what overflows
        return bool(seen[:near].all() and np.all((np.abs(a - b) <= 1e-5 * (size + np.abs(b)))[seen]))


def _two_slopes(values: np.ndarray) -> AbstractLayer | None:
    """Straight lines to the left and to the right of zero, through zero."""
    last = len(_GRID) - 2
    left, right = values[0] / _GRID[0], values[last] / _GRID[last]
    if not _same(values, np.where(_ALL > 0, right, left) * _ALL):
        return None
    left, right = (float(f"{slope:.6g}") for slope in (left, right))  # without the rounding of float32
    if left == right:
        return Identity() if left == 1 else Scale(left)
    if right == 1:
        return act.Relu() if left == 0 else act.Abs() if left == -1 else act.LeakyRelu(left)
    return act.TwoSlope(left, right)


def _named(formula: Formula) -> AbstractLayer | None:
    """A single step that has numbers of its own, and a layer that knows where its kinks are."""
    if len(formula.steps) != 1:
        return None
    step = formula.steps[0]
    numbers = [one for one in step.operands if isinstance(one, float)]
    if step.name == "clip" and numbers[0] <= 0 <= numbers[1]:
        return act.PiecewiseLinear((numbers[0], numbers[1]), (0.0, 1.0, 0.0))
    if step.name == "hard_sigmoid":
        return act.PiecewiseLinear((-3.0, 3.0), (0.0, 1 / 6, 0.0), at_zero=0.5)
    return act.Elu(numbers[0]) if step.name == "elu" else None


def _kinks(formula: Formula) -> tuple[float, ...]:
    """Where the function may bend: where what a step reads is what it bends at. A point too many does no harm."""
    points: set[float] = set()
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        for number, step in enumerate(formula.steps):
            if step.name in _BENDS:
                results = Formula(formula.steps[:number])
                for one, other in _meetings(step):
                    points.update(_crossings(functools.partial(_gap, results, one, other)))
    return tuple(sorted(sorted(points, key=abs)[:_MOST]))


def _meetings(step: Step) -> list[tuple[Of, Of | float]]:
    """Pairs of what bends a step where they are equal."""
    signals = [one for one in step.operands if isinstance(one, Of)]
    bends = _BENDS[step.name]
    if bends is None:
        bends = tuple(one for one in step.operands if isinstance(one, float) and math.isfinite(one))
    return [*((one, bend) for one in signals for bend in bends), *((one, signals[0]) for one in signals[1:])]


def _gap(formula: Formula, one: Of, other: Of | float, x: np.ndarray) -> np.ndarray:
    """The difference of two results of a formula, or of a result and a number."""
    ends = [Formula(formula.steps[: end.step])(jnp.asarray(x)) if isinstance(end, Of) else end for end in (one, other)]
    return np.broadcast_to(np.asarray(ends[0] - ends[1], np.float64), x.shape)


def _crossings(gap: Callable[[np.ndarray], np.ndarray]) -> list[float]:
    """Where a function comes from above 0 to 0, or back: the intervals nearest to 0, made small step by step."""
    roots = []
    for low, high in sorted(_changes(gap, _WIDE), key=lambda ends: abs(ends[0]))[:_MOST]:
        for _ in range(3):
            low, high = next(iter(_changes(gap, np.linspace(low, high, len(_WIDE)))), (low, high))
        ends = np.array([low, high])
        nearest = ends[np.argmin(np.abs(gap(np.resize(ends, len(_WIDE)))[:2]))]  # one shape: nothing compiles twice
        roots.append(round(float(f"{nearest:.7g}"), 9) + 0.0)
    return roots


def _changes(gap: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> list[tuple[float, float]]:
    above = gap(x) > 0
    return [(float(x[i]), float(x[i + 1])) for i in np.flatnonzero(above[1:] != above[:-1])]
