"""Scikit-learn's own checks of the contract between it and an estimator."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from everwide.activations import Erf, Relu
from everwide.estimators import (
    WideClassifier,
    WideGPClassifier,
    WideGPRegressor,
    WideRegressor,
    _candidates,
    _learn,
    _reader,
)
from everwide.kernels._tower import Tower
from everwide.layers import Dense

pytestmark = pytest.mark.once

SHALLOW = (
    (Tower(Dense(w_std=2**0.5, b_std=0.1), Relu(), 1), {1: (0, 1)}),
    (Tower(Dense(w_std=2.0), Erf(), 1), {1: (0,)}),
)


@pytest.fixture(scope="module", autouse=True)
def one_compilation_for_all():
    """The checks fit hundreds of tiny tables: they choose from shallow networks and few ridges, of one size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_candidates, "_TOWERS", SHALLOW)
        patch.setattr(_learn, "RIDGES", np.array([1e-6, 1e-3, 1e-1]))
        patch.setattr(_reader, "_WIDTHS", (64,))
        yield


def checks() -> list:
    """As `parametrize_with_checks` has them, whose iterator new versions of pytest do not take."""
    estimators = (WideRegressor(), WideClassifier(), WideGPRegressor(), WideGPClassifier())
    found = [pair for estimator in estimators for pair in estimator_checks_generator(estimator, mark="skip")]
    return [
        pytest.param(*pair, id=f"{type(pair[0]).__name__}-{pair[1].func.__name__}-{at}")
        for at, pair in enumerate(found)
    ]


@pytest.mark.parametrize(("estimator", "check"), checks())
def test_scikit_learns_checks(estimator, check):
    check(estimator)
