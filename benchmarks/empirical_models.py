"""The models of `empirical_work.py` as JAX functions of one example: for us, for naive Jacobians, and the incumbent."""

import jax
import jax.numpy as jnp
from empirical_work import HEADS
from jax import lax


def mlp(p, x):
    *hidden, last = p["layers"]
    for layer in hidden:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def cnn(p, x):
    x = x[None]
    for layer in p["layers"]:
        x = lax.conv_general_dilated(x, layer["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + layer["b"])
    return x.mean((1, 2))[0] @ p["head"]["w"] + p["head"]["b"]


def transformer(p, x):
    h = x @ p["embed"]["w"]
    h = h + _attention(p, _norm(p["norm1"], h))
    z = _norm(p["norm2"], h)
    h = h + jax.nn.gelu(z @ p["up"]["w"] + p["up"]["b"]) @ p["down"]["w"] + p["down"]["b"]
    return _norm(p["norm3"], h).mean(0) @ p["head"]["w"] + p["head"]["b"]


def _norm(p, h):
    h = h - h.mean(-1, keepdims=True)
    return h * lax.rsqrt((h**2).mean(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]


def _attention(p, z):
    split = lambda name: (z @ p[name]["w"]).reshape(len(z), HEADS, -1)
    q, k, v = map(split, "qkv")
    scores = jnp.einsum("thc,shc->hts", q, k) / q.shape[-1] ** 0.5
    mixed = jnp.einsum("hts,shc->thc", jax.nn.softmax(scores, -1), v)
    return mixed.reshape(z.shape) @ p["o"]["w"]


def wave_function(p, spins):
    """The logarithm of the amplitude of a configuration of spins: complex, and holomorphic in its parameters."""
    h = spins.astype(jnp.complex64)
    for layer in p["layers"]:
        h = jnp.log(jnp.cosh(h @ layer["w"] + layer["b"]))
    return h.sum()


def solution(p, x):
    *hidden, last = p["layers"]
    for layer in hidden:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return (x @ last["w"] + last["b"])[0]


def residual(p, x):
    """Of Poisson's equation."""
    return jnp.trace(jax.hessian(solution, 1)(p, x)) - jnp.sin(x).prod()


MODELS = {"MLP": mlp, "CNN": cnn, "transformer block": transformer, "wave function": wave_function, "PINN": residual}
