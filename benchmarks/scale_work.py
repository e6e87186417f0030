"""One line of `scale.py` in a process of its own: it learns, tests, and prints a line of JSON."""

import argparse
import json
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from data import Split, folder, gal

RIDGE, MADE_RIDGE = 0.1, 1e-2
TEST, COLUMNS, NOISE = 10_000, 25, 0.1
HELD = 1000
PRODUCTS = 30  # of conjugate gradients, in a floor


class Learned(NamedTuple):
    """Predictions at the test rows, and what was said on the way."""

    predicted: np.ndarray | None  # None: nothing was learned
    residual: float = math.nan
    iterations: int = 0
    disk: int = 0  # bytes
    solver: str = ""  # as an estimator says it


def fashion(n: int) -> Split:
    """Images as vectors of equal length; targets are indicators of classes, centred."""
    with np.load(folder() / "fashion_mnist.npz") as file:
        x, x_test = (file[f"x_{part}"].reshape(-1, 784).astype(np.float32) for part in ("train", "test"))
        y, y_test = (np.eye(10)[file[f"y_{part}"].astype(int)] - 0.1 for part in ("train", "test"))
    x, x_test = (a * (a.shape[1] ** 0.5 / np.linalg.norm(a, axis=1, keepdims=True)) for a in (x, x_test))
    order = np.random.default_rng(0).permutation(len(x))[:n]
    return Split(x[order], y[order], x_test, y_test)


def made(n: int) -> Split:
    """A smooth function along few directions of 25 columns, with noise; tests are without it."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(COLUMNS, 4)))[0]
    x = rng.standard_normal((n + TEST, COLUMNS), np.float32)
    a, b, c, d = (x @ directions).T
    y = np.sin(1.5 * a) + np.cos(b) * c + 0.5 * np.tanh(2 * d)
    noisy = y[:n] + NOISE * rng.normal(size=n)
    return Split(x[:n], noisy[:, None], x[n:], y[n:, None])


def protein(n: int) -> Split:
    """The largest set of Gal and Ghahramani (2016), its first published split; scaled by training rows."""
    x, y, x_test, y_test = gal("protein", 0)
    order = np.random.default_rng(0).permutation(len(x))[:n]
    mean, std = x[order].mean(0), x[order].std(0)
    x, x_test = (((part - mean) / std).astype(np.float32) for part in (x[order], x_test))
    centre = y[order].mean()
    return Split(x, y[order][:, None] - centre, x_test, y_test[:, None] - centre)


DATA = {"fashion": fashion, "made": made, "protein": protein}


def network() -> Any:
    """Three hidden layers, Relu."""
    import everwide as ew

    return ew.Serial(*[layer for _ in range(3) for layer in (ew.Dense(w_std=2**0.5), ew.Relu())], ew.Dense(1))


def planned(split: Split, learner: str) -> float:
    """Minutes that a plan says, before the clock starts, and at its rate those of the test rows; none of others."""
    import everwide as ew

    plan = ew.plan(network(), len(split.x), split.x.shape[1:], outputs=split.y.shape[1])
    name = PLANNED.get(learner, learner)
    same = lambda option: option == name or option.startswith(f"{name}, ") or f" {name} of " in option
    option = next((one for one in plan.options if same(one.name)), None)
    if option is None:
        return math.nan
    # "nystrom, 900 centres", "8 leaves of 70 rows"
    seen = len(split.x) if option.exact else int(option.name.split()[-2])
    return option.minutes + len(split.x_test) * seen / plan.rates.entries / 60


def ours(split: Split, solver: Callable[[Any], Any], ridge: float, **kept: Any) -> Learned:
    """One of the ladder."""
    import everwide as ew
    import everwide.spectral as sp

    kernel = ew.operator(network(), split.x, **kept)
    show = lambda p: print(f"{p.done} of {p.total}, {p.left:.0f} s left", file=sys.stderr) if p.done % 5 == 0 else None
    solution: Any = sp.solve(kernel, split.y, ridge=ridge, solver=solver(show))
    report = solution.report
    return Learned(solution.predict(split.x_test), report.residual, report.iterations)


def conjugate(split: Split, ridge: float) -> Learned:
    """Exact, to a residual of 1e-3."""
    import everwide.spectral as sp

    return ours(split, lambda show: sp.ConjugateGradients(tolerance=1e-3, progress=show), ridge)


def held_out(split: Split, ridge: float) -> Learned:
    """The same, stopped by rows that were held out."""
    import everwide.spectral as sp

    how = lambda show: sp.ConjugateGradients(tolerance=1e-3, held=min(HELD, len(split.x) // 10), progress=show)
    return ours(split, how, ridge)


def recomputed(split: Split, ridge: float) -> Learned:
    """The same without a triangle: tiles are computed for each product."""
    import everwide.spectral as sp

    return ours(split, lambda show: sp.ConjugateGradients(tolerance=1e-3, progress=show), ridge, memory=0)


def stored(split: Split, ridge: float) -> Learned:
    """The same with the triangle on disk: tiles are read for each product."""
    import everwide as ew
    import everwide.spectral as sp

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        store = ew.scale.Store(Path(place) / "run", triangle=True)
        how = lambda show: sp.ConjugateGradients(tolerance=1e-3, progress=show)
        learned = ours(split, how, ridge, memory=0, out=store)
        return learned._replace(disk=sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file()))


def floor(split: Split, ridge: float) -> Learned:
    """One triangle, and as many products as conjugate gradients need: less no exact solver can do."""
    import everwide as ew

    kernel, v = ew.operator(network(), split.x), split.y.astype(np.float32)
    for _ in range(PRODUCTS):
        v = kernel @ v
        v /= np.linalg.norm(v, axis=0)
    return Learned(None, iterations=PRODUCTS)


def double(split: Split, ridge: float) -> Learned:
    """Cholesky in float64, in memory."""
    import everwide as ew
    import everwide.spectral as sp

    kernel = np.asarray(ew.ntk(network(), split.x), np.float64)
    solution = sp.solve(kernel, split.y, ridge=ridge, overwrite=True)
    return Learned(ew.ntk(network(), split.x_test, split.x) @ solution.coefficients, solution.report.residual)


def estimator(split: Split, ridge: float) -> Learned:
    """What users call: the ridge is chosen too, and probabilities are calibrated; of tables, networks are."""
    from everwide.estimators import WideClassifier, WideRegressor

    if split.y.shape[1] > 1:
        model = WideClassifier(network(), random_state=0).fit(split.x, split.y.argmax(1))
        return Learned(model.predict_proba(split.x_test), solver=model.choice_.solver)
    model = WideRegressor(random_state=0).fit(split.x, split.y[:, 0])
    return Learned(model.predict(split.x_test)[:, None], solver=model.choice_.solver)


def single(split: Split, ridge: float) -> Learned:
    """Cholesky in float32, refined."""
    import everwide.spectral as sp

    return ours(split, lambda show: sp.SingleCholesky(progress=show), ridge)


def nystrom(split: Split, ridge: float) -> Learned:
    """Few centres."""
    import everwide.spectral as sp

    return ours(split, lambda show: sp.Nystrom(progress=show), ridge)


def leaves(split: Split, ridge: float) -> Learned:
    """A tree of exact leaves."""
    import everwide.spectral as sp

    return ours(split, lambda show: sp.Leaves(progress=show), ridge)


def kernel_ridge(split: Split, ridge: float) -> Learned:
    """scikit-learn's, with a Laplacian of the usual width."""
    from sklearn.kernel_ridge import KernelRidge

    model = KernelRidge(alpha=ridge, kernel="laplacian", gamma=1 / split.x.shape[1]).fit(split.x, split.y)  # pyright: ignore[reportArgumentType]
    return Learned(model.predict(split.x_test))


