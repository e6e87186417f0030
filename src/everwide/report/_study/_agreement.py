"""Whether a network that you can train behaves as the infinitely wide one."""

import math

import numpy as np

from ...comparison import compare
from ...kernels import Infinite
from ...layers import AbstractLayer, Dense, Serial
from ...signal import ArchitectureError
from .._words import count, number, percent, several
from ._problem import Compared, Problem
from ._section import Fact, Section

KEY, TITLE = "width", "A network of width 256 beside the theory"
QUESTION = "Will the network that you train behave as this page says?"
_WIDTH = 256
_CLOSE, _FAR = 0.1, 0.3
_MOST_SITES = 100


def agreement(problem: Problem) -> Section:
    """`everwide.compare` on a few rows, one output."""
    net = one_output(problem.net, problem.x.shape[1:])
    size = _size(problem)
    rows = _chosen(problem, size.rows)
    train, test = rows[: size.rows], rows[size.rows :]
    y = _one_target(problem)
    found = compare(
        net,
        problem.x[train],
        y[train],
        [_WIDTH],
        x_test=problem.x[test],
        steps=size.steps,
        seeds=size.seeds,
        seed=problem.seed,
    )
    gap = float(found.curves.gap_infinite[..., -1].mean())
    change = float(found.curves.kernel_change[..., -1].mean())
    numbers = {
        "width": _WIDTH,
        "rows": len(train),
        "test_rows": len(test),
        "networks": size.seeds,
        "steps": list(found.steps),
        "loss_finite": found.curves.loss_finite[0].mean(0),
        "loss_infinite": found.curves.loss_infinite[0].mean(0),
        "gap": gap,
        "kernel_change": change,
        "correlation": _correlation(found.finite, found.infinite),
    }
    facts = _facts(gap, change, numbers["correlation"])
    notes = (
        f"{several(size.seeds, 'network')} of width {_WIDTH}, {count(len(train))} rows, "
        f"{count(found.steps[-1])} steps of gradient descent, {_what(problem)}; the gap is in standard "
        "deviations of the target.",
    )
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=notes)


def _facts(gap: float, change: float, correlation: float) -> tuple[Fact, ...]:
    return (
        Fact(f"Gap at width {_WIDTH}", number(gap), _near(gap)),
        Fact(
            "Agreement of outputs",
            percent(correlation),
            "Correlation of what trained networks and theory say about rows that neither has seen. Near 100\u202f% "
            "this page speaks for the network that you will train.",
        ),
        Fact(
            "Change of the kernel",
            percent(change),
            "How far features move while it trains. Small: the theory holds. Large: the finite network learns features "
            "of its own, and may do better or worse than forecast.",
        ),
    )


def one_output(net: AbstractLayer, shape: tuple[int, ...]) -> AbstractLayer:
    """The same network with one output: its last layer must be `Dense`."""
    if Infinite(net, shape).output().channels == 1:
        return net
    return _last_with_one(net)


def _last_with_one(layer: AbstractLayer) -> AbstractLayer:
    """The last layer, wherever it is, with one output."""
    if isinstance(layer, Dense):
        return Dense(1, w_std=layer.affine.w_std, b_std=layer.affine.b_std, frozen=layer.affine.frozen)
    if isinstance(layer, Serial) and layer.layers:
        return Serial(*layer.layers[:-1], _last_with_one(layer.layers[-1]))
    raise ArchitectureError("the network does not end with a Dense layer, so that it cannot be given one output.")


def _size(problem: Problem) -> Compared:
    """Every site of an image costs as much as a row: networks that read images are compared on few of them."""
    sites = math.prod(problem.x.shape[1:-1])
    if sites > _MOST_SITES:
        raise ArchitectureError(
            f"networks of width {_WIDTH} that read {sites} pixels take long to train. Run everwide.compare(net, x, y, "
            "widths=[64]) on a few rows when you have the time."
        )
    size = problem.limits.compared
    return size if sites == 1 else Compared(size.rows // 4, max(1, size.seeds // 2), size.steps // 4)


def _chosen(problem: Problem, rows: int) -> np.ndarray:
    """Rows to train on, and then as many others to look at, as far as there are any."""
    found = np.random.default_rng([problem.seed, 3]).permutation(len(problem.x))[: 2 * rows]
    if len(found) <= rows:
        raise ArchitectureError(f"it takes more than {rows} rows, and there are {len(found)}.")
    return found


def _one_target(problem: Problem) -> np.ndarray:
    """The largest class against the others, or the numbers; centred, of unit variance."""
    column = int(np.argmax(problem.means)) if problem.classes else 0
    y = problem.y[:, column]
    return y / max(float(y.std()), 1e-300)


def _what(problem: Problem) -> str:
    if not problem.classes:
        return "to learn the target"
    codes = np.unique(problem.labels.astype(np.int64))
    return f"to tell \u201c{problem.classes[codes[int(np.argmax(problem.means))]]}\u201d from the other classes"


def _correlation(finite: np.ndarray, infinite: np.ndarray) -> float:
    a, b = (values.ravel() - values.mean() for values in (finite, infinite))
    size = float(np.sqrt(np.sum(a**2) * np.sum(b**2)))
    return float(a @ b) / size if size > 0 else 0.0


def _near(gap: float) -> str:
    if gap < _CLOSE:
        return "The theory speaks for the network: width 256 is wide enough here."
    if gap < _FAR:
        return "Nearly the theory. Twice the width takes about 30\u202f% off the gap."
    return "Some way from the theory: take this page as a first estimate, or train a wider network."
