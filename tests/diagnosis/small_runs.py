"""Small training runs beside a doctor, and brute force."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax

import everwide.diagnosis as dg
from everwide.diagnosis import _doctor
from everwide.training import SoftmaxCrossEntropy

LOSS = SoftmaxCrossEntropy()
CLASSES = 4


def mlp(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def init(seed=0, widths=(6, 16, 16, CLASSES)):
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise(widths)
    return [{"w": jnp.asarray(rng.normal(size=(n, m)) * (2 / n) ** 0.5, float), "b": jnp.zeros(m)} for n, m in pairs]


def rows(n=32, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6))
    return x, np.argmax(x[:, :CLASSES] + 0.1 * rng.normal(size=(n, CLASSES)), 1)


def mean_loss(params, x, y, f=mlp, loss=LOSS):
    return jnp.mean(jax.vmap(loss)(jax.vmap(f, (None, 0))(params, jnp.asarray(x, float)), jnp.asarray(y)))


def train(doctor, optimizer, params, steps=40, mask=None, told=True, data=None):
    x, y = data or rows()
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        value, slope = jax.value_and_grad(mean_loss)(params, x, y)
        change, state = optimizer.update(slope, state, params)
        change = change if mask is None else jax.tree.map(lambda c, m: c * m, change, mask)
        return optax.apply_updates(params, change), state, value

    for _ in range(steps):
        with jax.numpy_dtype_promotion("standard"):  # optax mixes them
            params, state, value = step(params, state)
        doctor(params, state, value=value if told else None)
    return params, state


def doctor(**options):
    return dg.Doctor(mlp, LOSS, **({"probe": rows(), "budget": 0.9, "batch_size": 32} | options))


def at_every_second_step(monkeypatch):
    """A clock has no say in what is measured."""
    monkeypatch.setattr(dg.Doctor, "_affordable", lambda self: True)
    monkeypatch.setattr(dg.Doctor, "_spaced", lambda self: 0)
    monkeypatch.setattr(_doctor, "_SHARES", dict.fromkeys(("curve", "kernel", "readout"), np.inf))


def brute_hessian(params, x, y):
    flat, unflatten = jax.flatten_util.ravel_pytree(params)
    return np.asarray(jax.hessian(lambda v: mean_loss(unflatten(v), x, y))(flat), np.float64)


def norm(tree):
    return np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))
