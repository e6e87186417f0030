"""A function of parameters, replaced by the first terms of its Taylor series."""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import InputError, whole
from .._trees import Function, Params, displacement, moved, parameters, zero


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
