"""Scikit-learn's own checks of the contract between it and an estimator, on the settings that are shipped."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from everwide.estimators import WideClassifier, WideGPClassifier, WideGPRegressor, WideRegressor

pytestmark = pytest.mark.once

# Checks that take little time, and those in which most may go wrong; the others wait for the slow tests.
QUICK = (
    "check_classifiers_one_label",
    "check_dont_overwrite_attributes",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_fit2d_1sample",
    "check_get_params_invariance",
    "check_methods_subset_invariance",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_sample_weight_equivalence_on_dense_data",
    "check_set_params",
    "check_valid_tag_types",
)


def checks() -> list:
    """As `parametrize_with_checks` has them, whose iterator new versions of pytest do not take."""
    estimators = (WideRegressor(), WideClassifier(), WideGPRegressor(), WideGPClassifier())
    pairs = [pair for estimator in estimators for pair in estimator_checks_generator(estimator, mark="skip")]
    return [
        pytest.param(
            *pair,
            id=f"{type(pair[0]).__name__}-{pair[1].func.__name__}-{at}",
            marks=() if pair[1].func.__name__ in QUICK else pytest.mark.slow,
        )
        for at, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize(("estimator", "check"), checks())
def test_scikit_learns_checks(estimator, check):
    check(estimator)
