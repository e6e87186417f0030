"""Real data for benchmarks, from a folder named by EVERWIDE_DATA or beside the checkout; never part of the package."""

import csv
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


class Split(NamedTuple):
    """Training and test rows of one task."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def uci_names(file: str = "uci60") -> list[str]:
    """Classification tasks of Arora et al. (2020), the smallest first."""
    with np.load(folder() / f"{file}.npz") as found:
        rows = {key.rsplit(".", 1)[0]: len(found[key]) for key in found.files if key.endswith(".y")}
    return sorted(rows, key=lambda name: rows[name])


def uci(name: str, file: str = "uci60") -> list[Split]:
    """The four published splits."""
    with np.load(folder() / f"{file}.npz") as found:
        x, y = found[f"{name}.X"].astype(np.float64), found[f"{name}.y"].astype(np.int64)
        parts = np.split(found[f"{name}.idx"].astype(int), np.cumsum(found[f"{name}.len"])[:-1])
    return [Split(x[a], y[a], x[b], y[b]) for a, b in zip(parts[2::2], parts[3::2], strict=True)]


def uci_published() -> dict[str, dict[str, str]]:
    """Accuracies of Fernandez-Delgado et al. (2014), by task and classifier."""
    with (folder() / "uci60_reference.tsv").open(newline="") as file:
        return {line["dataset"]: line for line in csv.DictReader(file, delimiter="\t")}


def gal_names() -> list[str]:
    """Regression sets of Gal and Ghahramani (2016), the smallest first."""
    with np.load(folder() / "regression_gal.npz") as found:
        rows = {key.rsplit(".", 1)[0]: len(found[key]) for key in found.files if key.endswith(".y")}
    return sorted(rows, key=lambda name: rows[name])


def gal(name: str, split: int) -> Split:
    """One of the published splits, in raw units."""
    with np.load(folder() / "regression_gal.npz") as found:
        x, y = found[f"{name}.X"].astype(np.float64), found[f"{name}.y"].astype(np.float64)
        test = np.zeros(len(y), bool)
        test[found[f"{name}.test"][split]] = True
    return Split(x[~test], y[~test], x[test], y[test])


def images(name: str, rows: int, test: int) -> Split:
    """The first rows of `fashion_mnist` or `cifar10_7k`, `(n, h, w, c)` between 0 and 1."""
    with np.load(folder() / f"{name}.npz") as found:
        xs = [found[f"x_{part}"][:n].astype(np.float32) / 255 for part, n in (("train", rows), ("test", test))]
        ys = [found[f"y_{part}"][:n].astype(np.int64) for part, n in (("train", rows), ("test", test))]
    xs = [x[..., None] if x.ndim == 3 else x for x in xs]
    return Split(xs[0], ys[0], xs[1], ys[1])
