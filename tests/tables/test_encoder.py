"""Columns of frames as features, against what must be true of them; small frames of rows drawn at random."""

import pickle

import numpy as np
import pandas as pd
import pytest

from everwide import InputError
from everwide.tables import TableError, TableWarning, encode_frame
from everwide.tables._categories import smoothed_means
from everwide.tables._plans import weighted_median

pytestmark = pytest.mark.once


def drawn(seed, n=40):
    """Rows of all kinds, with gaps."""
    rng = np.random.default_rng(seed)
    gap = lambda share=0.2: rng.random(n) < share
    colours = rng.choice(np.array(["red", "green", "blue"], object), n)
    return pd.DataFrame(
        {
            "number": np.where(gap(), np.nan, rng.normal(size=n)),
            "whole": rng.integers(0, 5, n),
            "flag": rng.random(n) < 0.5,
            "colour": pd.Categorical(np.where(gap(), None, colours)),
            "text": rng.choice(["a", "b", " b", "c"], n),
            "nullable": pd.array(rng.integers(0, 3, n), dtype="Int64").astype("Int64"),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_what_is_true_of_every_frame(seed):
    frame = drawn(seed)
    encoder, x = encode_frame(frame)
    assert np.isfinite(x).all()
    assert x.shape == (40, len(encoder.names))
    assert len(set(encoder.names)) == len(encoder.names)
    assert (np.diff(encoder.source) >= 0).all()
    assert set(encoder.source) == set(range(7))
    assert all(name.startswith(str(frame.columns[at])) for name, at in zip(encoder.names, encoder.source, strict=True))
    assert np.isin(x[:, encoder.indicator | encoder.gap], (0, 1)).all()
    assert [name for name, gap in zip(encoder.names, encoder.gap, strict=True) if gap] == ["number is missing"]
    np.testing.assert_array_equal(encoder.transform(frame), x)
    np.testing.assert_array_equal(encoder.transform(frame[::-1])[::-1], x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder)).transform(frame[:7]), x[:7])
    for name, shown in (("number", "number"), ("whole", "whole"), ("flag", "flag")):
        known = frame[name].notna().to_numpy()
        np.testing.assert_array_equal(x[known, encoder.names.index(shown)], frame[name].to_numpy(float)[known])


@pytest.mark.parametrize("seed", range(3))
def test_the_inner_product_of_a_category_is_equality_of_levels(seed):
    frame = drawn(seed)
    encoder, x = encode_frame(frame)
    for place, name in ((3, "colour"), (4, "text")):
        own = x[:, encoder.source == place]
        levels = frame[name].astype(object).where(frame[name].notna(), "none").str.strip().to_numpy()
        np.testing.assert_array_equal(own @ own.T, levels[:, None] == levels)


def test_gaps_have_the_median_and_are_shown():
    frame = drawn(0)
    encoder, x = encode_frame(frame)
    lost = frame["number"].isna().to_numpy()
    np.testing.assert_array_equal(x[lost, encoder.names.index("number")], frame["number"].median())
    np.testing.assert_array_equal(x[:, encoder.names.index("number is missing")], lost)


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_copies(seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=9), rng.integers(1, 4, 9)
    assert weighted_median(values, np.ones(9)) == np.median(values)
    assert weighted_median(values, weights.astype(float)) == pytest.approx(np.median(np.repeat(values, weights)))
    assert weighted_median(values[:8], np.ones(8)) == pytest.approx(np.median(values[:8]))
    codes, targets = rng.integers(0, 4, 30), rng.normal(size=(30, 2))
    copies, centre = rng.integers(1, 4, 30), np.array([0.1, -0.2])
    found = smoothed_means(codes, targets, copies.astype(float), 5, centre)
    repeated = smoothed_means(np.repeat(codes, copies), np.repeat(targets, copies, 0), np.ones(copies.sum()), 5, centre)
    np.testing.assert_allclose(found, repeated, rtol=1e-12)
    np.testing.assert_array_equal(found[4], centre)


