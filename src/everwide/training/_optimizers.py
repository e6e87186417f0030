"""First-order optimizers in function space: optax, acting on functions as it acts on weights."""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._adam_star import scale_by_adam_star
from .._checks import InputError, not_negative, positive, share
from ._kernels import Element, map_elements, spread, unvalued

Rate = float | Callable[[Any], Any]
_LONGEST = 1 << 14  # steps of which the memory of a transformation is looked at


class AbstractOptimizer(eqx.Module):
    """A rule that turns gradients into steps."""

    @abc.abstractmethod
    def transform(self) -> Any:
        """As a transformation of optax, which acts on functions."""

    @abc.abstractmethod
    def memory_length(self, dtype: np.dtype) -> int:
        """Steps after which its memory of a row is below rounding; raises where it moves all rows at every step."""


class SGD(AbstractOptimizer):
    """Gradient descent, with momentum as in `optax.sgd` and PyTorch.

    Args:
        rate: the learning rate, or a schedule such as `optax.cosine_decay_schedule`.
        momentum: from 0 to below 1.
        nesterov: whether to look ahead.
        weight_decay: decoupled, as in AdamW: parameters shrink by `1 - rate * weight_decay` at every step.
        l2: coupled: `l2 / 2` times the squared norm of the parameters is added to the loss.

    >>> import everwide.training as tr
    >>> tr.SGD(0.1, momentum=0.9, nesterov=True).momentum
    0.9
    """

    rate: Rate
    momentum: float = eqx.field(static=True, default=0.0)
    nesterov: bool = eqx.field(static=True, default=False)
    weight_decay: float = eqx.field(static=True, default=0.0)
    l2: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        _check(self)
        share(self.momentum, "SGD: momentum")

    def transform(self) -> Any:
        """As a transformation of optax, for chains."""
        optax = optax_module()
        return _chain(self, optax.trace(self.momentum, self.nesterov) if self.momentum else optax.identity())

    def memory_length(self, dtype: np.dtype) -> int:
        return _lasting(self, self.momentum, dtype)


class AdamStar(AbstractOptimizer):
    """ADAM with the second moment averaged over an infinite width: a number for each output.

    The second moment of the gradient of a batch is its squared norm as a function, `1/B^2 g^T K_BB g`. `rate` and `eps`
    are those of outputs, not of weights: `to_finite` converts them for a network of finite width.

    Args:
        rate: the learning rate, or a schedule such as `optax.cosine_decay_schedule`. See `default_rate`.
        b1: share of the first moment that a step keeps.
        b2: share of the second moment that a step keeps.
        eps: added to the root of the second moment.
        weight_decay: decoupled, as in AdamW: parameters shrink by `1 - rate * weight_decay` at every step.
        l2: coupled: `l2 / 2` times the squared norm of the parameters is added to the loss.

    >>> import everwide.training as tr
    >>> tr.AdamStar(0.01, weight_decay=0.1).b2
    0.999

    Sernau, "Infinite width models that work" (2024).
    """

    rate: Rate
    b1: float = eqx.field(static=True, default=0.9)
    b2: float = eqx.field(static=True, default=0.999)
    eps: float = eqx.field(static=True, default=1e-8)
    weight_decay: float = eqx.field(static=True, default=0.0)
    l2: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        _check(self)
        share(self.b1, "AdamStar: b1")
        share(self.b2, "AdamStar: b2")
        not_negative(self.eps, "AdamStar: eps")

    def transform(self) -> Any:
        """As a transformation of optax, for chains: of functions, whose squared norm the run hands to it."""

        def squares(updates: Element, extra: dict[str, Any]) -> Array:
            return extra["squared_norm"](updates)

        def begin(params: Element) -> Array:
            return jnp.zeros_like(params.start)

        return _chain(self, scale_by_adam_star(self.b1, self.b2, self.eps, begin, squares, spread))

    def memory_length(self, dtype: np.dtype) -> int:
        return _lasting(self, self.b1, dtype)

    @staticmethod
    def default_rate(kernel: Any, y: Any) -> float:
        """A tenth of the rate whose first step, on one row, is as long as targets are large.

        That step is `rate sqrt(K(x, x))` whatever the gradient is, so the rate has the units of targets over the root
        of the kernel.

        Args:
            kernel: `(n, n)`, or its diagonal `(n,)`.
            y: targets, `(n,)` or `(n, k)`; whole numbers are labels, whose outputs are of the order of 1.

        Returns:
            The rate.

        >>> import everwide.training as tr, numpy as np
        >>> tr.AdamStar.default_rate(4 * np.eye(2), [3.0, -3.0])
        0.15
        """
        targets, own = np.asarray(y), np.asarray(kernel, np.float64)
        size = positive(np.mean(np.diagonal(own) if own.ndim == 2 else own), "mean of the kernel's diagonal")
        real = np.issubdtype(targets.dtype, np.floating) and bool(np.any(targets))
        scale = float(np.sqrt(np.mean(np.square(targets)))) if real else 1.0
        return 0.1 * scale / math.sqrt(size)


class Linear(AbstractOptimizer):
    """A linear transformation of optax."""

    given: Any = eqx.field(static=True)

    def transform(self) -> Any:
        return optax_module().with_extra_args_support(self.given)

    def memory_length(self, dtype: np.dtype) -> int:
        once, never = np.eye(1, _LONGEST)[0], np.zeros(_LONGEST)
        remembered, coupled = (_memories(self.transform(), *pair) for pair in ((once, never), (never, once)))
        if coupled.max() > 0:
            raise _moves_all(self.given)
        last = np.flatnonzero(remembered > np.finfo(dtype).eps * remembered.max())
        if len(last) and last[-1] + 1 == _LONGEST:
            raise InputError(f"optimizer={self.given}: it remembers a row for more than {_LONGEST} steps.")
        return int(last[-1]) + 1 if len(last) else 0


