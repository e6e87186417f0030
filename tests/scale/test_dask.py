"""Workers of Dask: the same bits as here, through the death of a worker; faults of clusters in a sentence."""

import os
import signal

import dask.config
import jax
import numpy as np
import pytest
from distributed import Client, LocalCluster

import everwide as ew
from everwide._engine import Rows
from everwide.scale import Dask, Store, _dask, _files, _work

pytestmark = pytest.mark.once

NET = ew.Serial(ew.Dense(w_std=1.4, b_std=0.1), ew.Relu(), ew.Dense(1))
X = np.random.default_rng(0).standard_normal((40, 4))


@pytest.fixture(scope="module")
def client():
    """Workers that are threads of this process: they start at once."""
    threads = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, threads_per_worker=2, **threads) as cluster, Client(cluster) as one:
        yield one


@pytest.fixture
def workerless():
    with LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as one:
        yield one


def test_workers_write_what_is_computed_here(tmp_path, client):
    here = ew.gram(NET, X, out=Store(tmp_path / "here"), tile=8)
    seen = []
    there = ew.gram(NET, X, out=Store(tmp_path / "there"), tile=8, backend=Dask(client), progress=seen.append)
    assert [p.done for p in seen] == list(range(16))
    assert (there.ntk[:] == here.ntk[:]).all()
    assert (there.nngp[:] == here.nngp[:]).all()


def test_a_client_need_not_be_the_default_one(tmp_path):
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as one,
    ):
        there = ew.ntk(NET, X, out=Store(tmp_path / "run"), tile=16, backend=Dask(one))
        np.testing.assert_allclose(there[:], ew.ntk(NET, X, tile=16), rtol=1e-12)


@pytest.mark.parametrize("kind", ["mask", "adjacency", "edges"])
def test_rows_reach_workers_with_all_that_belongs_to_them(tmp_path, kind):
    rng = np.random.default_rng(1)
    mask = rng.random((20, 4)) < 0.5 if kind == "mask" else None
    edges = (rng.integers(4, size=(20, 3)), rng.integers(4, size=(20, 3)), rng.random((20, 3)))
    graph = {"mask": None, "adjacency": rng.random((20, 4, 4)), "edges": edges}[kind]
    rows = Rows(X.reshape(20, 4, 2), mask, graph)
    for _ in range(2):  # the second time they are there
        stored = _files.stored_rows(tmp_path / "rows", rows, 8)
    for part in (slice(0, 8), slice(16, 20), slice(3, 11)):
        ours, theirs = jax.tree.leaves(vars(stored.part(part))), jax.tree.leaves(vars(rows.part(part)))
        assert len(ours) == len(theirs)
        assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(ours, theirs, strict=True))


def test_columns_reach_the_workers_too(tmp_path, client):
    there = ew.ntk(NET, X, X[:9] + 1, out=Store(tmp_path / "run"), tile=8, backend=Dask(client))
    np.testing.assert_allclose(there[:], ew.ntk(NET, X, X[:9] + 1), rtol=1e-12)


def test_rows_that_were_damaged_are_mended(tmp_path, client):
    whole = ew.ntk(NET, X, out=Store(tmp_path / "run"), tile=8, backend=Dask(client))[:]
    (file,) = (tmp_path / "run" / "rows" / "x" / "c" / "2").iterdir()
    data = bytearray(file.read_bytes())
    data[9] ^= 16
    file.write_bytes(bytes(data))
    for tile in (tmp_path / "run" / "ntk" / "c").rglob("*"):
        if tile.is_file():
            tile.unlink()
    assert (ew.ntk(NET, X, out=Store(tmp_path / "run"), backend=Dask(client))[:] == whole).all()


def test_an_interrupt_cancels_what_is_under_way(tmp_path, client):
    def stop(progress):
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        ew.ntk(NET, X, out=Store(tmp_path / "run"), tile=8, backend=Dask(client), progress=stop)
    assert "3 of 15 tiles are kept" in caught.value.__notes__[0]
    seen = []
    ew.ntk(NET, X, out=Store(tmp_path / "run"), backend=Dask(client), progress=lambda p: seen.append(p.done))
    assert seen[0] >= 3
    assert seen[-1] == 15


def test_a_worker_of_another_version_is_refused(tmp_path, client, monkeypatch):
    monkeypatch.setattr(_work, "versions", lambda: {"everwide": "0.0.1"})
    with pytest.raises(ew.InputError, match=r"A worker has .*0\.0\.1.*Install the same versions there"):
        ew.ntk(NET, X, out=Store(tmp_path / "run"), backend=Dask(client))


def test_faults_of_clusters_are_said(tmp_path, workerless, monkeypatch):
    monkeypatch.setattr("everwide.scale._dask._PATIENCE", 0.2)
    with pytest.raises(ew.InputError, match="has no workers"):
        ew.ntk(NET, X, out=Store(tmp_path / "run"), backend=Dask(workerless))
    with pytest.raises(ew.InputError, match=r"No scheduler of Dask answers at 'tcp://127\.0\.0\.1:9'"):
        ew.ntk(NET, X, out=Store(tmp_path / "run"), backend=Dask("tcp://127.0.0.1:9"))
    with pytest.raises(ew.InputError, match=r"expected a dask\.distributed\.Client"):
        ew.ntk(NET, X, out=Store(tmp_path / "run"), backend=Dask(7))
    with pytest.raises(ew.InputError, match="backend=Dask needs a store"):
        ew.ntk(NET, X, backend=Dask(workerless))
    with pytest.raises(ew.InputError, match="workers=0"):
        Dask(workers=0)
    with pytest.raises(ew.InputError, match="Give one of them"):
        Dask(workerless, workers=2)


def test_workers_that_are_all_gone_are_not_waited_for_without_a_word(tmp_path, monkeypatch):
    """Nobody starts another one; what they have done stays."""
    for name, seconds in (("_LOOK", 0.1), ("_TOLD", 0.2), ("_GIVEN_UP", 1.0)):
        monkeypatch.setattr(_dask, name, seconds)
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as one:

        def leave(progress):
            if progress.done == 2:
                cluster.scale(0)
                cluster.sync(cluster._correct_state)

        backend = Dask(one)
        with (
            pytest.warns(UserWarning, match=r"All workers are gone for 0\.2 s"),
            pytest.raises(RuntimeError, match=r"had no workers for 1\.0 s.*a store keeps the tiles"),
        ):
            ew.ntk(NET, X, out=Store(tmp_path / "run"), tile=2, backend=backend, progress=leave)
    seen = []
    ew.ntk(NET, X, out=Store(tmp_path / "run"), progress=seen.append)
    assert 2 <= seen[0].done < seen[0].total


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_tile_only(tmp_path):
    """Processes, as users have them; the nanny starts another one."""
    shot = []

    def shoot(progress):
        if progress.done == 2 and not shot:
            (one, *_) = client.run(os.getpid).values()
            os.kill(one, signal.SIGKILL)
            shot.append(one)

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
        there = ew.ntk(NET, X, out=Store(tmp_path / "there"), tile=4, backend=Dask(client), progress=shoot)
    assert shot
    assert (there[:] == ew.ntk(NET, X, out=Store(tmp_path / "here"), tile=4)[:]).all()


@pytest.mark.slow
def test_a_worker_that_takes_long_to_start_again_is_waited_for():
    """Dask would give it up at once, and whoever has no other would wait for ever."""
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "0s"}), _dask._local(1) as client:
        (one,) = client.run(os.getpid).values()
        os.kill(one, signal.SIGKILL)
        assert client.submit(os.getpid, pure=False).result(timeout=60) != one
