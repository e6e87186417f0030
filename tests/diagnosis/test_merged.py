"""Sums of two products of matrices as one product, against the programs that they were."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everwide.diagnosis import gauss_newton, hessian
from everwide.diagnosis._merged import merged
from everwide.training import SoftmaxCrossEntropy

RNG = np.random.default_rng(0)
A, B, C, D = (jnp.asarray(RNG.normal(size=shape)) for shape in ((3, 20), (3, 30), (4, 20), (4, 30)))


def _summed(a, b, lengths):
    """Over two axes."""
    return jnp.tensordot(a.reshape(*lengths, -1), b.reshape(*lengths, -1), axes=((0, 1), (0, 1)))


PROGRAMS = {
    "merged": (lambda p: [p[0].T @ p[1] + p[2].T @ p[3]], 1),
    "transposed": (lambda p: [(p[0].T @ p[1]).T + (p[2].T @ p[3]).T], 1),
    "transposed differently": (lambda p: [p[0].T @ p[1] + (p[3].T @ p[2]).T], 2),
    "square, one transposed": (lambda p: [p[0].T @ p[0] ** 2 + (p[2].T @ p[2] ** 2).T], 2),
    "two sums of other lengths": (lambda p: [_summed(*p[:2], (3, 1)) + _summed(*p[2:], (2, 2))], 2),
    "read twice": (lambda p: [(s := p[0].T @ p[1]) + p[2].T @ p[3], s], 2),
    "a result": (lambda p: [s := p[0].T @ p[1], s + p[2].T @ p[3]], 2),
    "no products": (lambda p: [p[0] + p[0], p[1] + 1.0], 0),
    "large factors": (lambda p: [p[0] @ p[0].T + p[0] @ p[0].T], 2),
    "batches": (lambda p: [jnp.einsum("bi,bj->bij", p[0], p[1]) + jnp.einsum("bi,bj->bij", p[0], p[1])], 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_the_same(name):
    program, _ = PROGRAMS[name]
    parts = [A, B, C, D]
    for got, expected in zip(merged(program)(parts), program(parts), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_where_it_pays_there_is_one_product(name):
    program, expected = PROGRAMS[name]
    parts = [A, B, C, D]
    text = str(jax.make_jaxpr(merged(program))(parts))
    joined = text.count("concatenate[")
    assert joined == (2 if expected == 1 else 0)


@pytest.mark.parametrize("door", [hessian, gauss_newton])
def test_matrices_of_large_weights(door):
    """So few rows that all weights are merged."""
    shapes = ((5, 40), (40, 40), (40, 3))
    params = [jnp.asarray(RNG.normal(size=shape) / shape[0] ** 0.5) for shape in shapes]
    x, labels, loss = jnp.asarray(RNG.normal(size=(4, 5))), jnp.arange(4) % 3, SoftmaxCrossEntropy()

    def f(params, x):
        for w in params[:-1]:
            x = jnp.tanh(x @ w)
        return x @ params[-1]

    outputs = lambda p: jax.vmap(lambda one: f(p, one))(x)
    total = lambda out: jnp.mean(jax.vmap(loss)(out, labels))
    vector = [jnp.asarray(RNG.normal(size=shape)) for shape in shapes]
    if door is hessian:
        expected = jax.jvp(jax.grad(lambda p: total(outputs(p))), (params,), (vector,))[1]
    else:
        out, tangents = jax.jvp(outputs, (params,), (vector,))
        expected = jax.vjp(outputs, params)[1](jax.jvp(jax.grad(total), (out,), (tangents,))[1])[0]
    flat = lambda parts: np.concatenate([np.ravel(part) for part in parts])
    op = door(f, params, x, labels, loss=loss)
    rounding = 1e-10 if flat(params).dtype == np.float64 else 1e-5
    np.testing.assert_allclose(op @ flat(vector), flat(expected), atol=rounding)
    np.testing.assert_allclose(op.prepared() @ flat(vector), flat(expected), atol=rounding)
