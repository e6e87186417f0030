"""What tells networks and rows apart: the same in every process, another for whatever changes the kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide._checks import InputError
from everwide._fingerprint import fingerprint

pytestmark = pytest.mark.once

FACTOR = 2.0


def helper(x):
    return FACTOR * x


def of_module(x):
    return jnp.tanh(helper(x))


def closed(scale):
    return lambda x: jnp.tanh(scale * x)


def dense(activation=None, w_std=1.0):
    return ew.Serial(ew.Dense(w_std=w_std), ew.Relu() if activation is None else activation, ew.Dense(1))


def test_whatever_differs_shows():
    different = [
        dense(),
        dense(w_std=1.5),
        dense(ew.LeakyRelu()),
        dense(ew.LeakyRelu(0.1)),
        dense(ew.Elementwise(of_module)),
        dense(ew.Elementwise(closed(1.0))),
        dense(ew.Elementwise(closed(2.0))),
        dense(ew.Elementwise(jnp.sin)),
        dense(ew.Elementwise(jax.nn.softplus)),
        ew.Serial(dense(), ew.Relu(), ew.Dense(1)),
        ew.Infinite(dense(), (3,)),
        ew.Infinite(dense(), (4,)),
        ew.Infinite(dense(), (3,), parametrization="standard", width=7),
        np.ones(3),
        np.ones(3, np.float32),
        np.ones((3, 1)),
        (1, 2),
        (12,),
    ]
    marks = [fingerprint(one) for one in different]
    assert len(set(marks)) == len(different)
    assert marks == [fingerprint(one) for one in different]
    assert fingerprint(dense(ew.Elementwise(closed(2.0)))) == marks[6]  # a new object, the same function


def test_a_function_counts_with_the_numbers_that_it_names(monkeypatch):
    before = fingerprint(of_module)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert fingerprint(of_module) != before
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert fingerprint(of_module) == before


def test_what_contains_itself_ends():
    loop = []
    loop.append(loop)
    assert fingerprint(loop) == fingerprint(loop) != fingerprint([[]])


def test_what_cannot_be_told_apart_is_refused():
    with pytest.raises(InputError, match="generator inside the network cannot be told from others"):
        fingerprint(i for i in range(3))
