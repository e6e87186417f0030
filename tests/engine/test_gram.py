"""Kernel matrices of data sets: symmetry, tiles, dtypes, memory, progress.

Matrices have the dtype of the data, whatever the default is. The tests that show this run with either default; the
others, with float64 data, run once.
"""

import os
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import pytest

import everwide as ew
from everwide._engine import Size, fitted, tiles
from everwide._engine._matrix import _block

pytestmark = pytest.mark.as_users

NET = ew.Serial(ew.Dense(w_std=1.4, b_std=0.1), ew.Relu(), ew.Dense(w_std=1.4, b_std=0.1), ew.Relu(), ew.Dense(1))
CNN = ew.Serial(ew.Conv((3,), w_std=1.4, b_std=0.1), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))


def rows(n: int, *shape: int, dtype: type = np.float64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, *shape)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("net", "shape"), [(NET, (7,)), (CNN, (6, 2))])
def test_symmetric_bitwise_in_the_dtype_of_the_data(net, shape, dtype):
    k = ew.gram(net, rows(23, *shape, dtype=dtype), tile=5)
    for matrix in k:
        assert matrix.dtype == dtype
        assert (matrix == matrix.T).all()


@pytest.mark.once
@pytest.mark.parametrize(("net", "shape"), [(NET, (7,)), pytest.param(CNN, (6, 2), marks=pytest.mark.slow)])
def test_tiles_change_nothing(net, shape):
    x, y = rows(23, *shape), rows(11, *shape, seed=1)
    whole, cross = ew.gram(net, x), ew.gram(net, x, y)
    for tile in (1, 4, 23, 100):
        np.testing.assert_allclose(ew.gram(net, x, tile=tile).ntk, whole.ntk, rtol=1e-12)
        np.testing.assert_allclose(ew.gram(net, x, y, tile=tile).ntk, cross.ntk, rtol=1e-12)
    both = ew.gram(net, np.concatenate([x, y]))
    np.testing.assert_allclose(both.ntk[:23, 23:], cross.ntk, rtol=1e-12)
    np.testing.assert_allclose(both.nngp[:23, 23:], cross.nngp, rtol=1e-12)


@pytest.mark.once
def test_one_kernel_alone_is_the_same():
    x, y = rows(9, 4), rows(5, 4, seed=1)
    k = ew.gram(NET, x, y)
    np.testing.assert_allclose(ew.ntk(NET, x, y), k.ntk, rtol=1e-14)
    np.testing.assert_allclose(ew.nngp(NET, x, y), k.nngp, rtol=1e-14)
    exact = ew.diagonal(NET, x)
    assert (exact.ntk == np.diag(ew.gram(NET, x).ntk)).all()


def test_the_global_flag_does_not_matter_and_is_not_touched():
    x = rows(6, 4)
    before = jax.config.jax_enable_x64
    results = []
    for flag in (True, False):
        with jax.enable_x64(flag):
            results.append((ew.ntk(NET, x), ew.ntk(NET, x.astype(np.float32))))
            assert jax.config.jax_enable_x64 == flag
    assert jax.config.jax_enable_x64 == before
    assert [r.dtype for r in results[0]] == [np.float64, np.float32]
    for with_flag, without in zip(*results, strict=True):
        assert (with_flag == without).all()


def test_everything_array_like_is_accepted_and_left_alone():
    x = rows(6, 3)
    expected = ew.ntk(NET, x)
    kept = x.copy()
    for given in (x.tolist(), pd.DataFrame(x, columns=list("abc")), ew.Inputs(jax.numpy.asarray(x.astype(np.float32)))):
        np.testing.assert_allclose(ew.ntk(NET, given), expected, rtol=1e-5)
    assert (x == kept).all()
    assert ew.ntk(NET, np.eye(3, dtype=np.int32)).dtype == np.float64
    assert ew.ntk(NET, np.eye(3, dtype=np.float16)).dtype == np.float32


@pytest.mark.once
def test_ragged_edges_do_not_recompile():
    net = ew.Serial(ew.Dense(w_std=1.1), ew.Erf(), ew.Dense(1))
    ew.ntk(net, rows(16, 5), rows(8, 5), tile=8)
    before = _block._cache_size()
    ew.ntk(net, rows(15, 5), rows(7, 5), tile=8)
    ew.ntk(net, rows(24, 5), rows(14, 5), tile=8)
    assert _block._cache_size() == before


@pytest.mark.once
def test_new_numbers_in_a_network_do_not_recompile():
    build = lambda w: ew.Serial(ew.Dense(w_std=w, b_std=w), ew.Relu(), ew.Dense(1))
    ew.ntk(build(1.0), rows(5, 3), rows(4, 3))
    before = _block._cache_size()
    ew.ntk(build(1.7), rows(5, 3), rows(4, 3))
    assert _block._cache_size() == before