def as_optimizer(optimizer: Any) -> AbstractOptimizer:
    """One of ours, or a linear transformation of optax."""
    if isinstance(optimizer, AbstractOptimizer):
        return optimizer
    expected = "expected everwide.training.SGD(...), AdamStar(...), or a transformation of optax"
    if isinstance(optimizer, tuple) and isinstance(optimizer, optax_module().GradientTransformation):
        if not _is_linear(optax_module().with_extra_args_support(optimizer)):
            raise InputError(
                f"optimizer={optimizer!r}: {expected} that is linear, such as optax.sgd and add_decayed_weights. "
                "What treats every weight in its own way, as optax.adam does, is no rule for functions: AdamStar is."
            )
        return Linear(optimizer)
    raise InputError(f"optimizer={optimizer!r}: {expected}.")


def stepped(
    optimizer: AbstractOptimizer,
    here: Element,
    gradient: Element,
    memory: Any,
    squared_norm: Callable[[Element], Array],
) -> tuple[Element, Any]:
    """The function and the memory after one step; `squared_norm` is for rules that depend on it."""
    update, memory = optimizer.transform().update(gradient, memory, here, squared_norm=squared_norm)
    return jax.tree.map(jnp.add, here, update), memory


def stepped_on_batch(
    optimizer: AbstractOptimizer,
    here: Element,
    placed: Float[Array, "n k"],
    memory: Any,
    squared: Float[Array, " k"],
) -> tuple[Element, Any]:
    """The same, given the coefficients of the gradient and its squared norm: that of no other function is known."""
    gradient = unvalued(placed, jnp.zeros_like(here.start))

    def squared_norm(element: Element) -> Float[Array, " k"]:
        if element is not gradient:
            raise _moves_all("The optimizer")
        return squared

    return stepped(optimizer, here, gradient, memory, squared_norm)


def optax_module() -> Any:
    """Optax, which is an extra."""
    try:
        import optax
    except ImportError as fault:
        raise ImportError("Training step by step needs optax: pip install 'everwide[train]'.") from fault
    return optax


def _chain(optimizer: SGD | AdamStar, core: Any) -> Any:
    optax, rate = optax_module(), optimizer.rate
    coupled, decoupled = (
        [optax.add_decayed_weights(decay)] if decay else [] for decay in (optimizer.l2, optimizer.weight_decay)
    )

    def scheduled(count: Array) -> Any:
        assert callable(rate)
        return rate(count.astype(jnp.float32))

    scale = optax.scale_by_learning_rate(scheduled if callable(rate) else rate)
    return optax.chain(*coupled, core, *decoupled, scale)


def _lasting(optimizer: SGD | AdamStar, kept: float, dtype: np.dtype) -> int:
    if optimizer.l2:
        raise _moves_all(f"{type(optimizer).__name__}(l2={optimizer.l2})")
    return math.ceil(math.log(np.finfo(dtype).eps) / math.log(kept)) if kept else 0


def _moves_all(what: Any) -> InputError:
    return InputError(
        f"{what} moves all rows at every step, which a stream cannot afford. Use weight_decay instead of l2, or "
        "everwide.training.train."
    )


def _filled(value: Any) -> Element:
    return Element(jnp.full((3, 2), value), jnp.full((2, 3), value), jnp.full(2, value))


def _is_linear(transform: Any) -> bool:
    """Whether it does one linear thing to all numbers of gradients and parameters; a norm is handed to it."""
    draws = np.random.default_rng(0).normal(size=(2, 2, 4))

    def updates(numbers: np.ndarray) -> np.ndarray:
        state, taken = transform.init(_filled(0.0)), []
        for gradient, params in numbers.T:
            update, state = transform.update(
                _filled(float(gradient)), state, _filled(float(params)), squared_norm=lambda _: jnp.ones(2)
            )
            taken.append(np.concatenate([np.ravel(leaf) for leaf in update]))
        return np.stack(taken)

    with jax.numpy_dtype_promotion("standard"):  # Adam of optax mixes its dtypes
        one, other, both = (updates(numbers) for numbers in (*draws, draws[0] + 2 * draws[1]))
    size = 1e-4 * max(float(np.abs(both).max()), 1e-30)
    return bool(np.ptp(both, axis=1).max() <= size and np.abs(both - one - 2 * other).max() <= size)


def _memories(transform: Any, gradients: np.ndarray, params: np.ndarray) -> np.ndarray:
    """The largest number among the functions that a transformation remembers, after each step."""

    def step(state: Any, now: Any) -> tuple[Any, Array]:
        _, state = transform.update(_filled(now[0]), state, _filled(now[1]), squared_norm=lambda _: jnp.ones(2))
        sizes: list[Array] = []
        map_elements(lambda e: sizes.append(jnp.abs(e.start[0])) or e, state)
        return state, sum(sizes, jnp.zeros(()))

    numbers = jnp.asarray(np.stack([gradients, params], 1), jnp.zeros(()).dtype)
    return np.asarray(jax.jit(lambda: lax.scan(step, transform.init(_filled(0.0)), numbers)[1])())


def _check(optimizer: SGD | AdamStar) -> None:
    """Raise on rates and decays that make no sense."""
    name = type(optimizer).__name__
    if not callable(optimizer.rate):
        positive(optimizer.rate, f"{name}: rate")
    not_negative(optimizer.weight_decay, f"{name}: weight_decay")
    not_negative(optimizer.l2, f"{name}: l2")
