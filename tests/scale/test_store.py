"""A store: the same numbers as in memory, kept through interrupts, kills and damage; of one kernel only."""

import errno
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import everwide as ew
from everwide.scale import Store, _files, _store, _work
from scale.worker import inputs, mark

pytestmark = pytest.mark.once

NET = ew.Serial(ew.Dense(w_std=1.4, b_std=0.1), ew.Relu(), ew.Dense(1))
CNN = ew.Serial(ew.Conv((3,), w_std=1.4, b_std=0.1), ew.Relu(), ew.Dense(1))  # leaves its sites
WORKER = Path(__file__).with_name("worker.py")


def rows(n, *shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal((n, *shape)).astype(dtype)


X = rows(23, 4)


def chunks(folder):
    """Files of all tiles."""
    return sorted(file for file in folder.glob("*/c/**/*") if file.is_file())


def flip(file, bit):
    data = bytearray(file.read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    file.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("net", "shape", "dtype"), [(NET, (4,), np.float32), (NET, (4,), np.float64), (CNN, (5, 2), np.float64)]
)
def test_holds_what_memory_would(tmp_path, net, shape, dtype):
    x, y = rows(13, *shape, dtype=dtype), rows(6, *shape, dtype=dtype, seed=1)
    whole, cross = ew.gram(net, x), ew.gram(net, x, y)
    for name, expected in (("square", whole), ("cross", cross)):
        other = None if name == "square" else y
        kept = ew.gram(net, x, other, out=Store(tmp_path / name), tile=4)
        for ours, theirs in zip(kept, expected, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, dtype)
            np.testing.assert_allclose(ours[:], theirs, rtol=100 * np.finfo(dtype).eps, atol=1e-6)
    if net is NET:
        square = ew.gram(net, x, out=Store(tmp_path / "square")).ntk[:]
        assert (square == square.T).all()
        np.testing.assert_allclose(np.diag(square), ew.diagonal(net, x).ntk, rtol=4 * np.finfo(dtype).eps)


def test_one_kernel_and_one_triangle_take_less(tmp_path):
    expected = ew.ntk(NET, X)
    kept = ew.ntk(NET, X, out=Store(tmp_path / "run", triangle=True), tile=6)[:]
    lower = np.arange(23)[:, None] // 6 >= np.arange(23) // 6
    np.testing.assert_allclose(kept[lower], expected[lower], rtol=1e-12)
    assert np.isnan(kept[~lower]).all()
    assert len(chunks(tmp_path / "run")) == 10


def test_opens_in_zarr_dask_and_xarray_as_it_is(tmp_path):
    import dask.array
    import xarray
    import zarr

    k = ew.gram(NET, X, out=Store(tmp_path / "run"), tile=6)
    expected = k.ntk[:]
    assert (zarr.open_group(tmp_path / "run", mode="r")["ntk"][:] == expected).all()
    lazy = dask.array.from_zarr(str(tmp_path / "run"), component="ntk")
    assert lazy.chunks == ((6, 6, 6, 5), (6, 6, 6, 5))
    assert (lazy.compute(scheduler="synchronous") == expected).all()
    with xarray.open_zarr(tmp_path / "run") as data:
        assert data["ntk"].dims == ("row", "column")
        assert (data["ntk"].to_numpy() == expected).all()


def stopped(path, after):
    """A run that is interrupted when so many tiles are done; and what it says."""

    def stop(progress):
        if progress.done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        ew.gram(NET, X, out=Store(path), tile=6, progress=stop)
    return " ".join(caught.value.__notes__)


def test_an_interrupt_keeps_what_is_done_and_says_how_to_go_on(tmp_path):
    ew.gram(NET, X, out=Store(tmp_path / "whole"), tile=6)
    said = stopped(tmp_path / "run", 4)
    assert "4 of 10 tiles are kept" in said
    assert "Run the same again" in said
    seen, sentences = [], []
    store = Store(tmp_path / "run", notice=sentences.append)
    k = ew.gram(NET, X, out=store, progress=lambda p: seen.append(p.done))
    assert seen[0] >= 4  # one more may have been on its way
    assert seen == list(range(seen[0], 11))
    assert sentences == [f"{tmp_path / 'run'} holds {seen[0]} of 10 tiles, whole; {10 - seen[0]} to go."]
    assert (k.ntk[:] == ew.gram(NET, X, out=Store(tmp_path / "whole")).ntk[:]).all()


@pytest.mark.parametrize("kind", ["bit", "cut", "empty"])
def test_every_damaged_tile_is_noticed_and_computed_again(tmp_path, kind):
    k = ew.gram(NET, X[:13], out=Store(tmp_path / "run"), tile=6)
    expected, files = (k.nngp[:], k.ntk[:]), chunks(tmp_path / "run")
    rng = np.random.default_rng(0)
    assert len(files) == 18
    for file in files if kind == "bit" else files[:3]:
        match kind:
            case "bit":
                flip(file, int(rng.integers(8 * file.stat().st_size)))
            case "cut":
                file.write_bytes(file.read_bytes()[: rng.integers(1, file.stat().st_size)])
            case "empty":
                file.write_bytes(b"")
        with pytest.warns(UserWarning, match=r"Damaged tiles in .*run are computed again: rows x columns \d+:\d+"):
            again = ew.gram(NET, X[:13], out=Store(tmp_path / "run"))
        assert (again.nngp[:] == expected[0]).all()
        assert (again.ntk[:] == expected[1]).all()
    for file in files:
        flip(file, 77)
    sentences = []
    ew.gram(NET, X[:13], out=Store(tmp_path / "run", notice=sentences.append))
    assert "and 3 more" in sentences[1]


def test_damage_is_noticed_by_whoever_reads(tmp_path):
    k = ew.gram(NET, X, out=Store(tmp_path / "run"), tile=6)
    flip(tmp_path / "run" / "ntk" / "c" / "1" / "0", 99)
    with pytest.raises(ValueError, match="checksum"):
        k.ntk[:]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda out: ew.gram(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), X, out=out), "another network"),
        (lambda out: ew.gram(NET, X, parametrization="standard", width=9, out=out), "another network"),
        (lambda out: ew.gram(NET, X + 1e-9, out=out), "other rows"),
        (lambda out: ew.gram(NET, X, X, out=out), "other columns"),
        (lambda out: ew.gram(NET, X.astype(np.float32), out=out), "float64 instead of float32"),
        (lambda out: ew.ntk(NET, X, out=out), "nngp and ntk instead of ntk"),
        (lambda out: ew.gram(NET, X, out=replace(out, triangle=True)), "both triangles"),
        (lambda out: ew.gram(NET, X, out=replace(out, resume=False)), "holds 10 of 10 tiles of this kernel already"),
        (lambda out: ew.gram(NET, X, tile=5, out=out), "has tiles of 6 x 6 examples"),
    ],
)
def test_kernels_are_not_mixed(tmp_path, change, said):
    ew.gram(NET, X, out=Store(tmp_path / "run"), tile=6)
    before = {file: file.read_bytes() for file in chunks(tmp_path / "run")}
    with pytest.raises(ew.InputError, match=said):
        change(Store(tmp_path / "run"))
    assert {file: file.read_bytes() for file in chunks(tmp_path / "run")} == before


