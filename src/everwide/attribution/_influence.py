"""Models without some of their rows, to first order: through the tangent kernel of their losses."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import InputError, positive, whole
from .._engine import count, require
from .._losses import AbstractLoss, Loss, as_loss
from .._trees import require_alike
from ..empirical import as_model, evaluate, tangent_features, weighted_ntk
from ..spectral import Factor
from ._result import Attribution, wide_targets


class Pulls(NamedTuple):
    """Rows, the derivatives of their losses by the outputs, and the losses."""

    x: Any
    pull: Float[np.ndarray, "n k"]
    losses: Float[np.ndarray, " n"]


def influence(
    f: Any,
    params: Any,
    x: Any,
    y: Any,
    x_test: Any,
    y_test: Any,
    *,
    loss: Loss,
    checkpoints: Sequence[Any] = (),
    relative_ridge: float = 0.3,
    dim: int | None = None,
    key: Array | None = None,
    memory: int | None = None,
) -> Attribution:
    """Which training rows a trained model owes its losses to, on test rows: the influence function, to first order.

    With `g` the gradients of the losses of single rows, `g_test (sum g g^T + ridge)^-1 g_row`: the Fisher information
    of the training rows stands for the curvature. It is computed from the tangent kernel of the losses, so that neither
    gradients nor a matrix of the size of the parameters are formed. Compare scores of one test row with each other:
    their order is what retrained networks confirm (`benchmarks/attribution.py`), better so with several checkpoints.

    Args:
        f: A function, network or module, trained, as in `empirical.as_model`.
        params: As in `empirical.as_model`.
        x: Training rows: an array, or a tree of arrays; rows come first.
        y: Their targets, as the loss takes them.
        x_test: Test rows.
        y_test: Their targets.
        loss: Of `everwide.training`, such as `SoftmaxCrossEntropy()`, or a JAX function of the outputs and the target
            of one row.
        checkpoints: More trained parameters of the same function, or more modules of the same kind: other seeds, or
            other moments of training. Scores are means over all, in which every model has the same say.
        relative_ridge: In units of the mean of the diagonal of the kernel, the squared length of gradients. Large
            values give gradient similarity; small ones trust a few rows too much.
        dim: Random projections of the gradients to so many numbers, where there are too many rows for a matrix
            `(n, n)`; None: exact.
        key: A JAX key for these.
        memory: Bytes that may be used; None: half of what is free.

    Returns:
        `scores` `(tests, n)`, by how much the loss of a test row rises without the training row; `top(n)`, the rows
        that help most, or harm; `losses` `(n,)` of the training rows and `self_influence` `(n,)`, by how much each of
        them rises without its own row; `suspects(n)`, the rows where both together are largest.

    >>> import everwide.attribution as at, everwide.training as tr, jax.numpy as jnp
    >>> x, y = jnp.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), jnp.array([1.0, 1.0, -1.0])
    >>> f = lambda params, x: params @ x
    >>> result = at.influence(f, jnp.array([0.5, -0.5]), x, y, x[:1], y[:1], loss=tr.Mse())
    >>> result.top(2)
    array([[1, 0]])

    Koh and Liang 2017, Understanding black-box predictions via influence functions; Park et al. 2023, TRAK:
    attributing model behavior at scale.
    """
    law, ridge, sketch = as_loss(loss), positive(relative_ridge, "relative_ridge"), _sketch(dim, key)
    models, n = _checkpoints(f, params, checkpoints), _count(x, x_test, "x_test")
    if sketch is None:
        way_out = "Pass dim=..., which keeps so many numbers of each row, and a key."
        require(16 * n**2, memory, f"The kernel of {n} rows, factorized in float64,", way_out)
    parts = []
    for label, model in models.items():
        rows = _pulls(model, x, y, law, ("x", "y", label))
        tests = _pulls(model, x_test, y_test, law, ("x_test", "y_test", label))
        if sketch is None:
            scores, own = _exact(model, rows, tests, ridge, memory)
        else:
            scores, own = _sketched(model, rows, tests, ridge, sketch, memory)
        parts.append((scores, rows.losses, own))
    scores, losses, own = (np.stack(some) for some in zip(*parts, strict=True))
    return Attribution(_shared(scores), losses.mean(0), own.mean(0))


def forgetting(
    f: Any, params: Any, x: Any, y: Any, x_new: Any, y_new: Any, *, loss: Loss, memory: int | None = None
) -> Float[np.ndarray, " n"]:
    """How fast the losses of old rows grow when gradient flow begins to learn new ones: above 0, they are forgotten.

    Args:
        f: A function, network or module, as in `empirical.as_model`.
        params: As in `empirical.as_model`.
        x: Old rows.
        y: Their targets.
        x_new: New rows, whose mean loss will be learned.
        y_new: Their targets.
        loss: As in `influence`.
        memory: Bytes that may be used; None: half of what is free.

    Returns:
        `(n,)`: derivatives of the losses of the old rows by time, at its start; a small step of gradient descent moves
        them by its rate times this.

    >>> import everwide.attribution as at, everwide.training as tr, jax.numpy as jnp
    >>> x, y = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([1.0, 1.0])
    >>> f = lambda params, x: params @ x
    >>> at.forgetting(f, jnp.array([0.5, 0.5]), x, y, x[:1], -y[:1], loss=tr.Mse()).tolist()
    [0.75, 0.0]

    """
    model, law = as_model(f, params), as_loss(loss)
    _count(x, x_new, "x_new")
    old, new = _pulls(model, x, y, law, ("x", "y", "f")), _pulls(model, x_new, y_new, law, ("x_new", "y_new", "f"))
    return -weighted_ntk(model, None, *old[:2], *new[:2], memory=memory).astype(np.float64).mean(1)


def _exact(model: Any, rows: Pulls, tests: Pulls, ridge: float, memory: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Scores and self-influence, from the kernel of the losses."""
    kernel = weighted_ntk(model, None, *rows[:2], memory=memory).astype(np.float64)
    cross = weighted_ntk(model, None, *tests[:2], *rows[:2], memory=memory).astype(np.float64)
    noise = _ridge(np.diagonal(kernel), ridge)
    factor = Factor.of(kernel, noise, what="The kernel of the losses")
    left = noise * factor.inverse_diagonal()  # 1 - g (sum g g^T + ridge)^-1 g, of each row
    return np.asarray(factor.solve(cross.T)).T, 1 / left - 1


