import numpy as np
import pytest
from typer.testing import CliRunner

from everwide.cli import app

MODEL = """
import everwide as ew

net = ew.Serial(ew.Conv((3, 3), w_std=2**0.5), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(10))
small = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1))
readout = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1, frozen=True), ew.Relu(), ew.Dense(1))
deep = ew.Serial(ew.Dense(), ew.Repeat(ew.Serial(ew.Gelu(), ew.Dense(b_std=0.1)), 3), ew.Gelu(), ew.Dense(1))
tanh = ew.Tanh()
illegal = ew.Serial(ew.Relu(), ew.Dense(1))

def build():
    return net
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command line in a folder with a model and data."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(80, 3))


@pytest.fixture
def numbers(tmp_path, x):
    """A table whose last column, y, is to be learned."""
    table = np.column_stack([x, np.abs(x[:, 0])])
    np.savetxt(tmp_path / "numbers.csv", table, delimiter=",", header="a,b,c,y", comments="", fmt="%.17g")
    return "numbers.csv"
