"""The tangents of PyTorch modules: exact for every module, fast where layers are known.

Hooks record what came into the known layers, one backward pass gives the cotangents of what came out, and both together
are the factors of their parameters. Which layer a parameter belongs to is a guess until it is checked: for every batch,
the gradient of a random combination of all outputs, which autograd computes without looking at layers, must equal the
same combination of the factors, parameter by parameter. A parameter that fails (it is used elsewhere too, or in another
way) or that no known layer owns gets its plain Jacobian, from `torch.func` or, example by example, from autograd.
"""

import contextlib
import math
import types
import warnings
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import InputError
from .._factors import AbstractTangents, Factor, Lookup, Outer, Part, Plain
from .._models import TorchModel
from .._refusals import refuse_mixing
from ._composites import alike, rebuilt
from ._layers import LINEAR, Call, Form, Leaf, Placement, Role, known_layer, merged, placed, plain

Tensor = Any  # torch.Tensor; PyTorch is not imported before somebody brings a module


class PlanError(RuntimeError):
    """The calls of layers depend on the data, so that the parts of some examples do not fit to those of others."""


class TorchTangents(AbstractTangents):
    """The tangents of a PyTorch module at its parameters. Make it with `torch_tangents`."""

    module: Any = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    layout: tuple[tuple[str, Placement], ...] = eqx.field(static=True)  # the calls of known layers, in their order
    forms: tuple[Form, ...] = eqx.field(static=True)  # of the parameters, in the order of their names
    unknown: frozenset[str] = eqx.field(static=True)  # parameters that no known layer explains
    names: tuple[str, ...] = eqx.field(static=True)
    floats: tuple[int, int] = eqx.field(static=True)  # of one example: whatever `k` is, and for each cotangent

    def factors(self, x: Any, cotangents: Float[Array, "k *n outputs"]) -> tuple[Part, ...]:
        """The Jacobians of `cotangents @ module(x)`, a part for each parameter; `(k, n, outputs)`: of each example."""
        shared: dict[tuple[int, ...], Array] = {}
        with _differentiable():
            xs, cot = as_tensors(self.module, x), _weights(self.module, cotangents)
            leaves = self.leaves(xs, cot if cot.ndim == 3 else cot[:, None].expand(-1, _count(xs), -1))
            changed = [n for n, form in zip(self.names, self.forms, strict=True) if leaves[n].form != form]
            if changed:
                raise PlanError(
                    f"{type(self.module).__name__} treats some examples in another way than the first ones: its calls "
                    f"of layers depend on the data, for {', '.join(changed)}. Use torch_tangents(..., plain_only=True)."
                )
            return tuple(Part((name,), _factor(leaf, shared)) for name, leaf in leaves.items())

    def gradients(self, x: Any, weights: Float[Array, "n outputs"]) -> dict[str, Array]:
        """The gradients of `weights[i] @ module(x)[i]`, one for each example."""
        with _differentiable():
            leaves = self.leaves(as_tensors(self.module, x), _weights(self.module, weights)[None])
            return {name: _to_jax(leaf.dense()[:, 0]) for name, leaf in leaves.items()}

    def predict(self, x: Any) -> Float[Array, "n outputs"]:
        """The outputs of the module."""
        import torch

        with torch.no_grad():
            return _to_jax(outputs_of(self.module, as_tensors(self.module, x)))

    def example_bytes(self, k: int) -> int:
        """Bytes for each example: records, cotangents and their copies in JAX."""
        fixed, each = self.floats
        return 2 * (fixed + k * each) * max(p.element_size() for p in trained(self.module).values())

    def leaves(self, xs: Any, cot: Tensor) -> dict[str, Leaf]:
        """The Jacobian of every parameter for the cotangents `(k, n, outputs)`, checked."""
        parameters = trained(self.module)
        y, calls = _recorded(self.module, xs)
        total = Total(y, parameters, cot)
        wanted = {n: p for n, p in parameters.items() if n not in self.unknown}
        guesses = explained(y, calls, self.layout, wanted, cot)
        known = {n: guess for n, guess in guesses.items() if total.explains(n, guess)}
        rest = {n: p for n, p in parameters.items() if n not in known}
        jacobians = _jacobians(self.module, rest, xs, cot, total) if rest else {}
        return {n: known[n] if n in known else jacobians[n] for n in self.names}


