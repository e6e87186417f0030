"""Exact kernel regression on random training sets, beside its prediction."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Float

from everwide.theory.eigenlearning import learning_curve, transfer_matrix

from ._data import Population

KERNEL = "kernel"


@dataclass(frozen=True, eq=False)
class Measured:
    """One target learned from `n` examples, several times. `width` is a number, or "kernel"; the rest by draw.

    - `learnability`: `<f, f_hat> / <f, f>` over the population. `error`: mean square, over that of the target.
    - `train_error`: likewise, on the training examples. `predicted_...`: by the theory, which knows no width.
    """

    domain: str
    target: str
    n: int
    width: str
    learnability: Float[np.ndarray, " draws"]
    error: Float[np.ndarray, " draws"]
    train_error: Float[np.ndarray, " draws"]
    predicted_learnability: float
    predicted_error: float


@dataclass(frozen=True)
class Prediction:
    """For every target of a population."""

    learnability: Float[np.ndarray, " targets"]
    error: Float[np.ndarray, " targets"]


def training_sets(population: Population, n: int, draws: int) -> np.ndarray:
    """Rows `(draws, n)`, without repetition; the first draws are the same for any number of them."""
    rng = np.random.default_rng((7, n))
    return np.stack([rng.permutation(len(population.x))[:n] for _ in range(draws)])


def predict(population: Population, n: int) -> Prediction:
    """What the theory expects, relative to the power of the target."""
    learned, error = [], []
    for v in population.coefficients.T:
        curve = learning_curve(population.eigenvalues, v, n, population.rest, multiplicities=population.multiplicities)
        learned.append(np.sum(curve.learnability * v**2) / np.sum(v**2))
        error.append(curve.test_error / np.sum(v**2))
    return Prediction(np.array(learned), np.array(error))


def regress(population: Population, n: int, draws: int) -> list[Measured]:
    """Solve for all targets at once, once for each training set."""
    sets, guesses = training_sets(population, n, draws), []
    for rows in sets:
        weights = scipy.linalg.solve(population.kernel[np.ix_(rows, rows)], population.y[rows], assume_a="pos")
        guesses.append(population.to_test[:, rows] @ weights)
    exact = np.zeros((draws, len(population.names)))  # no ridge: training examples are met
    return summarize(population, n, KERNEL, np.stack(guesses), exact)


def summarize(
    population: Population,
    n: int,
    width: str,
    guesses: Float[np.ndarray, "draws tests targets"],
    train_errors: Float[np.ndarray, "draws targets"],
) -> list[Measured]:
    """One row for each target, from outputs at the points to measure on."""
    expected, truth = predict(population, n), population.y_test
    power = np.mean(truth**2, 0)
    learned = np.mean(guesses * truth, 1) / power
    error = np.mean((guesses - truth) ** 2, 1) / power
    return [
        Measured(
            population.name,
            name,
            n,
            width,
            learned[:, k],
            error[:, k],
            train_errors[:, k] / power[k],
            float(expected.learnability[k]),
            float(expected.error[k]),
        )
        for k, name in enumerate(population.names)
    ]


@dataclass(frozen=True)
class Laws:
    """What must hold for every single training set.

    - `sum_gap`: how far the learnabilities of a complete set of functions are from adding up to `n`, at most.
    - `mode_falls`, `mixture_falls`: how often an additional example lowered the learnability of a mode, or that of a
      random mixture of modes; out of `mode_steps` and `mixture_steps`. `worst_fall`: of a mixture.
    """

    sum_gap: float
    mode_falls: int
    mode_steps: int
    mixture_falls: int
    mixture_steps: int
    worst_fall: float


def check_laws(eigenvalues: np.ndarray, functions: Float[np.ndarray, "points modes"], sequences: int) -> Laws:
    """Add examples one by one, 1 to 24, in several orders; mixtures may have most of their power on weak modes."""
    rng, most = np.random.default_rng(3), 24
    sums, modes, mixtures = [], [], []
    for _ in range(sequences):
        rows = rng.permutation(len(functions))[:most]
        v = rng.normal(size=len(eigenvalues)) * eigenvalues ** rng.uniform(-0.5, 0.5)
        transfers = [transfer_matrix(eigenvalues, functions[rows[: k + 1]]).matrix for k in range(most)]
        sums.append([abs(np.trace(t) - k - 1) for k, t in enumerate(transfers)])
        modes.append(np.diff([t.diagonal() for t in transfers], axis=0))
        mixtures.append(np.diff([v @ t @ v / (v @ v) for t in transfers]))
    falls, mixed = np.stack(modes), np.stack(mixtures)
    rounding = 1e-9
    return Laws(
        float(np.max(sums)),
        int(np.sum(falls < -rounding)),
        falls.size,
        int(np.sum(mixed < -rounding)),
        mixed.size,
        float(mixed.min()),
    )
