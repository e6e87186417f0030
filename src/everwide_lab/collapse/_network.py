"""A classifier that is trained long after it makes no more errors, and what its last layer sees on the way."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from scipy.special import log_softmax

from everwide import Dense, LayerNorm, Relu, Serial
from everwide.diagnosis import gauss_newton, gradient_levels, neural_collapse
from everwide.spectral import leading
from everwide.training import SoftmaxCrossEntropy

from .._digits import Digits, balanced
from .._training import Params, State, begin, compiled, descend

RATE, MOMENTUM, BATCH, DECAY = 0.05, 0.9, 100, 1e-3
CLASSES, HIDDEN = 10, 3
ANNEALED = 0.8  # of the steps; then the rate is a tenth
MEASURES = ("within", "norms", "angles", "duality", "centres")  # NC1, NC2 (two of them), NC3, NC4
SEEN = ("steps", "loss", "error", "test_error", *MEASURES)
_EXTRA = 5  # eigenvalues beside the number of classes
_TOLERANCE = 1e-3


class Arm(NamedTuple):
    """Whether layers are normalized, and how much weights decay."""

    normalized: bool
    decay: float

    def network(self) -> Serial:
        """Rectifiers and biases."""
        norm = (LayerNorm(),) if self.normalized else ()
        return Serial(*(Dense(w_std=2**0.5, b_std=0.0), *norm, Relu()) * HIDDEN, Dense(CLASSES, b_std=0.0))

    def __str__(self) -> str:
        return (
            f"{'normalized' if self.normalized else 'plain'}, {f'decay {self.decay:g}' if self.decay else 'no decay'}"
        )


ARMS = (Arm(True, DECAY), Arm(False, DECAY), Arm(True, 0.0))


class Training(eqx.Module):
    """Batches, momentum, cross-entropy, and weight decay on all parameters, as half the sum of squares."""

    net: Serial
    x: Float[Array, "n d"]
    labels: Int[Array, " n"]
    decay: Float[Array, ""]
    steps: Int[Array, ""]

    def rule(self) -> optax.GradientTransformation:
        """Of optax, without a rate: the loss has it, and so does the decay, which is a part of it."""
        return optax.sgd(1.0, momentum=MOMENTUM)

    def loss(self, key: Array) -> Any:
        """Of a batch that the step draws, times the rate of that step."""

        def value(params: Params, step: Array) -> Array:
            rows = jr.randint(jr.fold_in(key, step), (min(BATCH, len(self.x)),), 0, len(self.x))
            outputs = jax.vmap(self.net.apply, (None, 0))(params, self.x[rows])
            fit = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, self.labels[rows]))
            size = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params))
            late = step > (ANNEALED * self.steps.astype(fit.dtype)).astype(step.dtype)
            return jnp.where(late, 0.1 * RATE, RATE).astype(fit.dtype) * (fit + self.decay / 2 * size)

        return value


@compiled
def _trained(training: Training, state: State, key: Array, steps: Int[Array, ""]) -> State:
    return descend(training.loss(key), training.rule(), state, steps)


@eqx.filter_jit
def _body(net: Serial, params: Params, x: Float[Array, "n d"]) -> Array:
    return jax.vmap(Serial(*net.layers[:-1]).apply, (None, 0))(params[:-1], x)


def follow(arm: Arm, *, n: int, width: int, steps: int, looks: int, seed: int) -> dict[str, Any]:
    """Train one network, and look at it now and then; in the end, and where errors ended, at its spectrum."""
    rows, dtype, net = balanced(n, seed), jax.dtypes.canonicalize_dtype(np.float64), arm.network()
    x, first = jnp.asarray(rows.x, dtype), jr.key(seed)
    training = Training(
        net, x, jnp.asarray(rows.labels, jnp.int32), jnp.asarray(arm.decay, dtype), jnp.asarray(steps, jnp.int32)
    )
    state = begin(net.init(first, (64,), width=width, parametrization="standard"), training.rule())
    kept: dict[str, list[float]] = {name: [] for name in SEEN}
    spectra, taken = {}, 0
    for step in times(steps, looks):
        state, taken = _trained(training, state, jr.fold_in(first, 1), jnp.asarray(step - taken, jnp.int32)), step
        seen = (step, *_looked(net, state.params, rows, dtype))
        for name, value in zip(SEEN, seen, strict=True):
            kept[name].append(float(value))
        name = "end" if step == steps else "fitted"
        if step == steps or (kept["error"][-1] == 0 and name not in spectra):
            spectra[name] = spectrum(net, state.params, x, rows.labels)
    return {"looks": kept, "spectra": spectra}


def _looked(net: Serial, params: Params, rows: Digits, dtype: Any) -> tuple[float, ...]:
    """Loss and errors, of training rows and of others, and the distances from collapse: `SEEN` after the steps."""
    weight, bias = (np.asarray(part, np.float64) for part in (params[-1].weight, params[-1].bias))
    features, test = (np.asarray(_body(net, params, jnp.asarray(x, dtype)), np.float64) for x in (rows.x, rows.x_test))
    outputs, wrong = features @ weight + bias, (test @ weight + bias).argmax(1) != rows.labels_test
    found = neural_collapse(features, rows.labels, weight.T, biases=bias)
    likely = log_softmax(outputs, axis=1)[np.arange(len(outputs)), rows.labels]
    error = float(np.mean(outputs.argmax(1) != rows.labels))
    distances = (found.within, found.norms, found.angles, found.duality, found.centres)
    return -float(likely.mean()), error, float(wrong.mean()), *(float(each or 0.0) for each in distances)


def times(steps: int, looks: int) -> list[int]:
    """Dense at the beginning."""
    return sorted({max(1, round(float(step))) for step in np.geomspace(5, steps, looks)})


class Rest(NamedTuple):
    """A symmetric matrix without a part of it."""

    whole: Any
    part: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Of both."""
        return self.whole.shape

    def __matmul__(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(self.whole @ v) - np.asarray(self.part @ v)


def spectrum(net: Serial, params: Params, x: Float[Array, "n d"], labels: np.ndarray) -> dict[str, Any]:
    """Leading eigenvalues of the Gauss-Newton matrix, and what the means of classes have to do with them.

    `share`: how much of the sum of the leading eigenvalues, one for each class, comes from means of classes; `pairs`:
    from means of a class under another label, around these.
    `without`: the largest eigenvalue of what is left without these.
    """
    whole: Any = gauss_newton(net.apply, params, x, labels, loss=SoftmaxCrossEntropy())
    levels = gradient_levels(net.apply, params, x, labels)
    pairs = leading(whole, CLASSES + _EXTRA, tolerance=_TOLERANCE)
    outliers = pairs.vectors[:, :CLASSES]
    along, across = (
        float(np.sum(outliers * np.asarray(part @ outliers)) / np.sum(pairs.values[:CLASSES]))
        for part in (levels.between, levels.cross)
    )
    without = leading(Rest(whole, levels.between), 1, tolerance=_TOLERANCE).values[0]
    return {
        "values": [float(value) for value in pairs.values],
        "outliers": pairs.outliers(),
        "share": along,
        "pairs": across,
        "without": float(without),
        "between": [float(value) for value in levels.between.eigenvalues()],
    }