def many_levels(effect, n=2000, levels=400, seed=0):
    rng = np.random.default_rng(seed)
    code = rng.integers(0, levels, n)
    means = effect * rng.normal(size=levels)
    return pd.DataFrame({"c": [f"v{number}" for number in code]}), means[code] + rng.normal(size=n), means, code


def test_means_of_targets_are_of_other_rows():
    frame, y, _, code = many_levels(0.0)
    encoder, x = encode_frame(frame, y)
    assert encoder.names == ("c: mean target",)
    naive = np.bincount(code, y)[code] / np.bincount(code)[code]
    assert np.corrcoef(naive, y)[0, 1] > 0.4  # what rows would give away about themselves
    assert abs(np.corrcoef(x[:, 0] + 1e-9 * code, y)[0, 1]) < 0.07
    assert x[:, 0].std() < 0.1  # and what noise is, is shrunk


def test_means_of_targets_are_those_of_a_gaussian_prior():
    frame, y, means, code = many_levels(1.0, n=20_000)
    encoder, x = encode_frame(frame, y)
    counts = np.bincount(code, minlength=400)
    best = y.mean() + (np.bincount(code, y - y.mean(), 400) / counts) * counts / (
        counts + 1.0
    )  # noise and effect alike
    names = pd.DataFrame({"c": [f"v{number}" for number in range(400)]})
    np.testing.assert_allclose(encoder.transform(names)[:, 0], best, atol=0.02)
    assert np.corrcoef(x[:, 0], means[code])[0, 1] > 0.98
    with pytest.warns(TableWarning, match="Values that no training row had, in c:"):
        assert encoder.transform(pd.DataFrame({"c": ["other"]}))[0, 0] == pytest.approx(y.mean())


@pytest.mark.parametrize(("levels", "n", "columns"), [(50, 60, 50), (51, 200, 1), (51, 204, 51), (255, 2000, 255)])
def test_how_many_levels_have_a_column_each(levels, n, columns):
    frame = pd.DataFrame({"c": pd.Categorical([f"v{number % levels}" for number in range(n)])})
    assert encode_frame(frame, np.arange(n))[1].shape == (n, columns)
    told_apart = encode_frame(frame)[0].names
    assert len(told_apart) == (50 if columns == 1 else columns)


def test_levels_of_one_row_each_tell_nothing():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"c": pd.Categorical([f"v{number}" for number in range(200)]), "z": rng.normal(size=200)})
    encoder, x = encode_frame(frame, rng.normal(size=200))
    assert np.ptp(x[:, 0]) == 0
    assert "Nothing can be learned from columns that never vary: c." in encoder.notes


def test_new_levels_and_new_gaps_are_said():
    encoder, _ = encode_frame(pd.DataFrame({"c": ["a", "b"] * 4, "z": np.arange(8.0), "w": np.arange(8.0) ** 2}))
    new = pd.DataFrame({"c": ["x", "a"], "z": [1.0, np.nan], "w": ["oops", "4"]})
    with pytest.warns(TableWarning) as told:
        x = encoder.transform(new)
    np.testing.assert_array_equal(x, [[0, 0, 1, 12.5], [1, 0, 3.5, 4]])
    assert [str(one.message).partition(" in ")[2][:4] for one in told] == ["z, w", "c: t"]


def test_categories_of_numbers_are_equal_however_they_are_stored():
    whole = pd.DataFrame({"c": pd.Categorical([1, 2, 3, 1]), "z": np.arange(4.0)})
    encoder, x = encode_frame(whole)
    assert encoder.names[:3] == ("c=1", "c=2", "c=3")
    for other in ([1.0, 2.0, 3.0, 1.0], ["1", "2", "3", "1"], pd.Categorical([1.0, 2.0, 3.0, 1.0])):
        np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"c": other, "z": np.arange(4.0)})), x)


