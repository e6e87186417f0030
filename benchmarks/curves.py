"""Learning curves of LCDB 1.1 continued from their beginnings, on sets that are new to the prior: `make curves`."""

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
import warnings
from typing import Any, NamedTuple

import curves_prior as cp
import data
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier
from table import machine, record, table

import everwide.forecasting as fc
from everwide.forecasting import _curves

CELLS = ((128, 2048), (512, 2048), (512, 8192), (512, 32768))
MAIN = (512, 8192)
ASKED = {"ours, nothing known": 8.7, "ours, family": 7.0, "ours, family, others": 6.5}
ASKED_EARLY = 11.0  # from 128 to 2 048, family
MEMBERS = 5
USES = {  # ours: which networks, what is told
    "nothing known": ("alone", "nothing"),
    "family": ("learner", "family"),
    "name": ("learner", "name"),
    "others": ("others", "nothing"),
    "family, others": ("others", "family"),
    "name, others": ("others", "name"),
}


class Forecasts(NamedTuple):
    """Of rows of the table: log errors at 5, 50 and 95 %; the ends are NaN where a method has none."""

    logs: np.ndarray

    @property
    def middle(self) -> np.ndarray:
        return self.logs[:, 1]


def cell_of(rows: cp.Table) -> np.ndarray:
    """The place of each row in CELLS, or -1."""
    at = np.full(len(rows.target), -1)
    for place, (start, n) in enumerate(CELLS):
        at[rows.whole & (rows.start == start) & (np.abs(rows.factor - np.log2(n / start)) < 0.1)] = place
    return at


def ours(rows: cp.Table, members: int) -> dict[str, Forecasts]:
    """Each fold by a prior that has seen the others only."""
    fold, said = cp.fold_of(rows), {use: np.zeros((len(rows.target), 3)) for use in USES}
    for outer in range(cp.FOLDS):
        numbers = cp.learned(outer, members)
        for use, (network, named) in USES.items():
            groups = cp.group_of(rows.learner, named)
            for group in np.unique(groups):
                at = np.flatnonzero((fold == outer) & (groups == group))
                x = cp.shown(rows.x[at], network, named)
                said[use][at] = _curves.log_quantiles(numbers, network, int(group), x, rows.factor[at])
        print(f"fold {outer + 1} of {cp.FOLDS} by {time.process_time():.0f} s of CPU", flush=True)
    return {f"ours, {use}": Forecasts(logs + rows.center[:, None]) for use, logs in said.items()}


def boosted(rows: cp.Table, everything: cp.Table) -> Forecasts:
    """Gradient-boosted trees on the same inputs as the networks, with the family; each fold by the others."""
    logs, fold, other = np.full((len(rows.target), 3), np.nan), cp.fold_of(rows), cp.fold_of(everything)
    inputs = slice(0, cp.NAME.start)
    for outer in range(cp.FOLDS):
        use = (other != outer) & (other >= 0) & (everything.factor > 1.9) & everything.whole
        for at, quantile in enumerate((0.05, 0.5, 0.95)):
            trees = HistGradientBoostingRegressor(
                loss="quantile", quantile=quantile, max_iter=130, learning_rate=0.07, max_leaf_nodes=16,
                min_samples_leaf=40, l2_regularization=5, max_features=0.4, early_stopping=False, random_state=0,
            ).fit(everything.x[use][:, inputs], everything.target[use])  # fmt: skip
            logs[fold == outer, at] = trees.predict(rows.x[fold == outer][:, inputs])
    return Forecasts(np.sort(logs, 1) + rows.center[:, None])


def _grid(*values: np.ndarray) -> list[np.ndarray]:
    return [each.ravel()[:, None] for each in np.meshgrid(*values)]


def shapes(n: np.ndarray) -> dict[str, np.ndarray]:
    """Falling curves on grids of their parameters, `(shapes, n)`; floor and height are fitted."""
    found = {"POW3": n ** -np.linspace(0.02, 2.5, 80)[:, None]}
    b, d = _grid(np.linspace(0.02, 3, 50), np.array([-12, -8, -4, 0, 4, 16, 64, 128, 256, 512, 1024, 4096]))
    found["POW4"] = ((n + d) / 100) ** -b
    b, d = _grid(np.logspace(-1, 7, 40), np.linspace(0.05, 3, 40))
    found["MMF4"] = b / (b + n**d)
    b, d = _grid(np.logspace(-4, 1, 40), np.linspace(0.03, 2, 40))
    found["WBL4"] = np.exp(-b * n**d)
    b, c, d = _grid(np.linspace(0, 1, 11), np.linspace(-0.5, 1.5, 11), np.geomspace(24, 4096, 16))
    found["broken power law"] = (n / 100) ** -b * (1 + (n / d) ** 4) ** (-c / 4)  # Caballero et al., 2023; one break
    return found


