"""Kernel regression by its definition: fitted again for each question, in plain numpy."""

import numpy as np
import scipy.linalg

RNG = np.random.default_rng


def kernel(n, seed=0, features=None):
    """A Gaussian kernel, whose diagonal varies; of low rank where there are fewer features than rows."""
    rng = RNG(seed)
    if features:
        half = rng.normal(size=(n, features))
        return half @ half.T
    x = rng.normal(size=(n, 2))
    size = rng.uniform(0.5, 2.0, n)
    return size[:, None] * np.exp(-0.5 * np.sum((x[:, None] - x) ** 2, axis=-1)) * size


def ridge_at(cross, k, y, ridge, weights):
    """The prediction at rows whose kernel with the training rows is `cross`."""
    return cross @ np.linalg.solve(k + np.diag(ridge / weights), y)


def flow_at(cross, k, y, time, weights):
    """After gradient flow `a' = w (y - k a)` from 0: the solution of an affine equation, by one matrix exponential."""
    n, outputs = y.shape
    generator = np.zeros((n + outputs, n + outputs))
    generator[:n, :n], generator[:n, n:] = -weights[:, None] * k, weights[:, None] * y
    return cross @ scipy.linalg.expm(time * generator)[:n, n:]


def each_without_one_copy(predict, k, y, weights, copies):
    """`predict(cross, k, y, weights)` of each row, from all others and from all but one of its own copies."""
    found = np.empty_like(y)
    for row in range(len(y)):
        less = weights.copy()
        less[row] *= max(1 - 1 / copies[row], 0)
        kept = np.flatnonzero(less > 1e-12)
        found[row] = predict(k[row, kept], k[np.ix_(kept, kept)], y[kept], less[kept])
    return found


def process_variance(own, cross, k, noise):
    """Of a Gaussian process at one row, given others with this noise."""
    return own - cross @ np.linalg.solve(k + np.diag(noise), cross)
