"""What became of a module, layer by layer: laws are followed through the graph, and faults get their place."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .._trees import name
from ..activations import Elementwise
from ..layers import AbstractLayer, AvgPool, Conv, ConvTranspose, Dense, LayerNorm, RmsNorm, Scale, SiteMap, SumPool
from ..signal import ArchitectureError, Signal
from ._build import Piece, Pieces
from ._formula import layer_of
from ._graph import Apply, Node, Outcome, Pointwise
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
    signals = _laws(pieces)
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
            rows.append(_known(node, piece, before, _function(pieces, number)))
        elif number in read and node.at.place:
            rows.append(_row(node, "", Outcome.EXACT, "one function with what follows"))
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


def _laws(pieces: Pieces) -> list[Signal]:
    """The signal after every piece; a fault is written down, and what follows is read as if it had not been there."""
    signals: list[Signal] = []
    seen: dict[object, str] = {}
    for number, piece in enumerate(pieces.pieces):
        node = pieces.graph.nodes[piece.source]
        after = Signal(node.shape, gaussian=True, sources=frozenset({(number,)}))
        if node.op is None:
            after = Signal(node.shape)
        elif piece.source not in pieces.faults:
            before = [replace(signals[i], path=(number,)) for i in piece.inputs]
            try:
                _refuse_tied(node, seen)
                after = _after(pieces, piece, before)
            except ArchitectureError as fault:
                pieces.faults[piece.source] = str(fault).rstrip(".")
        signals.append(after)
    return signals


def _refuse_tied(node: Node, seen: dict[object, str]) -> None:
    drawn = node.op.drawn if isinstance(node.op, Apply) else None
    if drawn is None:
        return
    if drawn.key in seen:
        raise ArchitectureError(
            f"it has the weights of {seen[drawn.key]}: weights that are used twice have a limit of their own, which is "
            "not computed here. Give each place weights of its own"
        )
    seen[drawn.key] = node.at.place


def _after(pieces: Pieces, piece: Piece, before: Sequence[Signal]) -> Signal:
    if piece.layer is not None:
        if before[0].is_data and not piece.layer.weights() and _bends(pieces, piece):
            raise ArchitectureError(
                "it is a function of the raw input, before any weights: do it to the data, and leave it out here"
            )
        return piece.layer.describe(before[0])
    first = before[0]
    sources = frozenset[tuple[int, ...]]().union(*(one.sources for one in before))
    shape = pieces.graph.nodes[piece.source].shape
    if piece.join != "concat" or piece.axis is not None:
        _refuse_shared(pieces, piece, before)
    gaussian = piece.join != "product" and not (piece.join == "concat" and piece.axis is None)
    return replace(first, shape=shape, gaussian=gaussian and all(one.gaussian for one in before), sources=sources)


def _bends(pieces: Pieces, piece: Piece) -> bool:
    return isinstance(pieces.graph.nodes[piece.source].op, Pointwise) and name(piece.layer) not in ("Scale", "Identity")


def _refuse_shared(pieces: Pieces, piece: Piece, before: Sequence[Signal]) -> None:
    """Two branches that show the same draws are not independent."""
    for i, a in enumerate(before):
        for b in before[:i]:
            common = a.sources & b.sources
            if common:
                number = min(common)[0]
                where = "the raw input" if number < 0 else pieces.graph.nodes[pieces.pieces[number].source].at.place
                raise ArchitectureError(
                    f"its branches share randomness: {where} is visible in single channels of both, so the law of "
                    "their combination is not known. End one of the branches with a layer that has weights"
                )
