"""Rows as people have them: frames of pandas, missing values, categories, sparse matrices."""

import sys
from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Float
from sklearn.utils import check_consistent_length
from sklearn.utils.multiclass import check_classification_targets

from .._checks import InputError
from .._engine import require

_MISSING = ("nan", "NaT", "<NA>")  # how values that are missing are written
_MOST_CLASSES = 10  # whose shares are told of each level of a category with many


def is_frame(x: Any) -> bool:
    """Whether these are columns of pandas, which nobody needs to have."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, pandas.DataFrame)


def dense(x: Any) -> Any:
    """A sparse matrix with its zeros, if there is memory for them; anything else as it is."""
    if not scipy.sparse.issparse(x):
        return x
    if x.ndim == 2:
        require(16 * x.shape[0] * x.shape[1], None, "Dense rows of the sparse X", "Use fewer rows or columns.")
    return x.toarray()


def needs_encoding(x: Any, categorical_features: Any) -> bool:
    """Whether columns are to be looked at one by one: frames, arrays with texts, categories or missing values."""
    if is_frame(x):
        return True
    default = isinstance(categorical_features, str) and categorical_features == "from_dtype"
    named = categorical_features is not None and not default
    try:
        array = np.asarray(x)
    except ValueError:  # rows of different lengths, of which scikit-learn will speak
        return False
    if array.ndim != 2 or 0 in array.shape:
        return False
    if array.dtype.kind in "OU":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            return True
    if array.dtype.kind != "f":
        return named
    return not np.isinf(array).any() and (named or bool(np.isnan(array).any()))


def known_weights(sample_weight: Any, n: int) -> Float[np.ndarray, " n"] | None:
    """Weights of rows as far as they can be used; the others are refused later, by name."""
    try:
        weights = np.broadcast_to(np.asarray(sample_weight, np.float64), (n,))
    except (TypeError, ValueError):
        return None
    return weights if np.isfinite(weights).all() and (weights >= 0).all() and weights.any() else None


def targets_of(y: np.ndarray, classifies: bool) -> Float[np.ndarray, "n k"]:
    """Numbers, or indicators of the most frequent classes, one for two of them."""
    if not classifies:
        return np.asarray(y, np.float64).reshape(len(y), -1)
    check_classification_targets(y)
    names, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    chosen = np.argsort(-counts, kind="stable")[: 1 if len(names) == 2 else _MOST_CLASSES]
    return (codes[:, None] == chosen).astype(np.float64)


def encoder_of(
    x: Any, y: np.ndarray, weights: np.ndarray | None, categorical_features: Any, classifies: bool
) -> tuple[Any, Float[np.ndarray, "n features"]]:
    """An encoder that has learned from rows with weight, and the features of all rows."""
    from ..tables import encode_frame  # which needs pandas

    check_consistent_length(x, y)
    targets = targets_of(y, classifies)
    if weights is None or weights.all():
        return encode_frame(x, targets, categorical_features=categorical_features, weights=weights)
    kept = np.flatnonzero(weights)
    some = x.iloc[kept] if is_frame(x) else np.asarray(x)[kept]
    encoder, learned = encode_frame(
        some, targets[kept], categorical_features=categorical_features, weights=weights[kept]
    )
    features = np.zeros((len(weights), learned.shape[1]))
    features[kept] = learned
    return encoder, features


def class_notes(y: Any) -> tuple[str, ...]:
    """On classes that one row tells of."""
    single = [name for name, count in Counter(np.asarray(y).tolist()).items() if count == 1]
    if not single:
        return ()
    more = f" and {len(single) - 3} more" if len(single) > 3 else ""
    return (f"Classes with one row only: {', '.join(str(name) for name in single[:3])}{more}.",)


def constant_notes(x: Float[np.ndarray, "n *shape"]) -> tuple[str, ...]:
    """On columns of an array that have one value; encoders of frames say it themselves."""
    same = np.flatnonzero((x == x[:1]).all(axis=0)).tolist() if x.ndim == 2 else []
    if not same:
        return ()
    more = f" and {len(same) - 3} more" if len(same) > 3 else ""
    return (f"Nothing can be learned from columns that never vary: {', '.join(map(str, same[:3]))}{more}.",)


def check_names(x: Any) -> None:
    """Columns of a frame are told apart by their names."""
    twice = [name for name, count in Counter(map(str, x.columns)).items() if count > 1] if is_frame(x) else []
    if twice:
        raise InputError(f"X has several columns of the name {twice[0]!r}: expected different names. Rename them.")


def check_numbers(y: Any) -> None:
    """Targets of regression that are texts or dates; scikit-learn speaks of all other faults."""
    try:
        array = np.asarray(y)
    except ValueError:  # rows of different lengths
        return
    if array.dtype.kind in "mM":
        raise InputError(f"y holds dates or spans of time ({array.dtype}): expected numbers, such as days since one.")
    if array.dtype.kind not in "OUST" or not array.ndim:
        return
    for value in array.ravel().tolist():
        try:
            np.asarray(value, np.float64)
        except (TypeError, ValueError):
            fault = f"y holds {value!r}, which is no number: expected numbers. WideClassifier learns classes."
            raise InputError(fault) from None


def check_classes(y: Any) -> None:
    """Values that are there and can be put in order; scikit-learn speaks of all other faults."""
    array = y if hasattr(y, "dtype") and hasattr(y, "tolist") else np.asarray(y, dtype=object)
    if array.ndim != 1 or array.dtype.kind != "O":
        return
    values = array.tolist()
    if any(isinstance(value, list | tuple | set | frozenset) for value in values):
        raise InputError(
            "y holds lists of labels: expected a column of zeros and ones for each label. "
            "sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y) makes them."
        )
    texts = [isinstance(value, str) for value in values]
    missing = [not isinstance(value, str) and (value is None or str(value) in _MISSING) for value in values]
    if any(missing):
        row = missing.index(True)
        raise InputError(
            f"y is {values[row]} in row {row}: expected a class for each row. Leave out rows whose class is not known."
        )
    if any(texts) and not all(texts):
        shown = f"{values[texts.index(True)]!r} and {values[texts.index(False)]!r}"
        raise InputError(f"y mixes texts and other values, {shown}: expected classes of one kind. y.astype(str) helps.")


def check_labels(y: Any, several: bool) -> None:
    """Several labels a row are for estimators that take them."""
    shape = getattr(y, "shape", ())
    if not several and len(shape) == 2 and shape[1] > 1:
        raise InputError(
            f"y has the shape {shape}, several classes a row: expected one, or columns of zeros and ones. "
            "sklearn.multioutput.MultiOutputClassifier(...) learns one classifier for each of them."
        )
