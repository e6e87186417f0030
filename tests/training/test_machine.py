"""Streams: against finite networks trained step by step, against `train`, and against the formula in closed form."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everwide as ew
import everwide.training as tr
from everwide.training._machine import KernelMachine

pytestmark = pytest.mark.once  # the data are float64, whatever the default is

WIDTH, CLASSES, ROWS = 60, 4, 90
RNG = np.random.default_rng(0)
FIRST = RNG.normal(size=(5, WIDTH))
X, X_TEST = RNG.normal(size=(ROWS, 5)), RNG.normal(size=(11, 5))
LABELS = RNG.integers(0, CLASSES, ROWS)


def features(x):
    return np.maximum(x @ FIRST, 0) + 0.3 * np.cos(x @ FIRST)


def kernel(a, b):
    own = lambda x: jnp.maximum(x @ FIRST, 0) + 0.3 * jnp.cos(x @ FIRST)
    return own(a) @ own(b).T / WIDTH


def softmax_gradient(outputs, labels):
    p = np.exp(outputs - outputs.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) - np.eye(outputs.shape[1])[labels]


def stepped_adam(g, batches, rate, b1, b2, eps, decay=0.0, readout=None):
    """ADAM* on the readout of a finite model `f = mean(g * readout)`."""
    readout = np.zeros((WIDTH, CLASSES)) if readout is None else readout
    m, v = np.zeros_like(readout), np.zeros(CLASSES)
    for t, batch in enumerate(batches, start=1):
        delta = softmax_gradient(g[batch] @ readout / WIDTH, LABELS[batch]) / len(batch)
        gradient = g[batch].T @ delta / WIDTH
        m, v = b1 * m + (1 - b1) * gradient, b2 * v + (1 - b2) * (gradient**2).mean(0)
        step = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
        readout = (1 - rate * decay) * readout - rate * step
    return readout


def stepped_sgd(g, batches, rate, momentum, nesterov, decay):
    """SGD on the readout of a finite model `f = g @ readout / sqrt(width)`."""
    readout = trace = np.zeros((WIDTH, CLASSES))
    for batch in batches:
        delta = softmax_gradient(g[batch] @ readout / np.sqrt(WIDTH), LABELS[batch]) / len(batch)
        gradient = g[batch].T @ delta / np.sqrt(WIDTH)
        trace = gradient + momentum * trace
        readout = (1 - rate * decay) * readout - rate * (gradient + momentum * trace if nesterov else trace)
    return readout


def machine_of(optimizer, **options):
    return KernelMachine(kernel, tr.SoftmaxCrossEntropy(), optimizer, outputs=CLASSES, **options)


def streamed(machine, batches):
    for batch in batches:
        assert machine.partial_fit(X[batch], LABELS[batch]) is machine
    return machine


SINGLE = list(np.arange(ROWS)[:, None])
RAGGED = np.split(np.arange(ROWS), [7, 15, 21, 28, 36, 49, 64, 80])  # padded to 8 and 16 rows


@pytest.mark.parametrize(("batches", "decay"), [(SINGLE, 0.0), (RAGGED, 0.3)])
def test_adam_star_is_that_of_a_finite_model(batches, decay):
    machine = streamed(machine_of(tr.AdamStar(0.07, b2=0.99, eps=1e-3, weight_decay=decay)), batches)
    readout = stepped_adam(features(X), batches, 0.07, 0.9, 0.99, 1e-3 / WIDTH, decay)
    np.testing.assert_allclose(machine.predict(X_TEST), features(X_TEST) @ readout / WIDTH, rtol=0, atol=1e-10)
    assert (machine.steps, len(machine.support), machine.compression_error) == (len(batches), ROWS, 0)


@pytest.mark.parametrize(("momentum", "nesterov", "decay"), [(0.0, False, 0.0), (0.5, False, 0.2), (0.6, True, 0.0)])
def test_sgd_is_that_of_a_finite_model(momentum, nesterov, decay):
    machine = streamed(machine_of(tr.SGD(0.3, momentum, nesterov, weight_decay=decay)), RAGGED)
    readout = stepped_sgd(features(X), RAGGED, 0.3, momentum, nesterov, decay)
    np.testing.assert_allclose(machine.predict(X_TEST), features(X_TEST) @ readout / np.sqrt(WIDTH), rtol=0, atol=1e-10)


def test_it_starts_from_another_function():
    start = RNG.normal(size=(WIDTH, CLASSES))
    f0 = lambda x: (jnp.maximum(x @ FIRST, 0) + 0.3 * jnp.cos(x @ FIRST)) @ start / WIDTH
    machine = machine_of(tr.AdamStar(0.07, eps=1e-3, weight_decay=0.3), f0=f0)
    np.testing.assert_allclose(machine.predict(X_TEST), features(X_TEST) @ start / WIDTH, rtol=1e-12)
    readout = stepped_adam(features(X), RAGGED, 0.07, 0.9, 0.999, 1e-3 / WIDTH, 0.3, start)
    np.testing.assert_allclose(
        streamed(machine, RAGGED).predict(X_TEST), features(X_TEST) @ readout / WIDTH, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize(
    "optimizer",
    [tr.AdamStar(lambda step: 0.1 / (1.0 + step.astype(float))), tr.SGD(0.09, momentum=0.9)],
    ids=["adam", "sgd"],
)
def test_it_is_train_on_the_same_batches(optimizer):
    net = ew.Infinite(ew.Serial(ew.Dense(), ew.Erf(), ew.Dense(1)), (5,))
    machine = KernelMachine(net, tr.SoftmaxCrossEntropy(), optimizer, outputs=CLASSES)
    options = {"loss": tr.SoftmaxCrossEntropy(), "optimizer": optimizer}
    batches = np.arange(ROWS).reshape(10, 9)
    found = streamed(machine, batches).predict(X)
    trained = tr.train(ew.ntk(net.net, X), LABELS, batches=batches, outputs=CLASSES, **options)
    np.testing.assert_allclose(found, trained.outputs, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(machine.coefficients, trained.coefficients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("steps", "b1"), [(140, 0.5), pytest.param(12_000, 0.9, marks=pytest.mark.slow)])
def test_coefficients_are_those_of_the_whole_sum(steps, b1):
    rng, rate = np.random.default_rng(4), 0.01
    x = rng.normal(size=(steps, 8))
    y = (x @ rng.normal(size=8) > 0).astype(np.int32)
    machine = KernelMachine(lambda a, b: a @ b.T, tr.SoftmaxCrossEntropy(), tr.AdamStar(rate, b1), outputs=2)
    readout, m, v, deltas, sizes = np.zeros((8, 2)), np.zeros((8, 2)), np.zeros(2), [], []
    for i in range(steps):
        machine.partial_fit(x[i : i + 1], y[i : i + 1])
        delta = softmax_gradient(x[i : i + 1] @ readout, y[i : i + 1])
        m, v = b1 * m + (1 - b1) * x[i : i + 1].T @ delta, 0.999 * v + 0.001 * (x[i] @ x[i]) * delta[0] ** 2
        size = 1 / (1 - b1 ** (i + 1)) / (np.sqrt(v / (1 - 0.999 ** (i + 1))) + 1e-8)
        readout = readout - rate * m * size
        deltas.append(delta[0])
        sizes.append((1 - b1) * size)
    c = np.array(sizes)
    for i in reversed(range(steps - 1)):
        c[i] += b1 * c[i + 1]
    expected = -rate * np.array(deltas) * c
    np.testing.assert_allclose(machine.coefficients, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(machine.predict(x[:50]), x[:50] @ readout, rtol=1e-8, atol=1e-8)


def smooth_problem(rows=120):
    x = np.random.default_rng(2).uniform(-1, 1, size=(rows, 2))
    return x, np.sin(2 * x[:, 0]) + x[:, 1]


def gaussian(a, b):
    return jnp.exp(-jnp.sum((a[:, None] - b[None]) ** 2, -1))


@pytest.mark.parametrize("b1", [0.0, 0.3, 0.9])  # no momentum; rows with momentum are kept; momentum is projected
def test_a_budget_costs_little_where_functions_are_smooth(b1):
    x, y = smooth_problem()
    free, bound = (KernelMachine(gaussian, tr.Mse(), tr.AdamStar(0.05, b1), outputs=1, budget=b) for b in (None, 80))
    for i in range(120):
        free.partial_fit(x[i : i + 1], y[i : i + 1])
        bound.partial_fit(x[i : i + 1], y[i : i + 1])
    assert (max(bound._recent, default=0) > 1) == (b1 == 0.9)
    assert len(free.support) == 120
    assert len(bound.support) <= 80
    assert 0 < bound.compression_error < 1e-4
    off = np.abs(free.predict(x) - bound.predict(x)).max()
    assert off < 1e-3 * np.abs(free.predict(x)).max()
    assert np.mean((bound.predict(x)[:, 0] - y) ** 2) < 0.3 * np.var(y)


def test_the_error_of_a_compression_is_measured():
    x = np.eye(8)  # rows that share nothing: what is dropped is lost
    machine = KernelMachine(lambda a, b: a @ b.T, tr.Mse(), tr.SGD(1.0), outputs=1, budget=6)
    for i in range(7):
        machine.partial_fit(x[i : i + 1], [1.0])
    assert len(machine.support) == 5
    assert machine.compression_error == pytest.approx(np.sqrt(2 / 7), rel=1e-12)
    assert sorted(machine.predict(x)[:, 0]) == pytest.approx([0, 0, 0, 1, 1, 1, 1, 1])


@pytest.mark.parametrize(("dtype", "budget"), [(np.float32, 60), (np.float64, None)])
def test_it_goes_on_bit_for_bit_after_a_rest(tmp_path, dtype, budget):
    x, y = (a.astype(dtype) for a in smooth_problem(160))
    parts = (gaussian, tr.Mse(), tr.AdamStar(0.05, 0.5))
    batches = np.split(np.arange(160), 20)
    straight = KernelMachine(*parts, outputs=1, budget=budget)
    for rows in batches[:14]:
        straight.partial_fit(x[rows], y[rows])
    straight.save(tmp_path / "machine.npz")
    rested = KernelMachine.restore(tmp_path / "machine.npz", *parts)
    assert [file.name for file in tmp_path.iterdir()] == ["machine.npz"]
    for rows in batches[14:]:
        straight.partial_fit(x[rows], y[rows])
        rested.partial_fit(x[rows], y[rows])
    np.testing.assert_array_equal(rested.predict(x), straight.predict(x))
    np.testing.assert_array_equal(rested.coefficients, straight.coefficients)
    assert rested.predict(x).dtype == dtype
    assert (rested.steps, rested.compression_error) == (20, straight.compression_error)


def test_a_machine_is_saved_before_its_first_batch(tmp_path):
    machine_of(tr.SGD(0.1)).save(tmp_path / "new")
    parts = (kernel, tr.SoftmaxCrossEntropy())
    assert KernelMachine.restore(tmp_path / "new", *parts, tr.SGD(0.1)).predict(X_TEST).shape == (11, CLASSES)
    with pytest.raises(ValueError, match="saved with SGD"):
        KernelMachine.restore(tmp_path / "new", *parts, tr.AdamStar(0.1))
    with pytest.raises(ValueError, match="without an f0"):
        KernelMachine.restore(tmp_path / "new", *parts, tr.SGD(0.1), f0=lambda x: x)


def test_a_first_batch_that_fails_leaves_nothing():
    machine = machine_of(tr.SGD(0.1))
    with pytest.raises(TypeError, match="dot_general"):
        machine.partial_fit(X[:4, :3], LABELS[:4])  # the kernel itself refuses
    assert machine.partial_fit(X[:4], LABELS[:4]).steps == 1


def test_a_function_that_is_no_kernel_is_found_by_a_compression():
    machine = KernelMachine(lambda a, b: 1.0 - a @ b.T, tr.Mse(), tr.SGD(0.1), outputs=1, budget=8)
    with pytest.raises(ValueError, match="of a row with itself it is -"):
        machine.partial_fit(X[:9], np.ones(9))


def test_a_kernel_that_is_zero_keeps_a_row():
    machine = KernelMachine(lambda a, b: 0.0 * (a @ b.T), tr.Mse(), tr.SGD(0.1), outputs=1, budget=8)
    machine.partial_fit(X[:9], np.ones(9))
    assert (len(machine.support), machine.compression_error, machine.steps) == (1, 0, 1)


def test_before_the_first_batch_it_predicts_zero():
    np.testing.assert_array_equal(machine_of(tr.SGD(0.1)).predict(X_TEST.astype(np.float32)), np.zeros((11, CLASSES)))


def test_an_output_without_gradients_stays():
    machine = KernelMachine(kernel, lambda f, y: (f[0] - y) ** 2, tr.AdamStar(0.1, eps=0.0), outputs=2)
    machine.partial_fit(X[:4], np.ones(4)).partial_fit(X[4:8], np.ones(4))
    found = machine.predict(X_TEST)
    assert np.isfinite(found).all()
    assert (found[:, 1] == 0).all()
    assert (found[:, 0] != 0).all()


def test_a_batch_that_diverges_is_left_out():
    machine = KernelMachine(kernel, tr.Poisson(), tr.SGD(1e3), outputs=1)
    machine.partial_fit(X[:4], np.full(4, 50.0))
    before = machine.predict(X)
    with pytest.warns(tr.DivergenceWarning, match="at step 2"):
        machine.partial_fit(X[:4], np.ones(4))
    np.testing.assert_array_equal(machine.predict(X), before)
    assert machine.steps == 1


def holding(value, row, column):
    x = X[:4].copy()
    x[row, column] = value
    return x


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X[:4, :3], LABELS[:4], r"rows of shape \(3,\), but this machine has learned from rows of shape \(5,\)"),
        (X[:0], LABELS[:0], "x is empty"),
        (holding(np.nan, 2, 3), LABELS[:4], "nan in row 2, column 3"),
        (X[:4], [0, 1, 7, 0], "Row 2 has the label 7"),
        (X[:4], [0, 1], "y has 2 rows and x 4"),
        (ew.Inputs(X[:4], mask=np.ones(4, bool)), LABELS[:4], "arrays of rows"),
    ],
)
def test_bad_batches_change_nothing(x, y, message):
    machine = machine_of(tr.SGD(0.1)).partial_fit(X[:4], LABELS[:4])
    before = machine.predict(X)
    with pytest.raises(ValueError, match=message):
        machine.partial_fit(x, y)
    np.testing.assert_array_equal(machine.predict(X), before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: machine_of(tr.SGD(0.1, l2=1.0)), "weight_decay"),
        (lambda: machine_of(tr.SGD(0.1), budget=1), "budget=1"),
        (lambda: KernelMachine(ew.Infinite(ew.Conv((3,)), (5, 2)), tr.Mse(), tr.SGD(0.1), outputs=1), "leaves sites"),
        (
            lambda: KernelMachine(lambda a, b: (a @ b.T)[0], tr.Mse(), tr.SGD(0.1), outputs=1).partial_fit(
                X[:2], [0, 0]
            ),
            "one for a pair",
        ),
    ],
)
def test_machines_that_cannot_be(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_large_kernels_are_cut_into_tiles():
    net = ew.Infinite(ew.Serial(ew.Conv((3,)), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1)), (64, 3))
    assert 1 < KernelMachine(net, tr.Mse(), tr.SGD(0.2), outputs=1)._rules.tile < 128
    rules = machine_of(tr.SGD(0.2))._rules
    with jax.enable_x64(True):
        a, b = jnp.asarray(X[:16]), jnp.asarray(X[:64])
        for tile in (2, 8, 16, 64):
            cut = jax.jit(replace(rules, tile=tile).cross)
            np.testing.assert_allclose(cut(a, b), kernel(a, b), rtol=1e-12)


@pytest.mark.parametrize(
    ("optimizer", "same"),
    [
        (optax.sgd(0.05, 0.9), tr.SGD(0.05, momentum=0.9)),
        (optax.sgd(0.05, 0.5, nesterov=True), tr.SGD(0.05, momentum=0.5, nesterov=True)),
        (
            optax.chain(optax.trace(0.5), optax.add_decayed_weights(0.3), optax.scale(-0.05)),
            tr.SGD(0.05, momentum=0.5, weight_decay=0.3),
        ),
    ],
    ids=["momentum", "nesterov", "decay"],
)
def test_optax_in_a_stream(optimizer, same):
    found, expected = (KernelMachine(gaussian, tr.Mse(), rule, outputs=1) for rule in (optimizer, same))
    assert abs(found._rules.optimizer.memory_length(np.dtype(float)) - same.memory_length(np.dtype(float))) <= 2
    for rows in np.split(np.arange(60), 30):
        for machine in (found, expected):
            machine.partial_fit(X[rows], X[rows, 0])
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-10, atol=1e-12)
    coupled = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1, 0.9))
    with pytest.raises(ew.InputError, match="moves all rows"):
        KernelMachine(gaussian, tr.Mse(), coupled, outputs=1)


def test_the_cost_of_a_stream():
    """The batch with all rows that are kept, and with itself: the square of the rows in all."""
    seen, machine = [], KernelMachine(lambda a, b: a @ b.T, tr.Mse(), tr.SGD(0.01), outputs=1)
    assert machine.cost == (0, 0.0)
    for step in range(4):
        machine.partial_fit(X[4 * step : 4 * step + 4], np.ones(4))
        seen.append(machine.cost.evaluations)
    assert seen == [16, 48, 96, 160]
    assert machine.cost.seconds > 0
