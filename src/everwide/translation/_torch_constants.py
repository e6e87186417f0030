"""Numbers that a PyTorch module computes without its input: masks, and which entries of a table stand where."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._places import Places
from ._torch_tokens import places_of
from ._torch_trace import DRAWN

Found = tuple[str, Places, np.ndarray]


class Evaluated:
    """Runs what does not depend on the input, with the numbers of the module; `known`: what each node is on shapes."""

    def __init__(self, module: Any, shapes: Any, known: Mapping[Any, Any], values: Mapping[Any, Any]):
        self.module, self.shapes, self.known, self.values = module, shapes, known, values

    def constant(self, node: Any) -> np.ndarray | None:
        """The numbers of a node, or a number; `None` where they depend on the input."""
        made = self._run(node, {}, {})
        return None if made is None or getattr(made, "is_meta", False) else np.asarray(made)

    def entries(self, node: Any) -> Found | None:
        """The table whose numbers a node holds, and which of them: `None` where it does not hold those of one table."""
        tables = self._tables(node, {})
        if len(tables) != 1:
            return None
        ((name, table),) = tables.items()
        import torch

        count = torch.arange(table.numel(), dtype=torch.float64)
        one, two = (self._run(node, {name: a.reshape(table.shape)}, {}) for a in (count, count.flip(0)))
        if one is None or two is None or not torch.equal(two, table.numel() - 1 - one):
            return None  # numbers that are more than taken from the table
        where = one.numpy()
        if where.ndim == 4:
            where = where[0] if (where == where[:1]).all() else where
        drawn = isinstance(dict(self.module.named_modules()).get(name), torch.nn.Embedding)
        return name, places_of(name, table, tuple(where.shape), drawn=drawn), where

    def fixed(self, node: Any) -> Places | None:
        """Numbers that are neither drawn nor trained; `None` where they depend on the input, or on what is trained."""
        import torch

        made = self.known.get(node)
        if not isinstance(made, torch.Tensor) or not torch.is_floating_point(made):
            return None
        if any(table.requires_grad for table in self._tables(node, {}).values()):
            return None
        with torch.random.fork_rng(devices=[]):  # what is drawn in every call is not fixed
            one, two = (self._run(node, {}, {}) for _ in range(2))
        if one is None or one.is_meta or not torch.equal(one, two):
            return None
        values, name = one.detach().double().cpu().numpy(), self._source(node)
        return Places(name, values, ("fixed", name), values.shape, trained=False, shape=values.shape, fixed=True)

    def _source(self, node: Any) -> str:
        """The name of the first tensor of the module from which a node is computed, or else its own."""
        if node.op in ("get_attr", "call_module"):
            return str(node.target)
        return self._source(node.all_input_nodes[0]) if node.all_input_nodes else str(node.name)

    def _tables(self, node: Any, seen: dict[Any, None]) -> dict[str, Any]:
        """All parameters from which a node is computed, by the name of the layer or of the parameter."""
        import torch

        if not isinstance(self.known.get(node), torch.Tensor) or node in seen or node in self.values:
            return {}  # sizes, or what depends on the input
        seen[node] = None
        tables = {}
        if node.op == "call_module":
            own = self.module.get_submodule(str(node.target))
            is_table = isinstance(own, torch.nn.Embedding)
            named = (
                (str(node.target) if is_table else f"{node.target}.{name}", one) for name, one in own.named_parameters()
            )
            tables |= dict(named)
        elif node.op == "get_attr" and str(node.target) in dict(self.module.named_parameters()):
            tables[str(node.target)] = dict(self.module.named_parameters())[str(node.target)]
        for one in node.all_input_nodes:
            tables |= self._tables(one, seen)
        return tables

    def _run(self, node: Any, instead: Mapping[str, Any], done: dict[Any, Any]) -> Any:
        """What a node is, each computed once (`done`); `None` where that depends on the input."""
        if node not in done:
            done[node] = self._computed(node, instead, done)
        return done[node]

    def _computed(self, node: Any, instead: Mapping[str, Any], done: dict[Any, Any]) -> Any:
        import torch
        from torch.fx.node import map_arg

        if not isinstance(node, torch.fx.Node):
            return node
        made = self.known.get(node)
        if isinstance(made, torch.device):
            return torch.device("cpu")
        if not isinstance(made, torch.Tensor):
            return made  # about shapes
        if node in self.values or node.op == "placeholder" or node.meta.get(DRAWN):
            return None
        args, kwargs = (map_arg(one, lambda n: self._run(n, instead, done)) for one in (node.args, node.kwargs))
        if any(done[one] is None for one in node.all_input_nodes):
            return None
        try:
            with torch.no_grad():
                return self._called(node, args, kwargs, instead)
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError):
            return None  # not to be had without the input

    def _called(self, node: Any, args: Any, kwargs: Any, instead: Mapping[str, Any]) -> Any:
        import torch

        name = str(node.target)
        if node.op == "get_attr":
            own = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
            return instead.get(name, own.get(name, getattr(self.shapes, name, None)))
        if node.op == "call_module":
            own = self.module.get_submodule(name)
            return torch.nn.functional.embedding(args[0], instead[name]) if name in instead else own(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], name)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)
