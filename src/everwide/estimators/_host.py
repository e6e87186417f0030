"""Kernels of ReLU networks on the host, from second moments of what their first layer sees: nothing is compiled.

In float64, since nearly equal rows lie at the kink of a tangent kernel, where float32 loses them.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from threadpoolctl import ThreadpoolController

_EQUAL = 16 * float(np.finfo(np.float64).eps)
_TILE = 256  # rows of a kernel that are computed at once


class Tower(NamedTuple):
    """The tangent kernel of pairs, and its derivatives in their moments, both variances and the speed."""

    kernel: np.ndarray
    by_moment: np.ndarray
    by_left: np.ndarray
    by_right: np.ndarray
    by_speed: np.ndarray


def tower_slopes(
    moment: np.ndarray, left: np.ndarray, right: np.ndarray, bias: float, speed: float, depth: int
) -> Tower:
    """Arc-cosine kernels (Cho and Saul 2009); derivatives go forward with them."""
    cov, one, two = moment + bias, left + bias, right + bias
    kernel, cov_m, ker_m = cov, np.ones_like(cov), np.ones_like(cov)
    cov_l = cov_r = ker_l = ker_r = ker_s = np.zeros_like(cov)
    for _ in range(depth):
        size, cosine, sine, share = _angles(cov, one, two)
        bend = speed * kernel / (math.pi * np.maximum(sine, 1e-6) * size)
        edge = 0.5 * size * sine / math.pi
        ker_s = (speed * ker_s + kernel) * share
        cov = size * (sine / math.pi + cosine * share) + bias
        lean = 0.5 * cosine * size
        turn_l, turn_r = cov_l - lean / one, cov_r - lean / two
        ker_m, cov_m = speed * ker_m * share + bend * cov_m + share * cov_m, share * cov_m
        cov_l, cov_r = share * cov_l + edge / one, share * cov_r + edge / two
        ker_l = speed * ker_l * share + bend * turn_l + cov_l
        ker_r = speed * ker_r * share + bend * turn_r + cov_r
        kernel, one, two = speed * kernel * share + cov, one + bias, two + bias
    return Tower(kernel, ker_m, ker_l, ker_r, ker_s)


def tower(moment: np.ndarray, left: np.ndarray, right: np.ndarray, bias: float, speed: float, depth: int) -> np.ndarray:
    """The kernel alone; the moments are used up."""
    cov, one, two = moment, left + bias, right + bias
    cov += bias
    kernel = cov.copy()
    for _ in range(depth):
        size, cosine, sine, share = _angles(cov, one, two)
        cosine *= share
        sine /= math.pi
        cosine += sine
        cov = np.multiply(cosine, size, out=cosine)
        cov += bias
        if speed:
            share *= speed
            kernel *= share
            kernel += cov
        one, two = one + bias, two + bias
    return kernel if speed else cov


def own_tower(variance: np.ndarray, bias: float, speed: float, depth: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The tangent kernel of rows with themselves, its derivative in the speed, and in the variances."""
    cov = kernel = variance + bias
    by_speed, by_variance = np.zeros_like(cov), 1.0
    for _ in range(depth):
        cov = cov + bias
        by_speed = speed * by_speed + kernel
        kernel, by_variance = speed * kernel + cov, speed * by_variance + 1
    return kernel, by_speed, by_variance


def _angles(cov: np.ndarray, one: np.ndarray, two: np.ndarray) -> tuple[np.ndarray, ...]:
    """Size, cosine and sine of the angle, and the share of half-spaces that hold both.

    Rows that are equal up to rounding are equal, since an angle is the root of what is lost.
    """
    size = np.sqrt(one) * np.sqrt(two)
    cosine = cov / size
    np.clip(cosine, -1, 1, out=cosine)
    np.copyto(cosine, 1.0, where=cosine > 1 - _EQUAL)
    share = np.arccos(cosine)
    share /= -math.pi
    share += 1
    sine = cosine**2
    np.subtract(1, sine, out=sine)
    return size, cosine, np.sqrt(sine, out=sine), share


def nearness(
    u: Float[np.ndarray, "m d"], v: Float[np.ndarray, "n d"], weights: np.ndarray, length: float
) -> np.ndarray:
    """`sum_j w_j exp(-|u_j - v_j| / length)`: of two quotients of exponentials the smaller one."""
    up, down = np.exp(u.T / length), np.exp(v.T / length)
    total, first, second = (np.zeros((len(u), len(v))) for _ in range(3))
    for weight, a, b in zip(weights, up, down, strict=True):
        if weight > 0:
            np.multiply.outer(weight * a, 1 / b, out=first)
            np.multiply.outer(weight / a, b, out=second)
            total += np.minimum(first, second, out=first)
    return total


def distances(u: Float[np.ndarray, "m d"], v: Float[np.ndarray, "n d"], rates: np.ndarray) -> np.ndarray:
    """`sum_j rates_j |u_j - v_j|`."""
    total, one = (np.zeros((len(u), len(v))) for _ in range(2))
    for rate, a, b in zip(rates, u.T, v.T, strict=True):
        if rate > 0:
            np.subtract.outer(rate * a, rate * b, out=one)
            total += np.abs(one, out=one)
    return total


def tiled(
    block: Callable[[slice, slice], np.ndarray], rows: int, columns: int, symmetric: bool
) -> Float[np.ndarray, "rows columns"]:
    """A matrix from blocks of its rows, on all cores; of a symmetric one only the lower triangle is asked for."""
    whole = np.empty((rows, columns))
    parts = [slice(start, min(start + _TILE, rows)) for start in range(0, rows, _TILE)]

    def fill(part: slice) -> None:
        seen = slice(0, part.stop if symmetric else columns)
        whole[part, seen] = block(part, seen)
        if symmetric:
            whole[: part.start, part] = whole[part, : part.start].T

    if len(parts) == 1:
        fill(parts[0])
        return whole
    with one_thread_each(), ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        list(threads.map(fill, reversed(parts)))
    return whole


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()  # looking for libraries takes longer than a small kernel


def one_thread_each() -> Any:
    """While threads of ours are at work: small products would only wait for more."""
    return _pools().limit(limits=1, user_api="blas")
