"""Training without weights, against the same training of finite random-feature models, weight by weight."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everwide as ew
from everwide import training as tr
from training.direct import Model

pytestmark = [pytest.mark.once, pytest.mark.as_users]

MODEL = Model()
BATCHES = np.stack([np.random.default_rng(i).permutation(30)[:8] for i in range(60)])
ONLINE = np.arange(30)[:, None]
CE = tr.SoftmaxCrossEntropy()


def trained(optimizer, batches, **options):
    found = tr.train(MODEL.kernel, MODEL.labels, loss=CE, optimizer=optimizer, batches=batches, outputs=3, **options)
    return found.predict(MODEL.kernel_test)


@pytest.mark.parametrize("batches", [ONLINE, BATCHES], ids=["one pass", "several"])
def test_adam_star_is_that_of_the_features(batches):
    expected = MODEL.adam_star(0.07, batches, eps=1e-3)
    np.testing.assert_allclose(trained(tr.AdamStar(0.07, eps=1e-3), batches), expected, atol=1e-10)


def test_theorem_2_without_epsilon():
    np.testing.assert_allclose(trained(tr.AdamStar(0.07, eps=0), ONLINE), MODEL.adam_star(0.07, ONLINE), atol=1e-10)


@pytest.mark.parametrize("kind", ["decay", "l2"])
def test_adam_star_with_decay_from_an_initial_function(kind):
    f0, f0_test, power = MODEL.start()
    options = {"weight_decay": 0.5} if kind == "decay" else {"l2": 0.3}
    found = tr.train(
        MODEL.kernel,
        MODEL.labels,
        loss=CE,
        optimizer=tr.AdamStar(0.02, eps=0, **options),
        batches=BATCHES,
        f0=f0,
        f0_power=power,
    )
    expected = MODEL.adam_star(0.02, BATCHES, m0=MODEL.m0, **{kind: 0.5 if kind == "decay" else 0.3})
    np.testing.assert_allclose(found.predict(MODEL.kernel_test, f0=f0_test), expected, atol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"momentum": 0.8, "nesterov": True}, {"momentum": 0.5, "l2": 0.1}]
)
def test_sgd_is_that_of_the_features(options):
    found = trained(tr.SGD(0.3, **options), BATCHES)
    np.testing.assert_allclose(found, MODEL.sgd(0.3, BATCHES, **options), atol=1e-11)


def test_schedules_count_from_zero():
    schedule = optax.cosine_decay_schedule(0.1, 60)
    rates = [float(schedule(t)) for t in range(60)]
    expected = MODEL.adam_star(lambda t: rates[t], BATCHES, eps=1e-3)
    np.testing.assert_allclose(trained(tr.AdamStar(schedule, eps=1e-3), BATCHES), expected, atol=1e-6)


def kernels():
    features = MODEL.g / np.sqrt(MODEL.width)
    yield "features", tr.FeatureKernel(features)
    yield "function", tr.FunctionKernel(lambda a, b: a @ b.T, features)
    yield "operator", tr.OperatorKernel(lambda v: jnp.asarray(MODEL.kernel) @ v, n=30, dtype="float64")


@pytest.mark.parametrize(("name", "kernel"), list(kernels()), ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("batches", [BATCHES, None], ids=["batches", "all rows"])
def test_every_kind_of_kernel_gives_the_same(name, kernel, batches):
    options = {"loss": CE, "optimizer": tr.AdamStar(0.05, weight_decay=0.1), "outputs": 3, "steps": 20}
    run = lambda k: tr.train(k, MODEL.labels, batches=batches, **options).coefficients
    np.testing.assert_allclose(run(kernel), run(MODEL.kernel), atol=1e-10)


def test_kernel_functions_of_networks():
    x = np.random.default_rng(0).normal(size=(12, 3))
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    run = lambda k: tr.train(k, x[:, 0], loss=tr.Mse(), optimizer=tr.SGD(0.5), steps=10).coefficients
    kernel = tr.FunctionKernel.of(ew.Infinite(net, (3,)), x)
    np.testing.assert_allclose(run(kernel), run(ew.ntk(net, x)), atol=1e-12)


def test_kernels_that_mix_outputs():
    rng = np.random.default_rng(0)
    j = rng.normal(size=(5, 2, 9))
    full, y = np.einsum("nip,mjp->nmij", j, j), rng.normal(size=(5, 2))
    found = tr.train(full, y, loss=tr.Mse(), optimizer=tr.SGD(0.02), batches=np.arange(5)[:, None].repeat(2, 1))
    theta = np.zeros(9)
    for row in range(5):  # a batch that holds a row twice
        theta -= 0.02 * j[row].T @ (j[row] @ theta - y[row])
    np.testing.assert_allclose(found.outputs, j @ theta, atol=1e-12)
    np.testing.assert_allclose(found.predict(full), found.outputs, atol=1e-12)


def test_history_and_iterators():
    options = {"loss": CE, "optimizer": tr.SGD(0.3, momentum=0.5), "outputs": 3}
    whole = tr.train(MODEL.kernel, MODEL.labels, batches=BATCHES, record=20, **options)
    assert whole.history.steps == (0, 20, 40, 60)
    assert whole.history.loss[0] == pytest.approx(np.log(3))
    ragged = (b[: 8 if i < 40 else 5] for i, b in enumerate(BATCHES))
    found = tr.train(MODEL.kernel, MODEL.labels, batches=ragged, record=[40], steps=55, **options)
    assert found.history.steps == (0, 40, 55)
    assert found.history.loss[1] == pytest.approx(whole.history.loss[2], rel=1e-12)
    logs = jax.nn.log_softmax(jnp.asarray(whole.outputs), axis=1)
    assert whole.history.loss[3] == pytest.approx(-float(logs[np.arange(30), MODEL.labels].mean()), rel=1e-5)


def test_float32_kernels_stay_float32():
    found = tr.train(
        MODEL.kernel.astype(np.float32), MODEL.labels, loss=CE, optimizer=tr.AdamStar(0.05), batches=BATCHES, outputs=3
    )
    assert found.coefficients.dtype == np.float32
    wide = MODEL.adam_star(0.05, BATCHES, eps=1e-8)
    np.testing.assert_allclose(found.predict(MODEL.kernel_test), wide, atol=1e-4)


LOSSES = [
    (tr.Mse(), np.linspace(-1, 1, 30)),
    (tr.Huber(), np.linspace(-3, 3, 30)),
    (tr.Hinge(), np.where(np.arange(30) % 2, 1, -1)),
    (tr.Poisson(), np.arange(30) % 4),
    (tr.BinaryCrossEntropy(), np.arange(30) % 2),
    (lambda f, y: jnp.sum(jnp.cosh(f - y)), np.linspace(-1, 1, 30)),
]


@pytest.mark.parametrize(("loss", "y"), LOSSES)
def test_every_loss_falls_and_follows_its_gradient(loss, y):
    one = tr.train(MODEL.kernel, y, loss=loss, optimizer=tr.SGD(0.3), steps=1)
    slope = np.array([float(jax.grad(lambda f, v=v: loss(f, jnp.asarray([v], float)))(jnp.zeros(1))[0]) for v in y])
    np.testing.assert_allclose(one.coefficients[:, 0], -0.01 * slope, rtol=1e-5, atol=1e-9)
    assert one.history.loss[1] < one.history.loss[0]


@pytest.mark.slow
def test_many_steps_stay_stable():
    batches = np.random.default_rng(0).integers(0, 30, (12_000, 4))
    expected = MODEL.adam_star(0.01, batches, eps=1e-6)
    np.testing.assert_allclose(trained(tr.AdamStar(0.01, eps=1e-6), batches), expected, atol=1e-8)


def test_divergence_stops_at_the_last_finite_step():
    options = {"loss": tr.Mse(), "optimizer": tr.SGD(1e3), "steps": 500}
    with (
        pytest.warns(tr.DivergenceWarning, match="above the largest stable one"),
        pytest.warns(tr.DivergenceWarning, match="diverged at step"),
    ):
        found = tr.train(MODEL.kernel, np.ones(30), **options)
    assert found.diverged == found.steps + 1 < 500
    assert np.isfinite(found.coefficients).all()
    assert np.isfinite(found.outputs).all()


def test_no_warning_below_the_limit():
    limit = tr.max_learning_rate(MODEL.kernel)
    tr.train(MODEL.kernel, np.ones(30), loss=tr.Mse(), optimizer=tr.SGD(0.999 * limit), steps=3)
    with pytest.warns(tr.DivergenceWarning, match=f"{limit:.6g}"):
        tr.train(MODEL.kernel, np.ones(30), loss=tr.Mse(), optimizer=tr.SGD(1.001 * limit), steps=3)


K2, SGD = np.eye(2), tr.SGD(0.1)
BAD = {
    "labels": (lambda: tr.train(K2, [0, 2], loss=CE, optimizer=SGD, steps=1, outputs=2), "label 2"),
    "nan": (lambda: tr.train(K2, [0, np.nan], loss=tr.Mse(), optimizer=SGD, steps=1), "Row 1 of y is nan"),
    "words": (lambda: tr.train(K2, ["a", "b"], loss=CE, optimizer=SGD, steps=1), "expected numbers"),
    "signs": (lambda: tr.train(K2, [0, 1], loss=tr.Hinge(), optimizer=SGD, steps=1), "expected -1 or 1"),
    "counts": (lambda: tr.train(K2, [0, -1], loss=tr.Poisson(), optimizer=SGD, steps=1), "not negative"),
    "rows": (lambda: tr.train(K2, [1.0], loss=tr.Mse(), optimizer=SGD, steps=1), "1 rows and the kernel 2"),
    "asymmetric": (lambda: tr.train(np.tri(2), [0, 1], loss=tr.Mse(), optimizer=SGD, steps=1), "symmetric"),
    "negative": (lambda: tr.train(-K2, [0, 1], loss=tr.Mse(), optimizer=SGD, steps=1), "smallest eigenvalue is -1"),
    "indefinite": (
        lambda: tr.train(2 - K2, [0, 1], loss=tr.Mse(), optimizer=SGD, steps=1),
        "smallest eigenvalue is -1",
    ),
    "no steps": (lambda: tr.train(K2, [0, 1], loss=tr.Mse(), optimizer=SGD), "needs steps"),
    "empty batch": (
        lambda: tr.train(K2, [0, 1], loss=tr.Mse(), optimizer=SGD, batches=np.zeros((3, 0), int)),
        "one row",
    ),
    "far row": (lambda: tr.train(K2, [0, 1], loss=tr.Mse(), optimizer=SGD, batches=[[0, 2]]), "rows 0 to 2"),
    "few batches": (lambda: tr.train(K2, [0, 1], loss=tr.Mse(), optimizer=SGD, batches=[[0]], steps=2), "1 batches"),
    "f0": (lambda: tr.train(K2, [0, 1], loss=tr.Mse(), optimizer=SGD, steps=1, f0=np.ones(3)), "f0 has shape"),
    "power": (
        lambda: tr.train(K2, [0, 1], loss=tr.Mse(), optimizer=tr.AdamStar(0.1, l2=1.0), steps=1, f0=np.ones(2)),
        "f0_power",
    ),
    "mixed": (
        lambda: tr.train(np.ones((2, 2, 1, 1)), [0, 1], loss=tr.Mse(), optimizer=tr.AdamStar(0.1), steps=1),
        "mixes them",
    ),
    "rate": (lambda: tr.SGD(-1.0), "above 0"),
    "b1": (lambda: tr.AdamStar(0.1, b1=1.0), "below 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    run, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        run()


def test_names_are_no_losses():
    with pytest.raises((TypeError, ew.InputError)):  # the type is checked first where jaxtyping is on
        tr.train(K2, [0, 1], loss="mse", optimizer=SGD, steps=1)
    with pytest.raises(ew.InputError, match="a transformation of optax"):
        tr.train(K2, [0, 1], loss=tr.Mse(), optimizer="adam", steps=1)


LINEAR = {
    "momentum": (optax.sgd(0.3, 0.8), {"momentum": 0.8}),
    "nesterov": (optax.sgd(0.3, 0.8, nesterov=True), {"momentum": 0.8, "nesterov": True}),
    "l2": (optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.3, 0.5)), {"momentum": 0.5, "l2": 0.1}),
    "decay": (optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.3)), {"decay": 0.1}),
}


@pytest.mark.parametrize("case", LINEAR)
def test_what_is_linear_in_optax_acts_on_functions(case):
    optimizer, options = LINEAR[case]
    expected = MODEL.sgd(0.3, BATCHES, m0=MODEL.m0, **options)
    f0, f0_test, _ = MODEL.start()
    run = tr.train(MODEL.kernel, MODEL.labels, loss=CE, optimizer=optimizer, batches=BATCHES, outputs=3, f0=f0)
    np.testing.assert_allclose(run.predict(MODEL.kernel_test, f0=f0_test), expected, atol=1e-11)


def test_adam_star_in_a_chain_of_optax():
    f0, f0_test, power = MODEL.start()
    chain = optax.chain(optax.add_decayed_weights(0.3), tr.AdamStar(0.02, eps=0).transform())
    options = {"batches": BATCHES, "f0": f0, "f0_power": power}
    run = tr.train(MODEL.kernel, MODEL.labels, loss=CE, optimizer=chain, **options)
    expected = MODEL.adam_star(0.02, BATCHES, m0=MODEL.m0, l2=0.3)
    np.testing.assert_allclose(run.predict(MODEL.kernel_test, f0=f0_test), expected, atol=1e-9)


@pytest.mark.parametrize(
    "optimizer",
    [optax.adam(0.1), optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)), optax.lion(0.1), optax.rmsprop(0.1)],
    ids=["adam", "clip", "lion", "rmsprop"],
)
def test_what_treats_each_weight_in_its_own_way_is_refused(optimizer):
    with pytest.raises(ew.InputError, match="that is linear"):
        tr.train(K2, [0, 1], loss=tr.Mse(), optimizer=optimizer, steps=1)


@pytest.mark.parametrize(
    ("loss", "target"), [(tr.Mse(), 0.3), (tr.Huber(2.0), 0.3), (tr.BinaryCrossEntropy(), 1.0), (CE, 1)], ids=str
)
def test_curvature_is_the_largest_second_derivative(loss, target):
    rng = np.random.default_rng(0)
    around = [rng.normal(size=3) * scale for scale in (0.0, 0.1, 1.0, 5.0) for _ in range(10)]
    # Two outputs that share all probability: there the softmax curves the most.
    points = [np.array(p, np.float32) for p in [*around, [0, 0, -30], [0.01, -0.01, -30]]]
    hessian = jax.jit(jax.hessian(lambda f: loss(f, jnp.asarray(target))))
    largest = max(float(np.linalg.eigvalsh(np.asarray(hessian(jnp.asarray(p))))[-1]) for p in points)
    assert largest == pytest.approx(loss.curvature, rel=1e-4)


def test_a_rate_without_units():
    """ADAM*'s first step is `rate sqrt(K(x, x))`, whatever the gradient is: the default is a tenth of the targets."""
    for size, scale in ((0.01, 7.0), (30.0, 0.2)):
        k, y = np.array([[size]]), np.array([scale])
        rate = tr.AdamStar.default_rate(k, y)
        run = tr.train(k, y, loss=tr.Mse(), optimizer=tr.AdamStar(rate, eps=0), steps=1)
        assert run.outputs[0, 0] == pytest.approx(0.1 * scale)
    kernel, y = 100 * MODEL.kernel, 50 * MODEL.start()[0][:, 0]
    run = tr.train(kernel, y, loss=tr.Mse(), optimizer=tr.AdamStar(tr.AdamStar.default_rate(kernel, y)), steps=200)
    assert run.history.loss[-1] < 0.1 * run.history.loss[0]


