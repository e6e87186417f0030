"""Data at the edge: numbers all the same, or rows, or of any size. Never a NaN; what cannot be learned is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest

import everwide as ew
from estimators.tables_to_fit import LABELS, NET, RNG, X, Y
from everwide.estimators import WideClassifier, WideGPClassifier, WideGPRegressor, WideRegressor

pytestmark = pytest.mark.once

N = 32
ROWS, TARGETS = X[:N], Y[:N]
CLASSES = LABELS[:N] == "left"
CONSTANT = np.where(np.arange(4) == 1, 1e9, ROWS)
TWINS = np.repeat(ROWS[:8], 4, axis=0)
WIDE = np.column_stack([ROWS[:, 0], 1e-14 * ROWS[:, 0] + 1, np.arange(N) == 3, 0 * ROWS[:, 0]])

TABLES = {
    "a constant column": (CONSTANT, TARGETS, CLASSES),
    "constant columns only": (np.ones_like(ROWS), TARGETS, CLASSES),
    "duplicate rows that agree": (TWINS, np.repeat(TARGETS[:8], 4), np.repeat(np.arange(8) % 2, 4)),
    "duplicate rows that do not": (TWINS, TARGETS, CLASSES),
    "nearly constant columns": (WIDE, TARGETS, CLASSES),
    "inputs of all sizes": (ROWS * np.array([1e-300, 1.0, 1e300, 1e150]), TARGETS, CLASSES),
    "a constant target": (ROWS, np.full(N, 7.0), CLASSES),
    "a class of one row": (ROWS, TARGETS, np.arange(N) == 5),
    "half as many classes as rows": (ROWS, np.zeros(N), np.arange(N) // 2),
}
MODELS = {
    "regressor": WideRegressor(NET),
    "interpolator": WideRegressor(NET, relative_ridge=0.0),
    "stopped": WideRegressor(NET, relative_time=10.0),
    "process without noise": WideGPRegressor(NET, relative_noise=0.0),
    "ensemble": WideGPRegressor(NET, which="ensemble"),
    "ensemble without noise": WideGPRegressor(NET, which="ensemble", relative_noise=0.0),
    "balanced": WideClassifier(NET, class_weight="balanced"),
    "process of classes without noise": WideGPClassifier(NET, relative_noise=0.0),
    "ensemble of classes": WideGPClassifier(NET, which="ensemble"),
}


def everything_that(model, x):
    if isinstance(model, WideGPRegressor):
        return [model.leave_one_out_, *model.predict(x, return_std=True), *model.predict_interval(x)]
    return [model.leave_one_out_, model.predict(x) if isinstance(model, WideRegressor) else model.predict_proba(x)]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_never_a_nan(model, table):
    x, targets, classes = table
    y = targets if isinstance(model, WideRegressor | WideGPRegressor) else classes
    model.fit(x, y)
    for found in everything_that(model, x):
        assert np.isfinite(found).all()
    assert np.isfinite(model.choice_.score)
    assert model.choice_.jitter < 1e-9


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_units_of_targets_of_any_size(unit):
    expected = WideRegressor(NET, relative_ridge=0.01).fit(ROWS, TARGETS).predict(ROWS)
    for model in (WideRegressor(NET, relative_ridge=0.01), WideGPRegressor(NET, relative_noise=0.01)):
        found = everything_that(model.fit(ROWS, TARGETS * unit), ROWS)
        assert all(np.isfinite(part).all() for part in found)
    found = WideRegressor(NET, relative_ridge=0.01).fit(ROWS, TARGETS * unit).predict(ROWS)
    np.testing.assert_allclose(found / unit, expected, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_units_of_inputs_of_any_size(unit):
    expected = WideRegressor(NET, relative_ridge=0.01).fit(ROWS, TARGETS).predict(X)
    found = WideRegressor(NET, relative_ridge=0.01).fit(ROWS * unit, TARGETS).predict(X * unit)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("far", [1e3, 1e15])
def test_rows_far_away_from_all_others(far):
    for model in (
        WideRegressor(NET, relative_ridge=0.01),
        WideGPRegressor(NET, relative_noise=0.01),
        WideGPClassifier(NET, relative_noise=0.1),
    ):
        model.fit(ROWS, CLASSES if isinstance(model, WideGPClassifier) else TARGETS)
        for found in everything_that(model, ROWS * far):
            assert np.isfinite(found).all()


def test_two_rows_and_fewer_rows_than_columns():
    x = RNG(1).normal(size=(2, 4))
    for model in (WideRegressor(), WideGPRegressor(NET), WideClassifier(NET), WideGPClassifier(NET)):
        model.fit(x, np.arange(2))
        assert all(np.isfinite(found).all() for found in everything_that(model, x))


def test_what_is_constant_is_not_shown():
    model = WideRegressor(NET, relative_ridge=0.01).fit(CONSTANT, TARGETS)
    assert not model.transform_inputs(ROWS)[:, 1].any()
    assert np.mean(model.transform_inputs(CONSTANT) ** 2) == pytest.approx(1, rel=1e-12)


def test_a_constant_target_is_predicted():
    np.testing.assert_allclose(WideRegressor(NET).fit(ROWS, np.full(N, 7.0)).predict(X), 7.0, rtol=1e-12)


@pytest.mark.parametrize("make", [WideRegressor, WideGPRegressor])
@pytest.mark.parametrize("value", [0.0, 1 / 3, 1e200])
def test_a_constant_target_is_said_and_nothing_is_far_beyond_it(make, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make().fit(ROWS, np.full(N, value))
        np.testing.assert_allclose(model.predict(X), value, rtol=1e-9)
    assert model.choice_.notes == ("All rows have the same target: there is nothing else to learn.",)


def test_columns_that_never_vary_are_said_of_arrays_too():
    x = np.concatenate([ROWS, np.ones((N, 5))], axis=1)
    assert WideRegressor(NET, relative_ridge=0.1).fit(CONSTANT, TARGETS).choice_.notes == (
        "Nothing can be learned from columns that never vary: 1.",
    )
    assert WideClassifier(NET, relative_ridge=0.1).fit(x, CLASSES).choice_.notes == (
        "Nothing can be learned from columns that never vary: 4, 5, 6 and 2 more.",
    )


def test_at_the_time_0_the_mean_is_predicted():
    np.testing.assert_allclose(
        WideRegressor(NET, relative_time=0.0).fit(ROWS, TARGETS).predict(X), TARGETS.mean(), rtol=1e-12
    )


NAN = np.where(np.arange(4) == 2, np.nan, ROWS)
ARGUMENTS = {
    "an unknown name": (
        WideRegressor("mlpp"),
        "architecture='mlpp': expected 'auto', 'dense' \\(of flat rows\\), 'mlp', 'cnn', 'resnet', or a",
    ),
    "a class of networks": (WideRegressor(dict), "architecture=<class 'dict'>: expected 'auto'"),
    "a negative ridge": (WideRegressor(relative_ridge=-1.0), "ridge=-1.0: expected 'auto' or a number of at least 0"),
    "a ridge that is no number": (WideRegressor(relative_ridge=float("nan")), "ridge=nan: expected 'auto'"),
    "an endless ridge": (WideRegressor(relative_ridge=float("inf")), "ridge=inf: expected 'auto' or a finite number"),
    "a ridge of None": (WideRegressor(relative_ridge=None), "ridge=None: expected 'auto'"),
    "several ridges": (WideRegressor(relative_ridge=[0.1, 1.0]), r"ridge=\[0.1, 1.0\]: expected 'auto'"),
    "a ridge in words": (WideRegressor(relative_ridge="some"), "ridge='some': expected 'auto'"),
    "a true ridge": (WideRegressor(relative_ridge=True), "ridge=True: expected 'auto'"),
    "a negative time": (WideRegressor(relative_time=-2.0), "time=-2.0: expected 'auto' or a number of at least 0"),
    "both": (
        WideRegressor(relative_ridge=0.1, relative_time=3.0),
        "ridge=0.1 and relative_time=3.0: give one",
    ),
    "negative noise": (WideGPRegressor(relative_noise=-0.1), "noise=-0.1: expected 'auto'"),
    "an unknown kernel": (WideGPRegressor(which="both"), "which='both': expected 'nngp'.*or 'ensemble'"),
    "a kernel of lists": (WideGPRegressor(which=["nngp"]), r"which=\['nngp'\]: expected 'nngp'"),
    "no rows": (WideRegressor(max_rows=0), "max_rows=0: expected None or a whole number of at least 2"),
    "part of a row": (WideRegressor(max_rows=2.5), "max_rows=2.5: expected None or a whole number"),
    "rows in words": (WideRegressor(max_rows="all"), "max_rows='all': expected None or a whole number"),
    "another shape": (WideRegressor(input_shape=(3, 3, 1)), r"input_shape=\(3, 3, 1\) has 9 numbers, and a row"),
    "no shape": (WideRegressor(input_shape=4), r"input_shape=4: expected None or the shape .*\(8, 8, 1\)"),
    "a negative shape": (WideRegressor(input_shape=(-2, -2)), r"input_shape=\(-2, -2\): expected None"),
    "a shape nothing is known for": (WideRegressor(input_shape=(2, 2)), r"architecture='auto' knows rows(.|\n)*Pass a"),
}
WEIGHED = {
    "unknown": ("even", "class_weight='even': expected None, 'balanced' or a dict"),
    "zero": ({False: 0.0, True: 1.0}, "expected weights above 0"),
    "negative": ({False: -1.0, True: 1.0}, "expected weights above 0"),
    "a list": ([1.0, 2.0], r"class_weight=\[1.0, 2.0\]: expected None"),
}
DATA = {
    "infinity in X": (np.where(np.isnan(NAN), np.inf, NAN), TARGETS, None, "Input X contains infinity"),
    "infinity and NaN in X": (np.where(CLASSES[:, None], np.inf, NAN), TARGETS, None, "Input X contains"),
    "infinity in y": (ROWS, np.where(CLASSES, np.inf, TARGETS), None, "contains infinity"),
    "one row": (ROWS[:1], TARGETS[:1], None, "minimum of 2 is required"),
    "fewer targets": (ROWS, TARGETS[:5], None, "inconsistent numbers of samples"),
    "one column as a vector": (ROWS[:, 0], TARGETS, None, "Reshape your data"),
    "complex numbers": (ROWS + 1j, TARGETS, None, "Complex data not supported"),
    "negative weights": (ROWS, TARGETS, np.where(CLASSES, -1.0, 1.0), "sample_weight: expected weights of at least 0"),
    "no weights": (ROWS, TARGETS, np.zeros(N), "(?i)sample.weight"),
    "too few weights": (ROWS, TARGETS, np.ones(3), "sample_weight"),
}


@pytest.mark.parametrize(("model", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_bad_arguments(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(ROWS, TARGETS)


def test_a_shape_nothing_is_known_for_is_an_input_error():
    with pytest.raises(ew.InputError, match="knows rows"):
        WideRegressor(input_shape=(2, 2)).fit(np.ones((N, 4)) * np.arange(N)[:, None], TARGETS)


@pytest.mark.parametrize("make", [WideClassifier, WideGPClassifier])
@pytest.mark.parametrize(("class_weight", "message"), WEIGHED.values(), ids=WEIGHED)
def test_bad_weights_of_classes(make, class_weight, message):
    with pytest.raises(ValueError, match=message):
        make(NET, class_weight=class_weight).fit(ROWS, CLASSES)


@pytest.mark.parametrize("model", [WideRegressor(NET), WideGPRegressor(NET)], ids=["wide", "process"])
@pytest.mark.parametrize(("x", "y", "weights", "message"), DATA.values(), ids=DATA)
def test_bad_data(model, x, y, weights, message):
    with pytest.raises(ValueError, match=message):
        model.fit(x, y, sample_weight=weights)


@pytest.mark.parametrize("model", [WideClassifier(NET), WideGPClassifier(NET)], ids=["wide", "process"])
def test_bad_classes(model):
    with pytest.raises(ValueError, match="All rows have one class, 'only'"):
        model.fit(ROWS, np.full(N, "only"))
    with pytest.raises(ValueError, match="All rows have one class, True"):
        model.fit(ROWS, CLASSES, sample_weight=CLASSES.astype(float))
    with pytest.raises(ValueError, match="0 sample"):
        model.fit(np.empty((0, 3)), [])
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(ROWS, TARGETS)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT], ids=["None", "NaN", "NA", "NaT"])
@pytest.mark.parametrize("make", [WideClassifier, WideGPClassifier])
def test_classes_that_are_missing(make, missing):
    y = np.array(["a", "b"] * (N // 2), dtype=object)
    y[3] = missing
    for given in (y, y.tolist(), pd.Series(y)):
        with pytest.raises(ew.InputError, match=r"y is .* in row 3: expected a class for each row\. Leave out"):
            make(NET).fit(ROWS, given)


def test_classes_of_several_kinds():
    y = np.array(["a", 1] * (N // 2), dtype=object)
    with pytest.raises(ew.InputError, match="y mixes texts and other values, 'a' and 1: expected classes of one kind"):
        WideClassifier(NET).fit(ROWS, y)
    assert set(WideClassifier(NET, relative_ridge=0.1).fit(ROWS, ["nan", "<NA>"] * (N // 2)).classes_) == {
        "nan",
        "<NA>",
    }


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_of_labels(kind):
    y = [kind(["a"]), kind(["b", "c"])] * (N // 2)
    with pytest.raises(ew.InputError, match=r"y holds lists of labels: .*MultiLabelBinarizer\(\)"):
        WideClassifier(NET).fit(ROWS, y)


@pytest.mark.parametrize("make", [WideRegressor, WideGPRegressor])
def test_targets_that_are_no_numbers(make):
    texts = np.where(np.arange(N) == 3, "many", "1.5")
    for given in (texts, texts.astype(object), pd.Series(texts), texts.tolist()):
        with pytest.raises(ew.InputError, match="y holds 'many', which is no number: expected numbers"):
            make(NET).fit(ROWS, given)
    days = pd.Series(pd.Timestamp("2021-01-01") + pd.to_timedelta(np.arange(N), "D"))
    for given in (days, days.to_numpy(), days - days[0]):
        with pytest.raises(ew.InputError, match=r"y holds dates or spans of time \(.*64\[.*\]\): expected numbers"):
            make(NET).fit(ROWS, given)


def test_targets_that_are_numbers_in_texts():
    plain, written = (WideRegressor(NET, relative_ridge=0.1).fit(ROWS, y) for y in (TARGETS, TARGETS.astype(str)))
    np.testing.assert_array_equal(written.predict(ROWS), plain.predict(ROWS))


def test_weights_that_sum_to_one_do_not_make_one_row_of_many():
    """As AdaBoost has them: probabilities were those of a single row, log loss 0.7."""
    known = WideClassifier().fit(X, LABELS).predict_proba(X)
    shares = WideClassifier().fit(X, LABELS, np.full(len(X), 1 / len(X))).predict_proba(X)
    assert np.abs(known - shares).max() < 0.25
    assert abs(np.mean(known.max(1)) - np.mean(shares.max(1))) < 0.05


def test_bad_questions():
    model = WideGPRegressor(NET, relative_noise=0.1).fit(ROWS, TARGETS)
    for coverage in (0.0, 1.0, 90.0):
        with pytest.raises(ValueError, match=f"coverage={coverage}: expected a probability, above 0 and below 1"):
            model.predict_interval(ROWS, coverage)
    with pytest.raises(ValueError, match="3 features"):
        model.predict(ROWS[:, :3])
    with pytest.raises(ValueError, match="expected"):
        model.predict(ROWS.reshape(N, 4, 1))
    far = ROWS[:3] * np.array([[1.0], [1e160], [1.0]])
    with pytest.raises(ValueError, match="Row 1 of X is more than 1e\\+17 standard deviations"):
        model.predict(far)
    with pytest.warns(UserWarning, match="far beyond all training targets"):
        assert np.isfinite(WideGPRegressor().fit(ROWS, TARGETS).predict(far)).all()
