"""A model to first order, to second order, and to any."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._checks import InputError, whole
from .._trees import (
    Function,
    Outputs,
    Params,
    Products,
    Vector,
    as_vector,
    batch_size,
    displacement,
    from_vector,
    moved,
    outputs,
    parameters,
    products,
    targets,
    zero,
)
from ..empirical import ntk_block
from ..spectral import Spectrum


def linearize(f: Function, params: Params) -> Function:
    """`f`, linearized in its parameters: `f_lin(new_params, x) = f(params, x) + Df(params, x) (new_params - params)`.

    Args:
        f: `f(params, x)`, of one example.
        params: where it is expanded: in its floating-point arrays; other leaves stay what they are.

    Returns:
        A function of the same kind: `jax.vmap`, `jax.jit` and `jax.grad` apply, and any optimizer trains it.

    >>> import everwide as ew, jax, jax.numpy as jnp
    >>> net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(1))
    >>> params = net.init(jax.random.key(0), (3,), width=64)
    >>> f_lin = ew.linearize(net.apply, params)
    >>> bool(jnp.allclose(f_lin(params, jnp.ones(3)), net.apply(params, jnp.ones(3))))
    True

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, eq. 2.
    """
    return taylor(f, params, 1)


def taylor(f: Function, params: Params, degree: int) -> Function:
    """The Taylor polynomial of `f` in its parameters around `params`.

    Its error falls with the power `degree + 1` of the distance from `params`. A degree more doubles the work.

    Args:
        f: as in `linearize`.
        params: as in `linearize`.
        degree: 0 (a constant), 1 (linear) or more.

    Returns:
        A function of the same kind.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import taylor
    >>> square = taylor(lambda p, x: jnp.exp(p * x), jnp.zeros(()), 2)
    >>> float(square(jnp.ones(()), 1.0))
    2.5
    """
    parameters(params)  # say at once what is wrong with them
    return functools.partial(_polynomial, f, params, whole(degree, "degree", least=0))


def _polynomial(f: Function, params: Params, degree: int, new_params: Params, x: Any) -> Any:
    base, rest = parameters(params)
    towards = displacement(base, parameters(new_params, "new_params")[0])

    def value(s: Array) -> tuple:
        return (_floating(f(eqx.combine(moved(base, towards, s), rest), x)),)

    derivatives: Callable[[Array], tuple] = value
    for _ in range(degree):
        derivatives = _and_one_more(derivatives)
    terms = derivatives(zero(base))
    return jax.tree.map(lambda *parts: sum(part / math.factorial(k) for k, part in enumerate(parts)), *terms)


def _and_one_more(derivatives: Callable[[Array], tuple]) -> Callable[[Array], tuple]:
    """From a function and its derivatives to one derivative more: its last one is differentiated again."""

    def longer(s: Array) -> tuple:
        known, slopes = jax.jvp(derivatives, (s,), (jnp.ones_like(s),))
        return (*known, slopes[-1])

    return longer


def _floating(outputs: Any) -> Any:
    for leaf in jax.tree.leaves(outputs):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise InputError(f"f returns {jnp.result_type(leaf)}, which has no derivative. Return real numbers.")
    return outputs


def quadratic_model(f: Function, params: Params) -> "QuadraticModel":
    """`f(params, x)` of one example, expanded to second order in its parameters.

    With `d = new_params - params`, features `Phi(x) = Df` and curvature `Psi(x) = D^2 f`:
    `z(x) = f(params, x) + Phi(x)^T d + 1/2 d^T Psi(x) d`. `Psi` is never formed.

    Args:
        f: `f(params, x)`, of one example.
        params: where it is expanded.

    Returns:
        A model with `value(new_params, x)` and `effective_features(new_params, x)` of one example, and
        `trained(x, y, start=None)`, gradient flow on the mean of `1/2 |z - y|^2` to first order in the curvature:
        `params_at(time)`, `features_at(time, x)`, `ntk_at(time, x1, x2)` and `first_order_correction()`, whose
        `parallel` and `orthogonal` parts (in the span of the training features, and out of it) add to the solution of
        the linear model, and whose `drift` is 0 where they are all: where the data are interpolated.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import quadratic_model
    >>> model = quadratic_model(lambda p, x: jnp.exp(p * x), jnp.zeros(()))
    >>> float(model.value(jnp.ones(()), 1.0)), float(model.effective_features(jnp.ones(()), 1.0))
    (2.5, 2.0)
    >>> model.trained(jnp.ones(1), jnp.zeros(1)).ntk_at(1.0, jnp.ones(3)).shape
    (3, 3)

    Roberts, Yaida and Hanin 2022, The principles of deep learning theory, chapter 11; the orthogonal part of the
    correction is integrated in closed form here.
    """
    parameters(params)  # say at once what is wrong with them
    return QuadraticModel(f, params)


class QuadraticModel(eqx.Module):
    """`f` around `params`, to second order. Made by `quadratic_model`."""

    function: Function
    params: Params

    @eqx.filter_jit
    def value(self, new_params: Params, x: Any) -> Any:
        """Outputs of the model for one example."""
        return taylor(self.function, self.params, 2)(new_params, x)

    @eqx.filter_jit
    def effective_features(self, new_params: Params, x: Any) -> Params:
        """`Phi(x) + Psi(x) (new_params - params)`, for one example: the derivative of `value` by the parameters.

        A tree like `params`, with the axes of the outputs in front. Leaves that are not differentiated are `None`.
        """
        base, rest = parameters(self.params)
        towards = displacement(base, parameters(new_params, "new_params")[0])
        features = jax.jacrev(lambda p: self.function(eqx.combine(p, rest), x))
        first, change = jax.jvp(features, (base,), (towards,))
        return jax.tree.map(lambda a, b: a + b, first, change)

    @eqx.filter_jit
    def trained(self, x: Any, y: Any, *, start: Params | None = None) -> "QuadraticTraining":
        """Gradient flow on the mean over rows of `1/2 |z(x) - y|^2`, to first order in the curvature.

        - `x`: a batch of examples. `y`: `(n, *outputs)`. `start`: the parameters at time 0, `params` by default.
        """
        base, _ = parameters(self.params)
        begin = base if start is None else parameters(start, "start")[0]
        away = as_vector(displacement(base, begin, ("params", "start")))
        here = outputs(self.function, self.params, x)
        residual = (here - targets(y, here)).reshape(-1) + products(self.function, self.params, x).push(away)
        values, vectors = Spectrum.traced(_tangent_kernel(self.function, self.params, x, x))
        return QuadraticTraining(self, x, away, residual, values, vectors)


class FirstOrderCorrection(NamedTuple):
    """How the solution of a quadratic model differs from that of the linear one, to first order in the curvature.

    - `parallel`: the part in the span of the training features.
    - `orthogonal`: the part in directions in which the linear model never moves.
    - `drift`: the speed at which curvature still pushes the parameters out of that span at the linear solution. It is
      zero where the training data are interpolated; otherwise `orthogonal` has no limit.

    Both parts are trees like the parameters; the solution is the linear one plus both.
    """

    parallel: Params
    orthogonal: Params
    drift: Float[Array, ""]


class QuadraticTraining(eqx.Module):
    """Gradient flow of a quadratic model on the mean of `1/2 |z(x) - y|^2`. Made by `QuadraticModel.trained`.

    Time is the learning rate times the number of steps. Everything holds to first order in the curvature: parameters
    move as in the linear model, and features move with them.
    """

    model: QuadraticModel
    x: Any
    start: Vector  # displacement from the parameters of the model at time 0
    residual: Outputs  # of the linear model at time 0
    eigenvalues: Outputs  # of the tangent kernel; those that are rounding are zero
    eigenvectors: Float[Array, "outputs outputs"]

    @eqx.filter_jit
    def params_at(self, time: float | Array) -> Params:
        """Parameters of the linear model at some time; `jax.numpy.inf` gives its solution."""
        base, rest = parameters(self.model.params)
        return eqx.combine(from_vector(as_vector(base) + self._displacement(time), base), rest)

    @eqx.filter_jit
    def features_at(self, time: float | Array, x: Any) -> Params:
        """Effective features `Phi(x) + Psi(x) (params_at(time) - params)` of one example."""
        return self.model.effective_features(self.params_at(time), x)

    @eqx.filter_jit
    def ntk_at(self, time: float | Array, x1: Any, x2: Any = None) -> Float[Array, "n1 n2"]:
        """The tangent kernel of the effective features; several outputs follow each other within an example."""
        return _tangent_kernel(self.model.value, self.params_at(time), x1, x1 if x2 is None else x2)

    @eqx.filter_jit
    def first_order_correction(self) -> FirstOrderCorrection:
        """What curvature adds to the solution `params_at(jax.numpy.inf)`, to first order."""
        by, solution = self._products(), self._displacement(jnp.inf)
        missed = self.residual + by.push(solution - self.start)  # zero where the data are interpolated
        pushed = by.curve(missed, solution)
        errors = by.curvature(solution) / 2 + self._inverse(by.push(pushed))
        parallel = -by.pull(self._inverse(errors))
        orthogonal, drift = (self._outside(v) for v in (self._sideways(), pushed))
        like, _ = parameters(self.model.params)
        return FirstOrderCorrection(from_vector(parallel, like), from_vector(orthogonal, like), jnp.linalg.norm(drift))

    def _sideways(self) -> Vector:
        """`- int sum_a Psi_a d(t) r_a(t) dt` over all times, with the displacement and residual of the linear model."""
        by, size = self._products(), len(self.residual)
        rho, lam = self.eigenvectors.T @ self.residual, self.eigenvalues
        both = (lam[:, None] > 0) & (lam[None, :] > 0)
        pairs = jnp.where(both, lam[None, :] * (lam[:, None] + lam[None, :]), 1)
        met = self.eigenvectors @ jnp.where(both, jnp.outer(rho, rho) / pairs, 0) @ self.eigenvectors.T

        def add(total: Vector, a: Array) -> tuple[Vector, None]:
            one = jnp.zeros(size, met.dtype).at[a].set(1)
            return total + by.curve(one, by.pull(met[:, a])), None

        total = -by.curve(self._inverse(self.residual), self.start)
        return lax.scan(add, total, jnp.arange(size))[0]

    def _outside(self, v: Vector) -> Vector:
        """The part of a vector that is orthogonal to the training features."""
        by = self._products()
        return v - by.pull(self._inverse(by.push(v)))

    def _inverse(self, v: Outputs, time: float | Array = jnp.inf) -> Outputs:
        """What gradient flow has learned of `v` by then; at last, the pseudo-inverse of the tangent kernel, applied."""
        time = jnp.asarray(time, self.residual.dtype) / batch_size(self.x)  # of the mean loss
        seen = self.eigenvalues > 0
        lam = jnp.where(seen, self.eigenvalues, 1)
        learned = jnp.where(seen, -jnp.expm1(-time * lam) / lam, 0)  # the features of unseen modes vanish
        return self.eigenvectors @ (learned * (self.eigenvectors.T @ v))

    def _displacement(self, time: float | Array) -> Vector:
        return self.start - self._products().pull(self._inverse(self.residual, time))

    def _products(self) -> Products:
        return products(self.model.function, self.model.params, self.x)


def _tangent_kernel(f: Function, params: Params, x1: Any, x2: Any) -> Float[Array, "n1 n2"]:
    """`J(x1) J(x2)^T`; several outputs follow each other within an example."""
    moving, rest = parameters(params)
    left, right = (jax.tree.map(jnp.asarray, x) for x in (x1, x2))
    blocks = ntk_block(lambda p, one: f(eqx.combine(p, rest), one).reshape(-1), moving, left, right)
    n1, n2, k, _ = blocks.shape
    return blocks.transpose(0, 2, 1, 3).reshape(n1 * k, n2 * k)
