"""How far two-layer networks can be from their linearization, before anything is trained."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._checks import InputError
from ._numbers import known, non_negative, positive, real


def smooth_linearization_bound(radius: Any, *, width: Any, curvature: Any) -> Float[Array, "..."]:
    """The most by which `sum_j a_j s(w_j . x) / sqrt(width)` can differ from its linearization in `w`.

    - `radius`: Frobenius distance of the weights `w` from where the network was linearized.
    - `curvature`: a bound on `|s''|`; for tanh `4 / (3 sqrt 3)`.

    Holds for `|a_j| <= 1` and `|x| <= 1`: `curvature * radius**2 / (2 sqrt(width))`.

    >>> from everwide.linearization import smooth_linearization_bound
    >>> float(smooth_linearization_bound(2.0, width=100, curvature=0.5))
    0.1
    """
    distance, bend = non_negative(radius, "radius"), non_negative(curvature, "curvature")
    return bend * distance**2 / (2 * jnp.sqrt(positive(width, "width")))


def relu_linearization_bound(radius: Any, *, width: Any, delta: Any) -> Float[Array, "..."]:
    """The same for ReLU: over all weights within `radius`, with probability `1 - delta` over Gaussian initial weights.

    Holds for `|a_j| <= 1` and `|x| = 1`: `(2 radius**(4/3) + radius log(1/delta)**(1/4)) / width**(1/6)`.

    >>> from everwide.linearization import relu_linearization_bound
    >>> round(float(relu_linearization_bound(1.0, width=10**6, delta=0.05)), 3)
    0.332
    """
    distance, risk, given = non_negative(radius, "radius"), positive(delta, "delta"), known(delta)
    if given is not None and not np.all(given < 1):
        raise InputError(f"delta={delta}: expected a probability below 1, such as 0.05.")
    return (2 * distance ** (4 / 3) + distance * jnp.log(1 / risk) ** 0.25) / positive(width, "width") ** (1 / 6)


def relu_linearization_sup(z: Any, a: Any, radius: Any) -> Float[Array, ""]:
    """The largest difference between a ReLU network and its linearization, exactly, over all weights within `radius`.

    The network is `sum_j a_j relu(w_j . x) / sqrt(m)` with `|x| = 1`.

    - `z`: `(m,)`, the preactivations `w_j . x` where it was linearized. `a`: `(m,)`, output weights, each 1 or -1.
    - `radius`: Frobenius distance of the weights.

    A neuron gains `|u| - |z|` by moving past its kink. So the worst movement takes the `k` neurons of one sign that are
    nearest to theirs, and gives each the same share: `(radius sqrt(k) - sum of the k smallest |z|) / sqrt(m)`.
    For Gaussian weights it approaches `0.438 radius**(4/3) m**(-1/6)`.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import relu_linearization_sup
    >>> float(relu_linearization_sup(jnp.array([0.0, 3.0, 1.0, 9.0]), jnp.array([1.0, 1.0, -1.0, -1.0]), 2.0))
    1.0
    """
    z, a, reach = real(z), real(a), non_negative(radius, "radius")
    if z.ndim != 1 or z.shape != a.shape or not z.size:
        raise InputError(f"z has shape {z.shape} and a {a.shape}: both must be (m,), one number for a neuron.")
    signs = known(a)
    if signs is not None and not np.all(np.abs(signs) == 1):
        raise InputError("a must hold 1 and -1 only: the formula does not cover other output weights.")
    counts = jnp.arange(1, len(z) + 1).astype(z.dtype)

    def best(sign: int) -> Array:
        near = jnp.sort(jnp.where(a == sign, jnp.abs(z), jnp.inf))
        return jnp.max(reach.astype(z.dtype) * jnp.sqrt(counts) - jnp.cumsum(near))

    return jnp.maximum(jnp.maximum(best(1), best(-1)), 0) / jnp.sqrt(counts[-1])


def two_layer_kernel(
    weights: Any, a: Any, x1: Any, x2: Any = None, *, activation: Callable[[Array], Array] = jax.nn.relu
) -> Float[Array, "n1 n2"]:
    """The kernel of `sum_j a_j s(w_j . x) / sqrt(m)` linearized in `w`: `x . x' mean_j a_j^2 s'(w_j . x) s'(w_j . x')`.

    - `weights`: `(m, d)`. `a`: `(m,)`. `x1`, `x2`: `(n, d)`; `x2=None` is `x1`.

    For ReLU, `s(z) = z s'(z)`: the linearized network has no constant term and is this kernel's model, nothing else.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import two_layer_kernel
    >>> two_layer_kernel(jnp.ones((5, 3)), jnp.ones(5), jnp.eye(3)).shape
    (3, 3)
    """
    w, a, left = real(weights), real(a), real(x1)
    right = left if x2 is None else real(x2)
    if w.ndim != 2 or a.shape != w.shape[:1] or any(x.ndim != 2 or x.shape[1] != w.shape[1] for x in (left, right)):
        raise InputError(
            f"weights {w.shape}, a {a.shape}, x1 {left.shape} and x2 {right.shape} do not fit together: "
            "expected (m, d), (m,), (n1, d) and (n2, d)."
        )
    slopes = jax.vmap(jax.vmap(jax.grad(activation)))
    return (left @ right.T) * ((slopes(left @ w.T) * jnp.square(a)) @ slopes(right @ w.T).T) / len(a)


class LeeBounds(NamedTuple):
    """What is proved about gradient descent on a wide network. Made by `lee_bounds`.

    - `contraction`: by which the norm of the residual falls in every step, at least.
    - `parameters`: on the sum of the lengths of all steps. `kernel`: on `|T_t - T_0|_F`, `T` the tangent kernel over
      the width.
    - `least_width`: from which the proof holds. `valid`: the width is that large.

    >>> from everwide.linearization import lee_bounds
    >>> bounds = lee_bounds(width=10**4, rate=0.5, eigenvalue=1.0, lipschitz=1.0, residual=1.0)
    >>> bool(bounds.valid), round(float(bounds.parameters), 4)
    (True, 0.03)
    """

    contraction: Float[Array, "..."]
    parameters: Float[Array, "..."]
    kernel: Float[Array, "..."]
    least_width: Float[Array, "..."]
    valid: Bool[Array, "..."]


def lee_bounds(*, width: Any, rate: Any, eigenvalue: Any, lipschitz: Any, residual: Any) -> LeeBounds:
    """Bounds on gradient descent with rate `rate / width` on `1/2 sum |f - y|^2`, in the standard parametrization.

    - `eigenvalue`: the smallest one of the tangent kernel over the width, at infinite width.
    - `lipschitz`: `K` with `|J|_F <= K sqrt(width)` and `|J - J'|_F <= K sqrt(width) |theta - theta'|` near the start.
    - `residual`: a bound `R` on `|f - y|` at the start. `rate`: below `2 / (smallest + largest eigenvalue)`.

    `|f_t - y| <= (1 - rate eigenvalue / 3)^t R`; the parameters move by at most `3 K R / (eigenvalue sqrt(width))`,
    the kernel by `6 K^3 R / (eigenvalue sqrt(width))`, from width `(18 K^3 R / eigenvalue^2)^2` on.

    >>> from everwide.linearization import lee_bounds
    >>> bounds = lee_bounds(width=100, rate=0.5, eigenvalue=0.5, lipschitz=1.0, residual=1.0)
    >>> int(bounds.least_width)
    5184

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, appendix on
    convergence in discrete time.
    """
    n, eta = positive(width, "width"), positive(rate, "rate")
    least, bound = positive(eigenvalue, "eigenvalue"), positive(lipschitz, "lipschitz")
    start = non_negative(residual, "residual")
    moved = 3 * bound * start / (least * jnp.sqrt(n))
    width_needed = (18 * bound**3 * start / least**2) ** 2
    return LeeBounds(1 - eta * least / 3, moved, 2 * bound**2 * moved, width_needed, n >= width_needed)
