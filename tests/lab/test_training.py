"""The loop in which all networks of finite width learn, against steps by hand."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everwide_lab._training import begin, compiled, descend

pytestmark = pytest.mark.once

MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
TARGETS = np.array([[1.0, -1.0], [0.0, 2.0], [3.0, 0.5]])
START = np.array([0.3, -0.7])


def loss(params, step):
    apart = params - jnp.asarray(TARGETS, params.dtype)[step % 3]
    return apart @ jnp.asarray(MATRIX, params.dtype) @ apart / 2


def by_hand(steps, rate, momentum):
    """Parameters, and the losses before every step: heavy ball, one target after the other."""
    here, speed, losses = START.copy(), np.zeros(2), []
    for step in range(steps):
        apart = here - TARGETS[step % 3]
        losses.append(apart @ MATRIX @ apart / 2)
        speed = momentum * speed + MATRIX @ apart
        here = here - rate * speed
    return here, losses


@compiled
def run(params, first, second, enough):
    rule = optax.sgd(0.1, 0.8)
    middle = descend(loss, rule, begin(params, rule), first, enough)
    return middle, descend(loss, rule, middle, second)


def test_steps_are_those_of_momentum_and_go_on_where_they_stopped():
    middle, end = run(jnp.asarray(START), jnp.asarray(4), jnp.asarray(3), None)
    params, losses = by_hand(7, 0.1, 0.8)
    np.testing.assert_allclose(middle.params, by_hand(4, 0.1, 0.8)[0], rtol=1e-5)
    np.testing.assert_allclose(end.params, params, rtol=1e-5)
    np.testing.assert_allclose([middle.total, end.total], [sum(losses[:4]), sum(losses[4:])], rtol=1e-5)
    np.testing.assert_allclose(end.loss, losses[-1], rtol=1e-5)
    assert (int(middle.steps), int(end.steps)) == (4, 7)


def test_it_stops_when_the_loss_is_small_enough():
    losses = by_hand(40, 0.1, 0.8)[1]
    enough = sorted(losses)[3]
    wanted = 1 + next(i for i, value in enumerate(losses) if value <= enough)  # the step in which it is seen
    middle, _ = run(jnp.asarray(START), jnp.asarray(40), jnp.asarray(0), jnp.asarray(enough * (1 + 1e-4)))
    assert int(middle.steps) == wanted < 40
