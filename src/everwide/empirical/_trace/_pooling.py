"""Elementwise functions that end in a sum over all tokens: global pooling after a layer.

There the cotangent of the layer's result is `P[k, o] D[t, o]`: that of the sum, times the derivative of the function.
So the sum over tokens can be taken before the outputs are known, and every output of the layer is a group with one
token. For a convolution with many sites and outputs this is most of the work.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

# fmt: off
ELEMENTWISE = frozenset((
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "clamp",
    "convert_element_type", "copy", "copy_p", "cos", "cosh", "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp",
    "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt",
    "max", "min", "mul", "ne", "neg", "not", "or", "pow", "rsqrt", "select_n", "sign", "sin", "sinh", "sqrt", "square",
    "stop_gradient", "sub", "tan", "tanh", "xor",
))
# fmt: on
CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint")
Run = Callable[[JaxprEqn, list[Any]], list[Any]]


class Pool(NamedTuple):
    """The equations between `start` and the sum; all that is between has the shape of `start`."""

    start: Any
    chain: tuple[JaxprEqn, ...]
    sink: JaxprEqn


def find(jaxpr: Jaxpr, after: int, var: Any, run: Run) -> Pool | None:
    """The pool into which all goes that depends on `var`, a result of equation number `after`. `run` runs equations."""
    if jnp.issubdtype(var.aval.dtype, jnp.complexfloating):
        return None
    shape, reached = var.aval.shape, {var}
    chain: list[JaxprEqn] = []
    sinks: list[JaxprEqn] = []
    for eqn in jaxpr.eqns[after + 1 :]:
        if not any(v in reached for v in eqn.invars if not isinstance(v, Literal)):
            continue
        if eqn.primitive.name == "reduce_sum":
            sinks.append(eqn)
        elif _elementwise(eqn, shape):
            chain.append(eqn)
            reached |= set(eqn.outvars)
        else:
            return None
    if len(sinks) != 1 or any(v in reached for v in jaxpr.outvars if not isinstance(v, Literal)):
        return None
    pool = Pool(var, tuple(chain), sinks[0])
    return pool if _is_diagonal(pool, run) else None


def derivative(pool: Pool, read: Callable[[Any], Any], run: Run) -> Array:
    """The derivative of what is summed with respect to the start, one number for each entry."""
    # Stopped: whoever differentiates the model need not differentiate this.
    start, *values = (lax.stop_gradient(read(v)) for v in (pool.start, *_outside(pool)))
    return _pull(pool, run)(start, jnp.ones(pool.start.aval.shape, _summed(pool).dtype), *values)


def _is_diagonal(pool: Pool, run: Run) -> bool:
    """Custom derivatives may do what they like: so the program that pulls a cotangent back must be elementwise, too."""
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in (pool.start, *_outside(pool))]
    cotangent = jax.ShapeDtypeStruct(shapes[0].shape, _summed(pool).dtype)
    program = jax.make_jaxpr(_pull(pool, run))(shapes[0], cotangent, *shapes[1:])
    return all(_elementwise(eqn, shapes[0].shape) for eqn in program.jaxpr.eqns)


def _pull(pool: Pool, run: Run) -> Callable[..., Array]:
    """From a cotangent of what is summed to one of the start."""
    outside = _outside(pool)

    def pull(start: Array, cotangent: Array, *values: Any) -> Array:
        def chain(start: Array) -> Array:
            env = {pool.start: start, **dict(zip(outside, values, strict=True))}
            for eqn in pool.chain:
                results = run(eqn, [v.val if isinstance(v, Literal) else env[v] for v in eqn.invars])
                env.update(zip(eqn.outvars, results, strict=True))
            return env[pool.sink.invars[0]]

        return jax.vjp(chain, start)[1](cotangent)[0]

    return pull


def _summed(pool: Pool) -> Any:
    return pool.sink.invars[0].aval


def _outside(pool: Pool) -> list[Any]:
    """Variables that the chain reads and does not make."""
    made = {pool.start, *(v for eqn in pool.chain for v in eqn.outvars)}
    read = [v for eqn in pool.chain for v in eqn.invars if not isinstance(v, Literal)]
    return list(dict.fromkeys(v for v in read if v not in made))


def _elementwise(eqn: JaxprEqn, shape: Sequence[int]) -> bool:
    """Every entry of the results depends on the same entry of the operands, or on single numbers; all are real."""
    arrays: list[Any] = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    if not all(a.shape in ((), tuple(shape)) and not jnp.issubdtype(a.dtype, jnp.complexfloating) for a in arrays):
        return False
    name = eqn.primitive.name
    if name == "broadcast_in_dim":  # of a single number
        return eqn.invars[0].aval.shape == ()  # pyright: ignore[reportAttributeAccessIssue]
    if name in (*CALLS, "custom_jvp_call", "custom_vjp_call"):
        return all(_elementwise(inner, shape) for inner in called(eqn)[0].eqns)
    return name in ELEMENTWISE


def called(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence[Any]]:
    """The equations that a call runs, and their constants."""
    inner = eqn.params["call_jaxpr" if "call_jaxpr" in eqn.params else "jaxpr"]
    return (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
