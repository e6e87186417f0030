"""`everwide gram`: the kernel of a file, whole or not at all."""

import json

import numpy as np
import pytest

import everwide as ew

pytestmark = pytest.mark.once

SMALL = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1))


def arccosine_kernel(x1, x2):
    """NNGP of `SMALL`, written out (Cho and Saul 2009)."""
    k12 = 2 * x1 @ x2.T / x1.shape[1] + 0.01
    k1, k2 = (2 * np.sum(x**2, axis=1) / x.shape[1] + 0.01 for x in (x1, x2))
    size = np.sqrt(np.outer(k1, k2))
    cos = np.clip(k12 / size, -1, 1)
    return size * (np.sqrt(1 - cos**2) + (np.pi - np.arccos(cos)) * cos) / (2 * np.pi)


def test_writes_the_kernel_of_an_array(run, tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    result = run("gram", "x.npy", "model.py:small", "-o", "K.npy", "--which", "nngp")
    assert result.exit_code == 0, result.output
    assert "80 x 80 in float64" in result.stdout
    np.testing.assert_allclose(np.load(tmp_path / "K.npy"), arccosine_kernel(x, x), rtol=1e-6)


def test_both_kernels_between_two_files_standardized_by_the_first(run, tmp_path, x):
    np.savez(tmp_path / "a.npz", X=5 * x + 3)
    np.savez(tmp_path / "b.npz", X=5 * x[:7] + 3)
    command = ("gram", "a.npz", "model.py:small", "--other", "b.npz", "-o", "K.npz")
    result = run(*command, "--which", "both", "--standardize", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["shape"], found["kernels"]) == ([80, 7], ["nngp", "ntk"])
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    with np.load(tmp_path / "K.npz") as written:
        np.testing.assert_allclose(written["nngp"], arccosine_kernel(scaled, scaled[:7]), rtol=1e-6)
        assert (np.diag(written["ntk"][:7]) > np.diag(written["nngp"][:7])).all()


def test_folders_are_made_and_memory_is_counted(run, tmp_path, numbers):
    assert run("gram", numbers, "model.py:small", "-o", "new/folder/K.npy").exit_code == 0
    assert np.load(tmp_path / "new/folder/K.npy").shape == (80, 80)
    refused = run("gram", numbers, "model.py:small", "-o", "K.npy", "--memory", "1000")
    assert refused.exit_code == 1
    assert "error: " in refused.stderr
    assert not (tmp_path / "K.npy").exists()


def test_a_target_is_no_input_and_float32_is_asked_for(run, tmp_path, numbers, x):
    result = run("gram", numbers, "model.py:small", "--target", "y", "--which", "nngp", "--float32", "-o", "K.npy")
    assert result.exit_code == 0, result.output
    found = np.load(tmp_path / "K.npy")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, arccosine_kernel(x, x), rtol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "K.txt"), "ends in .npy or .npz"),
        (("-o", "K.npy", "--which", "both"), "both kernels need a file that ends in .npz"),
        (("-o", "K.npy", "--other", "nothing.csv"), "nothing.csv"),
        (("-o", "K.npy", "--which", "rbf"), "rbf"),
        ((), "--output"),
    ],
)
def test_faults_of_usage_exit_with_2(run, numbers, arguments, message):
    result = run("gram", numbers, "mlp", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_data_file_is_never_executed(run, tmp_path):
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()")
    result = run("gram", "evil.py", "mlp", "-o", "K.npy")
    assert result.exit_code == 1
    assert "evil.py is of an unknown kind" in result.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt, 130, "interrupted: nothing was written."),
        (ew.MemoryBudgetError("1 kernel matrix needs 9 TB"), 1, "error: 1 kernel matrix needs 9 TB"),
    ],
)
def test_nothing_is_left_behind(run, tmp_path, numbers, monkeypatch, raised, code, said):
    def stop(*arguments, **options):
        raise raised

    monkeypatch.setattr(ew, "ntk", stop)
    before = set(tmp_path.iterdir())
    result = run("gram", numbers, "model.py:small", "-o", "K.npy")
    assert result.exit_code == code
    assert said in result.stderr
    assert {path.name for path in set(tmp_path.iterdir()) - before} <= {"model.py", "__pycache__"}


