"""What became of a module, layer by layer."""

from dataclasses import dataclass

from .._trees import name
from ..activations import Elementwise
from ..layers import AbstractLayer, AvgPool, Conv, ConvTranspose, Dense, LayerNorm, RmsNorm, Scale, SiteMap, SumPool
from ..signal import Signal
from ._build import Piece, Pieces
from ._formula import layer_of
from ._graph import Apply, Node, Outcome
from ._laws import laws
from ._mix import Mix
from ._reasons import INSIDE
from ._weights import NORMAL


@dataclass(frozen=True)
class Row:
    """One layer, or call, of a module: where it stands, what it is, what became of it, how exactly, and why."""

    place: str
    module: str
    layer: str
    outcome: Outcome
    note: str


def examined(pieces: Pieces) -> list[Row]:
    """A row for everything that the module does."""
    signals = laws(pieces)
    read = {i for node in pieces.graph.nodes for i in node.inputs}
    rows = []
    for number, node in enumerate(pieces.graph.nodes):
        if node.op is None:
            continue
        fault = pieces.faults.get(number)
        if fault is not None:
            if fault:
                rows.append(_row(node, "-", Outcome.UNKNOWN, fault))
        elif number in pieces.of_node:
            piece = pieces.pieces[pieces.of_node[number]]
            before = signals[piece.inputs[0]] if piece.inputs else None
            row = _known(node, piece, before, _function(pieces, number))
            rows.append(_marked(row, pieces.sampled.get(pieces.of_node[number])))
        elif number in read and node.at.place:
            notes = [node.op.note] if isinstance(node.op, Apply) and node.op.note else []
            rows.append(_row(node, "", Outcome.EXACT, "; ".join([*notes, "one function with what follows"])))
    return [row for row in rows if row.place or row.layer != "Identity"]


def _row(node: Node, layer: str, outcome: Outcome, note: str) -> Row:
    return Row(node.at.place, node.at.what, layer, outcome, note)


def _function(pieces: Pieces, number: int) -> str:
    """The function of one number that a node is, if it is one."""
    return _words(layer_of(pieces.formulas[number][1])) if number in pieces.formulas else ""


def _known(node: Node, piece: Piece, before: Signal | None, function: str) -> Row:
    op = node.op
    if not isinstance(op, Apply):
        return _row(node, function or piece.join.capitalize() or "Identity", Outcome.EXACT, "")
    outcome, notes = op.outcome, [op.note] if op.note else []
    if op.drawn is not None and before is not None:
        if before.is_data and op.drawn.law != NORMAL:
            outcome = Outcome.CHANGED
            notes.append(
                f"{op.drawn.law.name} weights: sums of {op.drawn.fan_in} of them are taken to be normal, which they "
                f"are up to 1/{op.drawn.fan_in}"
            )
        elif op.drawn.bias and not before.is_data:
            notes.append(op.drawn.bias)
    return _row(node, _words(op.layer), outcome, "; ".join(notes))


def _marked(row: Row, why: str | None) -> Row:
    """The same, where it is sampled: for a reason of its own, or with a layer that has one."""
    if why is None:
        return row
    notes = [note for note in (why or (INSIDE if not row.note else ""), row.note) if note]
    return Row(row.place, row.module, row.layer, Outcome.SAMPLED, "; ".join(notes))


def _words(layer: AbstractLayer | None) -> str:
    """A layer, with the numbers that say what it is."""
    if isinstance(layer, Scale):
        return f"Scale({float(layer.factor):.6g})"
    if isinstance(layer, AvgPool | SumPool):
        return f"{name(layer)}({layer.pool.window})"
    if isinstance(layer, LayerNorm | RmsNorm):
        return f"{name(layer)}({'sites' if layer.sites else ''})"
    if isinstance(layer, SiteMap):
        return f"SiteMap({layer.matrix.shape})"
    if isinstance(layer, Mix):
        return f"Mix(axis {layer.axis}, {_words(layer.places)})"
    if isinstance(layer, Elementwise):
        return _short(layer.name.removesuffix("()"))
    if not isinstance(layer, Dense | Conv | ConvTranspose):
        return _short(repr(layer).removesuffix("()"))
    affine = layer.affine
    bias = "" if affine.b_std is None else f", b_std={float(affine.b_std):.4g}"
    frozen = ", frozen" if affine.frozen else ""
    shape = "" if isinstance(layer, Dense) else f"{layer.window}, "
    return f"{name(layer)}({shape}{layer.width}, w_std={float(affine.w_std):.4g}{bias}{frozen})"


def _short(text: str, most: int = 60) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 3]}..."