def test_masks_belong_to_the_rows(tmp_path):
    x, mask = rows(5, 4, 2), np.arange(4) < np.array([4, 3, 2, 4, 1])[:, None]
    ew.ntk(CNN, ew.Inputs(x, mask), out=Store(tmp_path / "run"))
    with pytest.raises(ew.InputError, match="other rows"):
        ew.ntk(CNN, x, out=Store(tmp_path / "run"))


def test_versions_are_not_mixed(tmp_path, monkeypatch):
    ew.gram(NET, X, out=Store(tmp_path / "run"))
    monkeypatch.setattr(_store, "versions", lambda: _files.versions() | {"jax": "99.0"})
    with pytest.raises(ew.InputError, match=r"jax \d+\.\d+.* instead of .*jax 99"):
        ew.gram(NET, X, out=Store(tmp_path / "run"))


def test_what_is_no_store_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    for path in (tmp_path, tmp_path / "file", tmp_path / "other"):
        with pytest.raises(ew.InputError, match="is there and no store of everwide"):
            ew.gram(NET, X, out=Store(path))
    with pytest.raises(ew.InputError, match="expected a folder on a disk"):
        Store("s3://bucket/run")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert ew.ntk(NET, X, out=Store(tmp_path / "empty")).shape == (23, 23)


