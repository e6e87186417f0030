"""From a graph to our combinators: branches begin where all paths meet, and end where they are joined."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..layers import (
    AbstractLayer,
    AvgPool,
    Concat,
    Flatten,
    GlobalAvgPool,
    Identity,
    Product,
    Sampled,
    Scale,
    Serial,
    Sum,
)
from ..signal import ArchitectureError, Signal
from ._formula import Formula, layer_of
from ._graph import Apply, Beside, Graph, Node, Pointwise, Refused
from ._mix import Mix
from ._paths import from_the_input

_WIDTH = 256  # channels that are drawn for a layer that is sampled, where it takes any number
_MOST_LAYERS = 20_000  # in the network: a branch that two others read is written twice


@dataclass(frozen=True)
class Piece:
    """A layer of one value, or a join ("sum", "product", "concat") of several; `source`: the node that it is."""

    source: int
    inputs: tuple[int, ...]
    layer: AbstractLayer | None = None
    join: str = ""
    axis: int | None = None
    signs: tuple[int, ...] = ()


@dataclass
class Pieces:
    """The graph with functions of single numbers put together: pieces by number, and which of them a node is."""

    graph: Graph
    pieces: list[Piece] = field(default_factory=list)
    of_node: dict[int, int] = field(default_factory=dict)
    formulas: dict[int, tuple[int, Formula]] = field(default_factory=dict)  # node: its root (a piece), its function
    faults: dict[int, str] = field(default_factory=dict)
    spans: dict[int, int] = field(default_factory=dict)  # what is sampled: its last piece, and the one before its first
    sampled: dict[int, str] = field(default_factory=dict)  # the pieces inside, and why, if it is because of them

    joins: dict[tuple[int | None, tuple[int, ...]], int] = field(default_factory=dict)  # by axis, and all parts
    done: dict[tuple[int, Formula], int] = field(default_factory=dict)  # functions of pieces that are there already

    def add(self, piece: Piece) -> int:
        """A new piece."""
        self.pieces.append(piece)
        return len(self.pieces) - 1

    def put(self, node: int, piece: Piece) -> None:
        """A new piece, which is the value of a node."""
        self.of_node[node] = self.add(piece)

    def piece(self, node: int) -> int:
        """The piece that makes the value of a node; a function of numbers becomes a layer when it is read."""
        if node in self.of_node:
            return self.of_node[node]
        root, formula = self.formulas[node]
        self.of_node[node] = self._of_formula(node, root, formula)
        return self.of_node[node]

    def _of_formula(self, node: int, root: int, formula: Formula) -> int:
        layer, below = layer_of(formula), self.pieces[root]
        if isinstance(layer, Identity):
            return root
        if (root, formula) not in self.done:
            made = Piece(node, (root,), layer)
            if below.join == "concat" and not isinstance(layer, Scale):  # single numbers: of each part by itself
                parts = tuple(self._of_formula(node, part, formula) for part in below.inputs)
                made = replace(below, source=node, inputs=parts)
            self.done[root, formula] = self.add(made)
        return self.done[root, formula]


def pieces_of(graph: Graph) -> Pieces:
    """All nodes as pieces."""
    out = Pieces(graph)
    for number, node in enumerate(graph.nodes):
        if isinstance(node.op, Pointwise):
            _pointwise(out, number, node, node.op)
            continue
        inputs = tuple(out.piece(i) for i in node.inputs)
        if isinstance(node.op, Beside):
            shared = _shared(out, inputs, node.op.axis)
            if len(shared) == 1:
                out.of_node[number] = shared[0]
                continue
            out.put(number, Piece(number, shared, join="concat", axis=node.op.axis))
            out.joins[node.op.axis, inputs] = out.of_node[number]
        elif isinstance(node.op, Apply):
            layer = node.op.layer
            if isinstance(layer, Scale) and out.pieces[inputs[0]].join == "concat":  # one function with what follows
                out.formulas[number] = inputs[0], Formula.joined("mul", (None, float(layer.factor)), [Formula()])
                continue
            out.put(number, Piece(number, inputs, layer))
        elif isinstance(node.op, Refused):
            out.faults[number] = node.op.reason
            out.put(number, Piece(number, inputs[:1]))
        else:
            out.put(number, Piece(number, ()))
    return out


def _pointwise(out: Pieces, number: int, node: Node, op: Pointwise) -> None:
    """Functions of one value are put together; of several, only sums and products have a limit."""
    read = [out.formulas.get(i, (None, Formula())) for i in node.inputs]
    roots = [out.of_node[i] if root is None else root for i, (root, _) in zip(node.inputs, read, strict=True)]
    if len(set(roots)) == 1:
        formula = Formula.joined(op.name, op.operands, [one for _, one in read])
        out.formulas[number] = roots[0], formula
        return
    inputs = tuple(out.piece(i) for i in node.inputs)
    if op.name in ("add", "sub"):
        signs = (1, 1) if op.name == "add" else (1, -1)
        out.put(number, Piece(number, inputs, join="sum", signs=signs))
    elif op.name == "mul":
        out.put(number, Piece(number, inputs, join="product"))
    else:
        out.faults[number] = f"{op.name} of two different signals has no known limit; sums and products do"
        out.put(number, Piece(number, inputs[:1]))


def _shared(out: Pieces, inputs: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    """Where an earlier join is the beginning of this one, it is read: dense blocks grow by one branch at a time."""
    for size in range(len(inputs) - 1, 1, -1):
        earlier = out.joins.get((axis, inputs[:size]))
        if earlier is not None:
            return (earlier, *inputs[size:])
    return inputs


@dataclass
class Builder:
    """Serial chains between pieces that all paths pass."""

    pieces: Sequence[Piece]
    shapes: Sequence[tuple[int, ...]]
    spans: Mapping[int, int]
    above: Mapping[int, int]  # of every piece, the last one that all paths to it pass
    layers: int = 0

    def chain(self, start: int, end: int) -> list[AbstractLayer]:
        """The layers from one piece to another, which all paths to the end pass."""
        layers: list[AbstractLayer] = []
        while end != start:
            piece, meeting = self.pieces[end], self.above[end]
            if end in self.spans:
                meeting = self.spans[end]
                layers.append(self._sampled(meeting, end))
            elif self._is_global_mean(piece):
                layers.append(GlobalAvgPool())
                meeting = self.above[meeting]
            else:
                layers.append(self._joined(piece, meeting) if piece.join else _known(piece))
            self.layers += 1
            if self.layers > _MOST_LAYERS:
                raise ArchitectureError(
                    f"The module has branches that read each other: written as sums and concatenations of branches it "
                    f"has more than {_MOST_LAYERS} layers. Concatenate what is there already with what is new, as "
                    "torch.cat([x, new], 1) does."
                )
            end = meeting
        return [layer for layer in layers[::-1] if not isinstance(layer, Identity)]

    def _is_global_mean(self, piece: Piece) -> bool:
        """Whether it flattens what a window over everything has left."""
        below = self.pieces[piece.inputs[0]]
        if not (isinstance(piece.layer, Flatten) and isinstance(below.layer, AvgPool)):
            return False
        pool, before = below.layer.pool, self.shapes[below.inputs[0]][:-1]
        return pool.window == before and pool.padding == "VALID"

    def _sampled(self, start: int, end: int) -> Sampled:
        """What lies between two pieces, sampled as one layer."""
        inside = Builder(self.pieces, self.shapes, {}, self.above, self.layers)
        layer, self.layers = _serial(inside.chain(start, end)), inside.layers
        *sites, channels = self.shapes[start]
        return Sampled(layer, width=_WIDTH if _takes(layer, (*sites, _WIDTH)) else channels)

    def _joined(self, piece: Piece, meeting: int) -> AbstractLayer:
        branches = [_serial(self.chain(meeting, end)) for end in piece.inputs]
        if piece.join == "sum":
            signed = zip(branches, piece.signs, strict=True)
            return Sum(*(b if sign > 0 else _serial([b, Scale(-1.0)]) for b, sign in signed))
        return Product(*branches) if piece.join == "product" else Concat(*branches, axis=piece.axis)


def _known(piece: Piece) -> AbstractLayer:
    assert piece.layer is not None  # faults were looked at
    return piece.layer


def _takes(layer: AbstractLayer, shape: tuple[int, ...]) -> bool:
    """Whether what is sampled may read other channels than it has.

    Branches with weights beside it may not, where not all of them begin with weights that read every channel.
    """
    weighted = _contains(layer, lambda one: bool(one.weights()) and not isinstance(one, Mix))
    branches = _contains(layer, lambda one: one.parts().join not in ("", "chain"))
    if weighted and branches and not Sampled(layer).reads_moments:
        return False
    try:
        layer.describe(Signal(shape, concrete=True, readouts=frozenset()))
    except ArchitectureError:
        return False
    return True


def _contains(layer: AbstractLayer, test: Callable[[AbstractLayer], bool]) -> bool:
    return test(layer) or any(_contains(one, test) for one in layer.parts().layers)


def _serial(layers: Sequence[AbstractLayer]) -> AbstractLayer:
    flat = [one for layer in layers for one in (layer.layers if isinstance(layer, Serial) else (layer,))]
    return Identity() if not flat else flat[0] if len(flat) == 1 else Serial(*flat)


def built(pieces: Pieces, output: int) -> Serial:
    """The network up to a node."""
    end = pieces.piece(output)
    shapes = [pieces.graph.nodes[piece.source].shape for piece in pieces.pieces]
    above = from_the_input([piece.inputs for piece in pieces.pieces]).over
    return Serial(*Builder(pieces.pieces, shapes, pieces.spans, above).chain(0, end))
