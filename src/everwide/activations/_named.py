"""Well-known activations without a closed form."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._elementwise import Elementwise, PiecewiseLinear


def Tanh() -> Elementwise:  # noqa: N802 - reads as a layer, like the others
    """The hyperbolic tangent.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(w_std=1.5), ew.activations.Tanh(), ew.Dense(1))
    """
    return Elementwise(_tanh, name="Tanh()")


def Sigmoid() -> Elementwise:  # noqa: N802
    """`1 / (1 + exp(-x))`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Sigmoid(), ew.Dense(1))
    """
    return Elementwise(_sigmoid, name="Sigmoid()")


def Silu() -> Elementwise:  # noqa: N802
    """`x / (1 + exp(-x))`, also called swish.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Silu(), ew.Dense(1))
    """
    return Elementwise(_silu, name="Silu()")


def Softplus() -> Elementwise:  # noqa: N802
    """`log(1 + exp(x))`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Softplus(), ew.Dense(1))
    """
    return Elementwise(_softplus, name="Softplus()")


def Mish() -> Elementwise:  # noqa: N802
    """`x tanh(log(1 + exp(x)))`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Mish(), ew.Dense(1))
    """
    return Elementwise(_mish, name="Mish()")


def Elu(alpha: float = 1.0) -> Elementwise:  # noqa: N802
    """`alpha (exp(x) - 1)` below zero, `x` above.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Elu(), ew.Dense(1))
    """
    return Elementwise(_ExponentialLinear(float(alpha)), kinks=(0.0,), name=f"Elu({float(alpha)})")


def Selu() -> Elementwise:  # noqa: N802
    """The exponential linear unit that keeps mean 0 and variance 1.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Selu(), ew.Dense(1))

    Klambauer et al., "Self-normalizing neural networks" (2017).
    """
    fn = _ExponentialLinear(1.6732632423543772848170429916717, 1.0507009873554804934193349852946)
    return Elementwise(fn, kinks=(0.0,), name="Selu()")


def HardTanh() -> PiecewiseLinear:  # noqa: N802
    """`x`, kept between -1 and 1.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.HardTanh(), ew.Dense(1))
    """
    return PiecewiseLinear((-1.0, 1.0), (0.0, 1.0, 0.0))


def Relu6() -> PiecewiseLinear:  # noqa: N802
    """`x`, kept between 0 and 6.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Relu6(), ew.Dense(1))
    """
    return PiecewiseLinear((0.0, 6.0), (0.0, 1.0, 0.0))


@dataclass(frozen=True)
class _ExponentialLinear:
    """A function that is equal to another one with the same numbers, also after pickling."""

    alpha: float
    scale: float = 1.0

    def __call__(self, x: Array) -> Array:
        below = self.alpha * jnp.expm1(jnp.minimum(x, 0))
        return self.scale * jnp.where(x > 0, x, below)


def _tanh(x: Array) -> Array:  # NumPy's own does not pickle by name
    return jnp.tanh(x)


def _sigmoid(x: Array) -> Array:
    return jax.nn.sigmoid(x)


def _silu(x: Array) -> Array:
    return x * jax.nn.sigmoid(x)


def _softplus(x: Array) -> Array:
    return jnp.logaddexp(x, jnp.zeros_like(x))


def _mish(x: Array) -> Array:
    return x * jnp.tanh(_softplus(x))