@pytest.mark.parametrize(("number", "said"), [(errno.ENOSPC, "is full"), (errno.EFBIG, r"at a limit \(ulimit -f\)")])
def test_a_full_disk_keeps_what_is_done(tmp_path, monkeypatch, number, said):
    put, calls = _files.Files.put, []

    def full(self, *arguments):
        calls.append(1)
        if len(calls) > 3:
            raise OSError(number, "No space left on device")
        put(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(_files.Files, "put", full)
        with pytest.raises(OSError, match=rf"{said}: 3 of 10 tiles are kept\. Make room") as caught:
            ew.gram(NET, X, out=Store(tmp_path / "run"), tile=6)
    assert caught.value.errno == number
    seen = []
    ew.gram(NET, X, out=Store(tmp_path / "run"), progress=lambda p: seen.append(p.done))
    assert seen[0] == 3
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(_store.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ew.InputError, match=r"take \d+.\d kB, 1.0 kB are free there"):
        ew.gram(NET, X, out=Store(tmp_path / "deep" / "new"), tile=6)
    assert not (tmp_path / "deep").exists()


def test_a_tile_counts_as_memory_and_what_is_refused_leaves_no_trace(tmp_path):
    with pytest.raises(ew.MemoryBudgetError, match="A tile of the store needs"):
        ew.gram(NET, X, out=Store(tmp_path / "run"), memory=1000)
    assert not list(tmp_path.iterdir())


def test_two_writers_do_not_hurt_each_other(tmp_path):
    faults = []

    def fill():
        try:
            ew.gram(NET, X, out=Store(tmp_path / "run"), tile=3)
        except BaseException as fault:
            faults.append(fault)

    writers = [threading.Thread(target=fill) for _ in range(3)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert not faults
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    kept = ew.gram(NET, X, out=Store(tmp_path / "run")).ntk[:]
    alone = ew.gram(NET, X, out=Store(tmp_path / "alone"), tile=3).ntk[:]
    assert (kept == alone).all()


def test_what_another_writer_has_done_is_not_done_again(tmp_path, monkeypatch):
    compute, computed = _work.Work.compute, []

    def counted(self, tile, *rest):
        computed.append(tile)
        return compute(self, tile, *rest)

    def help_out(progress):
        if progress.done == 2:
            ew.gram(NET, X, out=Store(tmp_path / "run"))  # all that is left

    monkeypatch.setattr(_work.Work, "compute", counted)
    seen = []
    ew.gram(NET, X, out=Store(tmp_path / "run"), tile=6, progress=lambda p: (seen.append(p.done), help_out(p)))
    assert seen == list(range(11))
    assert 10 <= len(computed) <= 11  # one may have been under way


def test_what_killed_writers_left_is_removed_when_it_is_old(tmp_path):
    ew.gram(NET, X, out=Store(tmp_path / "run"), tile=6)
    old, new = (tmp_path / "run" / "ntk" / "c" / "0" / f"0.{name}.partial" for name in ("old", "new"))
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    ew.gram(NET, X, out=Store(tmp_path / "run"))
    assert not old.exists()
    assert new.exists()  # somebody may be writing it


def killed(folder, seconds):
    """A process that fills a store, killed so many seconds after its first tile."""
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen([sys.executable, WORKER, folder], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline().decode().strip() == mark()
        process.stdout.readline()  # how many were there
        process.stdout.readline()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL


def survives_kills(tmp_path, many):
    net, x = inputs()
    rng = np.random.default_rng(int(os.environ.get("EVERWIDE_SEED", "0")))
    hit = sum(killed(tmp_path / "run", float(rng.uniform(0, 0.3))) for _ in range(many))
    left = []
    kept = ew.gram(net, x, out=Store(tmp_path / "run"), progress=lambda p: left.append(p))
    alone = ew.gram(net, x, out=Store(tmp_path / "alone"), tile=16)
    assert hit
    assert left[0].done > 0
    assert (kept.ntk[:] == alone.ntk[:]).all()
    assert (kept.nngp[:] == alone.nngp[:]).all()


def test_kill_9_loses_nothing(tmp_path):
    survives_kills(tmp_path, 2)


@pytest.mark.slow
def test_kill_9_loses_nothing_often(tmp_path):
    survives_kills(tmp_path, 12)
