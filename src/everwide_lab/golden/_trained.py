"""Reference cases of trained networks: closed forms, flows, Gaussian processes, ensembles. Always in float64."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from everwide import gram
from everwide.signal import ArchitectureError
from everwide.spectral import AbstractFilter, gradient_flow, ridge
from everwide.training import (
    Ensemble,
    GaussianProcess,
    Mse,
    Regression,
    SoftmaxCrossEntropy,
    kernel_flow,
    max_learning_rate,
)

from ._vocabulary import build_network

Case = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]
Quantities = Iterator[tuple[str, np.ndarray]]


class Kernels(NamedTuple):
    """Of training rows, of test with training rows, and of test rows."""

    train: np.ndarray
    cross: np.ndarray
    test: np.ndarray | None


def predicted_quantities(case: Case, stored: Arrays) -> Quantities:
    """Everything that the case has a reference for, by name."""
    kind = str(case["kind"])
    rules = {
        "predict_gradient_descent_mse": _closed_form,
        "predict_gradient_descent_ode": _flow,
        "predict_gp_inference": _inference,
        "predict_ensemble": _ensemble,
        "max_learning_rate": _largest_rate,
    }
    if kind not in rules:
        raise ArchitectureError(f"Unknown kind {kind!r}, expected one of {', '.join(rules)}.")
    return rules[kind](case, stored)


def _kernels(case: Case, stored: Arrays, which: str) -> Kernels:
    """Of the network where the case describes one, and as stored where it does not."""
    if "layers" not in case:
        name = "full" if "k_dd_full" in stored else which
        return Kernels(stored[f"k_dd_{name}"], stored[f"k_td_{name}"], stored.get(f"k_tt_{name}"))
    train, test = (np.asarray(stored[name], np.float64) for name in ("x_train", "x_test"))
    built = build_network(case["layers"], train.shape[1:])
    pairs = ((train,), (test, train), (test,))
    grams = (gram(built.net, *x, parametrization=built.parametrization) for x in pairs)
    return Kernels(*(getattr(kernels, which) for kernels in grams))


def _regularized(case: Case, kernel: np.ndarray) -> np.ndarray:
    """With the ridge of the case, relative to the mean of the diagonal unless it says otherwise."""
    ridge = float(case.get("diag_reg", 0.0))
    if not ridge:
        return kernel
    size = 1.0 if case.get("diag_reg_absolute") else float(np.mean(np.diagonal(kernel)))
    return kernel + ridge * size * np.eye(len(kernel))


def _times(case: Case, outputs: int) -> AbstractFilter:
    """The vocabulary's loss is the mean over rows and outputs; its times count steps."""
    return gradient_flow(float(case["learning_rate"]) * np.asarray(case["times"]) / outputs)


def _closed_form(case: Case, stored: Arrays) -> Quantities:
    y, k = stored["y_train"], stored["y_train"].shape[1]
    kernels = _kernels(case, stored, "ntk")
    ridged = kernels.train if kernels.train.ndim == 4 else _regularized(case, kernels.train)
    fit = Regression(ridged, y, f0=stored.get("f0_train"))
    flow = _times(case, k)
    yield "train_t", fit.train(flow)
    yield "test_t", fit.predict(kernels.cross, flow, f0=stored.get("f0_test"))
    yield "train_inf", fit.train(gradient_flow(np.inf))
    yield "test_inf", fit.predict(kernels.cross, gradient_flow(np.inf), f0=stored.get("f0_test"))


def _flow(case: Case, stored: Arrays) -> Quantities:
    kernels, y = _kernels(case, stored, "ntk"), stored["y_used"]
    loss = SoftmaxCrossEntropy() if "cross entropy" in str(case["loss"]) else Mse()
    k = y.shape[1]
    flow = kernel_flow(
        kernels.train / k,
        y,
        case["times"],
        loss=loss,
        f0=stored["f0_train"],
        rate=float(case["learning_rate"]),
        momentum=case["momentum"],
        tolerance=1e-9,
    )
    yield "train_t", flow.outputs
    yield "test_t", flow.predict(kernels.cross / k, f0=stored["f0_test"])


def _inference(case: Case, stored: Arrays) -> Quantities:
    y = stored["y_train"]
    drawn, learned = _kernels(case, stored, "nngp"), _kernels(case, stored, "ntk")
    for name, kernels in (("nngp", drawn), ("ntkgp", learned)):
        law = GaussianProcess(_regularized(case, kernels.train), y).predict(kernels.cross, kernels.test)
        yield f"{name}_mean", law.mean
        yield f"{name}_cov", law.covariance
    law = Ensemble(drawn.train, _regularized(case, learned.train), y).predict(
        drawn.cross, learned.cross, drawn.test, ridge()
    )
    yield "ntk_mean", law.mean
    yield "ntk_cov", law.covariance


def _ensemble(case: Case, stored: Arrays) -> Quantities:
    y = stored["y_train"]
    drawn, learned = _kernels(case, stored, "nngp"), _kernels(case, stored, "ntk")
    ridged = _regularized(case, drawn.train)
    laws = {
        "nngp": (Ensemble(ridged, ridged, y), drawn),
        "ntk": (Ensemble(drawn.train, _regularized(case, learned.train), y), learned),
    }
    flow = _times(case, y.shape[1])
    for name, (law, kernels) in laws.items():
        for label, at in (("t", flow), ("inf", gradient_flow(np.inf))):
            outputs = law.predict(drawn.cross, kernels.cross, drawn.test, at)
            yield f"{name}_mean_{label}", outputs.mean
            yield f"{name}_cov_{label}", outputs.covariance
        yield f"{name}_train_mean_t", law.train(flow).mean
        yield f"{name}_train_cov_t", law.train(flow).covariance


def _largest_rate(case: Case, stored: Arrays) -> Quantities:
    kernel, size = stored["k_dd_ntk"], float(case["y_size"])
    unit = size / len(kernel)  # the vocabulary's loss is the mean over rows and outputs
    both = [unit * max_learning_rate(kernel, momentum=m) for m in (float(case["momentum"]), 0.0)]  # with and without it
    yield "value", np.array(both[: np.size(stored["value"])]).reshape(stored["value"].shape)
