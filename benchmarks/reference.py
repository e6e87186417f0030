"""The kernels of a dense ReLU network in 50 digits, from the arc-cosine formulas, one pair of rows at a time."""

import mpmath as mp
import numpy as np
from work import Net

DIGITS = 50


def relu_pair(x: np.ndarray, y: np.ndarray, net: Net) -> tuple[mp.mpf, mp.mpf]:
    """NNGP and NTK of two rows, taken as the exact numbers that they are. Cho and Saul (2009), Jacot et al. (2018)."""
    if net.activation != "Relu" or net.end:
        raise ValueError(f"relu_pair knows dense ReLU networks, got {net}.")
    with mp.workdps(DIGITS):
        xx, xy, yy = (2 * _dot(a, b) / len(a) for a, b in ((x, x), (x, y), (y, y)))  # w_std^2 = 2
        ntk = xy
        for step in range(net.depth):
            cosine = min(mp.mpf(1), max(mp.mpf(-1), xy / mp.sqrt(xx * yy)))
            angle = mp.acos(cosine)
            moment = mp.sqrt(xx * yy) * (mp.sin(angle) + (mp.pi - angle) * cosine) / (2 * mp.pi)
            slope = (mp.pi - angle) / (2 * mp.pi)
            gain = 1 if step == net.depth - 1 else 2  # the last layer has w_std = 1
            xx, yy, xy = gain * xx / 2, gain * yy / 2, gain * moment
            ntk = xy + gain * slope * ntk
        return xy, ntk


def _dot(a: np.ndarray, b: np.ndarray) -> mp.mpf:
    return mp.fdot((mp.mpf(float(u)), mp.mpf(float(v))) for u, v in zip(a, b, strict=True))


def relative_error(found: float, exact: mp.mpf) -> float:
    """`abs(found / exact - 1)`, without rounding the exact value first."""
    with mp.workdps(DIGITS):
        return float(abs(mp.mpf(float(found)) / exact - 1))