def test_categories_in_an_order_are_their_places():
    sizes = pd.CategoricalDtype(["small", "medium", "large", "huge"], ordered=True)
    values = ["small", "large", None, "medium", "small"]
    encoder, x = encode_frame(pd.DataFrame({"c": pd.Categorical(values, dtype=sizes)}))
    np.testing.assert_array_equal(x, [[0, 0], [2, 0], [0.5, 1], [1, 0], [0, 0]])
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"c": ["huge"]})), [[3, 0]])
    with pytest.warns(TableWarning, match="no training row had, in c"):
        np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"c": ["tiny"]})), [[0.5, 1]])
    named, _ = encode_frame(pd.DataFrame({"c": pd.Categorical(values, dtype=sizes)}), categorical_features=["c"])
    assert named.names[:3] == ("c=large", "c=medium", "c=small")


@pytest.mark.parametrize("given", [[1], ["c"], [False, True], np.array([1]), pd.Index(["c"])])
def test_ways_to_name_categories(given):
    frame = pd.DataFrame({"z": np.arange(6.0), "c": [3, 1, 2] * 2})
    assert encode_frame(frame, categorical_features=given)[0].names == ("z", "c=1", "c=2", "c=3")
    assert encode_frame(frame, categorical_features=None)[0].names == ("z", "c")
    assert encode_frame(frame, categorical_features=[])[0].names == ("z", "c")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("auto", "categorical_features='auto'"),
        ([5], "X has columns 0 to 1"),
        ([-1], "X has columns 0 to 1"),
        (["q"], "has q, which are not in X"),
        ([True], "a mask of 1, and X has 2 columns"),
        ([[1]], "expected 'from_dtype'"),
        ([0.5], "expected 'from_dtype'"),
        (3, "expected 'from_dtype'"),
        (None, "holds texts, such as 'a'"),
        (["z"], "holds texts, such as 'a'"),
    ],
)
def test_bad_names_of_categories(given, said):
    with pytest.raises(InputError, match=said):
        encode_frame(pd.DataFrame({"z": np.arange(6.0), "c": ["a", "b", "c"] * 2}), categorical_features=given)


def test_hostile_columns_are_dropped_and_named():
    n = 12
    frame = pd.DataFrame(
        {
            "empty": [None] * n,
            "nothing": np.full(n, np.nan),
            "never": pd.NaT,
            "complex": np.arange(n) * 1j,
            "name": [f"person {number}" for number in range(n)],
            "endless": np.where(np.arange(n) == 3, np.inf, np.arange(n)),
            "lists": [[1], [2]] * 6,
            "far": ["1e999", "-1e999"] * 6,
            "blank": pd.Categorical([" "] * n, ordered=True),
            "february": ["2021-02-30", "2021-02-31"] * 6,
            "one": 7,
        }
    )
    encoder, x = encode_frame(frame)
    assert encoder.names == ("endless", "endless is missing", "lists=[1]", "lists=[2]", "one")
    assert np.isfinite(x).all()
    said = " ".join(encoder.notes)
    for words in (
        "hold no values: empty, nothing, never, far and 1 more",
        "neither numbers nor text: complex",
        "identifiers: name",
    ):
        assert words in said
    assert "taken as missing: endless" in said
    assert "no calendar has their dates: february" in said
    assert "never vary: one" in said
    np.testing.assert_array_equal(encoder.transform(frame), x)


def test_columns_of_one_name_and_names_that_are_no_text():
    frame = pd.DataFrame(np.arange(12.0).reshape(4, 3) ** 2, columns=["a", "a", 3])
    assert encode_frame(frame)[0].names == ("a", "a.2", "3")


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({"a": []}), "X has no rows"),
        (pd.DataFrame({"a": [None, None]}), "No column of X is left to learn from: .* hold no values: a"),
        (pd.DataFrame(index=[1, 2]), "No column of X is left"),
        (np.arange(3.0), r"X has shape \(3,\): expected rows and columns"),
    ],
)
def test_frames_that_hold_nothing(frame, said):
    with pytest.raises((InputError, TableError), match=said):
        encode_frame(frame)


def test_another_number_of_columns():
    encoder, _ = encode_frame(pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 3.0]}))
    with pytest.raises(InputError, match="X has 1 columns, expected 2: a, b"):
        encoder.transform(pd.DataFrame({"a": [1.0]}))
