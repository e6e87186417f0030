"""Steps of attention that a PyTorch module writes out, found among its calls."""

from collections.abc import Mapping
from typing import Any

from ._graph import At, Graph
from ._layout import Untranslatable, Value
from ._reasons import STOPS
from ._torch_constants import Evaluated
from ._torch_scores import Scores, attended, product, summed, weighed, whole_attention
from ._torch_trace import STOPPED, line_of

_PRODUCTS = ("matmul", "bmm", "einsum")
_WHOLE = "scaled_dot_product_attention"
_EITHER = ("add", "mul")  # scores may be the second


class Written:
    """What nodes are on the way from queries and keys to values: scores are no signal until they have weighed some."""

    def __init__(
        self, graph: Graph, module: Any, known: Mapping[Any, Any], values: dict[Any, Value], numbers: Evaluated
    ):
        self.graph, self.module, self.known, self.values, self.numbers = graph, module, known, values, numbers
        self.scores: dict[Any, Scores] = {}

    def concerns(self, node: Any, at: At) -> bool:
        """Whether a node is such a step."""
        read = node.all_input_nodes
        multiplies = at.kind in (*_PRODUCTS, _WHOLE) and any(one in self.values for one in read)
        return multiplies or any(one in self.scores for one in read)

    def step(self, node: Any, at: At) -> None:
        """Read a node: it is scores, or a signal from then on."""
        try:
            if node.meta.get(STOPPED):
                raise Untranslatable(STOPS)
            result = self._found(node, at)
        except Untranslatable as fault:
            read = [self.values[one] for one in node.all_input_nodes if one in self.values]
            read += [self.scores[one].queries for one in node.all_input_nodes if one in self.scores]
            result = self.graph.refuse(at, read, f"{fault}{line_of(node)}", tuple(self.known[node].shape))
        if isinstance(result, Value):
            self.values[node] = result
            return
        self.scores[node] = result
        if at.kind in ("iadd", "masked_fill_"):  # whoever reads the same tensor later sees what was written
            self.scores[node.args[0]] = result

    def _found(self, node: Any, at: At) -> Scores | Value:
        if at.kind == _WHOLE:
            args = [self._looked(one) for one in node.args]
            kwargs = {name: self._looked(one) for name, one in node.kwargs.items()}
            return whole_attention(self.graph, at, args, kwargs, self.numbers)
        given = [self.scores.get(one, self.values.get(one)) for one in node.all_input_nodes]
        if at.kind in _PRODUCTS:
            one, two = (given * 2)[:2] if len(node.args) == 2 and len(given) == 1 else (*given, None, None)[:2]
            if at.kind == "einsum" and one is not None and two is not None:
                return summed(self.graph, at, node.args[0], one, two)
            if isinstance(one, Scores) and isinstance(two, Value):
                return attended(self.graph, at, one, two)
            if isinstance(one, Value) and isinstance(two, Value):
                return product(one, two)
            raise Untranslatable("it multiplies by a tensor that belongs to no layer; nn.Linear is read")
        place = next((i for i, one in enumerate(node.args) if _is_node(one) and one in self.scores), None)
        if place is None or (place and at.kind not in _EITHER):
            raise Untranslatable(f"{at.kind} of the scores of attention is not read: they must come first")
        others = [self._looked(one) for i, one in enumerate(node.args) if i != place]
        return weighed(self.scores[node.args[place]], *self._weighing(node, at, others), self.numbers)

    def _weighing(self, node: Any, at: At, others: list[Any]) -> tuple[str, dict[str, Any], list[Any]]:
        """The name of what is done to scores, its options, and what it reads beside them."""
        options: dict[str, Any] = {"rank": self.known[node].ndim}
        if node.op == "call_module":
            own = self.module.get_submodule(str(node.target))
            options |= {"dim": getattr(own, "dim", None), "noisy": own.training and getattr(own, "p", 0)}
            return {"Identity": "contiguous"}.get(at.kind, at.kind.lower()), options, others
        given = {name: self._looked(one) for name, one in node.kwargs.items()}
        rate, training = (*others, *(0.5, True)[len(others) :])[:2]
        options |= {"dim": given.get("dim", others[0] if others else None)}
        options |= {"noisy": bool(given.get("training", training)) and bool(given.get("p", rate))}
        return at.kind, options, [*others, *(given[name] for name in ("other", "mask", "value") if name in given)]

    def _looked(self, one: Any) -> Any:
        """An argument: a signal or a plain number where it is one, else the node, whose numbers may be asked for."""
        if _is_node(one) and one in self.values:
            return self.values[one]
        made = self.known.get(one) if _is_node(one) else one
        return made if made is None or isinstance(made, bool | int | float) else one


def _is_node(one: Any) -> bool:
    from torch.fx import Node  # whoever brings a module has loaded it

    return isinstance(one, Node)
