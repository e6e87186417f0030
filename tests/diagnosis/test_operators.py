"""Second derivatives as operators, against those that `jax.hessian` and sums of outer products form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from scipy.sparse.linalg import eigsh

import everwide as ew
from everwide import InputError
from everwide.diagnosis import fisher, gauss_newton, hessian, preconditioner
from everwide.diagnosis._optimizers import read_state
from everwide.training import BinaryCrossEntropy, Hinge, Huber, Mse, Poisson, SoftmaxCrossEntropy

pytestmark = pytest.mark.wide
RNG = np.random.default_rng(0)
N, D, K = 9, 4, 3
X, LABELS = RNG.normal(size=(N, D)), np.arange(N) % K
KEYS = jax.random.split(jax.random.key(0), 8)


class Attention(eqx.Module):
    """One layer of attention with normalization, over pieces of a row."""

    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    out: eqx.nn.Linear

    def __init__(self):
        self.attention = eqx.nn.MultiheadAttention(1, 2, key=KEYS[0])
        self.norm = eqx.nn.LayerNorm(2)
        self.out = eqx.nn.Linear(4, K, key=KEYS[1])

    def __call__(self, x):
        tokens = jax.vmap(self.norm)(x.reshape(2, 2))
        return self.out((tokens + self.attention(tokens, tokens, tokens)).ravel())


def tied(params, x):
    """One matrix, used three times."""
    w = params["w"]
    h = jnp.tanh(w @ jnp.tanh(w @ x) + params["b"])
    return (w.T @ h)[:K]


MODELS = {
    "mlp": (eqx.nn.MLP(D, K, 5, 2, activation=jax.nn.gelu, key=KEYS[2]), None),
    "tied": (tied, {"w": jax.random.normal(KEYS[3], (D, D)), "b": jnp.ones(D)}),
    "attention": (Attention(), None),
    "network": (
        net := ew.Serial(ew.Dense(), ew.LayerNorm(), ew.Erf(), ew.Dense(K)),
        net.init(KEYS[4], (D,), width=5),
    ),
}


def whole(model, loss, y):
    """The mean loss of flat parameters, outputs of flat parameters, and these."""
    f, params = MODELS[model]
    if params is None:
        params, static = eqx.partition(f, eqx.is_inexact_array)
        call = lambda params, x: eqx.combine(params, static)(x)
    else:
        call = f.apply if isinstance(f, ew.Serial) else f
    flat, unravel = ravel_pytree(params)
    outputs = lambda p: jax.vmap(lambda x: call(unravel(p), x))(jnp.asarray(X, flat.dtype))
    return lambda p: jnp.mean(jax.vmap(loss)(outputs(p), jnp.asarray(y))), outputs, flat


def near(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    rounding = 1e-10 if got.dtype == np.float64 else 3e-5
    return np.abs(got - expected).max() <= rounding * max(1, np.abs(expected).max())


@pytest.fixture(params=[None, 10_000], ids=["at once", "in pieces"])
def memory(request):
    return request.param


@pytest.mark.parametrize("model", MODELS)
def test_all_matrices_of_all_models(model, memory):
    loss = SoftmaxCrossEntropy()
    total, outputs, flat = whole(model, loss, LABELS)
    given, unit = (*MODELS[model], X, LABELS), np.eye(len(flat))
    h = jax.hessian(total)(flat)
    op = hessian(*given, loss=loss, memory=memory)
    assert near(op @ unit, h)
    assert near(op.prepared() @ unit, h)
    j, p = jax.jacobian(outputs)(flat), jax.nn.softmax(outputs(flat))
    inner = jax.vmap(lambda p: jnp.diag(p) - jnp.outer(p, p))(p)
    g = jnp.einsum("nkp,nkl,nlq->pq", j, inner, j) / N
    assert near(gauss_newton(*given, loss=loss, memory=memory) @ unit, g)
    assert near(fisher(*MODELS[model], X, loss=loss, memory=memory) @ unit, g)
    slopes = jnp.einsum("nkp,nk->np", j, p - np.eye(K)[LABELS].astype(p.dtype))
    assert near(fisher(*given, loss=loss, empirical=True, memory=memory) @ unit, slopes.T @ slopes / N)
    first, rest = op.split()
    assert near(rest @ unit, h - g)
    assert near(first @ unit, g)
    assert near(op.gradient(), jax.grad(total)(flat))


def test_pieces_are_pieces():
    assert hessian(*MODELS["mlp"], X, LABELS, loss=SoftmaxCrossEntropy()).chunks == 1
    assert hessian(*MODELS["mlp"], X, LABELS, loss=SoftmaxCrossEntropy(), memory=10_000).chunks > 1


def convolution(params, x):
    """Few parameters and many activations."""
    layout = ("NHWC", "HWIO", "NHWC")
    for w in params["filters"]:
        x = jnp.tanh(jax.lax.conv_general_dilated(x[None], w, (1, 1), "SAME", dimension_numbers=layout)[0])
    return x.mean((0, 1)) @ params["head"]


@pytest.mark.parametrize("x64", [False, True])
def test_rows_are_divided_among_cores(monkeypatch, x64):
    """Where it pays; settings of a `with` hold on all threads, and what fills up the last piece has no weight."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    n, loss = 50, SoftmaxCrossEntropy()
    x, labels = RNG.normal(size=(n, 40, 40, 1)), RNG.integers(0, K, n)
    filters = [RNG.normal(size=(3, 3, 1, 2)), RNG.normal(size=(3, 3, 2, 2))]
    with jax.enable_x64(x64):
        params = jax.tree.map(jnp.asarray, {"filters": filters, "head": RNG.normal(size=(2, K))})
        flat, unravel = ravel_pytree(params)
        outputs = lambda p: jax.vmap(lambda one: convolution(unravel(p), one))(jnp.asarray(x))
        total = lambda p: jnp.mean(jax.vmap(loss)(outputs(p), jnp.asarray(labels)))
        op, v = hessian(convolution, params, x, labels, loss=loss), np.linspace(-1, 1, len(flat))
        expected = jax.jvp(jax.grad(total), (flat,), (jnp.asarray(v, flat.dtype),))[1]
        ready, scale = op.prepared(), np.linspace(1, 4, len(flat))
        product = ready @ v
        assert op._at_once() == 3
        assert product.dtype == flat.dtype
        assert near(product, expected)
        assert near(ready @ np.stack([v, -v], 1), np.stack([expected, -expected], 1))
        assert near(jax.jit(lambda ready, v: ready @ v)(ready, jnp.asarray(v, flat.dtype)), expected)
        assert near(op.preconditioned(scale).prepared() @ (np.sqrt(scale) * v), expected / np.sqrt(scale))
    assert hessian(*MODELS["mlp"], X, LABELS, loss=loss)._at_once() == 1


