"""What curvature, activations and gradients come from, against plain sums over rows and labels; neural collapse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from everwide.diagnosis import activation_levels, backprop_levels, gauss_newton, gradient_levels, neural_collapse
from everwide.training import SoftmaxCrossEntropy

pytestmark = pytest.mark.wide
RNG = np.random.default_rng(0)
C, D, H, N = 4, 6, 10, 48
LABELS = np.arange(N) % C
X = (2.0 * RNG.normal(size=(C, D)))[LABELS] + RNG.normal(size=(N, D))
PARAMS = {
    "a": jnp.asarray(0.5 * RNG.normal(size=(H, D)), float),
    "b": jnp.asarray(0.5 * RNG.normal(size=(C, H)), float),
}


def hidden(params, x):
    return jnp.tanh(params["a"] @ x)


def f(params, x):
    return params["b"] @ hidden(params, x)


def by_hand(vectors, weights):
    """The four parts as the ledger has them, one row and one label at a time."""
    size = vectors.shape[-1]
    between, cross, within, own = (np.zeros((size, size)) for _ in range(4))
    for c in range(C):
        means = {}
        for label in range(C):
            rows = [i for i in range(N) if LABELS[i] == c]
            if label == c:
                own += sum(weights[i, c] * np.outer(vectors[i, c], vectors[i, c]) for i in rows)
                continue
            total = sum(weights[i, label] for i in rows)
            mean = sum(weights[i, label] * vectors[i, label] for i in rows) / total
            means[label] = total, mean
            for i in rows:
                within += weights[i, label] * np.outer(vectors[i, label] - mean, vectors[i, label] - mean)
        weight = sum(total for total, _ in means.values())
        centre = sum(total * mean for total, mean in means.values()) / weight
        between += weight * np.outer(centre, centre)
        cross += sum(total * np.outer(mean - centre, mean - centre) for total, mean in means.values())
    return between, cross, within, own


def test_curvature():
    flat, unravel = ravel_pytree(PARAMS)
    x = jnp.asarray(X, float)
    outputs = lambda p: jax.vmap(lambda x: f(unravel(p), x))(x)
    chances = np.asarray(jax.nn.softmax(outputs(flat)), np.float64)
    jacobian = np.asarray(jax.jacobian(outputs)(flat), np.float64)
    vectors = np.einsum("nkp,nck->ncp", jacobian, chances[:, None, :] - np.eye(C))
    expected = by_hand(vectors, chances / N)
    parts = gradient_levels(f, PARAMS, X, LABELS)
    unit, exact = np.eye(len(flat)), flat.dtype == np.float64
    for got, part in zip(parts, expected, strict=True):
        assert np.allclose(got @ unit, part, atol=1e-12 if exact else 1e-5)
    whole = gauss_newton(f, PARAMS, X, LABELS, loss=SoftmaxCrossEntropy()) @ unit
    assert np.allclose(sum(np.asarray(part @ unit) for part in parts), whole, atol=1e-12 if exact else 1e-5)
    values = parts.between.eigenvalues()
    assert len(values) == C
    assert np.allclose(values, np.linalg.eigvalsh(expected[0])[::-1][:C], atol=1e-12 if exact else 1e-5)
    rank = np.linalg.matrix_rank(expected[1], tol=1e-9 * np.abs(expected[1]).max())
    assert rank <= C * (C - 2)


def test_what_flows_back():
    features = np.asarray(jax.vmap(lambda x: hidden(PARAMS, x))(jnp.asarray(X, float)))
    weight = np.asarray(PARAMS["b"], np.float64)
    parts = backprop_levels(lambda h: PARAMS["b"] @ h, features, LABELS)
    outputs = features.astype(np.float64) @ weight.T
    chances = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    deltas = (chances[:, None, :] - np.eye(C)) @ weight
    for got, part in zip(parts, by_hand(deltas, chances / N), strict=True):
        assert np.allclose(got, part, atol=1e-6)


def test_activations():
    features = RNG.normal(size=(N, 5)) + LABELS[:, None]
    labels = np.where(np.arange(N) < 30, 0, LABELS)  # classes of different sizes
    parts = activation_levels(features, labels)
    assert np.allclose(sum(parts), features.T @ features / N)
    assert np.linalg.matrix_rank(parts.mean) == 1
    assert np.linalg.matrix_rank(parts.between) == len(np.unique(labels)) - 1
    inside = np.concatenate([features[labels == c] - features[labels == c].mean(0) for c in np.unique(labels)])
    assert np.allclose(parts.within, inside.T @ inside / N)


def collapse_by_hand(h, weights):
    means = np.array([h[c == LABELS].mean(0) for c in range(C)])
    centred = means - means.mean(0)
    within = sum(np.outer(h[i] - means[LABELS[i]], h[i] - means[LABELS[i]]) for i in range(N)) / N
    between = centred.T @ centred / C
    lengths = np.linalg.norm(centred, axis=1)
    cosines = [centred[a] @ centred[b] / lengths[a] / lengths[b] for a in range(C) for b in range(C) if a != b]
    nearest = [np.argmin([np.sum((row - mean) ** 2) for mean in means]) for row in h]
    return (
        np.trace(within @ np.linalg.pinv(between, rcond=1e-8)) / C,
        lengths.std() / lengths.mean(),
        np.mean(np.abs(np.array(cosines) + 1 / (C - 1))),
        np.linalg.norm(weights / np.linalg.norm(weights) - centred / np.linalg.norm(centred)),
        np.mean((h @ weights.T).argmax(1) != nearest),
    )


@pytest.mark.parametrize("gap", [90.0, 120.0, 800.0])
def test_of_confident_networks_nothing_is_lost(gap):
    levels = backprop_levels(lambda h: h, gap * np.eye(3), [0, 1, 2])
    assert all(np.isfinite(part).all() for part in levels)
    # three rows, two other labels of chance exp(-gap), and a slope of squared length 2 for each
    assert sum(np.trace(part) for part in levels) == pytest.approx(4 * np.exp(-gap), rel=1e-5, abs=0)
    weights, unit = gap * jnp.eye(3), np.eye(9, dtype=np.float32)
    parts = gradient_levels(lambda w, x: w @ x, weights, np.eye(3), [0, 1, 2])
    assert all(np.isfinite(np.asarray(part @ unit)).all() for part in parts)


@pytest.mark.parametrize("d", [3, 8, 60])
def test_collapse(d):
    h, weights = RNG.normal(size=(N, d)) + RNG.normal(size=(C, d))[LABELS], RNG.normal(size=(C, d))
    assert np.allclose(neural_collapse(h, LABELS, weights), collapse_by_hand(h, weights))
    assert neural_collapse(h, LABELS).duality is None


def test_features_that_are_free_collapse_under_weight_decay():
    """The unconstrained-feature model: gradient descent on features and weights ends at a simplex."""
    h, weights = 0.5 * RNG.normal(size=(N, 8)), 0.5 * RNG.normal(size=(C, 8))
    before = neural_collapse(h, LABELS, weights)
    for _ in range(20_000):
        outputs = np.exp(h @ weights.T)
        slopes = (outputs / outputs.sum(1, keepdims=True) - np.eye(C)[LABELS]) / N
        h, weights = (
            h - 2.0 * (slopes @ weights + 5e-4 * h),
            weights - 0.5 * (slopes.T @ h + 5e-4 * weights * N / C),
        )
    after = neural_collapse(h, LABELS, weights)
    assert max(after) < 2e-2
    assert max(before[:4]) > 0.3


def test_biases_count_for_what_is_said():
    h, weights = np.eye(C)[LABELS] + 0.01 * RNG.normal(size=(N, C)), np.eye(C)
    assert neural_collapse(h, LABELS, weights).centres == 0
    assert neural_collapse(h, LABELS, weights, biases=[9.0, 0, 0, 0]).centres == 0.75


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: neural_collapse(X, np.zeros(N, int)), "All rows have the label 0"),
        (lambda: neural_collapse(X, LABELS[:-1]), "there are 47 labels"),
        (lambda: neural_collapse(X, LABELS, np.ones((D, C))), "Transpose"),
        (lambda: neural_collapse(X * np.nan, LABELS), "features"),
        (lambda: gradient_levels(f, PARAMS, X, np.eye(C)[LABELS]), "probabilities"),
        (lambda: activation_levels(X, LABELS[:-1]), "they must agree"),
        (lambda: backprop_levels(lambda h: h, X, LABELS[:-1]), "they must agree"),
        (lambda: backprop_levels(lambda h: h[:1], X, np.zeros(N, int)), r"shape \(48, 1\), expected \(n, 2\) or more"),
        (lambda: gradient_levels(lambda w, x: w @ x, np.ones((1, D)), X, np.zeros(N, int)), "or more classes"),
        (lambda: activation_levels(X[:, 0], LABELS), r"features have shape \(48,\)"),
        (lambda: activation_levels(X[:, :, None], LABELS), "Flatten each row"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
