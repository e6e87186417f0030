"""One kernel alone is the same numbers as in a pair, and without sites the same compiled function."""

import numpy as np
import pytest

import everwide as ew
from everwide._engine import Job
from everwide._engine._matrix import _block

pytestmark = [pytest.mark.once]

DENSE = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(), ew.Relu(), ew.Dense(1))
IMAGES = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.Flatten(), ew.Dense(1))


def test_one_kernel_is_bitwise_that_of_both():
    x = np.random.default_rng(0).standard_normal((40, 7), np.float32)
    both = ew.gram(DENSE, x)
    np.testing.assert_array_equal(ew.ntk(DENSE, x), both.ntk)
    np.testing.assert_array_equal(ew.nngp(DENSE, x), both.nngp)


def test_without_sites_one_kernel_compiles_nothing_beside_both():
    x = ew.Inputs(np.random.default_rng(0).standard_normal((5, 7), np.float32))
    y = ew.Inputs(np.random.default_rng(1).standard_normal((6, 7), np.float32))
    kernel = ew.Infinite(DENSE, (7,))
    Job(kernel, ("nngp", "ntk"))(x, y)
    compiled = _block._cache_size()
    assert list(Job(kernel, ("ntk",))(x, y)) == ["ntk"]
    assert list(Job(kernel, ("nngp",))(x, y)) == ["nngp"]
    assert _block._cache_size() == compiled


def test_with_sites_only_what_is_read_is_computed():
    x = ew.Inputs(np.random.default_rng(0).standard_normal((3, 4, 4, 1), np.float32))
    y = ew.Inputs(np.random.default_rng(1).standard_normal((2, 4, 4, 1), np.float32))
    kernel = ew.Infinite(IMAGES, (4, 4, 1))
    Job(kernel, ("nngp", "ntk"))(x, y)
    compiled = _block._cache_size()
    assert list(Job(kernel, ("nngp",))(x, y)) == ["nngp"]
    assert _block._cache_size() == compiled + 1