def fitted(shape: np.ndarray, seen: int, errors: np.ndarray) -> np.ndarray:
    """Least squares of floor + height * shape, neither below 0; of the best shape what comes after the first `seen`."""
    g, y = shape[:, :seen], errors.T
    s1, s2, sy, y1 = g.sum(1)[:, None], (g * g).sum(1)[:, None], g @ y, y.sum(0)
    height = np.maximum((sy - s1 * y1 / seen) / np.maximum(s2 - s1**2 / seen, 1e-30), 0)
    height = np.where(height * s1 > y1, sy / np.maximum(s2, 1e-30), height)
    floor = np.maximum(y1 - height * s1, 0) / seen
    rest = height**2 * s2 + 2 * height * floor * s1 + floor**2 * seen - 2 * height * sy - 2 * floor * y1
    best, curve = rest.argmin(0), np.arange(y.shape[1])
    return np.log(np.clip(floor[best, curve] + height[best, curve] * shape[best, -1], _curves.SMALLEST, 1))


def baselines(rows: cp.Table) -> dict[str, Forecasts]:
    """The last value, and the best fit of each shape."""
    names, curves = ("last value", *shapes(np.full(1, 100.0))), cp.lcdb()
    logs = {name: np.full((len(rows.target), 3), np.nan) for name in names}
    for place, (start, n) in enumerate(CELLS):
        at = np.flatnonzero(cell_of(rows) == place)
        sizes = cp.sizes_of(start, cp.Cut())
        errors = curves.errors[rows.set[at], rows.learner[at]][:, sizes]
        for row in errors:
            there = np.isfinite(row)
            row[:] = np.interp(np.log(curves.sizes[sizes]), np.log(curves.sizes[sizes][there]), row[there])
        logs["last value"][at, 1] = np.log(np.maximum(errors[:, -1], _curves.SMALLEST))
        for name, shape in shapes(np.append(curves.sizes[sizes], n)).items():
            logs[name][at, 1] = fitted(shape, len(sizes), errors)
    return {name: Forecasts(each) for name, each in logs.items()}


def turning(limit: float = np.inf) -> np.ndarray:
    """Curves that rise: by three standard errors, a tenth of their range, and a point (means of three sizes)."""
    curves = cp.lcdb()
    rises = np.zeros(curves.errors.shape[:2], bool)
    for which in np.argwhere(np.isfinite(curves.errors).sum(2) >= 10):
        seen = np.isfinite(curves.errors[tuple(which)]) & (curves.sizes <= limit)
        y = np.convolve(curves.errors[tuple(which)][seen], np.ones(3) / 3, "valid")
        stderr = np.nan_to_num(curves.stderr[tuple(which)][seen])[1:-1]
        lowest = np.array([y[: at + 1].argmin() for at in range(len(y))])
        up = y - y[lowest]
        rises[tuple(which)] = ((up > 3 * np.hypot(stderr, stderr[lowest])) & (up > 0.1 * np.ptp(y)) & (up > 0.01)).any()
    return rises


def figures(forecasts: Forecasts, truth: np.ndarray, rows: np.ndarray) -> tuple[float, float, float]:
    """Median relative error in per cent, mean absolute log ratio, share inside the interval in per cent."""
    off = forecasts.middle[rows] - truth[rows]
    inside = (forecasts.logs[rows, 0] <= truth[rows]) & (truth[rows] <= forecasts.logs[rows, 2])
    has = np.isfinite(forecasts.logs[rows, 0]).all()
    return 100 * np.median(np.abs(np.expm1(off))), np.abs(off).mean(), 100 * inside.mean() if has else np.nan


