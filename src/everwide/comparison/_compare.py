"""Train networks of several widths, and set them beside the infinitely wide one."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .._checks import InputError, finite_array, positive, whole
from .._engine import Progress, Rows, as_rows, matching
from .._kernels import Infinite
from .._walk import walk
from ..kernel import Example
from ..layers import AbstractLayer, Dropout
from ..signal import ArchitectureError, Parametrization
from ..training import DivergenceWarning
from ._result import Comparison, Curves
from ._training import Problem, Trainer, limit_of, measure, train

_LOOKS = 12  # steps at which networks are looked at, at the most


def compare(
    net: AbstractLayer,
    x: Any,
    y: Any,
    widths: Sequence[int],
    *,
    x_test: Any = None,
    steps: int = 100,
    rate: float | None = None,
    seeds: int = 3,
    parametrization: Parametrization | str = Parametrization.NTK,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Comparison:
    """Train finite samples of a network, and set them beside the prediction at infinite width.

    Each network is trained by full-batch gradient descent on the mean over rows of `1/2 |f - y|^2`. Beside it stand
    its own linearization, and the infinitely wide network: gradient descent on the outputs with the analytic tangent
    kernel, from the outputs with which the finite network began. Training that diverges gives a `DivergenceWarning`.

    Args:
        net: leaves its hidden widths open, but not that of its last layer, as `Serial(Dense(), Relu(), Dense(1))`.
        x: inputs, `(n, *sites, channels)`.
        y: targets, `(n,)` or `(n, outputs)`.
        widths: what to train.
        x_test: where outputs are compared; `x` if not given.
        steps: of gradient descent.
        rate: the learning rate. By default half of the largest stable one at infinite width.
        seeds: networks of each width; they have the keys `split(key(seed), seeds)`.
        parametrization: "ntk" or "standard"; others have no kernel limit.
        seed: of the keys.
        progress: called after every width.

    Returns:
        `widths`, `steps` (those at which one looked), `rates` (by width); `curves`, arrays `(widths, seeds, steps)`:
        `loss_finite`, `loss_infinite`, `loss_linearized` (what is trained, on `x`), `gap_infinite`,
        `gap_linearized` (root mean squares on `x_test`), `kernel_change`, `movement`, `relative_movement`; `finite`,
        `infinite`: last outputs on `x_test`; `diverged`: widths. Methods `table` (rows, for `pandas.DataFrame`),
        `largest`, `slopes`, `interpolates(tolerance)` (widths whose networks fit all rows), `plot`, `plot_gaps`.

    >>> import everwide as ew, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 3))
    >>> net = ew.Serial(ew.Dense(), ew.Erf(), ew.Dense(1))
    >>> result = ew.compare(net, x, x[:, 0], widths=[64, 1024], steps=20)
    >>> result.slopes()["gap_infinite"].exponent < 0  # wider networks are nearer to their limit
    True

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent.

    """
    sizes, law = _widths(widths), Parametrization(parametrization)
    given = None if rate is None else positive(rate, "rate")
    problem = _problem(net, x, y, x_test, whole(steps, "steps"), law)
    data, test = _on_device(problem.x), _on_device(problem.x_test)
    targets, keys = jnp.asarray(problem.y, data.x.dtype), jr.split(jr.key(seed), whole(seeds, "seeds"))
    lengths = jnp.asarray(np.diff((0, *problem.steps)), jnp.int32)
    shared = limit_of(problem, sizes[0], given) if law is Parametrization.NTK else None  # the same at every width
    measured, begin = [], time.perf_counter()
    for done, width in enumerate(sizes, start=1):
        limit = limit_of(problem, width, given) if shared is None else shared
        trainer = Trainer(net, data, targets, test, width, law)
        trained = train(trainer, keys, jnp.asarray(limit.rate, targets.dtype), lengths)
        measured.append((limit.rate, *measure(problem, limit, trained)))
        if progress is not None:
            progress(Progress(done, len(sizes), time.perf_counter() - begin))
    rates, by_width, finite, infinite = zip(*measured, strict=True)
    curves = Curves(*(np.stack(values) for values in zip(*by_width, strict=True)))
    result = Comparison(sizes, problem.steps, rates, curves, np.stack(finite), np.stack(infinite))
    if result.diverged:
        warnings.warn(
            f"Training has diverged at width {', '.join(map(str, result.diverged))}: the rate {rates[0]:.6g} is too "
            "large there. Leave rate= out, or take less than everwide.training.max_learning_rate.",
            DivergenceWarning,
            stacklevel=2,
        )
    return result


def _widths(widths: Sequence[int]) -> tuple[int, ...]:
    if isinstance(widths, int) or not len(widths):
        raise InputError(f"widths={widths!r}: expected at least one width, such as [64, 256, 1024].")
    if len(set(widths)) < len(widths):
        raise InputError(f"widths={widths!r}: every width is trained once. Ask for more seeds instead.")
    return tuple(whole(width, "width") for width in widths)


def _problem(net: Any, x: Any, y: Any, x_test: Any, steps: int, law: Parametrization) -> Problem:
    """Raise `InputError` or `ArchitectureError` on what cannot be compared, before anything is trained."""
    if not isinstance(net, AbstractLayer):
        raise TypeError(f"Expected a network (everwide.Serial, everwide.Dense, ...), got {type(net).__name__}.")
    if law not in (Parametrization.NTK, Parametrization.STANDARD):
        raise InputError(
            f"parametrization={law.value!r}: such networks learn features at any width, so there is no "
            'kernel to compare with. Use "ntk" or "standard".'
        )
    if any(isinstance(at.layer, Dropout) for at in walk(net)):
        raise ArchitectureError(
            "The network has a Dropout layer: its limit averages over noise, and gradient descent here has none. "
            "Leave Dropout out, to compare."
        )
    rows = as_rows(x)
    test = rows if x_test is None else matching(rows, as_rows(x_test, "x_test"))[1]
    looks = np.unique(np.round(np.geomspace(1, steps, _LOOKS - 1)).astype(int))
    return Problem(net, rows, _targets(y, len(rows), _outputs(net, rows)), test, (0, *looks.tolist()), law)


def _on_device(rows: Rows) -> Example:
    """All examples, stacked, in the dtype in which JAX draws parameters."""
    inputs, dtype = rows.cut(0, len(rows)), jnp.result_type(float)
    arrays = jax.tree.map(jnp.asarray, (inputs.x, inputs.mask, inputs.graph))
    return Example(*jax.tree.map(lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, arrays))


def _outputs(net: AbstractLayer, x: Rows) -> int:
    signal = Infinite(net, x.x.shape[1:]).output()
    if signal.sites:
        raise ArchitectureError(
            f"The network leaves sites: its output has shape {signal.shape}. End it with Flatten or GlobalAvgPool and "
            "a Dense layer, so that an example has one vector of outputs."
        )
    if signal.channels is None:
        raise ArchitectureError("The last layer leaves its width open. Give it the number of outputs, as in Dense(1).")
    return signal.channels


def _targets(y: Any, n: int, outputs: int) -> np.ndarray:
    given = finite_array(y, "y")
    shaped = given[:, None] if given.ndim == 1 and outputs == 1 else given
    if shaped.shape != (n, outputs):
        raise InputError(
            f"y has shape {given.shape}, expected ({n}, {outputs}): x has {n} examples and the network {outputs} "
            "outputs."
        )
    return shaped