def test_an_output_without_gradient_stays_where_it_is():
    y = np.stack([np.arange(30.0), np.zeros(30)], 1)
    run = tr.train(MODEL.kernel, y, loss=tr.Mse(), optimizer=tr.AdamStar(0.1, eps=0), steps=5)
    assert np.isfinite(run.outputs).all()
    assert not run.outputs[:, 1].any()


def test_where_the_readout_rests_the_features_do():
    """The gradient in the features, of a network written out, vanishes with that in the read-out."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        x, y, w = (jnp.asarray(rng.normal(size=shape)) for shape in ((6, 3), (6, 1), (3, 400)))
        g = np.asarray(jnp.tanh(x @ w)) / 20
        kernel = g @ g.T
        loss = jax.jit(jax.grad(lambda w, m: jnp.mean((jnp.tanh(x @ w) / 20 @ m - y) ** 2) / 2, (0, 1)))
        norms = []
        for steps in (10, 500, 25_000):
            run = tr.train(
                kernel, np.asarray(y), loss=tr.Mse(), optimizer=tr.SGD(tr.max_learning_rate(kernel) / 2), steps=steps
            )
            features, readout = loss(w, jnp.asarray(g.T @ run.coefficients))
            ours = run.gradient_norm(kernel, y, tr.Mse())
            np.testing.assert_allclose(ours, [jnp.linalg.norm(readout)], rtol=1e-6, atol=1e-10)
            norms.append((float(ours[0]), float(jnp.linalg.norm(features))))
    (first, last) = np.array(norms)[[0, -1]]
    assert (last < 1e-3 * first).all()