def report(rows: cp.Table, methods: dict[str, Forecasts], seconds: float) -> str:
    """Errors of all methods in all cells; then coverage and medians by family, learner and shape."""
    truth, cell = rows.target + rows.center, cell_of(rows)
    heading = ("median error in %; mean abs. log ratio", *(f"{a} to {b}" for a, b in CELLS))
    body = [("curves", *(str((cell == place).sum()) for place in range(len(CELLS))))]
    for name, forecasts in methods.items():
        each = [figures(forecasts, truth, cell == place) for place in range(len(CELLS))]
        body.append((name, *(f"{median:.1f}; {logs:.3f}" for median, logs, _ in each)))
    parts = {name: cp.FAMILY[rows.learner] == at for at, name in enumerate(cp.FAMILIES)}
    parts |= {name: rows.learner == cp.NAMES.index(name) for name in ("mlp", "realmlp")}
    parts |= {"not monotone": turning()[rows.set, rows.learner]}
    chosen = ("POW3", *(f"ours, {use}" for use in USES))
    held = [("held by 90 % intervals, in %", "all", *parts)]
    medians = [(f"median error in %, {MAIN[0]} to {MAIN[1]}", "all", *parts)]
    for name in chosen:
        main = [cell == CELLS.index(MAIN)] + [(cell == CELLS.index(MAIN)) & part for part in parts.values()]
        medians.append((name, *(f"{figures(methods[name], truth, part)[0]:.1f}" for part in main)))
        if name.startswith("ours"):
            every = [cell >= 0, *parts.values()]
            held.append((f"{name}, all cells", *(f"{figures(methods[name], truth, part)[2]:.1f}" for part in every)))
            held.append(
                (f"{name}, {MAIN[0]} to {MAIN[1]}", *(f"{figures(methods[name], truth, part)[2]:.1f}" for part in main))
            )
    lines = [f"{machine()}; {seconds:.0f} s of CPU.", table([heading, *body]), table(medians), table(held)]
    return "\n\n".join([*lines, verdict(methods, truth, cell)])


def verdict(methods: dict[str, Forecasts], truth: np.ndarray, cell: np.ndarray) -> str:
    """What was asked, and what came."""
    asked = [(name, MAIN, most) for name, most in ASKED.items()] + [("ours, family", CELLS[0], ASKED_EARLY)]
    sentences = []
    for name, place, most in asked:
        median = figures(methods[name], truth, cell == CELLS.index(place))[0]
        word = "met" if round(median, 1) <= most else "missed"
        sentences.append(f"{name}, {place[0]} to {place[1]}: {median:.1f} % (asked {most}: {word}).")
    return " ".join(sentences)


PILOT = (32, 45, 64, 90, 128, 181, 256)  # rows, one fit each
MODELS = {
    "logistic": lambda: LogisticRegression(max_iter=500),
    "knn": KNeighborsClassifier,
    "gaussian_nb": GaussianNB,
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "forest": lambda: RandomForestClassifier(random_state=0),
    "mlp": lambda: MLPClassifier(random_state=0, max_iter=300),
}


def pilots(
    tasks: tuple[str, ...] = ("chess-krvkp", "molec-biol-splice", "spambase", "waveform", "waveform-noise"),
) -> str:
    """A user's own pilot: single fits up to 256 rows, continued to all training rows by the shipped prior."""
    off, held = {"name": [], "name, others": []}, {"name": [], "name, others": []}
    for task in tasks:
        for split in data.uci(task):
            order = np.random.default_rng(0).permutation(len(split.y))
            wrong = {
                name: [
                    1 - _fitted(make(), split, order[:n]).score(split.x_test, split.y_test)
                    for n in (*PILOT, len(order))
                ]
                for name, make in MODELS.items()
            }
            errors = {name: np.maximum(each, 0.5 / len(split.y_test)) for name, each in wrong.items()}
            for name, each in errors.items():
                others = {other: cheap[:-1] for other, cheap in errors.items() if other not in (name, "mlp")}
                for use, beside in (("name", None), ("name, others", others)):
                    curve = fc.extrapolate(PILOT, each[:-1], len(order), learner=name, others=beside)
                    off[use].append(abs(curve.error[0] / each[-1] - 1))
                    held[use].append(curve.low[0] <= each[-1] <= curve.high[0])
    figures = [
        f"{use}: {100 * np.median(off[use]):.1f} %, intervals held {100 * np.mean(held[use]):.0f} %" for use in off
    ]
    what = f"Single fits of {len(MODELS)} models on four splits of {len(tasks)} UCI tasks, from {PILOT[-1]} rows to all"
    return f"{what}, median relative error of the shipped prior: {'; '.join(figures)}."


def _fitted(model: Any, split: data.Split, rows: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a network that has not converged is measured as it is
        return model.fit(split.x[rows], split.y[rows])


def main() -> None:
    """Learn a prior for each fold, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one network in each ensemble, no trees, no pilots")
    parser.add_argument("--record", action="store_true", help="write the tables into README.md")
    options = parser.parse_args()
    everything = cp.rows()
    rows = everything.take(cell_of(everything) >= 0)
    print(f"{len(everything.target)} rows by {time.process_time():.0f} s of CPU", flush=True)
    methods = baselines(rows)
    if not options.quick:
        methods["boosted trees, family"] = boosted(rows, everything)
    methods |= ours(rows, 1 if options.quick else MEMBERS)
    text = report(rows, methods, time.process_time())
    text += "" if options.quick else f"\n\n{pilots()}"
    print(text)
    if options.record:
        record("recorded curves", text)


if __name__ == "__main__":
    main()
