"""First-order optimizers in function space: what they do to the parameters of an infinitely wide network."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._element import Element

Rate = float | Callable[[Any], Any]


class Gradient(NamedTuple):
    """The gradient of the loss of a batch, and its squared norm for each output."""

    element: Element
    squared_norm: Float[Array, " k"]


class AbstractOptimizer(eqx.Module):
    """A rule that turns gradients into steps. `rate` is a number, or a schedule such as `optax.cosine_decay_schedule`.

    - `weight_decay`: decoupled, as in AdamW: parameters shrink by `1 - rate * weight_decay` at every step.
    - `l2`: coupled: `l2 / 2` times the squared norm of the parameters is added to the loss.
    """

    rate: eqx.AbstractVar[Rate]
    weight_decay: eqx.AbstractVar[float]
    l2: eqx.AbstractVar[float]
    needs_norm: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def init(self, zero: Element) -> Any:
        """The state before the first step."""

    @abc.abstractmethod
    def direction(self, gradient: Gradient, state: Any, step: Int[Array, ""]) -> tuple[Element, Any]:
        """Where to go, times the rate, and the next state; `step` counts from 0."""

    def rate_at(self, step: Int[Array, ""]) -> Any:
        """The learning rate of that step."""
        return self.rate(step.astype(jnp.float32)) if callable(self.rate) else self.rate

    def step(self, here: Element, gradient: Gradient, state: Any, step: Int[Array, ""]) -> tuple[Element, Any]:
        """One step."""
        rate = jnp.asarray(self.rate_at(step), here.values.dtype)
        move, state = self.direction(gradient, state, step)
        if self.weight_decay:
            here = here.times(1 - rate * self.weight_decay)
        return here.plus(move, -rate), state


class SGD(AbstractOptimizer):
    """Gradient descent, with momentum as in `optax.sgd` and PyTorch.

    >>> import everwide.training as tr
    >>> tr.SGD(0.1, momentum=0.9, nesterov=True).momentum
    0.9
    """

    rate: Rate
    momentum: float = 0.0
    nesterov: bool = eqx.field(static=True, default=False)
    weight_decay: float = eqx.field(static=True, default=0.0)
    l2: float = eqx.field(static=True, default=0.0)
    needs_norm: ClassVar[bool] = False

    def __check_init__(self):
        check_rate(self)
        check_share(self, "momentum", self.momentum)

    def init(self, zero: Element) -> Element | None:
        return zero if self.momentum else None

    def direction(
        self, gradient: Gradient, state: Element | None, step: Int[Array, ""]
    ) -> tuple[Element, Element | None]:
        if state is None:
            return gradient.element, None
        trace = gradient.element.plus(state, self.momentum)
        return gradient.element.plus(trace, self.momentum) if self.nesterov else trace, trace


class AdamState(NamedTuple):
    """Both moments of the gradients so far."""

    first: Element
    second: Float[Array, " k"]


class AdamStar(AbstractOptimizer):
    """ADAM with the second moment averaged over an infinite width: a number for each output.

    The second moment of the gradient of a batch is its squared norm as a function, `1/B^2 g^T K_BB g`. `rate` and `eps`
    are those of outputs, not of weights: `to_finite` converts them for a network of finite width.

    >>> import everwide.training as tr
    >>> tr.AdamStar(0.01, weight_decay=0.1).b2
    0.999

    Sernau, "Infinite width models that work" (2024).
    """

    rate: Rate
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = eqx.field(static=True, default=0.0)
    l2: float = eqx.field(static=True, default=0.0)
    needs_norm: ClassVar[bool] = True

    def __check_init__(self):
        check_rate(self)
        check_share(self, "b1", self.b1)
        check_share(self, "b2", self.b2)
        check_not_negative(self, "eps", self.eps)

    def init(self, zero: Element) -> AdamState:
        return AdamState(zero, jnp.zeros_like(zero.start))

    def direction(self, gradient: Gradient, state: AdamState, step: Int[Array, ""]) -> tuple[Element, AdamState]:
        first = state.first.times(self.b1).plus(gradient.element, 1 - self.b1)
        second = self.b2 * state.second + (1 - self.b2) * gradient.squared_norm
        dtype = second.dtype
        done = (step + 1).astype(dtype)
        unbiased = second / (1 - jnp.asarray(self.b2, dtype) ** done)
        size = (1 - jnp.asarray(self.b1, dtype) ** done) * (jnp.sqrt(jnp.maximum(unbiased, 0)) + self.eps)
        # An output without any gradient so far stays where it is.
        return first.times(jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 0)), AdamState(first, second)


def check_rate(optimizer: AbstractOptimizer) -> None:
    """Raise on rates and decays that make no sense."""
    name = type(optimizer).__name__
    if not callable(optimizer.rate) and not (0 < optimizer.rate < float("inf")):
        raise ValueError(f"{name}(rate={optimizer.rate!r}): expected a number above 0, or a schedule.")
    check_not_negative(optimizer, "weight_decay", optimizer.weight_decay)
    check_not_negative(optimizer, "l2", optimizer.l2)


def check_share(optimizer: AbstractOptimizer, argument: str, value: float) -> None:
    """Raise unless the value is from 0 to below 1."""
    if not 0 <= value < 1:
        raise ValueError(f"{type(optimizer).__name__}({argument}={value!r}): expected a number from 0 to below 1.")


def check_not_negative(optimizer: AbstractOptimizer, argument: str, value: float) -> None:
    """Raise on negative and infinite values."""
    if not 0 <= value < float("inf"):
        raise ValueError(f"{type(optimizer).__name__}({argument}={value!r}): expected a finite number, at least 0.")
