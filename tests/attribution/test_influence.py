"""Influence through the tangent kernel, against formulas with explicit Jacobians and steps of the parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import everwide as ew
import everwide.attribution as at
import everwide.training as tr
from everwide import InputError
from everwide.empirical import tangent_features
from everwide.linearization import forgetting_score

DTYPE = jnp.result_type(float)
CLOSE = 1e-9 if np.float64 == DTYPE else 2e-4
RNG = np.random.default_rng(0)
X, NEW = (RNG.normal(size=(n, 3)).astype(DTYPE) for n in (9, 4))
LABELS, NEW_LABELS = RNG.integers(0, 2, 9), RNG.integers(0, 2, 4)
NUMBERS, NEW_NUMBERS = RNG.normal(size=(9, 2)), RNG.normal(size=(4, 2))


def model(params, x):
    return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"]


def drawn(seed):
    keys = jr.split(jr.key(seed), 3)
    return {"w": jr.normal(keys[0], (3, 5)), "b": jr.normal(keys[1], (5,)), "v": jr.normal(keys[2], (5, 2))}


PARAMS = drawn(0)
CASES = {
    "numbers": (tr.Mse(), NUMBERS, NEW_NUMBERS),
    "classes": (tr.SoftmaxCrossEntropy(), LABELS, NEW_LABELS),
    "a function": (lambda outputs, y: jnp.sum((outputs - y) ** 4), NUMBERS, NEW_NUMBERS),
}


def gradients(loss, params, x, y):
    """`(n, parameters)`, each of them formed."""
    start, rebuild = ravel_pytree(params)
    targets = jnp.asarray(y) if jnp.issubdtype(y.dtype, jnp.integer) else jnp.asarray(y, DTYPE)
    one = jax.grad(lambda p, x, y: loss(model(rebuild(p), x), y))
    return np.asarray(jax.vmap(one, (None, 0, 0))(start, jnp.asarray(x), targets), np.float64)


def by_hand(rows, tests, ridge):
    """From gradients, or from what stands for them, with the matrix of the size of the parameters."""
    noise = ridge * np.mean(np.sum(rows**2, 1))
    inverse = np.linalg.inv(rows.T @ rows + noise * np.eye(rows.shape[1]))
    own = []
    for i, row in enumerate(rows):
        others = np.delete(rows, i, 0)
        own.append(row @ np.linalg.solve(others.T @ others + noise * np.eye(len(row)), row))
    return tests @ inverse @ rows.T, np.array(own)


@pytest.mark.parametrize(("case", "ridge"), [("numbers", 0.1), ("classes", 1.0), ("a function", 1.0)])
def test_scores_are_those_of_explicit_gradients(case, ridge):
    loss, y, y_new = CASES[case]
    result = at.influence(model, PARAMS, X, y, NEW, y_new, loss=loss, relative_ridge=ridge)
    scores, own = by_hand(gradients(loss, PARAMS, X, y), gradients(loss, PARAMS, NEW, y_new), ridge)
    np.testing.assert_allclose(result.scores, scores, atol=CLOSE * np.abs(scores).max())
    np.testing.assert_allclose(result.self_influence, own, atol=CLOSE * own.max())


@pytest.mark.wide
def test_projections_follow_the_same_formula_and_come_close():
    loss, y, y_new = CASES["classes"]
    outputs = lambda x: jax.vmap(lambda one: model(PARAMS, one))(jnp.asarray(x))
    pull = lambda x, y: np.asarray(jax.nn.softmax(outputs(x)) - np.eye(2, dtype=DTYPE)[y])
    features = [
        tangent_features(model, PARAMS, x, jr.key(3), 64, weights=pull(x, y)).astype(np.float64)
        for x, y in ((X, y), (NEW, y_new))
    ]
    result = at.influence(model, PARAMS, X, y, NEW, y_new, loss=loss, dim=64, key=jr.key(3))
    scores, own = by_hand(*features, 0.3)
    np.testing.assert_allclose(result.scores, scores, atol=CLOSE * np.abs(scores).max())
    np.testing.assert_allclose(result.self_influence, own, atol=CLOSE * own.max())
    exact = at.influence(model, PARAMS, X, y, NEW, y_new, loss=loss).scores
    assert np.corrcoef(exact.ravel(), scores.ravel())[0, 1] > 0.9


@pytest.mark.wide
def test_every_checkpoint_has_the_same_say():
    loss, y, y_new = CASES["classes"]
    params = [drawn(seed) for seed in range(3)]
    together = at.influence(model, params[0], X, y, NEW, y_new, loss=loss, checkpoints=params[1:])
    apart = [at.influence(model, p, X, y, NEW, y_new, loss=loss) for p in params]
    sizes = np.array([np.sqrt(np.mean(one.scores**2, 1)) for one in apart])
    equal = [one.scores / size[:, None] for one, size in zip(apart, sizes, strict=True)]
    np.testing.assert_allclose(together.scores, np.mean(equal, 0) * sizes.mean(0)[:, None], rtol=1e-6)
    np.testing.assert_allclose(together.self_influence, np.mean([one.self_influence for one in apart], 0), rtol=1e-6)
    np.testing.assert_allclose(together.losses, np.mean([one.losses for one in apart], 0), rtol=1e-6)


@pytest.mark.wide
def test_forgetting_is_what_a_step_does_to_the_losses_of_old_rows():
    loss, y, y_new = CASES["classes"]
    start, rebuild = ravel_pytree(PARAMS)
    losses = lambda p, x, y: jax.vmap(lambda x, y: loss(model(rebuild(p), x), y))(jnp.asarray(x), jnp.asarray(y))
    descent = -jax.grad(lambda p: jnp.mean(losses(p, NEW, y_new)))(start)
    _, slopes = jax.jvp(lambda p: losses(p, X, y), (start,), (descent,))
    speed = at.forgetting(model, PARAMS, X, y, NEW, y_new, loss=loss)
    np.testing.assert_allclose(speed, slopes, atol=CLOSE * float(jnp.abs(slopes).max()))


@pytest.mark.wide
def test_forgetting_of_rows_averages_to_the_score_of_a_kernel():
    kernel = ew.empirical_ntk(model, PARAMS, X, NEW)
    residuals = [jax.vmap(lambda one: model(PARAMS, one))(jnp.asarray(x)) - jnp.asarray(y, DTYPE)
                 for x, y in ((X, NUMBERS), (NEW, NEW_NUMBERS))]  # fmt: skip
    speed = at.forgetting(model, PARAMS, X, NUMBERS, NEW, NEW_NUMBERS, loss=tr.Mse())
    assert speed.mean() == pytest.approx(float(forgetting_score(kernel, *residuals)), rel=1e-4)


class Module(eqx.Module):
    params: dict

    def __call__(self, x):
        return model(self.params, x)


def scored(f, params, checkpoints=()):
    result = at.influence(f, params, X, LABELS, NEW, NEW_LABELS, loss=tr.SoftmaxCrossEntropy(), checkpoints=checkpoints)
    return result.scores


@pytest.mark.wide
def test_equinox_modules_and_checkpoints_of_them():
    np.testing.assert_allclose(scored(Module(PARAMS), None), scored(model, PARAMS), rtol=CLOSE)
    both = scored(Module(PARAMS), None, [Module(drawn(1))])
    np.testing.assert_allclose(both, scored(model, PARAMS, [drawn(1)]), rtol=CLOSE)


@pytest.mark.wide
def test_nnx_modules():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self):
            self.w, self.b, self.v = (nnx.Param(PARAMS[name]) for name in "wbv")

        def __call__(self, x):
            return jnp.tanh(x @ self.w[...] + self.b[...]) @ self.v[...]

    np.testing.assert_allclose(scored(Net(), None), scored(model, PARAMS), rtol=10 * CLOSE, atol=CLOSE)


def torch_module(params):
    torch, width = pytest.importorskip("torch"), len(params["b"])
    dtype = torch.float64 if np.float64 == DTYPE else torch.float32
    first, last = torch.nn.Linear(3, width, dtype=dtype), torch.nn.Linear(width, 2, bias=False, dtype=dtype)
    with torch.no_grad():
        first.weight.copy_(torch.tensor(np.asarray(params["w"]).T))
        first.bias.copy_(torch.tensor(np.asarray(params["b"])))
        last.weight.copy_(torch.tensor(np.asarray(params["v"]).T))
    return torch.nn.Sequential(first, torch.nn.Tanh(), last)


@pytest.mark.wide
def test_torch_modules_and_checkpoints_of_them():
    modules = [torch_module(drawn(seed)) for seed in range(2)]
    both = scored(modules[0], None, modules[1:])
    np.testing.assert_allclose(both, scored(model, PARAMS, [drawn(1)]), rtol=10 * CLOSE, atol=CLOSE)
    narrow = torch_module({"w": jnp.ones((3, 4)), "b": jnp.ones(4), "v": jnp.ones((4, 2))})
    with pytest.raises(InputError, match=r"checkpoints\[0\].*\['0.bias'\] the shapes are \(5,\) and \(4,\)"):
        scored(modules[0], None, [narrow])


def broken(name, value):
    return {**PARAMS, name: PARAMS[name].at[0].set(value)}


def called(**changes):
    given = {"f": model, "params": PARAMS, "x": X, "y": LABELS, "x_test": NEW, "y_test": NEW_LABELS}
    return at.influence(**given | {"loss": tr.SoftmaxCrossEntropy()} | changes)


WIDER = {**PARAMS, "w": jnp.ones((3, 6))}
BAD = {
    "a checkpoint of another shape": ({"checkpoints": [PARAMS, WIDER]}, r"checkpoints\[1\].* \['w'\].*\(3, 5\) and"),
    "a checkpoint without a leaf": ({"checkpoints": [{"w": PARAMS["w"]}]}, r" \['b'\] and checkpoints\[0\] has none"),
    "a checkpoint that diverged": ({"checkpoints": [broken("v", jnp.nan)]}, r"checkpoints\[0\] for row 0.*diverged"),
    "a model that diverged": ({"params": broken("v", jnp.inf)}, "outputs of params for row 0 of x are not finite"),
    "nan in rows": ({"x": np.where(np.arange(9)[:, None] == 4, np.nan, X)}, "Row 4 of x is not finite"),
    "nan in tests": ({"x_test": NEW * np.nan}, "Row 0 of x_test is not finite"),
    "other features in tests": ({"x_test": NEW[:, :2]}, r"rows of shape \[\(3,\)\] and x_test of shape \[\(2,\)\]"),
    "one test without its axis": ({"x_test": NEW[0]}, r"x holds rows of shape .* x_test of shape \[\(\)\]"),
    "no tests": ({"x_test": NEW[:0]}, "x_test is empty"),
    "a label never seen": ({"y_test": np.array([0, 1, 5, 0])}, "Row 2 has the label 5"),
    "too few labels": ({"y": LABELS[:4]}, "y has 4 rows and x 9"),
    "too few labels of tests": ({"y_test": LABELS[:2]}, "y_test has 2 rows and x_test 4"),
    "text as labels": ({"y": np.array(list("abababaab"))}, "expected numbers"),
    "no derivative": ({"f": lambda p, x: jnp.round(model(p, x))}, "gradients of the losses of all training rows are 0"),
    "no differentiable output": ({"f": lambda p, x: jnp.argmax(model(p, x))}, "float"),
    "no ridge": ({"relative_ridge": 0.0}, "relative_ridge=0.0"),
    "projections without a key": ({"dim": 8}, "both dim= and key="),
    "no dimensions": ({"dim": 0, "key": jr.key(0)}, "dim=0"),
}  # fmt: skip


@pytest.mark.once
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    changes, message = BAD[name]
    with pytest.raises(InputError, match=message):
        called(**changes)


@pytest.mark.once
def test_names_are_no_losses():
    with pytest.raises((TypeError, InputError)):  # the type is checked first where jaxtyping is on
        called(loss="mse")


@pytest.mark.once
def test_a_wrong_label_is_the_first_suspect():
    net = ew.Serial(ew.Dense(32), ew.Tanh(), ew.Dense(2))
    x = np.concatenate([X, NEW])
    labels = (x[:, 0] > 0).astype(int)
    labels[np.argmax(x[:, 0])] = 0
    params = net.init(jr.key(0), (3,))
    loss = lambda p: jnp.mean(
        jax.vmap(lambda a, b: tr.SoftmaxCrossEntropy()(net.apply(p, a), b))(jnp.asarray(x), labels)
    )
    step = jax.jit(lambda p: jax.tree.map(lambda a, b: a - 0.3 * b, p, jax.grad(loss)(p)))
    for _ in range(30):
        params = step(params)
    result = called(f=net, params=params, x=x, y=labels)
    assert result.suspects(1).tolist() == [int(np.argmax(x[:, 0]))]
    assert result.losses.mean() == pytest.approx(float(loss(params)), rel=1e-4)


@pytest.mark.once
def test_too_many_rows_are_told_of_projections():
    with pytest.raises(ew.MemoryBudgetError, match="dim="):
        called(memory=100)
