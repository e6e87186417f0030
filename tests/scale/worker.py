"""Fills a store, for tests that kill it: `python worker.py FOLDER`. It says a word for each tile."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import everwide as ew
from everwide._fingerprint import fingerprint

FACTOR = 2.0


def inputs():
    """A network and rows, enough of them to be hit in the middle."""
    net = ew.Serial(ew.Dense(w_std=1.4, b_std=0.1), ew.Relu(), ew.Dense(1))
    return net, np.random.default_rng(0).standard_normal((320, 5))


def mark():
    """Of much that networks are made of: the same in every process."""
    mine = ew.Elementwise(lambda x: jnp.tanh(FACTOR * x))
    net = ew.Serial(ew.Conv((3,), w_std=1.3), mine, ew.GlobalAvgPool(), ew.Dense(1))
    return fingerprint(ew.Infinite(net, (5, 2)), {"a": jnp.sin}, {1, 2, "b"}, jax.nn.softplus)


if __name__ == "__main__":
    print(mark(), flush=True)
    net, x = inputs()
    ew.gram(net, x, out=ew.scale.Store(sys.argv[1]), tile=16, progress=lambda p: print(p.done, flush=True))
