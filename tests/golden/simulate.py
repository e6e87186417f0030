"""Kernels of wide networks by simulation in plain numpy: `python tests/golden/simulate.py` writes simulated.json.

Nothing of everwide is used. Weights have an imaginary part, `h` times a random direction `v`: what comes out has the
outputs `f` as its real and `h J v` as its imaginary part (complex steps, exact for small `h`). Averaged over networks,
directions and output channels, `f f^T` is the NNGP and `J v (J v)^T` the tangent kernel at this width; two widths give
the limit without its 1 / width part.
"""

import json
import sys
from pathlib import Path

import numpy as np

H = 1e-20
EXAMPLES, SITES, CHANNELS, OUTPUTS = 3, 5, 2, 48
X = np.round(np.random.default_rng(7).normal(size=(EXAMPLES, SITES, CHANNELS)), 3)


class Weights:
    """Standard normal weights, each with a direction."""

    def __init__(self, rng):
        self.rng = rng

    def __call__(self, *shape):
        return self.rng.standard_normal(shape) + 1j * H * self.rng.standard_normal(shape)

    def dense(self, x, out, w_std, b_std):
        return w_std / np.sqrt(x.shape[-1]) * (x @ self(x.shape[-1], out)) + b_std * self(out)


def relu(x):
    return np.where(x.real > 0, x, 0)


def crop_network(weights, x, width):
    """A convolution over three sites with zeros around, relu, the inner sites, a dense layer, relu, their mean."""
    padded = np.pad(x.astype(complex), ((0, 0), (1, 1), (0, 0)))
    patches = np.concatenate([padded[:, i : i + SITES] for i in range(3)], -1)
    h = relu(weights.dense(patches, width, 1.3, 0.2))[:, 1:-1]
    return weights.dense(relu(weights.dense(h, width, 1.2, 0.1)).mean(1), OUTPUTS, 1.1, 0.3)


def causal_attention_network(weights, x, width):
    """Dense, attention to oneself and those before (scores over the key width, queries are keys), relu, last site."""
    h = weights.dense(x.astype(complex), width, 1.4, 0.3)
    heads, keys = width // 4, width // 2
    total = 0
    for _ in range(heads):
        query = h @ weights(width, keys) / np.sqrt(width)
        score = np.exp(1.1 * 0.9 * query @ query.transpose(0, 2, 1) / keys) * np.tri(SITES)
        value = 1.2 * h @ weights(width, keys) / np.sqrt(width)
        seen = score / score.sum(-1, keepdims=True) @ value
        total = total + seen @ weights(keys, width) * (0.8 / np.sqrt(heads * keys))
    return weights.dense(relu(total)[:, -1], OUTPUTS, 1.5, 0.2)


def rms_norm_network(weights, x, width):
    """Dense, relu, every site over its root mean square, dense, relu, the mean over sites."""
    h = relu(weights.dense(x.astype(complex), width, 1.3, 0.4))
    h = h / np.sqrt((h * h).mean(-1, keepdims=True))
    return weights.dense(relu(weights.dense(h, width, 1.2, 0.5)).mean(1), OUTPUTS, 1.0, 0.1)


NETWORKS = {
    "crop": (crop_network, (192, 384), 2000),
    "causal_attention": (causal_attention_network, (64, 128), 1000),
    "rms_norm": (rms_norm_network, (192, 384), 2000),
}


def kernels(network, width, draws, rng):
    """Means and standard errors of NNGP and tangent kernel, `(2, n, n)` each."""
    drawn = []
    for _ in range(draws):
        y = network(Weights(rng), X, width)
        drawn.append([part @ part.T / OUTPUTS for part in (y.real, y.imag / H)])
    return np.mean(drawn, 0), np.std(drawn, 0, ddof=1) / np.sqrt(draws)


def simulated(name):
    network, (small, large), draws = NETWORKS[name]
    rng = np.random.default_rng(sorted(NETWORKS).index(name))
    (low, low_error), (high, high_error) = (kernels(network, w, draws, rng) for w in (small, large))
    a, b = large / (large - small), small / (large - small)
    values, errors = a * high - b * low, np.hypot(a * high_error, b * low_error)
    rounded = lambda part: [[[float(f"{v:.6g}") for v in row] for row in kernel] for kernel in part]
    return {"nngp_and_ntk": rounded(values), "standard_errors": rounded(errors)}


def main(*names):
    path = Path(__file__).with_name("simulated.json")
    stored = json.loads(path.read_text()) if path.exists() else {}
    out = stored | {"x": X.tolist()} | {name: simulated(name) for name in names or NETWORKS}
    path.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
