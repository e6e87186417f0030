"""Finite random-feature models, trained by plain numpy: what infinite width must agree with."""

import numpy as np


class Model:
    """`f = mean over features of g * M` (mean) or `g . M / sqrt(H)` (sqrt), softmax cross-entropy."""

    def __init__(self, rows=30, features=40, outputs=3, test=5, seed=0):
        rng = np.random.default_rng(seed)
        w, b = rng.normal(size=(features, 4)), rng.normal(size=features)
        phi = lambda x: np.maximum(x @ w.T + b, 0) + 0.3 * np.cos(x @ w.T)
        self.g, self.g_test = phi(rng.normal(size=(rows, 4))), phi(rng.normal(size=(test, 4)))
        self.labels, self.width, self.outputs = rng.integers(0, outputs, rows), features, outputs
        self.m0 = rng.normal(size=(features, outputs))

    @property
    def kernel(self):
        return self.g @ self.g.T / self.width

    @property
    def kernel_test(self):
        return self.g_test @ self.g.T / self.width

    def start(self):
        """The initial function at the training and at the test rows, and its squared norm."""
        return self.g @ self.m0 / self.width, self.g_test @ self.m0 / self.width, (self.m0**2).mean(0)

    def gradient(self, m, batch, l2):
        f = self.g[batch] @ m / self.width
        p = np.exp(f - f.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        p[np.arange(len(batch)), self.labels[batch]] -= 1
        return self.g[batch].T @ p / len(batch) / self.width + l2 * m / self.width

    def adam_star(self, rate, batches, b1=0.9, b2=0.999, eps=0.0, decay=0.0, l2=0.0, m0=None):
        """Test outputs after ADAM* on the read-out of the mean model; `rate(t)` counts from 0."""
        m = np.zeros((self.width, self.outputs)) if m0 is None else m0.copy()
        first, second = np.zeros_like(m), np.zeros(self.outputs)
        for t, batch in enumerate(batches, start=1):
            g = self.gradient(m, batch, l2)
            first, second = b1 * first + (1 - b1) * g, b2 * second + (1 - b2) * (g**2).mean(0)
            now = rate(t - 1) if callable(rate) else rate
            step = (first / (1 - b1**t)) / (np.sqrt(second / (1 - b2**t)) + eps / self.width)
            m = (1 - now * decay) * m - now * step
        return self.g_test @ m / self.width

    def sgd(self, rate, batches, momentum=0.0, nesterov=False, decay=0.0, l2=0.0, m0=None):
        """Test outputs after gradient descent: the mean model with gradients times the width is the sqrt model."""
        m = np.zeros((self.width, self.outputs)) if m0 is None else m0.copy()
        trace = np.zeros_like(m)
        for batch in batches:
            g = self.gradient(m, batch, l2) * self.width
            trace = g + momentum * trace
            m = (1 - rate * decay) * m - rate * (g + momentum * trace if nesterov else trace)
        return self.g_test @ m / self.width