def test_vectors_are_only_read():
    """XLA reads aligned ones where they are, and a matrix that returns what it is given returns a copy."""
    raw = np.zeros(64 + 16, np.uint8)
    v = raw[-raw.ctypes.data % 64 :][:16].view(np.float32)
    v[:] = [1, 2, 3, 4]
    ready = hessian(
        lambda w, x: w * x, np.zeros(4, np.float32), np.ones((1, 4)), np.ones((1, 4)), loss=Mse()
    ).prepared()
    product = ready @ v
    v[:] = 0
    assert np.allclose(product, [1, 2, 3, 4])


@pytest.mark.parametrize(
    "loss", [Mse(), Huber(0.5), BinaryCrossEntropy(), Poisson(), lambda out, y: jnp.sum(jnp.cosh(out - y))]
)
def test_losses(loss):
    y = RNG.integers(0, 2, (N, K)).astype(float)
    total, _, flat = whole("mlp", loss, jnp.asarray(y, float))
    op = hessian(*MODELS["mlp"], X, y, loss=loss)
    v = np.linspace(-1, 1, len(flat))
    assert near(op @ v, jax.hessian(total)(flat) @ jnp.asarray(v, flat.dtype))


@pytest.mark.parametrize("loss", [Mse(), BinaryCrossEntropy(), Poisson()])
def test_the_true_fisher_matrix_is_the_mean_over_labels_that_the_model_draws(loss):
    """For one output, where the mean over labels is a sum or a quadrature."""
    w = jnp.array([0.3, -0.2])
    x = RNG.normal(size=(5, 2))
    f = lambda w, x: w @ x
    op = fisher(f, w, x, loss=loss)
    out = x @ np.asarray(w, float)
    if isinstance(loss, Mse):
        square = np.ones(5)
    elif isinstance(loss, BinaryCrossEntropy):
        p = 1 / (1 + np.exp(-out))
        square = p * (p - 1) ** 2 + (1 - p) * p**2
    else:
        counts = np.arange(60)
        logs = counts * out[:, None] - np.exp(out)[:, None] - np.cumsum(np.log(np.maximum(counts, 1)))
        square = np.sum(np.exp(logs) * (np.exp(out)[:, None] - counts) ** 2, 1)
    assert np.allclose(op @ np.eye(2), (x.T * square) @ x / 5, rtol=1e-5)


def test_layers_are_blocks():
    op = hessian(*MODELS["mlp"], X, LABELS, loss=SoftmaxCrossEntropy())
    assert list(op.groups) == ["layers.0", "layers.1", "layers.2"]
    h = np.asarray(op @ np.eye(op.shape[0]))
    scaled = op.preconditioned(np.linspace(1, 2, op.shape[0]))
    for name, pieces in op.groups.items():
        index = np.concatenate([np.arange(len(h))[piece] for piece in pieces])
        block = op.block(name)
        assert near(block @ np.eye(len(index)), h[np.ix_(index, index)])
        root = np.sqrt(np.linspace(1, 2, len(h)))[index]
        assert near(scaled.block(name) @ np.eye(len(index)), h[np.ix_(index, index)] / np.outer(root, root))


