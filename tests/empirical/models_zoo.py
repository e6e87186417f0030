"""Small models that use their parameters in every way that people do, and in some that nobody should.

Each says which leaves must go the plain way; all others must be understood. `x` holds four examples.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Entry(NamedTuple):
    f: Callable[[Any, Any], Any]
    params: Any
    x: Any
    plain: frozenset[str] = frozenset()  # paths of the leaves that have no rule


ZOO: dict[str, Entry] = {}
_RNG = np.random.default_rng(0)
_DTYPE = np.dtype(jnp.result_type(float))  # numpy rounds: JAX would compile a function for every shape
_NHWC = ("NHWC", "HWIO", "NHWC")


def w(*shape: int):
    return jnp.asarray((_RNG.standard_normal(shape) / np.sqrt(max(1, *shape[:1]))).astype(_DTYPE), float)


def rows(*shape: int):
    return jnp.asarray(_RNG.standard_normal((4, *shape)).astype(_DTYPE), float)


def tokens(vocabulary: int, *shape: int):
    return jnp.asarray(_RNG.integers(0, vocabulary, (4, *shape)))


def model(params: Any, x: Any, plain: str = ""):
    """Enter a function; `plain` are keys of leaves at the top of the tree, or whole paths."""
    path = lambda name: name if name.startswith("[") or not name else f"['{name}']"

    def enter(f):
        ZOO[f.__name__] = Entry(f, params, x, frozenset(path(name) for name in plain.split()))
        return f

    return enter


def norm(h, gain, shift):
    h = h - h.mean(-1, keepdims=True)
    return h / jnp.sqrt((h**2).mean(-1, keepdims=True) + 1e-5) * gain + shift


def conv(x, weight, **options):
    settings = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": _NHWC} | options
    return lax.conv_general_dilated(x, weight, **settings)


# --- dense layers


@model({"w1": w(5, 7), "b1": w(7), "w2": w(7, 3), "b2": w(3)}, rows(5))
def mlp(p, x):
    return jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


@model({"w1": w(7, 5), "b1": w(7), "w2": w(3, 7)}, rows(5))
def mlp_transposed(p, x):
    return jax.nn.relu(p["w1"] @ x + p["b1"]) @ p["w2"].T


@model({"w1": w(5, 7), "b1": w(7), "w2": w(7, 3)}, rows(5))
def scaled_weights(p, x):
    return jnp.tanh(x @ (p["w1"] / 5**0.5) + 0.1 * p["b1"]) @ (-p["w2"] * 0.3)


@model({"w": w(5, 7), "b": w(7), "o": w(7, 2)}, rows(5))
def scaled_products(p, x):
    return 3 - jnp.tanh(-(x @ p["w"]) * 2**0.5 / 5**0.5 + 0.2 * p["b"]) @ p["o"] * 3**0.5


@model({"w": w(5, 1), "v": w(5, 1)}, rows(5))
def product_of_sums(p, x):
    return (x @ p["w"]) * (x @ p["v"])


@model({"w": w(5, 3)}, rows(5))
def scaled_by_data(p, x):
    return x @ (p["w"] * jnp.sum(x)) / x[0]


@model({"w": w(5, 5), "b": w(5), "v": w(5, 5), "o": w(5, 2)}, rows(5))
def residual(p, x):
    h = x + jax.nn.softplus(x @ p["w"] + p["b"])
    return (h + jnp.tanh(h @ p["v"])) @ p["o"]


@model({"w": w(3, 4), "b": w(4), "o": w(4, 2), "c": w(2)}, rows(3))
def subtracted_biases(p, x):
    return p["c"] - jnp.tanh(x @ p["w"] - p["b"]) @ p["o"]


@model({"w": w(3, 4), "b": w(4), "o": w(16, 2)}, rows(4, 3), plain="b")
def bias_of_tokens(p, x):
    return jnp.tanh(x @ p["w"] + p["b"][:, None]).reshape(-1) @ p["o"]


@model({"w": w(3, 4), "b": w(4, 4), "o": w(16, 2)}, rows(4, 3), plain="b")
def bias_of_everything(p, x):
    return jnp.tanh(x @ p["w"] + p["b"]).reshape(-1) @ p["o"]


@model({"w": w(3, 4), "b": jnp.asarray(0.3), "a": jnp.asarray(2.0)}, rows(3), plain="a b")
def single_numbers(p, x):
    return p["a"] * (x @ p["w"]) + p["b"]


@model({"w": w(3, 4), "b": w(4), "o": w(4, 2)}, rows(3), plain="b")
def read_before_the_bias(p, x):
    y = x @ p["w"]
    return (jnp.tanh(y + p["b"]) * y) @ p["o"]


@model({"w": w(5), "b": jnp.asarray(0.5)}, rows(5))
def scalar_output(p, x):
    return x @ p["w"] + p["b"]


@model({"w": w(3, 4, 5), "o": w(15, 2)}, rows(3, 4))
def batched_weights(p, x):
    return jnp.tanh(jnp.einsum("hd,hdk->hk", x, p["w"])).reshape(-1) @ p["o"]


@model({"w": w(3, 2, 4), "o": w(4, 2)}, rows(4, 3))
def unused_half(p, x):
    return jnp.einsum("td,dge->tge", x, p["w"])[:, 0].mean(0) @ p["o"]


# --- views of parameters


@model({"w": w(2, 5, 5), "o": w(5, 2)}, rows(5))
def stacked(p, x):
    return jnp.tanh(jnp.tanh(x @ p["w"][0]) @ p["w"][1]) @ p["o"]


@model({"w": w(4, 9)}, rows(4))
def split_in_three(p, x):
    q, k, v = jnp.split(p["w"], 3, 1)
    return jnp.tanh(x @ q) * jnp.tanh(x @ k) + x @ v


@model({"w": w(4, 3)}, rows(4), plain="w")
def overlapping_slices(p, x):
    return x[:3] @ p["w"][:3] + jnp.tanh(x[1:] @ p["w"][1:])


@model({"w": w(24), "v": w(6, 4)}, rows(3))
def reshaped(p, x):
    y = jnp.tanh(x @ p["w"].reshape(2, 3, 4)[1, :, 1:3])
    thirds = [lax.slice(p["v"], (start, 0), (6, 4), (3, 1)) for start in (0, 1)]
    return y @ jnp.flip(thirds[0], 1) + y @ thirds[1].astype(y.dtype)


@model({"w": w(4, 6)}, rows(8), plain="w")
def reshaped_after_transposing(p, x):
    return x @ p["w"].T.reshape(8, 3)


@model({"w": w(3)}, rows(5), plain="w")
def broadcast_weights(p, x):
    return jnp.tanh(x @ jnp.broadcast_to(p["w"], (5, 3)))


@model({"w": w(5, 4), "v": w(4, 2)}, rows(5))
def views_through_calls(p, x):
    transposed = jax.jit(lambda a: (a.T, a[:2].T))
    whole, some = transposed(p["w"])
    del some
    return jax.jit(lambda a, b: a @ b)(whole, x) @ p["v"]


# --- tied parameters


@model({"w": w(5, 4), "b": w(4), "c": w(5)}, rows(5), plain="w b c")
def tied_with_its_transpose(p, x):
    return jnp.tanh(jnp.tanh(x @ p["w"] + p["b"]) @ p["w"].T + p["c"]) @ p["w"]


@model({"w": w(5, 5), "b": w(5)}, rows(5))
def used_three_times(p, x):
    for _ in range(3):
        x = jnp.tanh(x @ p["w"] + 0.5 * p["b"])
    return x


@model({"w": w(5, 3)}, rows(5), plain="w")
def nonlinear_in_weights(p, x):
    return (x @ p["w"]) @ p["w"].T @ p["w"] + (p["w"] ** 2).sum(0)


@model({"g": w(7), "v": w(5, 7), "b": w(7), "w": w(7, 3)}, rows(5), plain="g v b")
def weight_norm(p, x):
    return jnp.tanh(x @ (p["g"] * p["v"] / jnp.linalg.norm(p["v"], axis=0)) + p["b"]) @ p["w"]


@model({"a": w(3), "w": w(5, 3), "c": w(3)}, rows(5), plain="a c")
def gate(p, x):
    return jax.nn.sigmoid(p["a"]) * jnp.tanh(x @ p["w"]) + p["c"]


@model({"g": w(3), "o": w(3, 2)}, rows(3), plain="g")
def one_plus_gain(p, x):
    return ((x - x.mean()) * (1 + p["g"])) @ p["o"]


# --- convolutions


@model({"w1": w(3, 3, 2, 4), "b1": w(4), "w2": w(3, 3, 2, 6), "w3": w(6, 3), "b3": w(3)}, rows(7, 6, 2))
def cnn(p, x):
    y = jax.nn.relu(conv(x[None], p["w1"], window_strides=(2, 2)) + p["b1"])
    y = conv(y, p["w2"], padding=((1, 1), (0, 2)), rhs_dilation=(1, 2), feature_group_count=2)
    return jnp.tanh(y).mean((1, 2))[0] @ p["w3"] + p["b3"]


@model({"w1": w(4, 2, 3, 3), "b1": w(4), "w2": w(4 * 3 * 5, 3)}, rows(2, 5, 5))
def cnn_channels_first(p, x):
    numbers = ("NCHW", "OIHW", "NCHW")
    y = conv(x[None], p["w1"], window_strides=(2, 1), padding=((1, 1), (1, 1)), dimension_numbers=numbers)
    return jax.nn.gelu(y + p["b1"][:, None, None]).reshape(-1) @ p["w2"]


@model({"w": w(3, 3, 1, 8), "b": w(8), "o": w(8, 2)}, rows(5, 5, 4))
def depthwise(p, x):
    y = conv(x[None], p["w"], feature_group_count=4) + p["b"]
    return jnp.tanh(y).mean((0, 1, 2)) @ p["o"]


@model({"w": w(3, 3, 4, 5), "o": w(5, 2)}, rows(4, 4, 4))
def transposed_convolution(p, x):
    return jnp.tanh(lax.conv_transpose(x[None], p["w"], (2, 2), "SAME")).mean((0, 1, 2)) @ p["o"]


@model({"w": w(3, 4, 5), "o": w(5, 2)}, rows(9, 4))
def convolution_of_a_line(p, x):
    y = conv(x[None], p["w"], window_strides=(2,), padding="VALID", dimension_numbers=("NWC", "WIO", "NWC"))
    return jnp.tanh(y).mean((0, 1)) @ p["o"]


@model({"w": w(2, 2, 2, 2), "x": w(1, 3, 3, 2)}, rows(2, 2, 2, 2), plain="w x")
def parameter_as_image(p, x):
    return conv(p["x"], p["w"] * 2.0).sum((0, 1, 2)) + conv(p["x"], x).mean((0, 1, 2))


# --- sums over tokens behind an elementwise function


@model({"w1": w(3, 3, 2, 3), "w2": w(3, 3, 3, 3), "b": w(3), "v": w(1, 1, 2, 3), "o": w(3, 2)}, rows(4, 4, 2))
def pooled_sum_of_two(p, x):
    h = jax.nn.relu(conv(x[None], p["w1"]))
    y = jax.nn.gelu(conv(h, p["w2"]) + p["b"]) * jnp.sin(x.sum()) + conv(x[None], p["v"])
    return jnp.tanh(y.sum((1, 2)))[0] @ p["o"]


@model({"w": w(3, 3, 2, 2), "o": w(2, 2)}, rows(4, 4, 2))
def pooled_and_used_before(p, x):
    h = jax.nn.relu(conv(x[None], p["w"]))
    return jax.nn.silu(conv(h, p["w"])).mean((0, 1, 2)) @ p["o"]


@model({"w": w(3, 4), "b": w(4), "g": w(4)}, rows(5, 3), plain="g")
def pooled_with_a_gain(p, x):
    return (jnp.tanh(x @ p["w"] + p["b"]) * p["g"]).sum(0)


@model({"w": w(3, 4), "v": w(3, 4)}, rows(5, 3))
def pooled_over_some(p, x):
    y, z = jnp.tanh(x @ p["w"]), jnp.tanh(x @ p["v"])
    return y.sum(0)[:2] + y.sum(1)[:2] + z.sum() + z.max(0)[:2]


@jax.custom_jvp
def squashed(x):
    return x / 2


@squashed.defjvp
def _squashed_jvp(primals, tangents):
    (t,) = tangents
    return squashed(*primals), t[::-1] * 3  # no derivative of an elementwise function


@jax.custom_vjp
def straight_through(x):
    return jnp.sign(x)


straight_through.defvjp(lambda x: (jnp.sign(x), x), lambda x, c: (c * jnp.exp(-(x**2)),))


@model({"w": w(3, 4), "v": w(3, 4)}, rows(5, 3))
def pooled_custom_derivatives(p, x):
    return squashed(x @ p["w"]).sum(0) * straight_through(x @ p["v"]).mean(0)


@model({"w": w(3, 4), "v": w(4, 4)}, rows(3), plain="w v")
def custom_derivatives_of_weights(p, x):
    return jnp.tanh(x @ straight_through(p["w"])) @ jax.nn.relu(p["v"])
