"""All candidates with all their labels at once, against retraining for each of them: `make lookahead`.

Handwritten digits: a network is trained on some rows; of all others, and of every label that each could have, one asks
what the network would predict after learning that row too. In closed form with its tangent kernel; by training the
network again; and by solving the kernel's equations again. Naive ways are timed on some of the models, and for all of
them counted by their mean.
"""

import argparse
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
import optax
from protocol import timed
from sklearn.datasets import load_digits
from table import duration, machine, ratio_cells, record, table

import everwide as ew
from everwide.selection import look_ahead

RIDGE, RATE = 1e-3, 1e-3


def network(outputs: int) -> ew.Serial:
    """Two hidden layers of rectifiers."""
    hidden = (ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu())
    return ew.Serial(*hidden, *hidden, ew.Dense(outputs, b_std=0.1))


class Setting:
    """Rows, a network that has learned the first `n` of them, and how it is trained."""

    def __init__(self, n: int, candidates: int, width: int, steps: int, seed: int):
        x, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(x))[: n + candidates]
        self.x = (x / 4 - 1)[order].astype(np.float32)
        self.y, self.n, self.steps = np.eye(10)[labels[order[:n]]] - 0.1, n, steps
        self.net = network(10)
        self.first = self.net.init(jax.random.key(seed), (64,), width=width, parametrization="standard")
        self.rule, self.labels = optax.adam(RATE), np.eye(10) - 0.1
        self.train, self.apply = jax.jit(self._train), jax.jit(jax.vmap(self.net.apply, (None, 0)))
        self.params = self.train(self.first, *self._with(0, 0, 0.0))
        self.now = self.outputs(self.params)

    def _train(self, params, x, y, weights):
        """Adam on half the mean square of all rows."""

        def loss(params):
            apart = jax.vmap(self.net.apply, (None, 0))(params, x) - y
            return jnp.sum(weights * jnp.sum(apart**2, 1)) / (2 * jnp.sum(weights))

        def step(_, state):
            params, memory = state
            change, memory = self.rule.update(jax.grad(loss)(params), memory)
            return optax.apply_updates(params, change), memory

        return jax.lax.fori_loop(0, self.steps, step, (params, self.rule.init(params)))[0]

    def _with(self, candidate: int, label: int, weight: float):
        """The labelled rows and a candidate."""
        x = np.concatenate([self.x[: self.n], self.x[self.n + candidate][None]])
        y = np.concatenate([self.y, self.labels[label][None]]).astype(np.float32)
        return jnp.asarray(x), jnp.asarray(y), jnp.append(jnp.ones(self.n), weight)

    def kernel(self) -> np.ndarray:
        """The tangent kernel of the trained network, a mean over the outputs, of all rows."""
        kernel = ew.empirical_ntk(self.net.apply, self.params, jnp.asarray(self.x), outputs="trace")
        return np.asarray(kernel, np.float64)

    def outputs(self, params) -> np.ndarray:
        """Of all rows."""
        return np.asarray(self.apply(params, jnp.asarray(self.x)), np.float64)

    def ahead(self, kernel: np.ndarray):
        """In closed form."""
        n, now = self.n, self.now
        ridge, parts = (
            RIDGE * float(np.mean(np.diagonal(kernel))),
            (kernel[:n, :n], self.y, kernel[n:, :n], kernel[n:, n:]),
        )
        return look_ahead(*parts, ridge=ridge, labels=self.labels, start=(now[:n], now[n:]))

    def closed_form(self) -> None:
        """Everything that is needed to choose: kernel, all models, three scores of every candidate."""
        ahead = self.ahead(self.kernel())
        for score in (ahead.mlmoc, ahead.emoc, ahead.expected_error):
            score()

    def retrained(self, candidate: int, label: int) -> np.ndarray:
        """One of the models, by training."""
        params = self.train(self.params, *self._with(candidate, label, 1.0))
        return self.outputs(params)[self.n :]

    def solved(self, kernel: np.ndarray, candidate: int, label: int) -> np.ndarray:
        """One of the models, by solving all equations of the kernel again."""
        rows, now = np.append(np.arange(self.n), self.n + candidate), self.now
        apart = np.concatenate([self.y, self.labels[label][None]]) - now[rows]
        inner = kernel[np.ix_(rows, rows)] + RIDGE * np.mean(np.diagonal(kernel)) * np.eye(len(rows))
        return now[self.n :] + kernel[self.n :][:, rows] @ np.linalg.solve(inner, apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200, help="labelled rows")
    parser.add_argument("--candidates", type=int, default=1500)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=300, help="of a retraining, which begins at the trained network")
    parser.add_argument("--some", type=int, default=10, help="models that are made in a naive way")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="write the table into README.md")
    chosen = parser.parse_args()
    before = machine()
    setting = Setting(chosen.n, chosen.candidates, chosen.width, chosen.steps, 0)
    kernel, rng = setting.kernel(), np.random.default_rng(1)
    ahead, models = setting.ahead(kernel), 10 * chosen.candidates
    some = [(int(rng.integers(chosen.candidates)), int(rng.integers(10))) for _ in range(chosen.some)]
    apart = max(
        float(np.abs(setting.solved(kernel, *one) - closed(ahead, *one)).max() / np.abs(ahead.before).max())
        for one in some
    )
    real, told = (
        np.concatenate([(made(*one) - ahead.before).ravel() for one in some])
        for made in (setting.retrained, lambda *one: closed(ahead, *one))
    )
    rows = [("models", "closed form, all", "naive", "naive, one model", "naive, all", "ratio", "spread")]
    for name, work in (
        ("the network, trained again", lambda one: setting.retrained(*one)),
        ("the kernel, solved again", lambda one: setting.solved(kernel, *one)),
    ):
        ours, theirs = [], []
        for _ in range(chosen.repeats):
            ours.append(timed(setting.closed_form))
            theirs.append(timed(lambda work=work: [work(one) for one in some]) / len(some))
        ratios = [models * slow / fast for slow, fast in zip(theirs, ours, strict=True)]
        cells = (duration(median(ours)), name, duration(median(theirs)), duration(models * median(theirs)))
        rows.append((f"{models}", *cells, *ratio_cells(ratios)))
    text = (
        f"{table(rows)}\n\n{chosen.n} labelled rows, {chosen.candidates} candidates x 10 labels, width {chosen.width}, "
        f"{chosen.steps} steps of all rows from the trained network; {len(some)} models made in each naive way. Closed "
        f"form and kernels solved again differ by {apart:.1e} of the largest output; changes in closed form and by "
        f"training correlate with {np.corrcoef(real, told)[0, 1]:.2f}.\n\n{before}"
    )
    print(text)
    if chosen.record:
        record("lookahead", text)


def closed(ahead, candidate: int, label: int) -> np.ndarray:
    """Predictions of one of the models; `predictions` has those of all."""
    reach = ahead.covariance[:, candidate] / (ahead.own[candidate] + ahead.ridge)
    return ahead.before + np.outer(reach, ahead.labels[label] - ahead.before[candidate])


if __name__ == "__main__":
    main()
