"""Hessian, Gauss-Newton and Fisher matrices of any model: the doors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._checks import InputError, bytes_of, positive, share
from .._losses import BinaryCrossEntropy, Loss, Mse, Poisson, SoftmaxCrossEntropy, as_loss
from .._trees import batch_size
from ..empirical import as_model
from ._operators import Curvature, Kind, as_numbers, curvature
from ._optimizers import hyperparameters, second_moment, usual_decay
from ._torch import TorchCurvature, divisors, torch_curvature, torch_outputs

_LIKELIHOODS = (Mse, SoftmaxCrossEntropy, BinaryCrossEntropy, Poisson)


def hessian(
    f: Any, params: Any, x: Any, y: Any, *, loss: Loss, memory: int | str | None = None
) -> Curvature | TorchCurvature:
    """The Hessian of the mean loss over some rows, as an operator over the flattened parameters.

    Where a network has corners (ReLU), this is the Hessian of the piece that it is on: what corners add is not seen.

    Args:
        f: a function, network or module, as in `everwide.empirical.as_model`; batch statistics must be frozen.
        params: as in `everwide.empirical.as_model`; the order is that of `jax.flatten_util.ravel_pytree`, for PyTorch
            that of `module.parameters()`.
        x: examples.
        y: targets, as the loss has them.
        loss: a loss of `everwide.training`, or a JAX function of the outputs and the target of one row.
        memory: bytes of the activations that are held at once (examples are taken in pieces), or a text such as "1GB";
            `None`: half of what is free now.

    Returns:
        A symmetric matrix `(p, p)`: `op @ v` for a vector or for columns; `leading(size)`, `trace()`, `density()`;
        `gradient()`; `split()` into the Gauss-Newton matrix and the rest; `block(name)` of one layer, of those in
        `groups`; `preconditioned(...)`; `linear_operator()` for `scipy.sparse.linalg`. It is a pytree.

    >>> import everwide.diagnosis as dg, jax.numpy as jnp
    >>> from everwide.training import Mse
    >>> op = dg.hessian(lambda w, x: w @ x, jnp.zeros(2), jnp.array([[1.0, 0.0], [0.0, 2.0]]), [1.0, 1.0], loss=Mse())
    >>> (op @ jnp.ones(2)).tolist(), op.leading(1).values.tolist()
    ([0.5, 2.0], [2.0])

    """
    return _door(Kind.HESSIAN, f, params, x, y, loss, memory)


def gauss_newton(
    f: Any, params: Any, x: Any, y: Any, *, loss: Loss, memory: int | str | None = None
) -> Curvature | TorchCurvature:
    """The generalized Gauss-Newton matrix `mean J^T (second derivative of the loss) J`, as an operator.

    Args:
        f: as in `hessian`.
        params: as in `hessian`.
        x: as in `hessian`.
        y: as in `hessian`.
        loss: as in `hessian`.
        memory: as in `hessian`.

    Returns:
        As in `hessian`.

    >>> import everwide.diagnosis as dg, jax.numpy as jnp
    >>> from everwide.training import Mse
    >>> op = dg.gauss_newton(lambda w, x: jnp.sum(w**2) * x, jnp.ones(2), jnp.ones(1), [5.0], loss=Mse())
    >>> (op @ jnp.eye(2)).tolist()
    [[4.0, 4.0], [4.0, 4.0]]

    """
    return _door(Kind.GAUSS_NEWTON, f, params, x, y, loss, memory)


def fisher(
    f: Any,
    params: Any,
    x: Any,
    y: Any = None,
    *,
    loss: Loss,
    empirical: bool = False,
    memory: int | str | None = None,
) -> Curvature | TorchCurvature:
    """The Fisher information matrix of the likelihood that a loss is the logarithm of, as an operator.

    The true one, `E[g g^T]` over labels that the model itself would draw, is the Gauss-Newton matrix for the squared
    loss (a Gaussian of variance 1), cross-entropies and counts. The empirical one, with the labels that rows have, is
    another matrix: near a minimum it measures the noise of gradients, not curvature.

    Args:
        f: as in `hessian`.
        params: as in `hessian`.
        x: as in `hessian`.
        y: targets; the true matrix does without.
        loss: as in `hessian`; for the true matrix `Mse`, `SoftmaxCrossEntropy`, `BinaryCrossEntropy` or `Poisson`.
        empirical: with the labels that rows have.
        memory: as in `hessian`.

    Returns:
        As in `hessian`.

    >>> import everwide.diagnosis as dg, jax.numpy as jnp
    >>> from everwide.training import Mse
    >>> rows = (lambda w, x: w @ x, jnp.zeros(1), jnp.ones((2, 1)))
    >>> dg.fisher(*rows, loss=Mse()) @ jnp.ones(1)
    Array([1.], ...)
    >>> dg.fisher(*rows, [1.0, 3.0], loss=Mse(), empirical=True) @ jnp.ones(1)
    Array([5.], ...)

    """
    if empirical:
        if y is None:
            raise InputError("empirical=True: y is missing. The empirical matrix is made of the labels that rows have.")
        return _door(Kind.EMPIRICAL, f, params, x, y, loss, memory)
    if not isinstance(loss, _LIKELIHOODS):
        known = ", ".join(one.__name__ for one in _LIKELIHOODS)
        raise InputError(
            f"loss={loss!r} is the logarithm of no likelihood that we know, expected one of {known}. "
            "Take empirical=True, or gauss_newton."
        )
    return _door(Kind.GAUSS_NEWTON, f, params, x, _any_labels(f, params, x, loss) if y is None else y, loss, memory)


def preconditioner(state: Any, *, b2: float | None = None, eps: float | None = None) -> Float[Array, " p"]:
    """What an adaptive optimizer divides gradients by, `sqrt(v) + eps`, one for each parameter.

    Args:
        state: an optax state that holds second moments `nu` (Adam, AdamW, RMSProp, wherever they are in a chain), or a
            PyTorch optimizer that has made a step; one with several groups goes to `preconditioned` itself. Not for
            Adamax, NAdam and RAdam, whose states look like those of Adam and whose steps do not.
        b2: the decay of the second moment, by which optax corrects it as long as steps are few; `None`: as
            `optax.inject_hyperparams` tells it, else 0.999, and 0.9 for RMSProp.
        eps: added to the root, and for RMSProp, as optax does, under it; `None`: as it is told, else 1e-8. A PyTorch
            optimizer knows its own.

    Returns:
        For `preconditioned`: `hessian(...).preconditioned(preconditioner(state))`, whose largest eigenvalue is compared
        with `everwide.theory.stability.edge`.

    >>> import everwide.diagnosis as dg, jax.numpy as jnp, optax
    >>> dg.preconditioner(optax.ScaleByRmsState(nu=jnp.array([1.0, 4.0])))
    Array([1., 2.], ...)

    """
    if hasattr(state, "param_groups"):
        if len(state.param_groups) > 1:
            raise InputError(
                f"The optimizer has {len(state.param_groups)} groups of parameters, whose order need not be that of "
                "the module. Pass the optimizer itself: hessian(module, ...).preconditioned(optimizer)."
            )
        return jnp.asarray(divisors(state, state.param_groups[0]["params"]))
    nodes = jax.tree.leaves(state, is_leaf=lambda node: hasattr(node, "nu"))
    moments = [node for node in nodes if hasattr(node, "nu")]
    if len(moments) != 1:
        raise InputError(
            f"The optimizer's state holds {len(moments)} second moments (nu), expected one, as those of optax.adam, "
            "adamw and rmsprop. For other optimizers pass the numbers themselves to preconditioned()."
        )
    (moment,) = moments
    told = hyperparameters(state)
    kept = share(told.get("b2", told.get("decay", usual_decay(moment))) if b2 is None else b2, "b2")
    added = positive(told.get("eps", 1e-8) if eps is None else eps, "eps")
    _refuse_others(moment)
    steps = getattr(moment, "count", None)  # of a tuple without that field, a method
    second, corrected = second_moment(moment)
    plain = corrected or steps is None or callable(steps)
    correction = 1.0 if plain else 1 - kept ** jnp.maximum(jnp.asarray(steps, float), 1)
    flat = ravel_pytree(second)[0]
    square, added = flat / jnp.asarray(correction, flat.dtype), jnp.asarray(added, flat.dtype)
    return jnp.sqrt(square + added) if type(moment).__name__.startswith("ScaleByRms") else jnp.sqrt(square) + added


def _refuse_others(moment: Any) -> None:
    """States that have a `nu` which is not what each parameter's step is divided by."""
    shapes = [jax.tree.map(jnp.shape, getattr(moment, name, moment.nu)) for name in ("mu", "nu")]
    if shapes[0] != shapes[1] or type(moment).__name__ == "ScaleByRStdDevWithCountState":
        raise InputError(
            f"The state {type(moment).__name__} holds something else as nu, expected a second moment for each "
            "parameter, as those of optax.adam and rmsprop. Pass the numbers themselves to preconditioned()."
        )


def _door(
    kind: Kind, f: Any, params: Any, x: Any, y: Any, loss: Loss, memory: int | str | None
) -> Curvature | TorchCurvature:
    model, room = as_model(f, params), bytes_of(memory)
    if hasattr(model, "module"):
        return torch_curvature(kind, model, x, y, as_loss(loss), room)
    return curvature(kind, model, None, x, y, as_loss(loss), room)


def _any_labels(f: Any, params: Any, x: Any, loss: Any) -> np.ndarray:
    """Zeros are targets of every likelihood, and the matrix does not depend on them."""
    model: Any = as_model(f, params)
    n = batch_size(x)
    if isinstance(loss, SoftmaxCrossEntropy):
        return np.zeros(n, int)
    if hasattr(model, "module"):
        return np.zeros((n, torch_outputs(model, x)))
    own = jnp.result_type(*jax.tree.leaves(model.params))
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a)[1:], as_numbers(a, own).dtype), x)
    return np.zeros((n, jax.eval_shape(model.f, model.params, one).size))
