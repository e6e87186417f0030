"""One learning rate means one thing everywhere: nine tenths of the edge converge in every room, eleven diverge.

The edge is that of the mean over rows of `1/2 |f - y|^2`: `2 n / lambda_max` of the kernel's matrix, computed here by
numpy alone.
"""

import json
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import everwide as ew
from everwide.cli import app
from everwide.report import study
from everwide.spectral import gradient_descent
from everwide.tables import read_table
from everwide.theory.rates import stable_rates
from everwide.training import SGD, DivergenceWarning, Mse, Regression, max_learning_rate, train

pytestmark = pytest.mark.once

STEPS, WIDTH = 24, 4096
NET = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1))
MODEL = "import everwide as ew\nnet = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1))\n"
X = np.random.default_rng(0).normal(size=(20, 3))
KERNEL = np.asarray(ew.ntk(NET, X), np.float64)
VALUES, VECTORS = np.linalg.eigh(KERNEL)
EDGE = 2 * len(X) / VALUES[-1]
Y = 5 * VECTORS[:, -1]  # all of it in the mode that decides


def test_the_edge_is_reported_as_one_number():
    assert stable_rates(NET, X).gradient_descent == pytest.approx(EDGE, rel=1e-5)
    assert max_learning_rate(KERNEL) == pytest.approx(EDGE, rel=1e-8)
    assert ew.compare(NET, X, Y, [8], steps=1, seeds=1).rates[0] == pytest.approx(EDGE / 2, rel=1e-5)


def by_regression(rate):
    """Closed forms."""
    return Regression(KERNEL, Y).train(gradient_descent(rate, STEPS))


def by_training(rate):
    """Step by step in function space."""
    return train(KERNEL, Y, loss=Mse(), optimizer=SGD(rate), steps=STEPS).outputs


def by_optax(rate):
    """The parameters of a wide network, near where they start: outputs, counted from there, stay small (lazy)."""
    dtype, small = jnp.zeros(()).dtype, 0.01
    x, y = jnp.asarray(X, dtype), jnp.asarray(small * Y, dtype)
    params = NET.init(jr.key(0), (3,), width=WIDTH)
    outputs = lambda p: jax.vmap(lambda e: NET.apply(p, e))(x)[:, 0]
    start, sgd = outputs(params), optax.sgd(rate)
    loss = lambda p: jnp.mean((outputs(p) - start - y) ** 2) / 2

    def step(carry, _):
        p, state = carry
        updates, state = sgd.update(jax.grad(loss)(p), state)
        return (optax.apply_updates(p, updates), state), None

    (end, _), _ = jax.jit(lambda: jax.lax.scan(step, (params, sgd.init(params)), length=STEPS))()
    return np.asarray(outputs(end) - start) / small


def by_comparison(rate):
    """The infinitely wide network of `compare`, which starts where a finite one does."""
    curves = ew.compare(NET, X, Y, [WIDTH], steps=STEPS, seeds=1, rate=rate).curves
    first, last = curves.loss_infinite[0, 0, 0], curves.loss_infinite[0, 0, -1]
    return Y * (1 + np.sqrt(last / first))


ROOMS = {"regression": by_regression, "train": by_training, "optax": by_optax, "compare": by_comparison}


@pytest.mark.parametrize("room", ROOMS)
def test_below_the_edge_training_converges_and_above_it_diverges(room):
    """The mode that decides is multiplied by `1 - 2 rate / EDGE` in every step: by -0.8, or by -1.2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        below, above = (np.reshape(ROOMS[room](share * EDGE), -1) for share in (0.9, 1.1))
    left = [np.linalg.norm(f - Y) / np.linalg.norm(Y) for f in (below, above)]
    assert left[0] < 0.1
    assert not left[1] < 5  # nan has diverged, too
    if room in ("regression", "train"):
        assert left == pytest.approx([0.8**STEPS, 1.2**STEPS], rel=1e-3)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with a network and a table."""
    (tmp_path / "model.py").write_text(MODEL)
    table = np.column_stack([X, Y])
    np.savetxt(tmp_path / "table.csv", table, delimiter=",", header="a,b,c,y", comments="", fmt="%.17g")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_line_and_the_report_say_the_same(desk):
    said = CliRunner().invoke(app, ["rate", "table.csv", "--net", "model.py:net", "--json"])
    assert said.exit_code == 0, said.output
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    edge = 2 * len(X) / np.linalg.eigvalsh(np.asarray(ew.ntk(NET, scaled), np.float64))[-1]
    assert json.loads(said.stdout)["gradient_descent"] == pytest.approx(edge, rel=1e-5)
    sections = study(read_table(desk / "table.csv"), net=NET, quick=True).to_dict()["sections"]
    assert rates_in(sections) == pytest.approx([edge], rel=1e-5)


def rates_in(tree):
    """Every rate of gradient descent that a report mentions."""
    if isinstance(tree, dict):
        own = [tree["gradient_descent"]] if isinstance(tree.get("gradient_descent"), float) else []
        return own + [rate for value in tree.values() for rate in rates_in(value)]
    return [rate for value in tree for rate in rates_in(value)] if isinstance(tree, list | tuple) else []