@pytest.mark.parametrize("clip", [False, True])
def test_preconditioned_by_adam(clip):
    """`P` is what the step of Adam is divided by."""
    total, _, flat = whole("mlp", SoftmaxCrossEntropy(), LABELS)
    adam = optax.chain(optax.clip_by_global_norm(1e9), optax.adam(0.1)) if clip else optax.adam(0.1)
    state, now = adam.init(flat), flat
    with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes
        for _ in range(3):
            step, state = adam.update(jax.grad(total)(now), state)
            now = optax.apply_updates(now, step)
    p = np.asarray(preconditioner(state))
    moments = [node for node in jax.tree.leaves(state, is_leaf=lambda a: hasattr(a, "mu")) if hasattr(node, "mu")]
    assert near(-0.1 * np.asarray(moments[0].mu) / (1 - 0.9**3) / p, step)
    op = hessian(*MODELS["mlp"], X, LABELS, loss=SoftmaxCrossEntropy()).preconditioned(p)
    h = np.asarray(jax.hessian(total)(flat), np.float64)
    values = np.linalg.eigvals(h / p[:, None].astype(np.float64)).real
    assert np.isclose(op.leading(1).values[0], values.max(), rtol=1e-4)


@pytest.mark.parametrize("rule", [optax.amsgrad, lambda rate: optax.rmsprop(rate, centered=True, eps_in_sqrt=False)])
def test_preconditioned_by_relatives_of_adam(rule):
    """AMSGrad keeps the largest second moments, a centred RMSProp takes the mean away from them."""
    slopes = RNG.normal(size=(4, 3)) * np.array([[3], [0.1], [2], [0.2]])
    optimizer, now = rule(0.1), jnp.zeros(3)
    state = optimizer.init(now)
    with jax.numpy_dtype_promotion("standard"):
        for slope in slopes:
            step, state = optimizer.update(jnp.asarray(slope, now.dtype), state)
    first = state[0].mu / (1 - 0.9**4) if rule is optax.amsgrad else slopes[-1]
    assert near(-0.1 * first / np.asarray(preconditioner(state)), step)
    seen = read_state(state, [(3,)])
    assert near(np.sqrt(seen.second[0] / seen.bias()[1]) + 1e-8, preconditioner(state))
    assert (seen.first is None) == (rule is not optax.amsgrad)


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.inject_hyperparams(optax.adam)(0.1, b2=0.9),
        optax.rmsprop(0.1, bias_correction=True, eps=1e-2),
        optax.rmsprop(0.1, eps=1e-2),
    ],
    ids=["told", "corrected", "rms"],
)
def test_preconditioned_as_the_state_says(optimizer):
    now, slopes = jnp.zeros(3), jnp.asarray(RNG.normal(size=(4, 3)) * [1, 1e-2, 1e-4], float)
    state = optimizer.init(now)
    with jax.numpy_dtype_promotion("standard"):
        for slope in slopes:
            step, state = optimizer.update(jnp.asarray(slope, now.dtype), state)
    told = hasattr(state, "hyperparams")
    first = state.inner_state[0].mu / (1 - 0.9**4) if told else slopes[-1]
    assert near(-0.1 * first / np.asarray(preconditioner(state, eps=None if told else 1e-2)), step)


@pytest.mark.parametrize("optimizer", [optax.sm3(0.1), optax.novograd(0.1)], ids=["sm3", "novograd"])
def test_states_whose_moments_are_of_another_kind_are_refused(optimizer):
    with pytest.raises(InputError, match="something else as nu"):
        preconditioner(optimizer.init({"w": jnp.ones((2, 3))}))


def test_scipy():
    op = hessian(*MODELS["mlp"], X, LABELS, loss=SoftmaxCrossEntropy())
    (value,) = eigsh(op.linear_operator(), 1, which="LA", return_eigenvectors=False)
    assert np.isclose(value, np.linalg.eigvalsh(np.asarray(op @ np.eye(op.shape[0]), np.float64))[-1], rtol=1e-4)