def torch_tangents(model: TorchModel, x: Any, *, plain_only: bool = False) -> TorchTangents:
    """Look at how a module treats a few of the examples `x`; raise if it mixes them.

    With `plain_only`, all Jacobians are plain: slow, and right for modules whose calls depend on the data.
    """
    import torch

    module, parameters = model.module, trained(model.module)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        refuse_mixing(lambda some: outputs_of(module, as_tensors(module, some)).cpu().numpy(), _on_host(x))
    with _differentiable():
        _, calls = _recorded(module, as_tensors(module, _some(x, 2)))
        y, more = _recorded(module, as_tensors(module, _some(x, 3)))
        layout = () if plain_only else placed(calls, more)
        cot = _random(2, 3, y.shape[1], seed=0).to(y)
        total, guesses = Total(y, parameters, cot), explained(y, more, layout, parameters, cot)
    known = {name: leaf for name, leaf in guesses.items() if total.explains(name, leaf)}
    forms = tuple(known[n].form if n in known else plain(tuple(p.shape)) for n, p in parameters.items())
    left = sum(leaf.left.numel() for leaf in known.values() if leaf.left is not None) // 3
    right = sum(leaf.right.numel() for leaf in known.values()) // 6
    unknown = frozenset(parameters) - frozenset(known)
    size = sum(parameters[name].numel() for name in unknown)
    return TorchTangents(
        module=module,
        outputs=y.shape[1],
        layout=layout,
        forms=forms,
        unknown=unknown,
        names=tuple(parameters),
        floats=(2 * left + right, right + 2 * size),
    )


class Total:
    """The gradient of a random combination of all outputs of a batch: what all Jacobians must add up to."""

    def __init__(self, y: Tensor, parameters: dict[str, Tensor], cot: Tensor):
        import torch

        self.weights = (_random(cot.shape[1], 1, seed=1) * _random(1, cot.shape[0], seed=2)).to(cot)  # (n, k)
        outer = torch.einsum("nk,kno->no", self.weights, cot).to(y)
        grads = torch.autograd.grad(y, list(parameters.values()), outer, retain_graph=True, allow_unused=True)
        self.gradients = {name: _filled(g, p) for (name, p), g in zip(parameters.items(), grads, strict=True)}

    def explains(self, name: str, leaf: Leaf) -> bool:
        """Whether a Jacobian adds up to the gradient: up to rounding, which is relative to terms that may cancel."""
        import torch

        expected = self.gradients[name]
        got, size = leaf.combined(self.weights)
        eps = torch.finfo(expected.dtype).eps
        return bool((got - expected).norm() <= math.sqrt(eps) * expected.norm() + 1000 * eps * size)


def explained(
    y: Tensor,
    calls: list[Call],
    layout: tuple[tuple[str, Placement], ...],
    parameters: dict[str, Tensor],
    cot: Tensor,
) -> dict[str, Leaf]:
    """What the calls of known layers say about their parameters; nothing, if the calls are not as expected."""
    n, owners = cot.shape[1], {id(p): name for name, p in parameters.items()}
    if [c.name for c in calls] != [name for name, _ in layout]:
        return {}
    if not all(place.fits(call, n) for call, (_, place) in zip(calls, layout, strict=True)):
        return {}
    wanted = [i for i, call in enumerate(calls) if call.edge is not None and layout[i][1].axis >= 0]
    pieces: dict[str, list[Leaf]] = {}
    for i, right in zip(wanted, _backward(y, [calls[i].edge for i in wanted], cot), strict=True):
        for parameter, leaf in calls[i].leaves(right, layout[i][1], n, i) if right is not None else ():
            if id(parameter) in owners:
                pieces.setdefault(owners[id(parameter)], []).append(leaf)
    return {name: merged(leaves) for name, leaves in pieces.items()}


def _backward(y: Tensor, edges: list[Any], cot: Tensor) -> list[Tensor | None]:
    """Cotangents `(k, *shape)` at places of the graph: all at once, or one by one where an operation refuses that."""
    import torch

    if not edges:
        return []

    def pull(c: Tensor, batched: bool) -> tuple:
        return torch.autograd.grad(y, edges, c, retain_graph=True, allow_unused=True, is_grads_batched=batched)

    try:
        return list(pull(cot.to(y), True))
    except RuntimeError:
        each = [pull(c, False) for c in cot.to(y)]
        return [None if rows[0] is None else torch.stack(rows) for rows in zip(*each, strict=True)]