def _sketched(
    model: Any, rows: Pulls, tests: Pulls, ridge: float, sketch: tuple[Array, int], memory: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The same from random features."""
    features, others = (
        tangent_features(model, None, some.x, *sketch, weights=some.pull, memory=memory).astype(np.float64)
        for some in (rows, tests)
    )
    noise = _ridge(np.sum(features**2, 1), ridge)
    factor = Factor.of(features.T @ features, noise, what="The Fisher information of the losses")
    solved = np.asarray(factor.solve(features.T))
    leverage = np.sum(features.T * solved, 0)
    return others @ solved, leverage / (1 - leverage)


def _shared(scores: Float[np.ndarray, "models tests n"]) -> Float[np.ndarray, "tests n"]:
    """A mean over models of the same size: one that is sure of a test row has small scores, and as much to say."""
    sizes = np.sqrt(np.mean(scores**2, 2, keepdims=True))
    return np.mean(np.divide(scores, sizes, out=np.zeros_like(scores), where=sizes > 0), 0) * sizes.mean(0)


def _ridge(squares: Float[np.ndarray, " n"], relative: float) -> float:
    """From squared lengths of gradients."""
    mean = float(np.mean(squares))
    if not mean > 0:
        raise InputError(
            "The gradients of the losses of all training rows are 0, so that nothing can be attributed to them. Does "
            "the model round, take an argmax or stop gradients? Or does it fit every row without any error?"
        )
    return relative * mean


def _count(x: Any, others: Any, label: str) -> int:
    """The number of rows of `x`; the others must be of the same kind."""
    n, _ = count(x), count(others, label)
    first, second = ([np.shape(leaf)[1:] for leaf in jax.tree.leaves(rows)] for rows in (x, others))
    if first != second:
        raise InputError(f"x holds rows of shape {first} and {label} of shape {second}: they must agree.")
    return n


def _pulls(model: Any, x: Any, y: Any, law: AbstractLoss, labels: tuple[str, str, str]) -> Pulls:
    """The derivatives of the losses of rows by their outputs."""
    of_x, of_y, of_model = labels
    for leaf in jax.tree.leaves(x):
        values = np.asarray(leaf)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            place = int(np.argwhere(~np.isfinite(values))[0][0])
            raise InputError(f"Row {place} of {of_x} is not finite. Drop or impute such rows.")
    outputs = evaluate(model, None, x).astype(np.float64)
    broken = ~np.isfinite(outputs).all(1)
    if broken.any():
        raise InputError(
            f"The outputs of {of_model} for row {int(np.argmax(broken))} of {of_x} are not finite: has it diverged?"
        )
    targets = wide_targets(law, y, outputs.shape[1], (of_y, of_x, len(outputs)))
    with jax.enable_x64(True):  # losses near 0 have small derivatives
        losses, pull = _slopes(law, outputs, targets)
    return Pulls(x, np.asarray(pull), np.asarray(losses))


@eqx.filter_jit
def _slopes(law: AbstractLoss, outputs: Any, targets: Any) -> tuple[Array, Array]:
    """Losses of rows, and their derivatives by the outputs."""
    return jax.vmap(jax.value_and_grad(law))(outputs, targets)


def _checkpoints(f: Any, params: Any, checkpoints: Sequence[Any]) -> dict[str, Any]:
    """All models by the names that users know them by; they must be of one kind."""
    names = ("f", "checkpoints") if params is None else ("params", "checkpoints")
    models = {names[0]: as_model(f, params)}
    for i, other in enumerate(checkpoints):
        label = f"{names[1]}[{i}]"
        models[label] = as_model(other) if params is None else as_model(f, other)
        require_alike(_shapes(models[names[0]]), _shapes(models[label]), (names[0], label))
    return models


def _shapes(model: Any) -> Any:
    """A tree of arrays with the shapes of the parameters."""
    module = getattr(model, "module", None)
    if module is None:
        return model.params
    return {name: jnp.zeros(tuple(p.shape)) for name, p in module.named_parameters()}


def _sketch(dim: int | None, key: Array | None) -> tuple[Array, int] | None:
    if dim is None and key is None:
        return None
    if dim is None or key is None:
        raise InputError("Projections need both dim= and key=: how many numbers, and jax.random.key(0).")
    return key, whole(dim, "dim")