@pytest.mark.once
def test_progress_counts_every_tile():
    seen = []
    ew.gram(NET, rows(10, 3), tile=3, progress=seen.append)
    total = len(list(tiles(10, 10, Size(3, 3), symmetric=True)))
    assert [p.done for p in seen] == list(range(1, total + 1))
    assert all(p.total == total and p.seconds >= 0 for p in seen)


@pytest.mark.once
def test_an_interrupt_leaves_what_is_done_in_out():
    x = rows(10, 3)
    out = np.full((10, 10), np.nan)

    def stop(progress: ew.Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ew.ntk(NET, x, tile=4, out=out, progress=stop)
    assert np.isfinite(out).sum() == 64


@pytest.mark.once
def test_out_is_written_in_place(tmp_path):
    x = rows(6, 3)
    disk = np.memmap(tmp_path / "k.bin", np.float64, "w+", shape=(6, 6))
    assert ew.ntk(NET, x, out=disk) is disk
    np.testing.assert_allclose(disk, ew.ntk(NET, x))


@pytest.mark.once
def test_memory_is_counted_before_it_is_spent():
    with pytest.raises(ew.MemoryBudgetError, match=r"needs \d+\.\d MB, 1\.0 MB are available.*Store"):
        ew.gram(NET, rows(300, 3), memory=1_000_000)
    with pytest.raises(ew.MemoryBudgetError, match="TB"):
        ew.ntk(NET, np.broadcast_to(np.ones((1, 2), np.float32), (4_000_000, 2)))


@pytest.mark.once
def test_tiles_cover_the_matrix_once():
    for symmetric in (True, False):
        count = np.zeros((11, 11), int)
        for t in tiles(11, 11, Size(4, 4), symmetric=symmetric):
            count[t.rows, t.cols] += 1
        assert (count[np.tril_indices(11)] == 1).all()
        assert symmetric or (count == 1).all()
    assert [fitted(n, 512) for n in (1, 2, 300, 512, 520, 4000)] == [1, 2, 384, 512, 192, 512]
    assert len({fitted(n, 512) for n in range(1, 3000)}) <= 18


@pytest.mark.once
def test_sites_that_are_left_follow_the_examples():
    net = ew.Serial(ew.Conv((3,), b_std=0.3), ew.Relu(), ew.Conv((2,), padding="VALID"))
    x = rows(4, 6, 2)
    k = ew.gram(net, x, tile=3)
    assert k.ntk.shape == (4, 4, 5, 5)
    assert (k.ntk == k.ntk.transpose(1, 0, 3, 2)).all()
    np.testing.assert_allclose(k.ntk[:2, 2:], ew.gram(net, x[:2], x[2:]).ntk, rtol=1e-12)
    np.testing.assert_allclose(ew.diagonal(net, x).ntk, k.ntk[np.arange(4), np.arange(4)], rtol=1e-12)


@pytest.mark.once
@pytest.mark.parametrize("sites", [(4, 5), (3, 3), (4,)])
@pytest.mark.parametrize("pairs", [ew.signal.Pairs.SAME_SITE, ew.signal.Pairs.ALL_SITES])
def test_mirror_images_of_tiles_with_sites(sites, pairs):
    x = np.random.default_rng(0).normal(size=(3, *sites, 2))
    kernel = ew.Infinite(ew.Serial(ew.Conv((3,) * len(sites)), ew.Relu()), (*sites, 2), pairs=pairs)
    both, ordered = ew.gram(kernel, x, tile=2), ew.gram(kernel, x, x.copy(), tile=2)
    np.testing.assert_allclose(both.ntk, ordered.ntk, rtol=1e-6, atol=1e-6 * ordered.ntk.max())


@pytest.mark.once
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a process")
def test_a_limit_of_the_process_is_said_in_our_words():
    code = (
        "import resource, numpy as np, everwide as ew\n"
        "net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))\n"
        "x = np.ones((50_000, 2), np.float32)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))\n"
        "for memory in (None, 1 << 40):\n"
        "    try: ew.ntk(net, x, memory=memory)\n"
        "    except ew.MemoryBudgetError as fault: print(fault)\n"
    )
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env=environment)
    counted, tried = done.stdout.splitlines() or ("", done.stderr)
    assert "1 kernel matrix of shape (50000, 50000) in float32" in counted
    assert "everwide.scale.Store(path)" in counted
    assert "needs 10.0 GB, which this process cannot have" in tried
    assert "everwide.scale.Store(path)" in tried


def test_own_kernels_of_float32_rows_are_those_of_float64_rounded_once():
    x = np.random.default_rng(0).normal(size=(64, 3000)).astype(np.float32)
    net = ew.Serial(*[layer for _ in range(8) for layer in (ew.Dense(w_std=1.3, b_std=0.2), ew.Erf())], ew.Dense(1))
    rounded, exact = ew.diagonal(net, x), ew.diagonal(net, x.astype(np.float64))
    for a, b in zip((rounded.nngp, rounded.ntk), (exact.nngp, exact.ntk), strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=6e-8)