def _jacobians(module: Any, parameters: dict[str, Tensor], xs: Any, cot: Tensor, total: Total) -> dict[str, Leaf]:
    """Plain Jacobians: by `torch.func` where it can and is right, by autograd elsewhere."""

    def leaves(jacobians: dict[str, Tensor]) -> dict[str, Leaf]:
        return {n: Leaf(plain(tuple(p.shape)), None, jacobians[n]) for n, p in parameters.items()}

    try:
        guesses = leaves(_by_func(module, parameters, xs, cot))
        if all(total.explains(name, guess) for name, guess in guesses.items()):
            return guesses
    except Exception:  # it knows fewer operations than autograd, and says so in many ways
        pass
    return leaves(_by_autograd(module, parameters, xs, cot))


def _by_func(module: Any, parameters: dict[str, Tensor], xs: Any, cot: Tensor) -> dict[str, Tensor]:
    from torch.func import vjp, vmap

    leaves, structure = jax.tree.flatten(xs)
    values = {name: p.detach() for name, p in parameters.items()}

    def one(example: list[Tensor], c: Tensor) -> dict[str, Tensor]:
        batch = jax.tree.unflatten(structure, [a[None] for a in example])
        pair: Any = vjp(lambda values: outputs_of(module, batch, values)[0], values)
        y, pull = pair
        return vmap(lambda row: pull(row)[0])(c.to(y))

    return vmap(one, in_dims=(0, 1))(leaves, cot)


def _by_autograd(module: Any, parameters: dict[str, Tensor], xs: Any, cot: Tensor) -> dict[str, Tensor]:
    """Example by example and output by output: slow, and right for whatever can be trained."""
    import torch

    rows: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for i in range(cot.shape[1]):
        y = outputs_of(module, jax.tree.map(lambda a, i=i: a[i : i + 1], xs))
        for c in cot[:, i : i + 1].to(y):
            grads = torch.autograd.grad(y, list(parameters.values()), c, retain_graph=True, allow_unused=True)
            for (name, p), g in zip(parameters.items(), grads, strict=True):
                rows[name].append(_filled(g, p))
    return {name: torch.stack(g).unflatten(0, (cot.shape[1], -1)) for name, g in rows.items()}


def outputs_of(module: Any, xs: Any, values: dict[str, Tensor] | None = None) -> Tensor:
    """`(n, outputs)` for a batch. Buffers are copies: what a module writes into them is forgotten."""
    from torch import Tensor
    from torch.func import functional_call

    buffers = {name: b.clone() for name, b in module.named_buffers()}
    y = functional_call(module, buffers | (values or {}), (xs,))
    n = _count(xs)
    if not isinstance(y, Tensor) or y.ndim not in (1, 2) or len(y) != n or not y.is_floating_point():
        came = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise InputError(
            f"{type(module).__name__} was called with a batch of {n} examples and returned {came}, expected floats of "
            f"shape ({n},) or ({n}, outputs). Wrap it in a module that returns that, with y.flatten(1) if need be."
        )
    return y if y.ndim == 2 else y[:, None]


def _recorded(module: Any, xs: Any) -> tuple[Tensor, list[Call]]:
    """Outputs, and the calls of known layers on the way to them. The hooks are gone afterwards."""
    from torch.autograd.graph import get_gradient_edge

    calls: list[Call] = []

    def attach(name: str, layer: Any, rule: Any) -> Any:
        def hook(_: Any, args: tuple, kwargs: dict, y: Tensor) -> None:
            x = args[0] if args else kwargs["input"]
            # The edge is taken now: an operation in place (ReLU(inplace=True)) would make `y` another place.
            calls.append(Call(name, layer, rule, x, get_gradient_edge(y) if y.requires_grad else None))

        return layer.register_forward_hook(hook, with_kwargs=True)

    known = [(name, layer, known_layer(layer)) for name, layer in module.named_modules()]
    with contextlib.ExitStack() as stack:
        for name, layer, rule in known:
            if rule is not None:
                stack.callback(attach(name, layer, rule).remove)
            elif "forward" not in vars(layer) and (forward := _watched(name, layer, calls)) is not None:
                layer.forward = forward
                stack.callback(vars(layer).pop, "forward")
        y = outputs_of(module, xs)
    if not y.requires_grad:
        raise InputError(
            f"The outputs of {type(module).__name__} have no derivative with respect to any parameter that requires a "
            "gradient. Is there a torch.no_grad() or a detach() in its forward?"
        )
    return y, calls


