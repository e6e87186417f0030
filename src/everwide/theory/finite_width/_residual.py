"""Bounds on Jacobians and on the residual at the start."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.optimize
import scipy.special
from jax import lax
from jaxtyping import Array, Bool, Complex, Float, PRNGKeyArray

from ..._checks import InputError, finite_array, not_negative, positive, probability, whole
from ..._engine import trusted_filter_jit
from ..._trees import Function, Params, Vector, as_vector, batch_size, from_vector, parameters
from ...spectral import Spectrum
from .._host import falling_bracket, root_between, trapezoids
from ._laziness import Search, all_finite, search_for


class JacobianLipschitz(NamedTuple):
    """Made by `estimate_jacobian_lipschitz`."""

    norm: Float[Array, ""]
    lipschitz: Float[Array, ""]
    converged: Bool[Array, ""]

    def constant(self, width: float) -> Float[Array, ""]:
        """`K` of `lee_certificate`: both are at most `K sqrt(width)`, as far as was seen."""
        return jnp.maximum(self.norm, self.lipschitz) / positive(width, "width") ** 0.5


def estimate_jacobian_lipschitz(
    f: Function,
    params: Params,
    x: Any,
    radius: float,
    *,
    points: int = 4,
    tolerance: float = 1e-3,
    max_cycles: int = 50,
    seed: int = 0,
) -> JacobianLipschitz:
    """The largest Jacobian, and its largest change for a unit step, around `params`. An estimate, from below.

    Looked for at `params` and at `points` random points at distance `radius`; between them it may be larger, so that a
    certificate made with it is as good as the estimate. Where two slopes of an activation meet, as in ReLU, a Jacobian
    jumps: no constant exists there, and none of that is seen. At each point the change is exact up to `tolerance`: the
    largest singular value of the derivative of the Jacobian, in the Frobenius norm, by Lanczos' method on products
    with it. `lazy_kappa` has the operator norms.

    Args:
        f: `f(params, x)`, of one example, with any outputs.
        params: the centre.
        x: a batch. One example's Jacobian is in memory at a time.
        radius: of the sphere.
        points: how many there, 0 or more.
        tolerance: of the search at each point.
        max_cycles: of the search.
        seed: of points and search.

    Returns:
        `norm`: the largest `|J|_F`, over all rows and outputs; `lipschitz`: of `|J - J'|_F / |theta - theta'|`, for
        near points; `converged`; and `constant(width)`, the `K` of `lee_certificate`.

    >>> import jax.numpy as jnp
    >>> from everwide.theory import finite_width
    >>> near = finite_width.estimate_jacobian_lipschitz(lambda p, x: x * p**2, jnp.array(1.0), jnp.ones(4), radius=0.0)
    >>> float(near.norm), float(near.lipschitz), float(near.constant(4))
    (4.0, 4.0, 2.0)

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, lemma on the
    local Lipschitzness of the Jacobian.
    """
    reach, around = not_negative(radius, "radius"), whole(points, "points", least=0)
    search = search_for(tolerance, max_cycles)
    if not batch_size(x):
        raise InputError("x holds no examples: expected one or more.")
    rows = jax.tree.map(jnp.asarray, all_finite(x, "x"))
    return _estimate(f, all_finite(params, "params"), rows, search, jnp.asarray(reach), jr.key(seed), around)


@trusted_filter_jit
def _estimate(
    f: Function, params: Params, x: Any, search: Search, radius: Float[Array, ""], key: PRNGKeyArray, points: int
) -> JacobianLipschitz:
    moving, rest = parameters(params)
    center = as_vector(moving)
    outward, first = jr.split(key)
    directions = jr.normal(outward, (points, center.size), center.dtype)
    directions = directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    places = jnp.concatenate([center[None], center + radius.astype(center.dtype) * directions])
    start = jr.normal(first, center.shape, center.dtype)
    jacobian = jax.jacrev(lambda at, one: f(eqx.combine(from_vector(at, moving), rest), one).reshape(-1))

    def at_point(at: Vector) -> tuple[Array, Array, Array]:
        def change_squared(u: Vector) -> Vector:
            """`sum_a H_a H_a u` over all rows and outputs `a`, `H_a` the second derivatives of `a`."""

            def add(total: Vector, one: Any) -> tuple[Vector, None]:
                _, back = jax.vjp(lambda place: jacobian(place, one), at)
                along = jax.jvp(lambda place: jacobian(place, one), (at,), (u,))[1]
                return total + back(along)[0].astype(total.dtype), None

            return lax.scan(add, jnp.zeros_like(u), x)[0]

        squares = lax.map(lambda one: jnp.sum(jnp.square(jacobian(at, one))).astype(at.dtype), x)
        top = search.climb(lambda _: change_squared, start / jnp.linalg.norm(start))
        return jnp.sqrt(jnp.sum(squares)), jnp.sqrt(top.value), top.converged

    norms, changes, converged = lax.map(at_point, places)
    return JacobianLipschitz(jnp.max(norms), jnp.max(changes), jnp.all(converged))


def lipschitz_upper_bound(params: Params) -> float:
    """The product of the largest singular values of all matrices: how fast outputs can change with the inputs, at most.

    For a chain of dense layers and activations with slopes of at most 1 (ReLU, tanh, erf's is `2 / sqrt(pi)`), whose
    `params` hold the matrices as they are multiplied: the standard parametrization, or any model of yours. Biases,
    vectors, do not count. Arrays of more axes are refused, because they do not say how they are multiplied: filters of
    a convolution, which one input meets at several sites; heads of attention; weights of `Repeat`, which are stacked.

    Args:
        params: a tree of matrices and vectors.

    Returns:
        The bound.

    >>> import jax.numpy as jnp
    >>> from everwide.theory import finite_width
    >>> finite_width.lipschitz_upper_bound([jnp.diag(jnp.array([3.0, 1.0])), jnp.ones((2, 1))])
    4.24...
    """
    leaves = jax.tree.leaves_with_path(parameters(all_finite(params, "params"))[0])
    for path, leaf in leaves:
        if leaf.ndim > 2 or not leaf.size:
            raise InputError(
                f"params{jax.tree_util.keystr(path)} has shape {leaf.shape}: expected matrices that are multiplied one "
                "after the other, beside vectors. Pass a stack of them (Repeat) as a list, one by one, and a "
                "convolution as the matrix that maps all of its inputs to all of its outputs."
            )
    matrices = [np.asarray(leaf, np.float64) for _, leaf in leaves if leaf.ndim == 2]
    if not matrices:
        raise InputError(f"params have shapes {[leaf.shape for _, leaf in leaves]}: expected matrices, beside vectors.")
    return math.prod(_spectral_norm(matrix) for matrix in matrices)


def _spectral_norm(matrix: Float[np.ndarray, "n m"]) -> float:
    """From the smaller Gram matrix, in units of the largest entry: squares may leave the range of float64."""
    unit = float(np.abs(matrix).max()) or 1.0
    narrow = (matrix if len(matrix) <= matrix.shape[1] else matrix.T) / unit
    return unit * math.sqrt(max(Spectrum.largest(narrow @ narrow.T), 0.0))


_TOLERANCE = 1e-11  # relative change between two rules, the second of which is far better than that
_FIRST = 32  # nodes
_REACH = 45.0  # the logarithm by which the integrand has fallen at the end


class QuadraticForm(NamedTuple):
    """`lam`: weights, at least 0 and not all 0; `shift`: `b` above, at least 0; `copies` of each."""

    lam: Float[np.ndarray, " n"]
    shift: Float[np.ndarray, " n"]
    copies: int

    def log_mgf(self, s: Complex[np.ndarray, " k"]) -> Complex[np.ndarray, " k"]:
        """`C(s)`, off the cut from `1 / (2 lam_max)` to infinity."""
        rest = 1 - 2 * np.multiply.outer(s, self.lam)
        return s * ((1 / rest) @ self.shift) - self.copies / 2 * np.log(rest).sum(-1)

    def derivative(self, s: float, order: int) -> float:
        """The first, second or third derivative of `C` at a real point."""
        rest = 1 - 2 * self.lam * s
        ratio = 2 * self.lam / rest
        shifted = self.shift / rest**2 * ratio ** (order - 1)  # times order!: d^k/ds^k of s / (1 - 2 lam s)
        central = self.copies / 2 * ratio**order  # times (order - 1)!
        return float(math.factorial(order) * shifted.sum() + math.factorial(order - 1) * central.sum())

    @property
    def least(self) -> float:
        """What is never undercut: the part that is not random."""
        return float(self.shift[self.lam == 0].sum())

    def log_survival(self, q: float) -> float:
        """`log P(Q > q)`."""
        if q <= self.least:
            return 0.0
        if q < self.derivative(0.0, 1):  # below the mean, where the other tail is the smaller one
            return math.log1p(-math.exp(min(self._log_tail(q, self._saddle(q, -1)), 0.0)))
        return min(self._log_tail(q, self._saddle(q, 1)), 0.0)

    def _log_tail(self, q: float, saddle: float) -> float:
        """The logarithm of the integral through a saddle point: of `P(Q > q)` right of 0, of `P(Q < q)` left of it."""
        bend = self.derivative(saddle, 3) / (6 * self.derivative(saddle, 2))  # of steepest descent without the 1 / s
        path = _Path(self, q, saddle, bend, 0.0)
        path = path._replace(height=float(np.real(path.log_integrand(np.zeros(1))[0])))
        while path.rises():
            path = path._replace(bend=path.bend / 2)  # straight up, nothing ever rises above the saddle point
        tolerance = _TOLERANCE + 1e-14 * (abs(path.height) + abs(q * saddle))  # what rounding does to an exponent
        fault = f"The tail probability at {q:.6g} has not converged. This should not happen: report it."
        return path.height + math.log(trapezoids(path.integrand, path.end(), _FIRST, tolerance, fault))

    def _saddle(self, q: float, side: int) -> float:
        """Where `C(s) - q s - log |s|` is smallest: between 0 and the first pole, or left of 0."""
        pole = 1 / (2 * float(self.lam.max()))

        def place(t: float) -> float:
            return pole / (1 + math.exp(-t)) if side > 0 else -pole * math.exp(t)

        def fall(t: float) -> float:
            return side * (q + 1 / place(t) - self.derivative(place(t), 1))

        return place(root_between(fall, *falling_bracket(fall, 0.0)))


class _Path(NamedTuple):
    """The parabola `saddle + i y + bend y^2`; `height` is the logarithm of the integrand at the saddle point."""

    form: QuadraticForm
    q: float
    saddle: float
    bend: float
    height: float

    def log_integrand(self, y: Float[np.ndarray, " k"]) -> Complex[np.ndarray, " k"]:
        s = self.saddle + self.bend * y**2 + 1j * y
        return self.form.log_mgf(s) - self.q * s - np.log(s * math.copysign(1.0, self.saddle))

    def end(self) -> float:
        """Where the integrand is nothing beside its largest value, by doubling."""
        step = self.form.derivative(self.saddle, 2) ** -0.5
        while float(np.real(self.log_integrand(np.array([step]))[0])) > self.height - _REACH:
            step *= 2
        return step

    def rises(self) -> bool:
        """The path has come too near to a pole and climbs again."""
        places = self.end() * np.linspace(0, 1, 2 * _FIRST + 1) ** 2
        return bool(np.real(self.log_integrand(places)).max() > self.height + 1)

    def integrand(self, y: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """In units of `exp(height)`, at `y` and `-y` together."""
        return np.imag(np.exp(self.log_integrand(y) - self.height) * (1j + 2 * self.bend * y)) / math.pi


class InitialResidual(NamedTuple):
    """Made by `initial_residual_quantile`."""

    quantile: float
    bound: float


def initial_residual_quantile(kernel: Any, y: Any, delta: float) -> InitialResidual:
    """The residual `R` that random infinitely wide networks exceed before training with probability `delta`.

    `R` is the root mean square over the training rows of `|f - y|`, so that the loss is `R^2 / 2`. Outputs at
    initialization are Gaussian with the NNGP kernel `K` as their covariance, so `n R^2` is a weighted sum of noncentral
    chi-squared variables. Its quantile is computed to ten digits, by integration along a path through the saddle point.
    The simple bound is `(|y| + sqrt(lam_max(K)) chi) / sqrt(n)`, with `chi` the quantile of the norm of as many
    standard normal variables as there are targets.

    Args:
        kernel: `(n, n)`, the NNGP kernel.
        y: `(n,)` or `(n, outputs)`, targets; outputs are independent.
        delta: between 0 and 1; small ones are as accurate as large ones.

    Returns:
        `quantile`: exceeded with exactly that probability; `bound`: with at most that, and simple.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> finite_width.initial_residual_quantile(np.eye(2), np.zeros(2), 0.05).quantile  # sqrt(-log 0.05)
    1.7308...

    Lee et al. 2019 need such an `R`; Imhof 1961, Computing the distribution of quadratic forms in normal variables,
    for the integral; Rice 1980, Distribution of quadratic forms in normal random variables, for its path.
    """
    targets, risk = finite_array(y, "y"), probability(delta, "delta")
    spectrum = Spectrum.of(kernel)
    if targets.ndim not in (1, 2) or len(targets) != len(spectrum.values) or not targets.size:
        raise InputError(
            f"y has shape {targets.shape} and the kernel {len(spectrum.values)} rows: expected one target, or one for "
            "each output, for each of them."
        )
    columns = targets.reshape(len(targets), -1)
    weights = np.where(spectrum.learnable, spectrum.values, 0.0)
    shifts = np.sum(spectrum.modes(columns) ** 2, 1)
    largest, size, rows = float(weights.max()), float(np.linalg.norm(columns)), len(columns) ** 0.5
    if largest == 0:
        return InitialResidual(size / rows, size / rows)
    chi = math.sqrt(scipy.special.chdtri(columns.size, risk))
    bound = size + math.sqrt(largest) * chi
    form = QuadraticForm(weights / largest, shifts / largest, columns.shape[1])
    quantile = math.sqrt(largest * _upper_quantile(form, math.log(risk)))
    exact = min(quantile, bound)  # they agree, up to rounding, where the bound is attained
    return InitialResidual(exact / rows, bound / rows)


def _upper_quantile(form: QuadraticForm, log_risk: float) -> float:
    """`q` with `log P(Q > q) = log_risk`, looked for from the mean on: evaluations far out cost more."""

    def excess(q: float) -> float:
        return form.log_survival(q) - log_risk

    low, high = falling_bracket(excess, form.derivative(0.0, 1), math.sqrt(form.derivative(0.0, 2)))
    low = max(low, form.least)
    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-300, rtol=1e-11))  # pyright: ignore[reportArgumentType]
