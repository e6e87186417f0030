"""Frames of pandas straight into the estimators: what they predict is what hand-encoded arrays do."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import everwide as ew
from estimators.tables_to_fit import NET, RNG
from everwide._engine import MemoryBudgetError
from everwide.estimators import WideClassifier, WideGPClassifier, WideGPRegressor, WideRegressor, _frames
from everwide.estimators._scaling import TwoViews
from everwide.tables import TableWarning

pytestmark = pytest.mark.once

N = 48
COLOURS = np.array(["red", "green", "blue"], object)


def frame_of(seed=0, n=N):
    rng = RNG(seed)
    return pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "weight": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
            "colour": pd.Categorical(rng.choice(COLOURS, n)),
            "flag": rng.random(n) < 0.5,
        }
    )


FRAME = frame_of()
Y = FRAME["size"].to_numpy() + 2.0 * (FRAME["colour"] == "red") + FRAME["weight"].isna().to_numpy()
LABELS = np.where(Y > 1, "high", "low")


def by_hand(frame):
    """Numbers scaled one by one, the three colours together, and what says where a number is missing as it is."""
    median = FRAME["weight"].median()
    numbers = lambda f: np.column_stack([f["size"], f["weight"].fillna(median), f["weight"].isna(), f["flag"]]).astype(
        float
    )
    colours = lambda f: (f["colour"].to_numpy()[:, None] == ["blue", "green", "red"]).astype(float)
    train, factor = numbers(FRAME), np.sqrt(7 / 4)  # seven features: three numbers, a category, and a gap
    scaled = (numbers(frame) - train.mean(0)) / np.where(np.arange(4) == 2, 1.0, train.std(0))
    category = (colours(frame) - colours(FRAME).mean(0)) / np.sqrt(colours(FRAME).var(0).sum())
    return factor * np.column_stack([scaled, category])


def test_predictions_are_those_of_the_array_encoded_by_hand():
    model = WideRegressor(NET, relative_ridge=0.01).fit(FRAME, Y)
    new = frame_of(1)
    x, z = by_hand(FRAME), by_hand(new)
    np.testing.assert_allclose(np.sort(model.transform_inputs(new), axis=1), np.sort(z, axis=1), atol=1e-12)
    k, cross = np.asarray(ew.ntk(NET, x)), np.asarray(ew.ntk(NET, z, x))
    solved = np.linalg.solve(k + 0.01 * np.mean(np.diag(k)) * np.eye(N), Y - Y.mean())
    np.testing.assert_allclose(model.predict(new), Y.mean() + cross @ solved, rtol=1e-6, atol=1e-8)
    assert list(model.feature_names_in_) == list(FRAME.columns)
    assert model.n_features_in_ == 4


def test_equal_levels_are_equally_near_whatever_their_shares():
    codes = np.repeat([0, 1, 2], [30, 15, 3])
    x = np.column_stack([np.eye(3)[codes], RNG(0).normal(size=N)])
    shown = TwoViews.of(x, np.ones(N), np.array([0, 0, 0, -1]))(x)[:, [0, 1, 2, 4, 5, 6]]
    apart = np.sum((shown[[0, 0, 30]] - shown[[30, 45, 45]]) ** 2, axis=1)  # both views, scaled and by ranks
    np.testing.assert_allclose(apart, apart[0])
    assert np.mean(shown[:, :3] ** 2, axis=0).sum() == pytest.approx(4 / 2)  # four features, of two units of variance
    lone = np.column_stack([np.eye(2)[np.arange(N) // (N - 1)], x[:, 3]])
    assert np.abs(TwoViews.of(lone, np.ones(N), np.array([0, 0, -1]))(lone)[:, :2]).max() < 7


@pytest.mark.parametrize("make", [WideRegressor, WideGPRegressor, WideClassifier, WideGPClassifier])
def test_names_of_levels_do_not_matter(make):
    y = Y if "Regressor" in make.__name__ else LABELS
    ask = lambda model, frame: model.predict(frame) if "Regressor" in make.__name__ else model.predict_proba(frame)
    new = frame_of(1)
    other = {"red": "x", "green": "z", "blue": "y"}
    renamed = [one.assign(colour=one["colour"].cat.rename_categories(other)) for one in (FRAME, new)]
    found = ask(make(NET).fit(renamed[0], y), renamed[1])
    np.testing.assert_allclose(found, ask(make(NET).fit(FRAME, y), new), rtol=1e-6, atol=1e-8)


def test_texts_categories_and_numbers_that_are_called_categories_are_the_same():
    new, model = frame_of(1), WideRegressor(NET, relative_ridge=0.01)
    expected = clone(model).fit(FRAME, Y).predict(new)
    texts = [one.assign(colour=one["colour"].astype(object)) for one in (FRAME, new)]
    np.testing.assert_array_equal(clone(model).fit(texts[0], Y).predict(texts[1]), expected)
    arrays = [np.column_stack([f["size"], f["weight"], f["colour"].cat.codes, f["flag"]]) for f in (FRAME, new)]
    named = clone(model).set_params(categorical_features=[2]).fit(arrays[0], Y)
    np.testing.assert_array_equal(named.predict(arrays[1]), expected)
    masked = clone(model).set_params(categorical_features=[False, False, True, False]).fit(arrays[0], Y)
    np.testing.assert_array_equal(masked.predict(arrays[1]), expected)


def test_arrays_of_objects_and_lists_with_texts():
    new, model = frame_of(1), WideRegressor(NET, relative_ridge=0.01)
    expected = clone(model).fit(FRAME, Y).predict(new)
    found = clone(model).fit(FRAME.to_numpy(dtype=object), Y).predict(new.to_numpy(dtype=object))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    rows = [[value, colour] for value, colour in zip(FRAME["size"], FRAME["colour"], strict=True)]
    expected = clone(model).fit(FRAME[["size", "colour"]], Y).predict(FRAME[["size", "colour"]])
    np.testing.assert_allclose(clone(model).fit(rows, Y).predict(rows), expected, rtol=1e-9)
    with pytest.raises(ew.InputError, match="'1' of X holds texts, such as 'blue'"):
        clone(model).set_params(categorical_features=None).fit(rows, Y)


def test_new_levels_are_all_the_same_and_said():
    model = WideRegressor(NET, relative_ridge=0.01).fit(FRAME, Y)
    new = FRAME[:2].assign(colour=["pink", "cyan"], size=0.0, weight=1.0, flag=True)
    with pytest.warns(TableWarning, match="no training row had, in colour"):
        found = model.predict(new)
    assert found[0] == found[1]
    assert np.isfinite(found).all()
    with pytest.warns(TableWarning, match="Missing or unreadable values in size"):
        model.predict(FRAME[:2].assign(size=[None, "large"]))


def test_round_trips():
    model = WideClassifier(NET, categorical_features=["colour"]).fit(FRAME, LABELS)
    read = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(read.predict_proba(FRAME), model.predict_proba(FRAME))
    copy = clone(model)
    assert copy.get_params()["categorical_features"] == ["colour"]
    np.testing.assert_array_equal(copy.fit(FRAME, LABELS).predict_proba(FRAME), model.predict_proba(FRAME))
    assert cross_val_score(WideClassifier(NET), FRAME, LABELS, cv=2).mean() > 0.7


def test_an_encoder_is_forgotten_when_numbers_are_fitted():
    x = RNG(3).normal(size=(N, 3))
    model = WideRegressor(NET, relative_ridge=0.01)
    expected = model.fit(x, Y).predict(x)
    np.testing.assert_array_equal(model.fit(FRAME, Y).fit(x, Y).predict(x), expected)
    assert model.choice_.notes == ()


def test_missing_values_in_arrays_are_information():
    x = RNG(3).normal(size=(N, 3))
    x[::4, 1] = np.nan
    y = x[:, 0] + 5.0 * np.isnan(x[:, 1])
    model = WideRegressor(NET, relative_ridge=1e-3).fit(x, y)
    lost = np.isnan(x[:, 1])
    filled = np.column_stack([x[:, 0], np.where(lost, np.nanmedian(x[:, 1]), x[:, 1]), x[:, 2]])
    scaled = np.insert((filled - filled.mean(0)) / filled.std(0), 2, lost - lost.mean(), axis=1) * np.sqrt(4 / 3)
    np.testing.assert_allclose(model.transform_inputs(x), scaled, atol=1e-12)
    assert np.corrcoef(model.leave_one_out_, y)[0, 1] > 0.95
    assert "Missing values were filled with the median of the column: 1." in model.choice_.notes
    assert "Missing values" in str(model.choice_)
    assert "Missing values" in model.choice_.to_dict()["notes"][0]


def test_rows_without_weight_are_not_there():
    weights = np.where(np.arange(N) < 40, 1.0, 0.0)
    strange = FRAME.astype({"colour": object, "size": object})
    strange.loc[weights == 0, ["colour", "size"]] = "strange"
    model = WideRegressor(NET, relative_ridge=0.01)
    expected = clone(model).fit(FRAME[:40], Y[:40]).predict(FRAME)
    np.testing.assert_allclose(clone(model).fit(strange, Y, sample_weight=weights).predict(FRAME), expected, rtol=1e-9)


def test_thousands_of_levels():
    rng = RNG(0)
    code = rng.integers(0, 1500, 200)
    effect = 2 * rng.normal(size=1500)
    frame = pd.DataFrame({"c": pd.Categorical([f"v{c}" for c in code]), "z": rng.normal(size=200)})
    model = WideRegressor(NET, relative_ridge=0.1).fit(frame, effect[code] + frame["z"])
    assert any("became means of the target" in note for note in model.choice_.notes)
    classes = WideClassifier(NET, relative_ridge=0.1).fit(frame, np.digitize(effect[code], [-1, 1]))
    assert classes.transform_inputs(frame).shape[1] == 3 + 1  # one mean a class
    with pytest.warns(TableWarning, match="in c"):
        assert np.isfinite(model.predict(frame[:3].assign(c="new"))).all()


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csc_array])
def test_sparse_indicators(kind, monkeypatch):
    x = (RNG(0).random((N, 6)) < 0.2).astype(float)
    model = WideRegressor(NET, relative_ridge=0.1)
    expected = clone(model).fit(x, Y).predict(x)
    np.testing.assert_array_equal(clone(model).fit(kind(x), Y).predict(kind(x)), expected)

    def require(needed, limit, what, way_out):
        raise MemoryBudgetError(f"{what} {needed} {way_out}")

    monkeypatch.setattr(_frames, "require", require)
    with pytest.raises(MemoryBudgetError, match="Dense rows of the sparse X 4608 Use fewer rows or columns"):
        model.fit(kind(x), Y)


def test_several_labels_a_row():
    labels = np.column_stack([Y > 1, FRAME["flag"], np.zeros(N)]).astype(int)
    model = WideClassifier(NET).fit(FRAME, labels)
    assert np.mean(model.predict(FRAME) == labels) > 0.9
    probability = model.predict_proba(FRAME)
    assert probability.shape == model.leave_one_out_.shape == labels.shape
    np.testing.assert_array_equal(model.predict(FRAME), probability > 0.5)
    np.testing.assert_array_equal(model.predict(FRAME), model.decision_function(FRAME) > 0)
    np.testing.assert_array_equal(
        WideClassifier(NET).fit(FRAME, scipy.sparse.csr_array(labels)).predict_proba(FRAME), probability
    )
    assert np.mean(WideGPClassifier(NET).fit(FRAME, labels).predict(FRAME) == labels) > 0.9
    targets = np.column_stack([Y, -Y])
    assert WideRegressor(NET).fit(FRAME, targets).predict(FRAME).shape == (N, 2)


def test_several_labels_are_learned_as_each_alone():
    x = np.random.default_rng(0).normal(size=(40, 3))
    labels = (x[:, :2] + 0.5 * x[:, 1:] > 0).astype(int)
    model = WideClassifier(NET, relative_ridge=0.1).fit(x, labels)
    for at, label in enumerate(labels.T):
        alone = WideClassifier(NET, relative_ridge=0.1).fit(x, label)
        np.testing.assert_allclose(model.predict_proba(x)[:, at], alone.predict_proba(x)[:, 1], atol=1e-6)
    model.partial_fit(x[:5] + 0.01, labels[:5])
    assert model.choice_.rows == 45
    with pytest.raises(ew.InputError, match=r"partial_fit: y has the shape \(5,\): expected \(n, 2\) with zeros"):
        model.partial_fit(x[:5] + 0.02, labels[:5, 0])


def test_labels_that_cannot_be_learned():
    labels = np.column_stack([Y > 1, FRAME["flag"]]).astype(int)
    with pytest.raises(ew.InputError, match=r"y has the shape \(48, 2\), several classes(.|\n)*MultiOutputClassifier"):
        WideClassifier(NET).fit(FRAME, labels + np.array([0, 1]))
    with pytest.raises(ew.InputError, match="All rows have the same labels"):
        WideClassifier(NET).fit(FRAME, np.ones((N, 2), int))
    with pytest.raises(ew.InputError, match="class_weight='balanced' with several labels a row"):
        WideClassifier(NET, class_weight="balanced").fit(FRAME, labels)


def test_growing_with_frames():
    model = WideRegressor(NET, relative_ridge=0.01).partial_fit(FRAME[:32], Y[:32])
    alone = model.predict(FRAME[32:])
    model.partial_fit(FRAME[32:], Y[32:])
    assert np.mean((model.predict(FRAME[32:]) - Y[32:]) ** 2) < np.mean((alone - Y[32:]) ** 2)


def test_what_is_said_of_a_choice():
    frame = FRAME.assign(none=np.nan, one=1.0, endless=np.where(np.arange(N) == 3, np.inf, FRAME["size"]))
    labels = LABELS.copy()
    labels[0] = "rare"
    notes = " ".join(WideClassifier(NET).fit(frame, labels).choice_.notes)
    for words in (
        "hold no values: none",
        "never vary: one",
        "taken as missing: endless",
        "zeros and ones: colour",
        "Classes with one row only: rare.",
    ):
        assert words in notes


BAD = {
    "texts without a category": (
        FRAME.assign(c=["a", "b"] * 24),
        {"categorical_features": ["colour"]},
        "'c' of X holds texts",
    ),
    "no such column": (FRAME, {"categorical_features": ["shape"]}, "has shape, which are not in X"),
    "no such word": (FRAME, {"categorical_features": "auto"}, "categorical_features='auto': expected 'from_dtype'"),
    "no such word for arrays": (np.eye(N), {"categorical_features": "auto"}, "categorical_features='auto'"),
    "nothing but gaps": (FRAME[["weight"]].assign(weight=np.nan), {}, "No column of X is left to learn from"),
    "fewer rows": (FRAME[:5], {}, "inconsistent numbers of samples"),
    "two columns of one name": (FRAME.iloc[:, [0, 0]], {}, "several columns of the name .* Rename them"),
    "a column alone": (FRAME["size"], {}, "Expected (a 2-dim|2D)"),
}


@pytest.mark.parametrize(("x", "settings", "said"), BAD.values(), ids=BAD)
def test_bad_frames(x, settings, said):
    with pytest.raises(ValueError, match=said):
        WideRegressor(NET, **settings).fit(x, Y)


def test_columns_must_be_those_of_the_training_rows():
    model = WideRegressor(NET, relative_ridge=0.01).fit(FRAME, Y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(FRAME[FRAME.columns[::-1]])
    with pytest.raises(ValueError, match=r"feature names|features"):
        model.predict(FRAME[["size", "flag"]])
    with pytest.warns(UserWarning, match="valid feature names"):
        found = model.predict(FRAME.to_numpy(dtype=object))
    np.testing.assert_allclose(found, model.predict(FRAME))
