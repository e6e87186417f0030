"""What the state of an optimizer says: which rule it follows, in which direction it goes, and how far."""

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from .._checks import InputError
from ..theory.stability import edge

_MOMENTUM, _B1, _B2, _KEPT, _EPS = 0.9, 0.9, 0.999, 0.9, 1e-8  # where a state does not say: what people take


class Optimizer(NamedTuple):
    """A rule of descent, as far as it is known.

    - `kind`: `gd`, `momentum`, `adam` (with `b1=0`: RMSProp), `part` (Adam that has moments of some parameters), or
      `unknown`: other parameters move, too, or whose moments these are is not clear.
    - `rate`: `None` where the state does not hold it. `decay`: of weights.
    - `first`, `second`: momentum or first moment, and second moment, leaves like those of the parameters.
    - `seen`: steps that the moments have seen.
    """

    kind: str
    rate: float | None = None
    b1: float = 0.0
    b2: float = 0.0
    eps: float = 0.0
    decay: float | None = None
    first: list[Any] | None = None
    second: list[Any] | None = None
    seen: int | None = None
    held: Sequence[bool] = ()  # leaves that have no second moment, where others do

    def settled(self, moved: Float[np.ndarray, " leaves"]) -> "Optimizer":
        """Adam, where a step moved none but its own parameters."""
        if self.kind != "part":
            return self
        return self._replace(kind="unknown" if np.any(moved[np.asarray(self.held)] > 0) else "adam")

    def edge(self, rate: float) -> float:
        """The curvature above which a step of this rate overshoots and grows: of the loss, or preconditioned."""
        return edge(rate, b1=self.b1) if self.kind == "adam" else edge(rate, momentum=self.b1)

    def bias(self) -> tuple[float, float]:
        """By what the moments of Adam are divided, which begin at 0."""
        count = 0 if self.kind not in ("adam", "part") or self.seen is None else self.seen
        return (1 - self.b1**count, 1 - self.b2**count) if count else (1.0, 1.0)


def read_state(state: Any, shapes: list[tuple[int, ...]], params: Any = None) -> Optimizer:
    """From the state of an optax optimizer: the first moments in it whose leaves are shaped like the parameters."""
    told = hyperparameters(state)
    rate, decay = told.get("learning_rate"), told.get("weight_decay")
    for node in _nodes(state):
        tree, corrected = second_moment(node) if hasattr(node, "nu") else (None, False)
        first, second = _leaves(None if _is_centred(node) else getattr(node, "mu", None), shapes), _leaves(tree, shapes)
        if second is not None:
            b1 = told.get("b1", _B1) if first is not None else 0.0
            b2, eps = told.get("b2", told.get("decay", usual_decay(node))), told.get("eps", _EPS)
            steps = int(np.asarray(node.count)) if _counts(node) else None
            second = [(1 - b2**steps) * moment for moment in second] if corrected and steps else second
            return Optimizer("adam", rate, b1, b2, eps, decay, first, second, steps)
        trace = _leaves(getattr(node, "trace", None), shapes)
        if trace is not None:
            return Optimizer("momentum", rate, told.get("momentum", told.get("decay", _MOMENTUM)), 0, 0, decay, trace)
    parts = [node for node in _nodes(state) if _has_holes(getattr(node, "nu", None))]
    if not parts:
        return Optimizer("gd", rate, decay=decay)
    whole = _whole(parts)
    whole, held = (whole, []) if whole is None or params is None else _filled(whole, params)
    if whole is None or _leaves(whole.nu, shapes) is None:
        return Optimizer("unknown", rate, decay=decay)
    read = read_state([SimpleNamespace(hyperparams=told), whole], shapes)
    return read._replace(kind="part", held=held) if any(held) else read


def _filled(node: Any, params: Any) -> tuple[Any, list[bool]]:
    """A state with moments of 0 in its holes, and which parameters lie in these."""

    def put(tree: Any, fill: Callable[[Any], Any]) -> Any:
        return jax.tree.map(lambda m, p: jax.tree.map(fill, p) if _is_hole(m) else m, tree, params, is_leaf=_is_hole)

    try:
        names = [name for name in ("mu", "nu") if getattr(node, name, None) is not None]
        full = {name: put(getattr(node, name), lambda p: np.zeros(p.shape, p.dtype)) for name in names}
        return node._replace(**full), [leaf is True for leaf in jax.tree.leaves(put(node.nu, lambda _: True))]
    except (ValueError, TypeError):  # trees of another form
        return node, []


def _counts(node: Any) -> bool:
    """Whether a state counts its steps; `count` of a tuple without that field is a method."""
    return getattr(node, "count", None) is not None and not callable(node.count)


def _whole(parts: list[Any]) -> Any:
    """One state of several that are masked, each for parameters of its own; `None` where they are no parts of one."""
    names = [name for name in getattr(parts[0], "_fields", ()) if name != "count"]
    if not names or len({(type(node), str(node.count) if _counts(node) else None) for node in parts}) > 1:
        return None
    try:
        fields = {name: _joined([getattr(node, name) for node in parts]) for name in names}
    except ValueError:
        return None
    return parts[0]._replace(**fields)


