"""The work that `curvature.py` times, in numbers that both environments read."""

WORK = ("product", "top 10", "trace", "density")
MODELS = {"MLP": 128, "CNN": 64, "transformer block": 64}  # and how many rows
PEERS = ("curvlinops", "PyHessian")
PAIRS = 10
PRODUCTS = 60  # of a trace
SAMPLES, LENGTH = 4, 32  # of a density


def labels(n: int):
    """The same classes for everybody."""
    import numpy as np

    return np.random.default_rng(7).integers(0, 10, n)
