"""The work that `curvature.py` times, in numbers that both environments read."""

WORK = ("20 products", "top 10", "trace", "density")
MODELS = {"MLP": 128, "CNN": 64, "transformer block": 64}  # and how many rows
PEERS = ("curvlinops", "PyHessian")
IN_A_ROW = 20  # products, one after the other, as every iteration takes them
PAIRS = 10
PRODUCTS = 60  # of a trace
SAMPLES, LENGTH = 4, 32  # of a density


def in_a_row(product):
    """The last of so many."""
    for _ in range(IN_A_ROW):
        result = product()
    return result


def labels(n: int):
    """The same classes for everybody."""
    import numpy as np

    return np.random.default_rng(7).integers(0, 10, n)
