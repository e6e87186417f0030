"""Random deep linear networks, drawn weight by weight."""

import numpy as np
from jaxtyping import Float

_AT_ONCE = 250  # networks


def log_norms(width: int, layers: int, draws: int, seed: int) -> Float[np.ndarray, " draws"]:
    """`log |theta|` of networks `theta . x` of so many layers, all of one width, weights of variance 1 / fan_in."""
    rng, found = np.random.default_rng(seed), []
    for start in range(0, draws, _AT_ONCE):
        some = min(_AT_ONCE, draws - start)
        theta = rng.standard_normal((some, width)) / np.sqrt(width)
        for _ in range(layers - 1):
            theta = np.einsum("mi,mij->mj", theta, rng.standard_normal((some, width, width)) / np.sqrt(width))
        found.append(np.log(np.linalg.norm(theta, axis=1)))
    return np.concatenate(found)
