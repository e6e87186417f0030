"""Laws of signals, followed from piece to piece: what is exact, what is sampled, and where the faults are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .._trees import name
from ..layers import Sampled
from ..signal import ArchitectureError, Signal
from ._build import Piece, Pieces
from ._graph import Apply, Node, Pointwise
from ._mix import Mix
from ._parts import shared_draws
from ._paths import Tree, between, from_the_input, to_the_output
from ._reasons import NOT_GAUSSIAN, RAW


def laws(pieces: Pieces) -> list[Signal]:
    """The signal after every piece; a fault is written down, and what follows is read as if it had not been there."""
    walk, seen = _Walk.over(pieces), dict[object, str]()
    for number, piece in enumerate(pieces.pieces):
        node = pieces.graph.nodes[piece.source]
        after = Signal(node.shape, gaussian=True, sources=frozenset({(number,)}))
        if node.op is None:
            after = Signal(node.shape)
        elif piece.source not in pieces.faults:
            try:
                _refuse_tied(node, seen)
                after = walk.after(number)
            except ArchitectureError as fault:
                pieces.faults[piece.source] = str(fault).rstrip(".")
        walk.signals.append(after)
    return walk.signals


@dataclass
class _Walk:
    """Signals so far, and the paths between the pieces."""

    pieces: Pieces
    inputs: list[tuple[int, ...]]
    above: Tree
    below: Tree
    signals: list[Signal]

    @classmethod
    def over(cls, pieces: Pieces) -> "_Walk":
        inputs = [piece.inputs for piece in pieces.pieces]
        below = to_the_output(inputs, pieces.of_node[pieces.graph.output])
        return cls(pieces, inputs, from_the_input(inputs), below, [])

    def after(self, number: int) -> Signal:
        """What a piece makes; one whose law is not known becomes part of a layer that is sampled."""
        piece = self.pieces.pieces[number]
        before = [replace(self.signals[i], path=(number,)) for i in piece.inputs]
        if number not in self.pieces.sampled:
            try:
                return _after(self.pieces, piece, before)
            except ArchitectureError as fault:
                self._sample(number, fault)
        concrete = [replace(one, concrete=True, readouts=frozenset[tuple[int, ...]]()) for one in before]
        out = _after(self.pieces, piece, concrete)
        if number not in self.pieces.spans:
            return out
        return replace(out, concrete=False, readouts=None, sampled=True)

    def _sample(self, number: int, fault: ArchitectureError) -> None:
        """Everything from the last Gaussian signal that all paths pass to where they meet again is sampled."""
        start = next((one for one in self._over(number) if self._may_begin(one, number)), None)
        if start is None:
            layer = self.pieces.pieces[number].layer
            is_raw = all(self.signals[one].is_data for one in self.inputs[number]) and not isinstance(layer, Mix)
            raise ArchitectureError(RAW) if is_raw else fault
        end, members = self._part(start, number)
        op = self.pieces.graph.nodes[self.pieces.pieces[number].source].op
        self.pieces.spans[end] = start
        self.pieces.sampled.update(dict.fromkeys(members - {*self.pieces.sampled}, ""))
        self.pieces.sampled[number] = "" if isinstance(op, Apply) and op.note else NOT_GAUSSIAN

    def _over(self, number: int) -> list[int]:
        return self.above.upwards(number) if number in self.below.depth else []

    def _part(self, start: int, number: int) -> tuple[int, set[int]]:
        """The end of the part that begins behind `start` and holds a piece, and all that is in it."""
        end = self.below.meeting(number, start)
        return end, between(self.inputs, start, end)

    def _may_begin(self, start: int, number: int) -> bool:
        """Whether a signal can be drawn there: it is Gaussian, or all that is read of it are its second moments."""
        if self.signals[start].gaussian:
            return True
        readers = [self.pieces.pieces[one] for one in self._part(start, number)[1] if start in self.inputs[one]]
        return all(piece.layer is not None and Sampled(piece.layer).reads_moments for piece in readers)


def _refuse_tied(node: Node, seen: dict[object, str]) -> None:
    drawn = node.op.drawn if isinstance(node.op, Apply) else None
    if drawn is None:
        return
    for key in (drawn.key, *drawn.also):
        if key in seen:
            what = "weights" if key == drawn.key else "biases, or other weights,"
            raise ArchitectureError(
                f"it has the {what} of {seen[key]}: weights and biases that are used twice have a limit of their own, "
                "which is not computed here. Give each place weights and biases of its own"
            )
        seen[key] = node.at.place


def _after(pieces: Pieces, piece: Piece, before: Sequence[Signal]) -> Signal:
    if piece.layer is not None:
        if before[0].is_data and not piece.layer.weights() and _bends(pieces, piece):
            raise ArchitectureError(RAW)
        return piece.layer.describe(before[0])
    first = before[0]
    sources = frozenset[tuple[int, ...]]().union(*(one.sources for one in before))
    shape = pieces.graph.nodes[piece.source].shape
    if not first.concrete and (piece.join != "concat" or piece.axis is not None):
        _refuse_shared(pieces, piece, before)
    gaussian = piece.join != "product" and not (piece.join == "concat" and piece.axis is None)
    law = all(one.one_law for one in before) and not (piece.join == "concat" and piece.axis is None)
    gaussian, centred = gaussian and all(one.gaussian for one in before), all(one.centred for one in before)
    return replace(first, shape=shape, gaussian=gaussian, one_law=law, centred=centred, sources=sources)


def _bends(pieces: Pieces, piece: Piece) -> bool:
    return isinstance(pieces.graph.nodes[piece.source].op, Pointwise) and name(piece.layer) not in ("Scale", "Identity")


def _refuse_shared(pieces: Pieces, piece: Piece, before: Sequence[Signal]) -> None:
    """Two branches that show the same draws are not independent; of others only means over all channels are tracked."""
    for i, a in enumerate(before):
        for b in before[:i]:
            common = shared_draws(a, b)
            if common:
                number = min(common)[0]
                where = "the raw input" if number < 0 else pieces.graph.nodes[pieces.pieces[number].source].at.place
                raise ArchitectureError(
                    f"its branches share randomness: {where} is visible in single channels of both, so the law of "
                    "their combination is not known. End one of the branches with a layer that has weights"
                )
            if a.unlike(b, product=piece.join == "product"):
                raise ArchitectureError(
                    "channels of two of its branches have laws of their own (concatenated, flattened, fixed numbers): "
                    "it matters which one meets which. End one of them with a layer that has weights"
                )