def test_an_interruption_while_writing_keeps_the_old_file(run, tmp_path, numbers, monkeypatch):
    (tmp_path / "K.npy").write_text("old")

    def stop(*arguments, **options):
        (tmp_path / arguments[0]).write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(ew, "ntk", lambda *arguments, **options: np.eye(2))
    monkeypatch.setattr(np, "save", stop)
    assert run("gram", numbers, "model.py:small", "-o", "K.npy").exit_code == 130
    assert (tmp_path / "K.npy").read_text() == "old"
    assert not list(tmp_path.glob(".K*"))


def test_a_store_goes_on_where_it_was_stopped(run, tmp_path, numbers, monkeypatch):
    command = ("gram", numbers, "model.py:small", "--store", "run")
    first = run(*command, "--which", "both")
    assert first.exit_code == 0, first.output
    assert "nngp, ntk: 80 x 80 in float64" in first.stdout
    refused = run(*command, "--which", "both")
    assert refused.exit_code == 1
    assert "holds 1 of 1 tiles of this kernel already. Go on with resume=True (--resume)" in refused.stderr
    again = run(*command, "--which", "both", "--resume", "--json")
    assert again.exit_code == 0, again.output
    assert "run holds 1 of 1 tiles, whole; 0 to go." in again.stderr
    assert json.loads(again.stdout)["output"] == "run"
    chunk = next(file for file in (tmp_path / "run" / "ntk" / "c").rglob("*") if file.is_file())
    chunk.write_bytes(b"half" + chunk.read_bytes()[4:])
    mended = run(*command, "--which", "both", "--resume")
    assert "run holds 0 of 1 tiles, whole; 1 to go." in mended.stderr
    assert "Damaged tiles in run are computed again" in mended.stderr
    other = run(*command, "--resume")
    assert other.exit_code == 1
    assert "holds the kernel of something else: nngp and ntk instead of ntk" in other.stderr


def test_an_interrupted_store_says_how_to_go_on(run, numbers, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(ew, "ntk", stop)
    result = run("gram", numbers, "model.py:small", "--store", "run")
    assert result.exit_code == 130
    assert "interrupted: finished tiles are kept in run; --resume goes on." in result.stderr


def test_a_scheduler_gets_the_file_of_the_network(run, tmp_path, numbers):
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        address = cluster.scheduler_address
        result = run("gram", numbers, "model.py:small", "--store", "run", "--scheduler", address)
    assert result.exit_code == 0, result.output
    assert "written to run" in result.stdout
    assert (tmp_path / "run" / "rows").is_dir()  # workers read them there
    nobody = run("gram", numbers, "mlp", "--store", "new", "--scheduler", "http://127.0.0.1:9")
    assert nobody.exit_code == 1
    assert "No scheduler of Dask answers" in nobody.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "K.npy", "--store", "run"), "into a file or into a store"),
        (("-o", "K.npy", "--resume"), "there is no store"),
        (("-o", "K.npy", "--scheduler", "tcp://127.0.0.1:9"), "there is no store"),
    ],
)
def test_faults_of_stores_exit_with_2(run, numbers, arguments, message):
    result = run("gram", numbers, "mlp", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_gigabytes_are_not_unpacked(run, tmp_path):
    np.savez_compressed(tmp_path / "rows.npz", X=np.zeros((100_000, 3), np.int8))
    result = run("gram", "rows.npz", "mlp", "-o", "K.npy", "--memory", "1000000")
    assert result.exit_code == 1
    assert "X in rows.npz has 100000 rows: their kernel matrix does not fit into memory, at most 353" in result.stderr
    assert "--store" in result.stderr