def _has_holes(tree: Any) -> bool:
    return any(map(_is_hole, jax.tree.leaves(tree, is_leaf=_is_hole)))


def _is_hole(node: Any) -> bool:
    """What optax puts in the place of parameters that another rule moves."""
    return type(node).__name__ == "MaskedNode"


def _joined(trees: Sequence[Any]) -> Any:
    """One tree of several with holes, where no two have a leaf at the same place."""
    here = [tree for tree in trees if not _is_hole(tree)]
    if len(here) < 2:
        return (here or trees)[0]
    levels = [jax.tree.flatten(tree, is_leaf=lambda node, tree=tree: node is not tree) for tree in here]
    if any(len(inner) == 1 and inner[0] is tree for (inner, _), tree in zip(levels, here, strict=True)):
        raise ValueError("Two trees have a leaf at the same place.")
    structure = levels[0][1]
    return jax.tree.unflatten(structure, [_joined(some) for some in zip(*(inner for inner, _ in levels), strict=True)])


def usual_decay(node: Any) -> float:
    """Of a second moment, where the state does not say: RMSProp has no first one."""
    return _B2 if hasattr(node, "mu") and not _is_centred(node) else _KEPT


def second_moment(node: Any) -> tuple[Any, bool]:
    """What steps are divided by, of an optax state that has `nu`; and whether it is corrected for beginning at 0."""
    if _is_centred(node):
        return jax.tree.map(lambda square, mean: square - mean**2, node.nu, node.mu), False
    return (node.nu_max, True) if hasattr(node, "nu_max") else (node.nu, False)  # AMSGrad: the largest


def _is_centred(node: Any) -> bool:
    """RMSProp that divides by standard deviations: its `mu` is no direction."""
    return type(node).__name__ == "ScaleByRStdDevState"


def torch_second_moment(state: dict[str, Any]) -> Any:
    """The same of one parameter in PyTorch, never corrected; `None` if there is none."""
    square = next((state[name] for name in ("max_exp_avg_sq", "exp_avg_sq", "square_avg") if name in state), None)
    return square if square is None or "grad_avg" not in state else square - state["grad_avg"] ** 2


def read_torch(optimizer: Any, parameters: list[Any]) -> Optimizer:
    """From a PyTorch optimizer: the group of the first parameter that it knows speaks for all."""
    known = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    group = next((known[id(p)] for p in parameters if id(p) in known), None)
    if group is None:
        raise InputError("The optimizer holds none of the parameters of the module: expected the one that trains it.")
    rate, decay = float(group["lr"]), float(group.get("weight_decay", 0.0))
    states = [optimizer.state.get(p, {}) for p in parameters]
    if "betas" in group or "alpha" in group:
        b1, b2 = group.get("betas", (0.0, group.get("alpha", 0.0)))
        second = _for_all([torch_second_moment(state) for state in states], parameters)
        count = max((int(s["step"]) for s in states if "step" in s), default=0)
        if second is not None:
            first = _for_all([state.get("exp_avg") for state in states], parameters)
            corrected = count if "betas" in group else None
            return Optimizer("adam", rate, b1, b2, group["eps"], decay, first, second, corrected)
    momentum = float(group.get("momentum") or 0.0)
    trace = _for_all([state.get("momentum_buffer") for state in states], parameters)
    return Optimizer("momentum" if momentum else "gd", rate, momentum, 0, 0, decay, trace)


def _for_all(held: list[Any], parameters: list[Any]) -> list[Any] | None:
    if all(moment is None for moment in held):
        return None
    return [p.detach() * 0 if m is None else m for m, p in zip(held, parameters, strict=True)]


def _nodes(state: Any) -> Iterator[Any]:
    """All named tuples and objects of a state, the outer ones first."""
    if isinstance(state, dict):
        children = list(state.values())
    elif isinstance(state, list | tuple):
        children = list(state)
        yield state
    else:
        yield state
        children = [getattr(state, name) for name in ("opt_state", "value") if hasattr(state, name)]
    for child in children:
        if isinstance(child, dict | list | tuple) or hasattr(child, "opt_state"):
            yield from _nodes(child)


def hyperparameters(state: Any) -> dict[str, float]:
    """What `optax.inject_hyperparams` keeps, but for what differs between parts of the parameters."""
    told: dict[str, set[float]] = {}
    for node in _nodes(state):
        kept = getattr(node, "hyperparams", None)
        for name, value in kept.items() if isinstance(kept, dict) else ():
            if np.ndim(np.asarray(value)) == 0:
                told.setdefault(name, set()).add(float(np.asarray(value)))
    return {name: values.pop() for name, values in told.items() if len(values) == 1}


def _leaves(tree: Any, shapes: list[tuple[int, ...]]) -> list[Any] | None:
    """The leaves of a moment, if there is one for each parameter."""
    if tree is None:
        return None
    leaves = jax.tree.leaves(tree)
    return leaves if [np.shape(leaf) for leaf in leaves] == shapes else None
