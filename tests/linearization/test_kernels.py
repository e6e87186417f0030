"""Distances of kernels against their definitions in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everwide import InputError
from everwide.linearization import kernel_distance, label_alignment
from everwide.testing._draws import exact_for

pytestmark = pytest.mark.wide

DTYPE = jnp.result_type(float)


def kernels(n=7):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, n, 4))
    return a @ a.T + 0.5, b @ b.T + 2.0


def hsic(a, b):
    centring = np.eye(len(a)) - 1 / len(a)
    return np.trace(a @ centring @ b @ centring)


def test_distances_are_what_they_are_defined_as():
    k0, k1 = kernels()
    found = kernel_distance(jnp.asarray(k0, DTYPE), jnp.asarray(k1, DTYPE))
    expected = {
        "frobenius": np.linalg.norm(k1 - k0),
        "relative": np.linalg.norm(k1 - k0) / np.linalg.norm(k0),
        "operator": np.linalg.norm(k1 - k0, 2),
        "alignment": np.trace(k0 @ k1) / np.linalg.norm(k0) / np.linalg.norm(k1),
        "cka": hsic(k0, k1) / np.sqrt(hsic(k0, k0) * hsic(k1, k1)),
    }
    assert set(expected) == set(found._fields)
    for name, value in expected.items():
        assert exact_for(DTYPE).excess(getattr(found, name), value) < 1, name


def test_what_similarities_ignore():
    k0, _ = kernels()
    found = kernel_distance(k0, 3 * k0 + 1)  # CKA: a factor and a constant; alignment: a factor
    assert float(found.cka) == pytest.approx(1, abs=1e-5)
    assert float(found.alignment) < 0.999
    assert float(kernel_distance(k0, 3 * k0).alignment) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("outputs", [(), (3,)])
def test_label_alignment_is_what_it_is_defined_as(outputs):
    k, _ = kernels()
    y = np.random.default_rng(1).normal(size=(len(k), *outputs)) + 1
    labels = y.reshape(len(y), -1) @ y.reshape(len(y), -1).T
    found = label_alignment(k, y)
    plain = np.sum(k * labels) / np.linalg.norm(k) / np.linalg.norm(labels)
    assert exact_for(DTYPE).excess(found.uncentred, plain) < 1
    assert exact_for(DTYPE).excess(found.centred, hsic(k, labels) / np.sqrt(hsic(k, k) * hsic(labels, labels))) < 1


def test_gradients_and_jit():
    k0, k1 = (jnp.asarray(k, DTYPE) for k in kernels())
    slope = jax.jit(jax.grad(lambda k: kernel_distance(k0, k).frobenius))(k1)
    assert exact_for(DTYPE).excess(slope, (k1 - k0) / jnp.linalg.norm(k1 - k0)) < 1


def test_asymmetry_is_found_inside_jit():
    with pytest.raises(Exception, match="kernel is not symmetric"):
        jax.block_until_ready(jax.jit(label_alignment)(jnp.asarray([[1.0, 0.5], [0.0, 1.0]]), jnp.ones(2)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones((2, 3)), r"k1 has shape \(2, 3\), expected a kernel"),
        (np.ones((2, 2, 1, 1)), "outputs"),
        (np.ones((0, 0)), "shape"),
        (np.eye(2, dtype=int), "expected floating-point"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "k1 is not symmetric"),
        (np.eye(3), r"k0 has shape \(2, 2\) and k1 \(3, 3\)"),
    ],
)
def test_kernels_that_cannot_be_compared(bad, message):
    with pytest.raises(InputError, match=message):
        kernel_distance(np.eye(2), bad)


@pytest.mark.parametrize("y", [np.ones(3), np.ones((2, 1, 1)), np.ones(())])
def test_labels_that_do_not_fit(y):
    with pytest.raises(InputError, match="y has shape"):
        label_alignment(np.eye(2), y)