@jax.numpy_dtype_promotion("standard")
def test_numbers_among_the_parameters_and_several_types():
    params = {"w": jnp.asarray(RNG.normal(size=D)), "scale": jnp.float32(0.5)}
    f = lambda p, x: jnp.tanh(p["scale"] * (p["w"] @ x))
    op = hessian(f, params, X, X[:, 0], loss=Mse())
    flat, _ = ravel_pytree(params)
    v = RNG.normal(size=(D + 1, 2))

    def total(p):
        own = {"w": p[1:], "scale": p[0]}
        return jnp.mean((jax.vmap(lambda x: f(own, x))(X) - X[:, 0]) ** 2) / 2

    expected = np.asarray(jax.hessian(total)(flat)) @ v
    assert op.dtype == flat.dtype
    assert np.allclose(op @ v, expected, rtol=1e-5, atol=1e-6)
    assert np.allclose(op @ v[:, 0], expected[:, 0], rtol=1e-5, atol=1e-6)


@jax.numpy_dtype_promotion("standard")
def test_inputs_are_not_rounded_to_the_type_of_the_first_parameter():
    params = {"a": jnp.ones(1, jnp.bfloat16), "w": jnp.ones(D, jnp.float32)}
    op = gauss_newton(lambda p, x: p["w"] @ x, params, X, X[:, 0], loss=Mse())
    assert np.allclose(op @ np.eye(D + 1)[:, 1:], np.vstack([np.zeros(D), X.T @ X / N]), rtol=1e-5, atol=1e-6)


def test_it_is_a_pytree():
    op = hessian(*MODELS["mlp"], X, LABELS, loss=SoftmaxCrossEntropy())
    v = jnp.ones(op.shape[0], op.dtype)
    assert near(eqx.filter_jit(lambda op, v: op @ v)(op, v), op @ v)


MLP = MODELS["mlp"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hessian(*MLP, X, LABELS[:-1], loss=SoftmaxCrossEntropy()), "y has 8 rows and x 9"),
        (lambda: hessian(*MLP, X * np.nan, LABELS, loss=SoftmaxCrossEntropy()), "NaN"),
        (lambda: hessian(*MLP, X, LABELS, loss=SoftmaxCrossEntropy()) @ np.ones(3), r"expected \("),
        (lambda: hessian(lambda p, x: x @ p["w"], {"w": jnp.ones(D)}, X, X[:, 0], loss=Mse()) @ {"w": 1}, "a dict"),
        (lambda: hessian(*MLP, X, LABELS, loss=SoftmaxCrossEntropy()).block("layers.9"), "There are layers.0"),
        (lambda: hessian(*MLP, X, LABELS, loss=SoftmaxCrossEntropy(), memory="much"), "such as"),
        (lambda: gauss_newton(*MLP, X, LABELS, loss=SoftmaxCrossEntropy()).split(), "Only a Hessian"),
        (lambda: fisher(*MLP, X, loss=SoftmaxCrossEntropy(), empirical=True), "y is missing"),
        (lambda: fisher(*MLP, X, loss=Hinge()), "no likelihood"),
        (lambda: preconditioner(optax.sgd(0.1).init(jnp.ones(2))), "0 second moments"),
        (lambda: hessian(*MLP, X, LABELS, loss=SoftmaxCrossEntropy()).preconditioned(np.ones(2)), "one for each"),
        (lambda: hessian(lambda w, x: w * x, jnp.ones(2) + 1j, X, LABELS, loss=Mse()), "complex"),
        (lambda: hessian(*MLP, X, LABELS, loss=SoftmaxCrossEntropy()) @ (np.ones(D) + 1j), "The vector is complex"),
        (lambda: hessian(*MLP, X, LABELS, loss=SoftmaxCrossEntropy()).preconditioned("abc"), "preconditioner is no"),
        (lambda: fisher(*MLP, None, loss=SoftmaxCrossEntropy()), "x must hold arrays"),
        (lambda: fisher(*MLP, X[:0], loss=Mse()), "x is empty"),
        (lambda: fisher(*MLP, np.array(["a"]), loss=Mse()), "x holds <U1"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("make", [hessian, gauss_newton, fisher])
@pytest.mark.parametrize("traced", [0, 1, 2])
def test_inside_of_jit_operators_are_arguments(make, traced):
    given = [jnp.ones(D), jnp.asarray(X), jnp.asarray(X[:, 0])]

    def product(one):
        params, x, y = (one if place == traced else a for place, a in enumerate(given))
        return make(lambda w, x: w @ x, params, x, y, loss=Mse()) @ jnp.ones(D, x.dtype)

    with pytest.raises(InputError, match="Make the operator outside"):
        jax.jit(product)(given[traced])
    op = make(lambda w, x: w @ x, *given, loss=Mse())
    assert near(jax.jit(lambda op: op @ jnp.ones(D, op.dtype))(op), X.T @ X.sum(1) / N)


def test_products_are_functions_of_the_parameters():
    def product(params):
        return hessian(lambda w, x: jnp.sum(w**2) * x[0], params, X, X[:, 0], loss=Mse()) @ jnp.ones(D, params.dtype)

    some = jnp.stack([jnp.ones(D), 2 * jnp.ones(D)])
    assert near(jax.vmap(product)(some), np.stack([product(one) for one in some]))
