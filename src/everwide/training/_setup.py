"""What all ways to train share: checked targets, first outputs, kernels with the training rows, batches and rates."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from .._checks import InputError, share, warn, whole
from .._losses import AbstractLoss, Loss, Mse, as_loss
from ..spectral import KernelError, Spectrum
from ._kernels import ALL, AbstractTrainKernel, MatrixKernel, as_kernel, flat
from ._optimizers import SGD, AbstractOptimizer, AdamStar

_TOGETHER = 4096  # steps of an iterator that are compiled and run together


class Data(NamedTuple):
    """Targets of the training rows, and their outputs before training, `(n, k)`."""

    y: np.ndarray
    f0: Float[np.ndarray, "n k"]


def data_of(loss: AbstractLoss, y: Any, f0: Any, outputs: int | None, rows: int, dtype: np.dtype) -> Data:
    """Of a kernel with that many rows; real numbers in its dtype."""
    if outputs is None and np.ndim(f0) == 2:
        outputs = np.shape(f0)[1]
    targets, k = loss.targets(y, outputs)
    same_rows(rows, len(targets))
    exact = targets if np.issubdtype(targets.dtype, np.integer) else targets.astype(dtype)
    return Data(exact, first_outputs(f0, rows, k, "training").astype(dtype))


def same_rows(kernel: int, y: int) -> None:
    """Raise unless the kernel and the targets have as many rows."""
    if kernel != y:
        raise InputError(f"y has {y} rows and the kernel {kernel}: they must agree.")


def first_outputs(f0: Any, n: int, k: int, which: str) -> Float[np.ndarray, "n k"]:
    """Outputs before training, 0 if not given."""
    if f0 is None:
        return np.zeros((n, k))
    first = np.asarray(f0, np.float64)
    first = first[:, None] if first.ndim == 1 and k == 1 else first
    if first.shape != (n, k):
        raise InputError(
            f"f0 has shape {np.shape(f0)}, expected {(n, k)}: outputs of the {which} rows before training."
        )
    if not np.isfinite(first).all():
        raise InputError(f"f0 of the {which} rows holds values that are not finite.")
    return first


def cross_kernel(kernel: Any, n: int, k: int, *, mixed: bool) -> np.ndarray:
    """Test rows with training rows: `(m, n)`, or `(m, n, k, k)` where outputs are `mixed`."""
    cross, shape = np.asarray(kernel), (n, k, k) if mixed else (n,)
    if cross.shape[1:] != shape or not cross.ndim:
        expected = ", ".join(("m", *map(str, shape)))
        raise InputError(f"k_test_train has shape {cross.shape}, expected ({expected}): test rows with training rows.")
    if not np.isfinite(cross).all():
        row, column = np.argwhere(~np.isfinite(cross))[0][:2]
        raise InputError(f"k_test_train is not finite at ({row}, {column}). Compute it from finite data.")
    return cross


def predicted(
    coefficients: Float[np.ndarray, "*times n k"], kernel: Any, f0: Any, share: Any = 1.0
) -> Float[np.ndarray, "*times m k"]:
    """`share * f0 + K coefficients` at other rows."""
    n, k = coefficients.shape[-2:]
    cross = cross_kernel(kernel, n, k, mixed=np.ndim(kernel) == 4)
    moved = cross @ coefficients if cross.ndim == 2 else np.einsum("mnij,...nj->...mi", cross, coefficients)
    return moved if f0 is None else share * first_outputs(f0, len(cross), k, "test") + moved


def minibatches(key: jax.Array, n: int, batch_size: int, passes: int = 1) -> np.ndarray:
    """Rows in random order for stochastic steps, each at most once in a pass; a rest that fills no batch is left out.

    Args:
        key: a JAX key.
        n: the number of rows.
        batch_size: rows of a step.
        passes: over all rows.

    Returns:
        `(steps, batch_size)` indices of rows, for `train(batches=...)`.

    >>> import everwide.training as tr, jax
    >>> tr.minibatches(jax.random.key(0), n=10, batch_size=4, passes=3).shape
    (6, 4)
    """
    if not 1 <= batch_size <= n:
        raise InputError(f"minibatches(batch_size={batch_size}): expected from 1 to {n}, the number of rows.")
    steps = n // batch_size
    orders = [np.asarray(jr.permutation(k, n))[: steps * batch_size] for k in jr.split(key, whole(passes, "passes"))]
    return np.concatenate(orders).reshape(passes * steps, batch_size)


def chunks(batches: Any, steps: int | None, rows: int) -> Iterator[np.ndarray]:
    """Arrays `(steps, batch)` of checked rows, in order, `steps` steps in all."""
    if hasattr(batches, "ndim") or isinstance(batches, list | tuple):
        yield _checked(_array(batches), steps, rows)
        return
    if not isinstance(batches, Iterable):
        raise InputError(f"batches={batches!r}: expected whole numbers (steps, batch), an iterator of rows, or None.")
    source = iter(batches) if steps is None else itertools.islice(iter(batches), steps)
    done = 0
    for _, group in itertools.groupby((np.asarray(b) for b in source), key=np.shape):
        while some := list(itertools.islice(group, _TOGETHER)):
            done += len(some)
            yield _checked(np.stack(some), None, rows)
    if done < (steps or 1):
        raise InputError(f"steps={steps}, but the iterator of batches ended after {done}.")


def _array(batches: Any) -> np.ndarray:
    try:
        return np.asarray(batches)
    except ValueError as fault:
        raise InputError("Batches have different lengths. Pass an iterator, or pad them with other rows.") from fault


def _checked(batches: np.ndarray, steps: int | None, rows: int) -> np.ndarray:
    if batches.ndim != 2 or not np.issubdtype(batches.dtype, np.integer):
        raise InputError(f"batches are {batches.dtype} {batches.shape}, expected whole numbers (steps, batch).")
    if 0 in batches.shape:
        raise InputError(f"batches have shape {batches.shape}: a batch needs at least one row, a run one step.")
    if batches.min() < 0 or batches.max() >= rows:
        raise InputError(f"batches name the rows {batches.min()} to {batches.max()}, but there are 0 to {rows - 1}.")
    if steps is not None and steps > len(batches):
        raise InputError(f"steps={steps}, but there are {len(batches)} batches. Repeat them for several passes.")
    return batches[:steps].astype(np.int32)


Finite = TypeVar("Finite", SGD, AdamStar)


class DivergenceWarning(RuntimeWarning):
    """A run has diverged, and its result is that of the last finite step; or its rate is so large that it will.

    >>> import everwide.training as tr
    >>> issubclass(tr.DivergenceWarning, RuntimeWarning)
    True
    """


def max_learning_rate(kernel: Any, loss: Loss = Mse(), momentum: float = 0.0) -> float:  # noqa: B008
    """The rate above which gradient descent with this kernel diverges: `2 (1 + momentum) n / (curvature lam_max)`.

    Of what is trained here: full batches, and a kernel that does not move. Exact for the squared loss; for
    cross-entropies a rate below which descent is stable wherever it is. Losses without a bound on their curvature have
    no such rate. A network of finite width whose kernel this is may train well above it: see
    `everwide.theory.rates.stable_rates`.

    Args:
        kernel: as in `train`.
        loss: the mean over the rows of this is descended.
        momentum: of gradient descent, from 0 to below 1.

    Returns:
        The largest stable learning rate of the infinitely wide network.

    >>> import everwide.training as tr, numpy as np
    >>> tr.max_learning_rate(np.diag([1.0, 4.0]))
    1.0
    >>> tr.max_learning_rate(np.diag([1.0, 4.0]), momentum=0.5)
    1.5
    """
    matrix, law, kept = as_kernel(kernel), as_loss(loss), share(momentum, "momentum")
    if not np.isfinite(law.curvature):
        raise InputError(
            f"{type(law).__name__} has no largest second derivative, so there is no rate that is stable everywhere."
        )
    largest = largest_eigenvalue(matrix)
    if largest <= 0:
        raise KernelError("The kernel is zero: nothing is learned at any rate.")
    return 2 * (1 + kept) * matrix.rows / (law.curvature * largest)


def largest_eigenvalue(kernel: AbstractTrainKernel) -> float:
    """Of the kernel of all outputs, in float64 where it is a matrix."""
    if isinstance(kernel, MatrixKernel):
        return Spectrum.largest(flat(np.asarray(kernel.matrix, np.float64)))
    with jax.enable_x64(kernel.dtype == np.float64):
        image = jax.jit(lambda v: kernel.product(ALL, v))
        return Spectrum.largest(lambda v: np.asarray(image(jnp.asarray(v[None], kernel.dtype)))[0], kernel.rows)


def warn_if_unstable(kernel: AbstractTrainKernel, loss: AbstractLoss, optimizer: AbstractOptimizer) -> None:
    """Warn of a rate at which the squared loss diverges for sure."""
    if not isinstance(loss, Mse) or not isinstance(optimizer, SGD) or callable(optimizer.rate) or optimizer.nesterov:
        return
    limit = max_learning_rate(kernel, loss, optimizer.momentum)
    if optimizer.rate > limit * (1 + 1e-6):
        warn_of_rate(float(optimizer.rate), limit)


def warn_of_rate(rate: float, limit: float) -> None:
    """Name the rate and the limit."""
    warn(
        f"The learning rate {rate:.6g} is above the largest stable one, {limit:.6g}: training with a kernel that does "
        "not move, as here, diverges. See everwide.training.max_learning_rate.",
        DivergenceWarning,
    )


def to_finite(optimizer: Finite, width: int, *, readout: str = "sqrt") -> Finite:
    """The optimizer with which `width` features, trained weight by weight, learn the same function.

    Args:
        optimizer: `SGD(...)` or `AdamStar(...)`, in function space.
        width: of the features `g`.
        readout: "sqrt": the model `f = g . M / sqrt(width)`, whose features `g / sqrt(width)` have this kernel.
            Gradient descent is the same; ADAM* averages over the width where the norm adds, so `rate` and `eps` are
            divided by `sqrt(width)`, and `weight_decay`, which is relative to the rate, is multiplied.
            "mean": the model `f = mean(g * M)`, whose weights are larger by `sqrt(width)` and whose gradients are
            smaller by it: `l2` is divided by `width`. For ADAM* so is `eps`, and the rate is the same; for gradient
            descent `rate` is multiplied, and `weight_decay` divided by `width`.

    Returns:
        An optimizer of the same kind.

    >>> import everwide.training as tr
    >>> finite = tr.to_finite(tr.AdamStar(0.1, eps=1e-6), width=100)
    >>> round(finite.rate, 6), round(finite.eps, 12)
    (0.01, 1e-07)
    """
    return _scaled(optimizer, float(whole(width, "width")), readout)


def from_finite(optimizer: Finite, width: int, *, readout: str = "sqrt") -> Finite:
    """The optimizer in function space of one of `width` features: the inverse of `to_finite`.

    Args:
        optimizer: `SGD(...)` or `AdamStar(...)`, of the weights `M`.
        width: of the features.
        readout: as in `to_finite`.

    Returns:
        An optimizer of the same kind.

    >>> import everwide.training as tr
    >>> round(tr.from_finite(tr.AdamStar(0.01, eps=1e-7), width=100).rate, 6)
    0.1
    """
    return _scaled(optimizer, 1 / whole(width, "width"), readout)


def _scaled(optimizer: Finite, width: float, readout: str) -> Finite:
    if readout not in ("sqrt", "mean"):
        raise InputError(f"readout={readout!r}: expected 'sqrt' (f = g . M / sqrt(width)) or 'mean' (f = mean(g * M)).")
    mean = readout == "mean"
    l2 = optimizer.l2 / width if mean else optimizer.l2
    # Decay is relative to the rate: the same share of the weights is lost.
    if isinstance(optimizer, SGD):
        faster = width if mean else 1.0
        scales = {"weight_decay": optimizer.weight_decay / faster, "l2": l2}
    else:
        faster = 1.0 if mean else width**-0.5
        eps = optimizer.eps * (1 / width if mean else width**-0.5)
        scales = {"eps": eps, "weight_decay": optimizer.weight_decay / faster, "l2": l2}
    old = optimizer.rate
    rate = (lambda step: faster * old(step)) if callable(old) else faster * old
    return dataclasses.replace(optimizer, rate=rate, **scales)