def _watched(name: str, layer: Any, calls: list[Call]) -> Any:
    """The forward of a layer that is rebuilt from linear maps, whose calls are recorded; `None` for other layers."""
    from torch.autograd.graph import get_gradient_edge
    from torch.nn import functional

    def linear(x: Tensor, owner: Any, weight: str, bias: str) -> Tensor:
        part = types.SimpleNamespace(weight=getattr(owner, weight), bias=getattr(owner, bias, None))
        y = functional.linear(x, part.weight, part.bias)
        edge = get_gradient_edge(y) if y.requires_grad else None
        calls.append(Call(f"{name}.{weight}", part, LINEAR, x, edge))
        return y

    own, original = rebuilt(layer, linear), layer.forward
    if own is None:
        return None

    def forward(*args: Any, **options: Any) -> Any:
        before = len(calls)
        mine, theirs = own(*args, **options), original(*args, **options)
        if alike(mine, theirs):
            return mine
        del calls[before:]
        return theirs

    return forward


@contextlib.contextmanager
def _differentiable() -> Iterator[None]:
    """Gradients are recorded, whatever mode the caller is in; the advice of torch.func about speed is not ours."""
    import torch

    with torch.inference_mode(False), torch.enable_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*performance drop.*")
        yield


def trained(module: Any) -> dict[str, Tensor]:
    """The parameters that require a gradient, each once, under the first of its names."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def as_tensors(module: Any, x: Any) -> Any:
    """A batch where the module is: floats in its dtype, everything else as it is."""
    import torch

    like = next(iter(trained(module).values()))

    def convert(a: np.ndarray) -> Tensor:
        t = torch.from_numpy(np.array(a, np.float32 if a.dtype.kind == "V" else None))
        t = t.to(like.device)
        return t.to(like.dtype) if t.is_floating_point() else t.long() if t.dtype == torch.int32 else t

    return jax.tree.map(convert, _on_host(x))


def _on_host(x: Any) -> Any:
    """Arrays of numpy, JAX or PyTorch as numpy arrays."""
    import torch

    return jax.tree.map(lambda a: a.detach().cpu().numpy() if isinstance(a, torch.Tensor) else np.asarray(a), x)


def _some(x: Any, n: int) -> Any:
    return jax.tree.map(lambda a: a[np.arange(n) % len(a)], _on_host(x))


def _count(xs: Any) -> int:
    return len(jax.tree.leaves(xs)[0])


def _weights(module: Any, weights: Array) -> Tensor:
    import torch

    return torch.from_numpy(np.array(weights)).to(next(iter(trained(module).values())))


def _random(*shape: int, seed: int) -> Tensor:
    """The same numbers every time, and without touching the randomness of anybody else."""
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _filled(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    import torch

    if gradient is None:
        return torch.zeros_like(parameter, requires_grad=False)
    return gradient.to_dense().detach() if gradient.is_sparse else gradient.detach()


def _factor(leaf: Leaf, shared: dict[tuple[int, ...], Array]) -> Factor:
    """In JAX. A weight and its bias share their cotangents: one array."""
    n, k = leaf.right.shape[:2]
    if leaf.form.role is Role.PLAIN:
        return Plain(_to_jax(leaf.right.reshape(n, k, -1)))
    right = shared.get(leaf.calls) if leaf.calls else None
    right = _to_jax(leaf.right) if right is None else right
    shared |= {leaf.calls: right} if leaf.calls else {}
    if leaf.form.role is Role.TABLE:
        return Lookup(_to_jax(leaf.left), right[:, :, 0], leaf.form.shape[0])
    if leaf.left is None:
        return Outer(jnp.ones((n, right.shape[2], right.shape[3], 1), right.dtype), right)
    return Outer(_to_jax(leaf.left), right)


def _to_jax(a: Any) -> Array:
    """On the default device of JAX, in a dtype that it admits."""
    host = a.detach().cpu().numpy()
    return jnp.asarray(host.astype(jax.dtypes.canonicalize_dtype(host.dtype), copy=False))
