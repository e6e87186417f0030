"""Products with stored kernels: those of the matrix, here and on workers; what is not whole is refused."""

import numpy as np
import pytest
from distributed import Client, LocalCluster

import everwide as ew
from everwide.scale import Dask, Store, product

pytestmark = pytest.mark.once

NET = ew.Serial(ew.Dense(w_std=1.4, b_std=0.1), ew.Relu(), ew.Dense(1))
X = np.random.default_rng(0).standard_normal((23, 4))
V = np.random.default_rng(1).standard_normal((23, 3))


@pytest.mark.parametrize("triangle", [False, True])
def test_is_that_of_the_matrix(tmp_path, triangle):
    k, store = ew.gram(NET, X), Store(tmp_path / "run", triangle=triangle)
    ew.gram(NET, X, out=store, tile=6)
    rows = []
    np.testing.assert_allclose(product(store, V, done=rows.append), k.ntk @ V, rtol=1e-12)
    assert rows == [6, 12, 18, 23]
    np.testing.assert_allclose(product(store, V[:, 0], which="nngp"), k.nngp @ V[:, 0], rtol=1e-12)
    options = {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        np.testing.assert_allclose(product(store, V, backend=Dask(client)), k.ntk @ V, rtol=1e-12)
    assert {file.name for file in (tmp_path / "run").iterdir()} == {"zarr.json", "ntk", "nngp"}


def test_a_matrix_that_is_not_square(tmp_path):
    store = Store(tmp_path / "run")
    ew.ntk(NET, X, X[:7] + 1, out=store, tile=6)
    np.testing.assert_allclose(product(store, V[:7]), ew.ntk(NET, X, X[:7] + 1) @ V[:7], rtol=1e-12)


def test_what_cannot_be_multiplied_is_said(tmp_path):
    store = Store(tmp_path / "run")
    with pytest.raises(ew.InputError, match="There is no store at"):
        product(store, V)
    ew.ntk(NET, X, out=store, tile=6)
    with pytest.raises(ew.InputError, match=r"which='nngp': the store .* holds ntk"):
        product(store, V, which="nngp")
    with pytest.raises(ew.InputError, match=r"v has shape \(5, 3\), expected \(23,\) or \(23, k\)"):
        product(store, V[:5])
    chunk = tmp_path / "run" / "ntk" / "c" / "2" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(ew.InputError, match=r"rows 12:18 and columns 6:12 is damaged .* mends it"):
        product(store, V)
    chunk.unlink()
    with pytest.raises(ew.InputError, match="Tiles of rows 12:18 are not in the store"):
        product(store, V)
    sites = ew.Serial(ew.Conv((3,)), ew.Relu(), ew.Dense(1))
    ew.ntk(sites, X[:4].reshape(4, 2, 2), out=Store(tmp_path / "sites"))
    with pytest.raises(ew.InputError, match="with sites"):
        product(Store(tmp_path / "sites"), V[:4])


@pytest.mark.parametrize("memory", [None, 0], ids=["kept", "read"])
@pytest.mark.parametrize("triangle", [False, True])
def test_an_operator_reads_its_tiles_from_a_store(tmp_path, monkeypatch, memory, triangle):
    store, k = Store(tmp_path / "run", triangle=triangle), ew.ntk(NET, X)
    kernel = ew.operator(NET, X, out=store, tile=6, memory=memory)
    asked = []
    cross = type(kernel.blocks.reader).cross
    monkeypatch.setattr(type(kernel.blocks.reader), "cross", lambda *args: (asked.append(1), cross(*args))[1])
    for _ in range(2):
        np.testing.assert_allclose(kernel @ V, k @ V, atol=1e-5)
    assert not asked
    assert kernel.done == (memory is None)
    np.testing.assert_allclose(kernel.block(np.array([2, 5]), slice(0, 23)), k[[2, 5]], rtol=1e-12)
    assert asked  # single columns are computed
    assert "read for each product" in repr(kernel) or memory is None
    solution = ew.spectral.solve(kernel, V, ridge=0.1, solver=ew.spectral.ConjugateGradients(tolerance=1e-9))
    np.testing.assert_allclose(solution.coefficients, np.linalg.solve(k + 0.1 * np.eye(23), V), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(solution.predict(X[:3]), k[:3] @ solution.coefficients, rtol=1e-9)


def test_products_of_an_operator_are_computed_where_its_tiles_are(tmp_path):
    k, options = ew.ntk(NET, X), {"n_workers": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        kernel = ew.operator(NET, X, out=Store(tmp_path / "run"), tile=6, memory=0, backend=Dask(client))
        np.testing.assert_allclose(kernel @ V, k @ V, rtol=1e-12)
    with pytest.raises(ew.InputError, match=r"backend=Dask needs a store"):
        ew.operator(NET, X, backend=Dask()) @ V


def test_a_tile_that_is_damaged_is_said(tmp_path):
    kernel = ew.operator(NET, X, out=Store(tmp_path / "run"), tile=6, memory=0)
    tile = tmp_path / "run" / "ntk" / "c" / "1" / "0"
    tile.write_bytes(bytes([255]) * tile.stat().st_size)
    with pytest.raises(ew.InputError, match=r"is damaged(.|\n)*mends it"):
        kernel @ V
