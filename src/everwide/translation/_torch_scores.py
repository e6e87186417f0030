"""Attention that a PyTorch module writes out: products of queries and keys, a softmax, and a product with values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._words import number
from ..layers import Dense
from ._attention import NEVER, is_causal
from ._graph import Apply, At, Graph, Outcome
from ._heads import Heads, Relative
from ._layout import BATCH, CHANNELS, Untranslatable, Value
from ._ops import joined
from ._reasons import DROPPED_SCORES
from ._torch_constants import Evaluated, Found
from ._weights import NORMAL, Drawn

_KEPT = ("float", "type_as", "to", "contiguous", "type", "double")


@dataclass(frozen=True)
class Scores:
    """What queries and keys have become on their way to the weights of values."""

    queries: Value
    keys: Value
    factor: float = 1.0
    causal: bool = False
    relative: Found | None = None  # a table, and which of its numbers is added where
    weighted: bool = False

    @property
    def sites(self) -> int:
        """How many look at as many."""
        return math.prod(self.queries.shape[:-1])


def product(one: Value, two: Value) -> Scores:
    """Queries times keys."""
    heads, other = _heads(one, last=CHANNELS), _heads(two, last="")
    if heads is None or heads != other or one.shape[:-1] != two.shape[:-1] or not one.sites:
        raise Untranslatable(
            f"a product of two signals is read where it is one of queries and keys of as many heads, got {one.words()} "
            f"and {two.words()}; see everwide.SelfAttention"
        )
    return Scores(one, two)


def summed(graph: Graph, at: At, equation: str, one: Scores | Value, two: Scores | Value) -> Scores | Value:
    """What `torch.einsum` makes of queries and keys, or of weights and values: their axes are named in the equation."""
    operands, _, out = equation.replace(" ", "").partition("->")
    left, _, right = operands.partition(",")
    if isinstance(two, Scores) or (isinstance(one, Value) and out[-1:] in left):
        one, two, left, right = two, one, right, left
    both, fault = {*left} & {*right} - {*out}, Untranslatable(f"the equation {equation!r} is not one of attention")
    if len(both) != 1 or isinstance(two, Scores) or min(len(left), len(out)) < 3:
        raise fault
    over = both.pop()
    if isinstance(one, Value):
        batch, query, key = out[:-2], out[-2], out[-1]
        queries = _turned(one, left, batch + query + over, fault)
        return product(queries, _turned(two, right, batch + over + key, fault))
    new = "".join({*right} - {*left})
    if left[-1] != over:
        raise fault
    made = attended(graph, at, one, _turned(two, right, left[:-2] + over + new, fault))
    return _turned(made, left[:-1] + new, out, fault)


def _turned(x: Value, have: str, want: str, fault: Untranslatable) -> Value:
    """Its axes in another order, by their letters."""
    if len({*have}) < len(have) or sorted(have) != sorted(want) or len(have) != len(x.groups):
        raise fault
    return x.permuted([have.index(letter) for letter in want])


def _heads(x: Value, *, last: str) -> int | None:
    """How many heads a value has, whose last axis is the channels (or the one before it)."""
    tail = (x.sites, (x.pieces[-1:] or (CHANNELS,))) if last else ((x.pieces[-1:] or (CHANNELS,)), x.sites)
    head = ((BATCH,), x.pieces[:1]) if x.cut else ((BATCH,),)
    if len(x.cut) not in (0, 2) or x.groups != (*head, *tail):
        return None
    return x.cut[0] if x.cut else 1


def weighed(scores: Scores, name: str, options: Mapping[str, Any], others: Sequence[Any], numbers: Evaluated) -> Scores:
    """What a call makes of scores that are not weights yet; `others`: what it reads beside them."""
    if name in _KEPT or name == "dropout":
        if name == "dropout" and options.get("noisy"):
            raise Untranslatable(DROPPED_SCORES)
        return scores
    if name == "softmax" and options.get("dim") in (-1, options.get("rank", 0) - 1) and not scores.weighted:
        return replace(scores, weighted=True)
    if scores.weighted:
        raise Untranslatable(f"{name} of the weights of attention is not read")
    plain = [isinstance(one, int | float) for one in others]
    if name in ("mul", "div", "truediv") and plain == [True]:
        _refuse_added(scores, name)
        return replace(scores, factor=scores.factor * (others[0] if name == "mul" else 1 / others[0]))
    if name in ("add", "iadd") and len(others) == 1:
        return _added(scores, others[0], numbers)
    if name in ("masked_fill", "masked_fill_") and plain[1:] == [True] and others[1] <= NEVER:
        hidden = numbers.constant(others[0])
        if hidden is not None:
            return replace(scores, causal=is_causal(~hidden.astype(bool), scores.sites) or scores.causal)
    raise Untranslatable(
        f"{name} of the scores of attention is not read: factors, tables, causal masks and softmax are"
    )


def _refuse_added(scores: Scores, name: str) -> None:
    if scores.relative is not None:
        raise Untranslatable(f"{name} after a table was added to the scores is not read; do it before")


def _added(scores: Scores, other: Any, numbers: Evaluated) -> Scores:
    """A causal mask, or numbers of a learned table."""
    entries = numbers.entries(other)
    if entries is not None and scores.relative is None:
        return replace(scores, relative=entries)
    mask = None if entries is not None else numbers.constant(other)
    if mask is None:
        raise Untranslatable("it adds to the scores what is no entry of one table, and no mask")
    return replace(scores, causal=is_causal(mask > NEVER, scores.sites, mask) or scores.causal)


def attended(graph: Graph, at: At, scores: Scores, values: Value) -> Value:
    """The product of weights and values: heads side by side."""
    if not scores.weighted or _heads(values, last=CHANNELS) != _heads(scores.queries, last=CHANNELS):
        raise Untranslatable(
            f"weights of attention are read where a softmax made them and values have {values.words()}"
        )
    heads, width = _heads(values, last=CHANNELS) or 1, values.size[CHANNELS]
    whole = [_whole(one) for one in (scores.queries, scores.keys, values)]
    relative, note, drawn, outcome = None, "", None, Outcome.EXACT
    if scores.relative is not None:
        relative, note, drawn, outcome = _table(graph, scores, heads)
    layer = Heads(heads, scores.queries.size[CHANNELS], width, scores.factor, scores.causal, relative)
    x = joined(graph, At("", "queries, keys, values"), whole, len(whole[0].groups) - 1)
    note = "; ".join(["heads of finite width stay random", *([note] if note else [])])
    out = graph.apply(at, x, Apply(layer, outcome, note, drawn))
    cut = (heads, width // heads) if values.cut else ()
    return replace(out, groups=values.groups, cut=cut)


def _whole(x: Value) -> Value:
    """Examples, sites, channels: nothing cut."""
    return replace(x, groups=((BATCH,), x.sites, (CHANNELS,)), cut=())


def _table(graph: Graph, scores: Scores, heads: int) -> tuple[Relative, str, Drawn, Outcome]:
    assert scores.relative is not None
    name, places, entries = scores.relative
    where = np.broadcast_to(entries, (heads, scores.sites, scores.sites)).astype(np.int32)
    if places.drawn:
        variance, outcome, note = graph.census.variance(f"{name}.weight", places.values, 1.0, NORMAL), Outcome.EXACT, ""
    else:
        variance = 1.0 if places.values is None else float(np.mean(places.values**2))
        outcome, note = Outcome.CHANGED, f"{name}: normal numbers of its mean square, {number(variance, 3)}"
    table = Dense(math.prod(places.size), w_std=math.sqrt(variance), frozen=not places.trained)
    relative = Relative(where.tobytes(), table)
    return relative, note, Drawn(places.key, NORMAL, 1), outcome


def whole_attention(graph: Graph, at: At, args: Sequence[Any], options: Mapping[str, Any], numbers: Evaluated) -> Value:
    """`scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)`."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | dict(options)
    query, key, value = (given.get(name) for name in names[:3])
    grouped = given.get("enable_gqa")
    if grouped or not (isinstance(query, Value) and isinstance(key, Value) and isinstance(value, Value)):
        raise Untranslatable("queries, keys and values must be signals, of as many heads")
    if given.get("dropout_p"):
        raise Untranslatable(DROPPED_SCORES)
    scores = product(query, replace(key, groups=(*key.groups[:-2], key.groups[-1], key.groups[-2])))
    width = scores.queries.cut[1] if scores.queries.cut else scores.queries.size[CHANNELS]
    factor = 1 / math.sqrt(width) if given.get("scale") is None else float(given["scale"])
    scores = replace(scores, factor=factor, causal=bool(given.get("is_causal")))
    mask = given.get("attn_mask")
    if mask is not None:
        seen = numbers.constant(mask)
        if seen is not None and seen.dtype == bool:
            scores = replace(scores, causal=is_causal(seen, scores.sites))
        else:
            scores = _added(scores, mask, numbers)
    return attended(graph, at, replace(scores, weighted=True), value)
