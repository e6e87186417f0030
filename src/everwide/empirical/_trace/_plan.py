"""How the derivatives of a model will be computed: decided once for each model and shape of the data."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from ._ledger import Ledger, Site, Value
from ._sites import Embedding
from ._views import whole
from ._walk import dry, look


@dataclass(frozen=True)
class Share:
    """Sites of one leaf that use the same entries in the same way: their tokens are one long list."""

    leaf: int
    sites: tuple[Site, ...]

    def cotangents(self) -> tuple:
        """Equal for shares whose cotangents are the same numbers in the same order."""
        return tuple(site.cotangent() for site in self.sites)


@dataclass(frozen=True, eq=False)
class Plan:
    """The equations of a model for one example, and what to do for each parameter leaf.

    - `shares`: what is known as a sum of outer products.
    - `plain`: the leaves that are differentiated as they are.
    - `taps`: the zeros that the walk adds. `unpooled`: as in `Ledger`.
    """

    equations: ClosedJaxpr
    names: tuple[str, ...]
    outputs: int
    shares: tuple[Share, ...]
    plain: tuple[int, ...]
    unpooled: frozenset[int]
    taps: tuple[jax.ShapeDtypeStruct, ...]

    def shapes(self) -> tuple[list[jax.ShapeDtypeStruct], list[jax.ShapeDtypeStruct]]:
        """Of the leaves, and of one example."""
        avals: list[Any] = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self.equations.in_avals]
        return avals[: len(self.names)], avals[len(self.names) :]

    def run(self, leaves: list[Any], x: list[Any], zeros: list[Any]) -> tuple[jax.Array, list[Any]]:
        """The output for one example, and what the walk has recorded."""
        ledger = Ledger(zeros, self.unpooled)
        (y,) = look(self.equations, _start(leaves, x, self.plain), ledger)
        return y, ledger.records


def _start(leaves: list[Any], x: list[Any], plain: Container[int]) -> list[Value]:
    trained = [i not in plain and jnp.issubdtype(jnp.result_type(leaf), jnp.floating) for i, leaf in enumerate(leaves)]
    views = [whole(i, jnp.shape(leaf)) if trained[i] else None for i, leaf in enumerate(leaves)]
    return [*map(Value, leaves, views), *map(Value, x)]


def plan(fn: Callable[..., jax.Array], names: tuple[str, ...], leaves: list[Any], x: list[Any]) -> Plan:
    """Trace `fn(leaves, x)`, the vector of outputs for one example, and walk until no leaf is refused."""
    equations = jax.make_jaxpr(fn)(leaves, x)
    plain, unpooled = frozenset[int](), frozenset[int]()

    def looked(leaves: list[Any], x: list[Any]) -> Ledger:
        ledger = Ledger(None, unpooled)
        look(equations, _start(leaves, x, plain), ledger)
        return ledger

    while True:
        ledger = dry(looked, leaves, x)
        mixed = {s.leaf for s in ledger.sites if s.pooled} & {s.leaf for s in ledger.sites if not s.pooled}
        shares, refused = _shares(ledger)
        if mixed:
            unpooled |= mixed
        elif refused:
            plain |= refused
        else:
            break
    outputs = equations.out_avals[0].shape[0]
    return Plan(equations, names, outputs, tuple(shares), tuple(sorted(plain)), unpooled, tuple(ledger.taps))


def _shares(ledger: Ledger) -> tuple[list[Share], set[int]]:
    """Sites by what they show; a leaf whose sites overlap without being equal is refused."""
    refused = set(ledger.refused)
    sites_of: dict[int, dict[Any, list[Site]]] = {}
    for site in ledger.sites:
        key = (isinstance(site.rule, Embedding), site.arranged.signature())
        sites_of.setdefault(site.leaf, {}).setdefault(key, []).append(site)
    for leaf, kinds in sites_of.items():
        shown = [sites[0].arranged.everywhere() for sites in kinds.values()]
        pairs = ((a, b) for i, a in enumerate(shown) for b in shown[:i])
        if any(np.shares_memory(a, b) for a, b in pairs):
            refused.add(leaf)
    shares = [Share(leaf, tuple(sites)) for leaf, kinds in sites_of.items() for sites in kinds.values()]
    return shares, refused
