"""Whether a network gains by learning features: beside its kernels, on rows that neither has learned."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import stdtr

from .._checks import InputError, whole
from .._engine import Progress, as_rows
from .._gram import gram
from .._losses import Mse
from .._networks import Trained, adam, train_networks
from .._walk import with_outputs
from ..empirical import empirical_ntk
from ..layers import AbstractLayer
from ..linearization import label_alignment
from ._learning_curve import pilot_of
from ._pilot import Targets, learn

_FOLDS = 5  # of rows that are left out; as many networks predict each, and stop by different fifths of the rest
_RATE, _DECAY = 5e-3, 0.3  # of AdamW: without decay networks need many more rows to find features
_PATIENCE, _BATCH = 20, 32
_MARGIN = 0.1  # of the kernel's error: what is less than that ahead may be the smoother network, and no features
_SURE = 0.95
_NOTHING = 1e-9  # of the variance of the targets: less is no error


@dataclass(frozen=True, eq=False)
class Features:
    """A trained network beside its kernels on the same rows. Made by `features_matter`."""

    rows: int
    kernel_error: float
    network_error: float
    probability: float
    alignment: tuple[float, float] | None
    optimizer: str
    diverged: int

    @property
    def verdict(self) -> str:
        """One of "matter", "not seen", "undecided"; the second is about so many rows, and no promise for more."""
        if self.probability > _SURE:
            return "matter"
        return "not seen" if self.probability < 1 - _SURE else "undecided"

    def __str__(self) -> str:
        verdicts = {
            "matter": f"Features matter here: learning from {self.rows} rows,",
            "not seen": f"No gain by features is seen with {self.rows} rows, nor ruled out with more:",
            "undecided": f"Whether features matter is not decided by {self.rows} rows:",
        }
        told = (
            f"{verdicts[self.verdict]} trained networks ({self.optimizer}) leave a squared error of "
            f"{self.network_error:.3g} on rows that were left out, and kernels {self.kernel_error:.3g}; that networks "
            f"are a tenth better has probability {self.probability:.1%}."
        )
        if self.alignment is not None:
            before, after = self.alignment
            told += (
                f" Training took the alignment of the tangent kernel with the targets from {before:.2f} to {after:.2f}."
            )
        return told + (f" {self.diverged} networks diverged and were left out." if self.diverged else "")


def features_matter(
    net: Any,
    x: Any,
    y: Any,
    *,
    task: str = "auto",
    width: int = 64,
    optimizer: Any = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Features:
    """Tell, before a long training, whether a network will beat its own kernels by learning features.

    The rows are left out in five parts. Each part is predicted from the others twice: by five narrow networks, all
    layers of which are trained until they no longer become better on rows held out for that, and by the best of the
    kernels (tangent and NNGP, both also with a constant column, as biases are trained; linear) with the best ridge, all
    chosen by leave-one-out. The errors are of the same rows, so that their ratio is known well; its spread is that
    between parts, by a t-test that knows that they share rows to learn from. Features *matter* if the network's error
    is surely smaller by a tenth.

    That is said of so many rows: a network may need more of them to find its features, and a kernel may catch up. On
    new draws of seven targets that need features it said "matter" in 31 of 42 runs, of seven that do not in none
    (`benchmarks/README.md`).

    Args:
        net: A network that ends with `Dense`; any number of outputs will do.
        x: Some hundred or thousand rows, 64 at least; entries of the order of 1, as a network wants them.
        y: Their labels, as `forecast` takes them. Classes are learned as indicators, by the squared loss.
        task: "classification", "regression", or "auto", by the labels.
        width: Of the layers that leave theirs open.
        optimizer: Of optax; AdamW by default, rate 0.005, weight decay 0.3. Without decay networks found much less.
        seed: Of the networks and the parts.
        progress: Called after every network, of which there are 25.

    Returns:
        `verdict`: "matter", "not seen" or "undecided"; `probability`, that the network's error is smaller by a tenth
        or more: above 0.95, below 0.05, or between; `kernel_error`, `network_error`: mean squared errors on rows that
        were left out; `rows`: learned from; `alignment`: of the network's tangent kernel with the targets on such
        rows, before and after training (the cosine between both, centred), or `None` if rows have masks or graphs;
        `diverged`: how many networks did, and were left out. `str()` says it in words.

    >>> import everwide as ew, everwide.forecasting as fc, everwide.tasks as tasks
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.3), ew.Relu(), ew.Dense(1))
    >>> task = tasks.sparse_parity(8, 2, 120)
    >>> fc.features_matter(net, task.x, task.y).verdict
    'matter'

    Malach et al., "Quantifying the benefit of using differentiable learning over tangent kernels" (2021); for the
    t-test, Nadeau, Bengio, "Inference for the generalization error" (2003).
    """
    if not isinstance(net, AbstractLayer):
        raise InputError(f"features_matter: expected a network of everwide, got {type(net).__name__}.")
    rows = as_rows(x)
    pilot = pilot_of(y, task, len(rows), "features_matter")
    order = np.random.default_rng(whole(seed, "features_matter: seed", least=0)).permutation(len(rows))
    tests = np.array_split(order, _FOLDS)
    plain = rows.mask is None and rows.graph is None
    kernels = [*gram(net, x), *(_more_kernels(net, rows.x) if plain else [])]
    theirs = [_kernel_error(kernels, pilot, test) for test in tests]
    learner = with_outputs(net, pilot.values.shape[1])
    trained = _networks(learner, x, pilot, tests, optimizer, width, seed, progress)
    ours = [_network_error(trained, pilot, fold, test) for fold, test in enumerate(tests)]
    return Features(
        rows=len(rows) - len(tests[0]),
        kernel_error=float(np.mean(theirs)),
        network_error=float(np.mean(ours)),
        probability=_probability(np.array(theirs) / pilot.variance, np.array(ours) / pilot.variance),
        alignment=_alignments(learner, rows.x, pilot, tests, trained) if plain else None,
        optimizer=f"AdamW, rate {_RATE}, weight decay {_DECAY}" if optimizer is None else "your optimizer",
        diverged=int(trained.diverged.sum()),
    )


def _others(test: np.ndarray, n: int) -> np.ndarray:
    return np.setdiff1d(np.arange(n), test)


def _more_kernels(net: AbstractLayer, x: np.ndarray) -> list[np.ndarray]:
    """With a constant channel, as biases that start at 0 are trained too; and without hidden layers."""
    flat = x.reshape(len(x), -1).astype(np.float64)
    return [*gram(net, np.concatenate([x, np.ones_like(x[..., :1])], -1)), 1 + flat @ flat.T / flat.shape[1]]


def _kernel_error(kernels: list[np.ndarray], y: Targets, test: np.ndarray) -> float:
    """Of the kernel that predicts single rows of the others best, from the rest of them."""
    rest = _others(test, len(y.values))
    mean = y.values[rest].mean(0)
    known = Targets(y.values[rest] - mean, y.mean + mean, None)
    guesses = {}
    for kernel in kernels:
        learned = learn(kernel[np.ix_(rest, rest)], known)
        left_out = float(np.mean((known.values - learned.left_out) ** 2))
        guesses[left_out] = kernel[np.ix_(test, rest)] @ learned.solved.coefficients + mean
    return float(np.mean((guesses[min(guesses)] - y.values[test]) ** 2))


def _networks(
    net: AbstractLayer,
    x: Any,
    y: Targets,
    tests: list[np.ndarray],
    optimizer: Any,
    width: int,
    seed: int,
    progress: Any,
) -> Trained:
    """For each part in turn, networks that learn from the others."""
    held, train = [], []
    for test in tests:
        rest = np.random.default_rng(seed).permutation(_others(test, len(y.values)))
        held += np.array_split(rest, _FOLDS)
        train += [np.setdiff1d(rest, stop) for stop in np.array_split(rest, _FOLDS)]
    return train_networks(
        net,
        x,
        y.values / y.variance**0.5,
        train,
        held,
        loss=Mse(),
        optimizer=adam(_RATE, _DECAY) if optimizer is None else optimizer,
        width=width,
        batch_size=_BATCH,
        patience=_PATIENCE,
        seed=seed,
        progress=progress,
    )


def _network_error(trained: Trained, y: Targets, fold: int, test: np.ndarray) -> float:
    """Of the mean of the networks of a part that did not diverge."""
    mine = slice(fold * _FOLDS, (fold + 1) * _FOLDS)
    use = ~trained.diverged[mine]
    if not use.any():
        raise InputError(
            "features_matter: networks diverged. Bring the columns of x to the order of 1, or take a smaller rate, as "
            "optax.adamw(1e-3, weight_decay=0.3)."
        )
    outputs = trained.outputs[mine][use][:, test].astype(np.float64).mean(0) * y.variance**0.5
    return float(np.mean((outputs - y.values[test]) ** 2))


def _probability(theirs: Float[np.ndarray, " folds"], ours: Float[np.ndarray, " folds"]) -> float:
    """That ours are smaller by the margin. Parts share rows to learn from: they vary less than new rows would."""
    gains = np.log((1 - _MARGIN) * np.maximum(theirs, _NOTHING)) - np.log(np.maximum(ours, _NOTHING))
    spread = float(gains.std(ddof=1)) * (1 / _FOLDS + 1 / (_FOLDS - 1)) ** 0.5
    surely = stdtr(_FOLDS - 1, gains.mean() / max(spread, _NOTHING))
    return float(np.clip(surely, 0.001, 0.999))  # five parts are never surer


def _alignments(
    net: AbstractLayer, x: np.ndarray, y: Targets, tests: list[np.ndarray], trained: Trained
) -> tuple[float, float]:
    """Before and after training, of one network a part, on rows that were left out."""
    size, values = min(len(tests[-1]), 100), []
    for fold, test in enumerate(tests):
        with jax.enable_x64(False):
            rows, at = x[test[:size]].astype(np.float32), fold * _FOLDS
            ends = (trained.before[at], trained.after[at])
            kernels = [empirical_ntk(net.apply, params, rows, outputs="trace") for params in ends]
        values.append([float(label_alignment(kernel, y.values[test[:size]]).centred) for kernel in kernels])
    before, after = np.mean(values, axis=0).tolist()
    return before, after
