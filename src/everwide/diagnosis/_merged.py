"""Two products of matrices that are added become one: `a^T b + c^T d`, of what is put below each other."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from .._equations import bind

_SUMS = ("add", "add_any")


class Pair(NamedTuple):
    """Products that are added, and by which permutation both were transposed."""

    dots: tuple[JaxprEqn, JaxprEqn]
    transposed: Sequence[int] | None


def merged(linear: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """The same function; second derivatives of large weights are sums of two products, written and read once less."""

    def run(parts: list[Any]) -> Any:
        program, shape = jax.make_jaxpr(lambda given: linear(given), return_shape=True)(parts)  # modules have no hash
        results = _evaluated(program.jaxpr, program.consts, jax.tree.leaves(parts))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return run


def _evaluated(jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))

    def read(var: Any) -> Any:
        return var.val if isinstance(var, Literal) else env[var]

    pairs = _pairs(jaxpr)
    for number, eqn in enumerate(jaxpr.eqns):
        results = [_product(pairs[number], read)] if number in pairs else bind(eqn, [read(var) for var in eqn.invars])
        env.update(zip(eqn.outvars, results, strict=True))  # what nobody reads any more is not compiled
    return [read(var) for var in jaxpr.outvars]


def _product(pair: Pair, read: Callable[[Any], Any]) -> Any:
    first, second = pair.dots
    (left, right), _ = first.params["dimension_numbers"]
    sides = [
        jnp.concatenate([read(first.invars[side]), read(second.invars[side])], axis=axes[0])
        for side, axes in enumerate((left, right))
    ]
    (result,) = bind(first, sides)
    return result if pair.transposed is None else jnp.transpose(result, pair.transposed)


def _pairs(jaxpr: Jaxpr) -> dict[int, Pair]:
    """Sums, by their place, of two products that nobody else reads."""
    made = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    reads = Counter(v for eqn in jaxpr.eqns for v in eqn.invars if not isinstance(v, Literal))
    reads.update(v for v in jaxpr.outvars if not isinstance(v, Literal))

    def source(var: Any, kind: str) -> JaxprEqn | None:
        eqn = None if isinstance(var, Literal) or reads[var] > 1 else made.get(var)
        return eqn if eqn is not None and eqn.primitive.name == kind else None

    def product(var: Any) -> tuple[JaxprEqn | None, Any]:
        turn = source(var, "transpose")
        if turn is None:
            return source(var, "dot_general"), None
        return source(turn.invars[0], "dot_general"), turn.params["permutation"]

    pairs = {}
    for number, eqn in enumerate(jaxpr.eqns):
        if eqn.primitive.name in _SUMS:
            (first, turned), (second, too) = map(product, eqn.invars)
            if first is not None and second is not None and turned == too and _pays(first, second):
                pairs[number] = Pair((first, second), turned)
    return pairs


def _pays(first: JaxprEqn, second: JaxprEqn) -> bool:
    """They are alike but for the length of the sums, and factors are small beside what they give."""
    (left, right), batch = first.params["dimension_numbers"]
    if first.params != second.params or any(batch) or not left:
        return False

    def rest(eqn: JaxprEqn) -> list[tuple[Any, tuple[int, ...]]]:
        factors: list[Any] = [var.aval for var in eqn.invars]
        joined = (left[0], right[0])
        return [(a.dtype, a.shape[:axis] + a.shape[axis + 1 :]) for a, axis in zip(factors, joined, strict=True)]

    made: Any = first.outvars[0].aval
    given: list[Any] = [var.aval for eqn in (first, second) for var in eqn.invars]
    return rest(first) == rest(second) and sum(factor.size for factor in given) <= made.size