def nystroem(split: Split, ridge: float) -> Learned:
    """scikit-learn's features of a Gaussian kernel, of as many centres as ours, and a ridge."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    import everwide.spectral as sp

    features = Nystroem(gamma=1 / split.x.shape[1], n_components=sp.Nystrom().centres_of(len(split.x)), random_state=0)
    model = make_pipeline(features, Ridge(alpha=ridge)).fit(split.x, split.y)
    return Learned(np.asarray(model.predict(split.x_test)).reshape(len(split.x_test), -1))


def boosting(split: Split, ridge: float) -> Learned:
    """LightGBM as it comes."""
    import lightgbm

    if split.y.shape[1] == 1:
        model = lightgbm.LGBMRegressor(verbose=-1).fit(split.x, split.y[:, 0])
        return Learned(np.asarray(model.predict(split.x_test))[:, None])
    model = lightgbm.LGBMClassifier(verbose=-1).fit(split.x, split.y.argmax(1))
    return Learned(np.asarray(model.predict_proba(split.x_test)))


LEARNERS = {
    "conjugate gradients": conjugate,
    "conjugate gradients, held out": held_out,
    "conjugate gradients, recomputed": recomputed,
    "conjugate gradients, from a store": stored,
    "floor": floor,
    "cholesky": double,
    "cholesky, float32": single,
    "nystrom": nystrom,
    "leaves": leaves,
    "estimator": estimator,
    "scikit-learn KernelRidge": kernel_ridge,
    "scikit-learn Nystroem": nystroem,
    "LightGBM": boosting,
}
# What a plan calls them; leaves begin with their number.
PLANNED = {
    "conjugate gradients, held out": "conjugate gradients",
    "conjugate gradients, recomputed": "the same, recomputed",
}


def error_of(learned: Learned, split: Split) -> float:
    """The share of wrong classes, or the root of the mean squared error."""
    if learned.predicted is None:
        return math.nan
    if split.y.shape[1] > 1:
        return float(np.mean(learned.predicted.argmax(1) != split.y_test.argmax(1)))
    return float(np.sqrt(np.mean((learned.predicted - split.y_test) ** 2)))


def ridge_of(data: str) -> float:
    """Of all kernels on these rows."""
    return RIDGE if data == "fashion" else MADE_RIDGE


def answer(learned: Learned, split: Split, seconds: float, minutes: float = math.nan) -> str:
    """A line of JSON; the peak is that of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {"seconds": seconds, "error": error_of(learned, split), "peak": peak, "planned": minutes}
    return json.dumps(told | {key: getattr(learned, key) for key in ("residual", "iterations", "disk", "solver")})


def asked(learners: Iterable[str]) -> argparse.Namespace:
    """What is learned by whom, from how many rows, as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=list(DATA))
    parser.add_argument("learner", choices=list(learners))
    parser.add_argument("n", type=int)
    return parser.parse_args()


def main() -> None:
    """Learn and tell."""
    args = asked(LEARNERS)
    split = DATA[args.data](args.n)
    minutes = planned(split, args.learner)
    began = time.perf_counter()
    learned = LEARNERS[args.learner](split, ridge_of(args.data))
    print(answer(learned, split, time.perf_counter() - began, minutes))


if __name__ == "__main__":
    main()
