"""Real data for benchmarks, from a folder named by EVERWIDE_DATA or beside the checkout; never part of the package."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


class Rows(NamedTuple):
    """Standardized inputs, and targets: numbers of unit variance, or classes."""

    x: np.ndarray
    y: np.ndarray


def folder() -> Path:
    """Where the data are, or a sentence and the end of the program."""
    named = os.environ.get("EVERWIDE_DATA")
    found = Path(named) if named else _BESIDE
    if not (found / "fashion_mnist.npz").exists():
        raise SystemExit(f"No data in {found}. Set EVERWIDE_DATA to the folder that holds fashion_mnist.npz and kin.")
    return found


def fashion_mnist(rows: int, seed: int = 0) -> Rows:
    """Images as vectors of equal length."""
    with np.load(folder() / "fashion_mnist.npz") as file:
        order = np.random.default_rng(seed).permutation(len(file["y_train"]))[:rows]
        x = file["x_train"][order].reshape(rows, -1).astype(np.float32)
        y = file["y_train"][order].astype(np.int64)
    return Rows(x * (x.shape[1] ** 0.5 / np.linalg.norm(x, axis=1, keepdims=True)), y)


def regression(name: str, rows: int, seed: int = 0) -> Rows:
    """One of the sets of Gal and Ghahramani (2016)."""
    with np.load(folder() / "regression_gal.npz") as file:
        x, y = file[f"{name}.X"].astype(np.float64), file[f"{name}.y"].astype(np.float64)
    order = np.random.default_rng(seed).permutation(len(y))[:rows]
    x = x[:, np.ptp(x, axis=0) > 0]
    x = (x - x.mean(0)) / x.std(0)
    return Rows(x[order].astype(np.float32), ((y - y.mean()) / y.std())[order])
