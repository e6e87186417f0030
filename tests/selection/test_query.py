"""What people pass, and what comes back: models, labels with holes, costs, groups, twins, and refusals."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
import everwide.selection as sel

UNCERTAIN, ALIKE = ["margin", "entropy", "bald"], ["k_centre", "badge", "bait", "lcmd", "determinantal", "typiclust"]
METHODS = ["random", *UNCERTAIN, *ALIKE, "mlmoc", "emoc", "expected_error"]
FOR_NUMBERS = [method for method in METHODS if method not in ("margin", "entropy", "mlmoc")]


def rows(n=60, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3))


def classes(x, labelled=20):
    y = np.full(len(x), np.nan)
    y[:labelled] = x[:labelled, 0] + x[:labelled, 1] ** 2 > 0.5
    return y


def numbers(x, labelled=20):
    y = np.full(len(x), np.nan)
    y[:labelled] = np.sin(x[:labelled, 0]) + 0.01
    return y


def f(params, x):
    return jnp.tanh(x @ params["w"]) @ params["v"]


def network(outputs=2):
    keys = jax.random.split(jax.random.key(0))
    return f, {"w": jax.random.normal(keys[0], (3, 16)), "v": jax.random.normal(keys[1], (16, outputs))}


def as_jax(x):
    return x.astype(jnp.result_type(float))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_picks_rows_for_a_network(method):
    x = as_jax(rows())
    selection = sel.query(x, classes(x), network(), method=method, batch_size=4)
    indices, why = selection
    assert len(set(indices.tolist())) == len(why) == len(selection.scores) == 4
    assert indices.min() >= 20
    assert all(len(reason) > 10 for reason in why)
    assert selection.method == method
    assert selection.kernel in ("tangent kernel of the model", "none")


@pytest.mark.parametrize("method", FOR_NUMBERS)
def test_every_method_for_numbers_picks_rows(method):
    x = as_jax(rows())
    selection = sel.query(x, numbers(x), network(1), method=method, batch_size=4)
    assert len(set(selection.indices.tolist())) == 4
    assert np.isfinite(selection.scores).all()
    again = sel.query(x, numbers(x), network(1), method=method, batch_size=4)
    np.testing.assert_array_equal(selection.indices, again.indices)


def test_the_tangent_kernel_is_the_default_and_can_be_chosen():
    x = as_jax(rows())
    assert sel.query(x, numbers(x), network(1)).kernel == "tangent kernel of the model"
    assert sel.query(x, numbers(x), network(1), kernel="last_layer").kernel == "last layer of the model"
    assert sel.query(x, numbers(x), network(1), kernel="inputs").kernel == "scaled inputs"
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    assert "nngp" in sel.query(x, numbers(x), network(1), kernel=net, which="nngp").kernel


@pytest.mark.once
def test_sketches_choose_like_the_exact_tangent_kernel():
    x = as_jax(rows(120))
    fn, params = network(1)
    exact = sel.query(x, numbers(x), network(1), kernel=ew.empirical_ntk(fn, params, x, outputs="trace"), batch_size=20)
    sketched = sel.query(x, numbers(x), network(1), batch_size=20)
    overlap = len(set(exact.indices) & set(sketched.indices)) / 20
    assert overlap > 0.5  # two random batches share a fifth


@pytest.mark.once
def test_estimators_of_scikit_learn():
    linear, svm, network, pipeline = (
        pytest.importorskip(f"sklearn.{name}") for name in ("linear_model", "svm", "neural_network", "pipeline")
    )
    from sklearn.preprocessing import StandardScaler

    x, names = rows(), np.array(["no", "yes"])
    truth = names[(x[:, 0] > 0).astype(int)]
    y = np.where(np.arange(60) < 20, truth, None)
    for model in (linear.LogisticRegression(), svm.LinearSVC()):
        indices, why = sel.query(x, y, model.fit(x[:20], truth[:20]), batch_size=2, method="margin")
        scores = np.abs(model.decision_function(x[20:]))
        np.testing.assert_array_equal(np.sort(indices), np.sort(20 + np.argsort(scores)[:2]))
        assert "no or yes" in why[0] or "yes or no" in why[0]
    mlp = network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=5000, tol=1e-2, random_state=0)
    piped = pipeline.make_pipeline(StandardScaler(), mlp).fit(x[:20], x[:20, 0])
    assert sel.query(x, numbers(x), piped).kernel == "tangent kernel of the model"
    assert sel.query(x, numbers(x), linear.Ridge().fit(x[:20], x[:20, 0])).kernel == "scaled inputs"


@pytest.mark.once
def test_scikit_learns_perceptrons_have_their_tangent_kernel():
    neural = pytest.importorskip("sklearn.neural_network")
    from everwide.selection._embeddings import embedding_of
    from everwide.selection._learners import learner_of

    x = rows()
    for activation in ("relu", "tanh", "logistic", "identity"):
        model = neural.MLPRegressor(
            hidden_layer_sizes=(6, 5), activation=activation, solver="lbfgs", max_iter=20000, random_state=0
        ).fit(x[:20], x[:20, 0])
        tangent = embedding_of(None, learner_of(model), x, x, "ntk")
        out = jax.vmap(tangent.model.f, (None, 0))(tangent.model.params, as_jax(x))
        np.testing.assert_allclose(np.asarray(out)[:, 0], model.predict(x), rtol=1e-4, atol=1e-5)


@pytest.mark.once
def test_modules_of_equinox_and_torch():
    import equinox as eqx

    x = rows().astype(np.float32)
    module = eqx.nn.MLP(3, 2, 8, 1, dtype=jnp.float32, key=jax.random.key(0))
    assert sel.query(x, classes(x), module, batch_size=2).method == "margin"
    assert sel.query(x, classes(x), module, method="emoc").kernel == "tangent kernel of the model"
    torch = pytest.importorskip("torch", reason="PyTorch: make test-torch installs it.")
    module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).eval()
    chosen = sel.query(x, classes(x), module, method="margin")
    chances = torch.softmax(module(torch.tensor(x)), 1).detach().numpy()[20:]
    assert chosen.indices[0] == 20 + np.abs(chances[:, 0] - chances[:, 1]).argmin()


def test_one_logit_is_of_the_second_class():
    x = as_jax(rows())
    fn, params = network(1)
    y = classes(x)
    two = {"w": params["w"], "v": jnp.concatenate([jnp.zeros_like(params["v"]), params["v"]], 1)}
    one_logit, two_logits = (sel.query(x, y, (fn, p), method="margin", batch_size=5).indices for p in (params, two))
    np.testing.assert_array_equal(one_logit, two_logits)
    assert len(sel.query(x, y, (fn, params), method="badge", batch_size=5).indices) == 5


@pytest.mark.once
def test_our_estimators_and_no_model_are_the_same():
    from everwide.estimators import WideClassifier

    x = rows()
    y = classes(x)
    model = WideClassifier("dense").fit(x[:20], y[:20].astype(int))
    ours, none = (sel.query(x, y, m, batch_size=3, method="mlmoc") for m in (model, None))
    np.testing.assert_array_equal(ours.indices, none.indices)
    assert "dense network" in ours.kernel


def test_labels_may_be_text_with_holes_and_frames():
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(rows(), columns=list("abc"))
    y = pandas.Series(["u", "v"] * 5 + [None] * 50)
    chosen = sel.query(x, y, kernel="inputs", method="k_centre")
    assert chosen.indices[0] >= 10


def test_before_there_is_anything_to_learn():
    x = rows()
    for y in (np.full(60, np.nan), np.where(np.arange(60) < 3, 1.0, np.nan)):
        chosen = sel.query(x, y, batch_size=3, task="classification")
        assert chosen.method == "typiclust"
        assert not chosen.note
        asked = sel.query(x, y, batch_size=3, task="classification", method="margin")
        assert asked.method == "typiclust"
        assert "of which margin can say nothing" in asked.note


def test_costs_divide_scores():
    x = rows()
    y, costs = numbers(x), np.ones(60)
    free = sel.query(x, y, kernel="inputs", method="k_centre")
    costs[free.indices[0]] = 1e6
    dear = sel.query(x, y, kernel="inputs", method="k_centre", costs=costs)
    assert dear.indices[0] != free.indices[0]
    assert dear.why[0].endswith("at a cost of 1")
    first = sel.query(x, y, kernel="inputs", method="random", batch_size=30, costs=np.r_[np.ones(40), np.full(20, 1e9)])
    assert first.indices[:20].max() < 40


def test_groups_are_taken_in_turn():
    x = rows()
    groups = np.repeat(["a", "b", "c", "d"], 15)
    chosen = sel.query(x, numbers(x), kernel="inputs", method="lcmd", batch_size=7, groups=groups)
    counts = [np.sum(groups[chosen.indices] == name) for name in "bcd"]
    assert sorted(counts) == [2, 2, 3]
    first = groups[chosen.indices[:3]]
    assert len(set(first)) == 3


def test_near_duplicates_are_passed_over_and_named():
    x = rows()
    y = numbers(x)
    far = int(sel.query(x, y, kernel="inputs", method="k_centre").indices[0])
    twins = x.copy()
    other = 20 if far != 20 else 21
    twins[other] = twins[far] + 1e-7
    chosen = sel.query(twins, y, kernel="inputs", method="k_centre", batch_size=40)
    assert len({far, other} & set(chosen.indices.tolist())) == 1
    assert set(chosen.passed_over) | set(chosen.passed_over.values()) == {far, other}
    assert "Near-duplicates" in chosen.note
    twins[other] = twins[3]
    chosen = sel.query(twins, y, kernel="inputs", method="random", batch_size=40)
    assert other not in chosen.indices
    assert chosen.passed_over[other] == 3
    assert "Only 39 rows of 40" in chosen.note


def test_a_selection_can_be_sent_elsewhere():
    x = rows()
    chosen = sel.query(x, numbers(x), kernel="inputs", batch_size=2)
    again = pickle.loads(pickle.dumps(chosen))
    np.testing.assert_array_equal(again.indices, chosen.indices)
    assert str(again) == str(chosen)


def test_candidates_may_be_named():
    x = rows()
    chosen = sel.query(x, numbers(x), kernel="inputs", batch_size=2, candidates=[30, 40, 50])
    assert set(chosen.indices) <= {30, 40, 50}
    mask = np.zeros(60, bool)
    mask[[25, 26]] = True
    assert set(sel.query(x, numbers(x), kernel="inputs", batch_size=2, candidates=mask).indices) == {25, 26}


@pytest.mark.once
@pytest.mark.parametrize("estimator", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_stop_forecasts_random_labels(estimator):
    linear = pytest.importorskip("sklearn.linear_model")
    x = rows(300, seed=1)
    truth = x[:, 0] + 0.5 * np.random.default_rng(2).normal(size=300)
    y = np.where(np.arange(300) < 200, truth, np.nan)
    model = linear.Ridge().fit(x[:200], truth[:200]) if estimator else None
    stop = sel.query(x, y, model, kernel="inputs", batch_size=20).stop()
    assert stop  # a line is known after 200 rows, and the rest is noise
    assert stop.error_then <= stop.error_now
    assert 0.15 < stop.error_now < 0.4
    assert "20 random labels more would bring the mean squared error from" in str(stop)


def test_stop_needs_a_pilot():
    x = rows()
    with pytest.raises(ew.InputError, match="needs 64 labelled rows"):
        sel.query(x, numbers(x), kernel="inputs").stop()


class Broken:
    """Not finite."""

    def fit(self, x, y):
        return self

    def predict(self, x):
        return np.full(len(x), np.nan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(60)}, "a label in every row"),
        ({"y": np.arange(60)}, "a label in every row"),
        ({"y": np.zeros(3)}, "a label for each row"),
        ({"y": np.full((60, 2, 2), np.nan)}, "a label for each row"),
        ({"y": np.array(["a"] * 10 + [None] * 50, object), "task": "regression"}, "is no number"),
        ({"candidates": [0, 30]}, "have a label already: 0"),
        ({"candidates": [60]}, "expected numbers of rows"),
        ({"candidates": [0.5]}, "expected numbers of rows"),
        ({"candidates": np.ones(3, bool)}, "mask of shape"),
        ({"batch_size": 41}, "40 candidates only"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"x": np.where(rows() > 2, np.nan, rows())}, "not finite"),
        ({"method": "best"}, "is not a valid Method"),
        ({"method": "margin"}, "is for classes"),
        ({"transform": "uncertain"}, "is for classes"),
        ({"transform": "fine"}, "is not a valid Transform"),
        ({"kernel": "tangent"}, "got no model"),
        ({"kernel": "best"}, "kernel='best'"),
        ({"kernel": np.eye(3)}, "all rows of x"),
        ({"costs": np.zeros(60)}, "costs of shape"),
        ({"groups": [1]}, "groups have shape"),
        ({"task": "sorting"}, "is not a valid Task"),
        ({"model": Broken()}, "not finite"),
        ({"model": 3}, "int"),
        ({"model": ew.Dense(1)}, "without parameters"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_what_cannot_be_used_is_refused(change, message):
    x = change.get("x", rows())
    given = {"x": x, "y": numbers(rows()), "kernel": "inputs"} | change
    with pytest.raises(ew.InputError, match=message):
        sel.query(**given)


@pytest.mark.once
def test_models_that_do_not_fit_are_refused():
    linear = pytest.importorskip("sklearn.linear_model")
    tree = pytest.importorskip("sklearn.tree")
    x = rows()
    y = classes(x)
    with pytest.raises(ew.InputError, match="is not fitted"):
        sel.query(x, y, linear.LogisticRegression())
    fitted = tree.DecisionTreeClassifier().fit(x[:20], np.where(x[:20, 0] > 0, 1, 2))
    with pytest.raises(ew.InputError, match="the label '0', which the model has never seen"):
        sel.query(x, y, fitted, method="margin")
    with pytest.raises(ew.InputError, match=r"needs a model that can be differentiated.*DecisionTree"):
        sel.query(x, y, tree.DecisionTreeClassifier().fit(x[:20], y[:20]), kernel="tangent", method="lcmd")
    with pytest.raises(ew.InputError, match="2 outputs, and y 1"):
        sel.query(as_jax(x), numbers(x), network())
    text = np.array(["a", "b", "c"] + [None] * 57, object)
    with pytest.raises(ew.InputError, match="2 outputs and y 3 classes"):
        sel.query(as_jax(x), text, network())
