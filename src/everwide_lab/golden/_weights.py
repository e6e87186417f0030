"""The layers of the reference vocabulary that carry weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from everwide.layers import AbstractLayer, Conv, ConvLocal, ConvTranspose, Dense, Position, SelfAttention
from everwide.signal import ArchitectureError, Parametrization, Signal

from ._reparametrized import Reparametrized
from ._words import Word

_PARAMETRIZATIONS = {"ntk": Parametrization.NTK, "standard": Parametrization.STANDARD}


@dataclass(frozen=True)
class Plan:
    """What holds for a whole case.

    - `open_widths`: nothing depends on a width, so that none is fixed.
    - `parametrization`: of the network; `mixed` cases give every layer its own.
    """

    open_widths: bool
    parametrization: Parametrization
    mixed: bool


def weighted(w: Word, plan: Plan, make: Callable[[Word, int | None], AbstractLayer]) -> AbstractLayer:
    """A layer with a width, width scales `s`, and a parametrization."""
    width, (share, scale) = w.take("width", None), w.take("s", [1, 1])
    own = w.choice("parameterization", _PARAMETRIZATIONS, "ntk")
    if any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in (share, scale)):
        raise ArchitectureError(f"Layer {w.type!r}: s must be two positive whole numbers, got {[share, scale]}.")
    layer = make(w, None if plan.open_widths or width is None else width * scale)
    return Reparametrized(layer, own, fan_in_share=share) if plan.mixed else layer


def dense(w: Word, plan: Plan, signal: Signal) -> AbstractLayer:
    return weighted(w, plan, lambda w, width: Dense(width, w_std=w.number("W_std", 1.0), b_std=w.take("b_std", None)))


def convolution(kind: type[Conv] | type[ConvTranspose] | type[ConvLocal]):
    """A word that makes one of the three convolutions."""

    def make(w: Word, width: int | None) -> AbstractLayer:
        window, strides, padding = w.take("filter"), w.take("strides", None), w.take("padding", "VALID")
        return kind(
            window,
            width=width,
            strides=1 if strides is None else strides,
            padding=padding,
            w_std=w.number("W_std", 1.0),
            b_std=w.take("b_std", None),
        )

    return lambda w, plan, signal: weighted(w, plan, make)


def _inverse(distance: Array) -> Array:
    return 1 / (1 + distance)


@dataclass(frozen=True)
class Exponential:
    """`exp(-rate distance)`; equal rates are equal functions, and compile once."""

    rate: float

    def __call__(self, distance: Array) -> Array:
        return jnp.exp(-self.rate * distance)


DECAYS = {"none": None, "inv1": _inverse, "exp": Exponential(1.0), "exp_half": Exponential(0.5)}
MECHANISMS = {name: name for name in ("softmax", "identity", "abs", "relu")}


def attention(w: Word, plan: Plan, signal: Signal) -> AbstractLayer:
    width = w.take("width", w.take("n_chan_out", signal.channels))
    for size in ("n_chan_key", "n_chan_val", "n_heads"):  # sizes of a sample; the limit does not know them
        w.take(size, None)
    return SelfAttention(
        None if plan.open_widths else width,
        mechanism=w.choice("mechanism", MECHANISMS, "softmax"),
        scaling="linear" if w.flag("linear_scaling", True) else "sqrt",
        w_query_std=w.number("W_query_std", 1.0),
        w_key_std=w.number("W_key_std", 1.0),
        w_value_std=w.number("W_value_std", 1.0),
        w_out_std=w.number("W_out_std", 1.0),
        b_std=w.take("b_std", None),
        position=_position(w, signal),
    )


def _position(w: Word, signal: Signal) -> Position | None:
    kind = w.choice("pos_emb", {"none": None, "sum": "sum", "concat": "concat"}, "none")
    channels = w.take("n_chan_pos_emb", None)
    w_std, decay = w.number("W_pos_emb_std", 1.0), _decay(w)
    p_norm, values = w.number("p_norm", 2.0), w.flag("val_pos_emb", False)
    if kind is None:
        return None
    beside = (channels or signal.channels) if kind == "concat" else None
    return Position(w_std=w_std, decay=decay, p_norm=p_norm, channels=beside, values=values)


def _decay(w: Word) -> Callable[[Array], Array] | None:
    """By name, or a number: the rate of an exponential."""
    given: Any = w.options.get("decay")
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < float("inf"):
        return Exponential(w.number("decay"))
    return w.choice("decay", DECAYS, None, beside="a rate, 0 or more")


WEIGHT_WORDS = {
    "dense": dense,
    "conv": convolution(Conv),
    "conv_local": convolution(ConvLocal),
    "conv_transpose": convolution(ConvTranspose),
    "attention": attention,
}
