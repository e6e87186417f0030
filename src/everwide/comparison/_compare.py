"""Train networks of several widths, and set them beside the infinitely wide one."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .._checks import InputError
from .._engine import Progress
from ..layers import AbstractLayer
from ..signal import Parametrization
from ._finite import Trainer, train
from ._limit import limit_of, measure
from ._problem import checked_problem, checked_widths, on_device, whole_number
from ._result import Comparison, Curves


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

    Each network is trained by full-batch gradient descent on `1/2 sum |f - y|^2`. Beside it stand its own
    linearization, and the infinitely wide network: gradient descent on the outputs with the analytic tangent kernel,
    from the outputs with which the finite network began.

    - `net`: a network that leaves its hidden widths open, but not that of its last layer, such as
      `Serial(Dense(), Relu(), Dense(1))`.
    - `x`, `y`: `(n, *sites, channels)` and `(n,)` or `(n, outputs)`. `x_test`: where outputs are compared, `x` if not
      given.
    - `widths`: what to train. `seeds`: networks of each width; they have the keys `split(key(seed), seeds)`.
    - `rate`: the learning rate. By default half of the largest stable one: 1 over the largest eigenvalue of the
      analytic tangent kernel of `x`.
    - `parametrization`: "ntk" or "standard"; others have no kernel limit.
    - `progress`: called after every width.

    >>> import everwide as ew, numpy as np
    >>> from everwide.comparison import compare
    >>> x = np.random.default_rng(0).normal(size=(4, 3))
    >>> net = ew.Serial(ew.Dense(), ew.Erf(), ew.Dense(1))
    >>> found = compare(net, x, x[:, 0], widths=[64, 1024], steps=20)
    >>> found.slopes()["gap_infinite"].exponent < 0  # wider networks are nearer to their limit
    True

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent.
    """
    sizes = checked_widths(widths)
    whole_number(seeds, "seeds")
    if rate is not None and not 0 < rate < float("inf"):
        raise InputError(f"rate={rate!r}: expected a number above 0, or None for half of the largest stable rate.")
    law = Parametrization(parametrization)
    problem = checked_problem(net, x, y, x_test, steps, law)
    data, test = on_device(problem.x), on_device(problem.x_test)
    targets, keys = jnp.asarray(problem.y, data.x.dtype), jr.split(jr.key(seed), seeds)
    lengths = jnp.asarray(np.diff((0, *problem.steps)), jnp.int32)
    shared = limit_of(problem, sizes[0], rate) if law is Parametrization.NTK else None  # the same at every width
    found, rates, begin = [], [], time.perf_counter()
    for done, width in enumerate(sizes, start=1):
        limit = limit_of(problem, width, rate) if shared is None else shared
        trainer = Trainer(net, data, targets, test, width, law)
        trained = train(trainer, keys, jnp.asarray(limit.rate, targets.dtype), lengths)
        found.append(measure(problem, limit, trained))
        rates.append(limit.rate)
        if progress is not None:
            progress(Progress(done, len(sizes), time.perf_counter() - begin))
    curves = Curves(*(np.stack(values) for values in zip(*(one.curves for one in found), strict=True)))
    finite, infinite = (np.stack(outputs) for outputs in ([m.finite for m in found], [m.infinite for m in found]))
    return Comparison(sizes, problem.steps, tuple(rates), curves, finite, infinite)
