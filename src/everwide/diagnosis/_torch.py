"""The same operators for PyTorch modules, by autograd. PyTorch is not imported before somebody brings a module."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import InputError
from .._engine import budget
from .._losses import AbstractLoss
from .._trees import batch_size
from ._operators import AbstractCurvature, Kind
from ._optimizers import torch_second_moment
from ._prepared import as_columns

Tensor = Any
_GRAPHS = 24  # bytes of a graph and its derivatives for each number that a layer gives out


class TorchCurvature(AbstractCurvature):
    """A symmetric matrix over the parameters of a module that require a gradient, in their order: see `hessian`."""

    def __init__(self, kind: Kind, module: Any, rows: tuple[Any, np.ndarray], loss: AbstractLoss, memory: int):
        self.kind, self.module, self.loss, self.memory = kind, module, loss, memory
        self._x, self._y = rows
        self._parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._scale: np.ndarray | None = None
        self._only: str | None = None
        self._kept: list[Piece] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Parameters and parameters."""
        size = sum(p.numel() for p in self._free().values())
        return size, size

    @property
    def dtype(self) -> np.dtype:
        """Of the parameters."""
        return next(iter(self._parameters.values())).detach().cpu().numpy().dtype

    @property
    def groups(self) -> dict[str, tuple[slice, ...]]:
        """Layers by their names, and where their parameters are."""
        groups: dict[str, tuple[slice, ...]] = {}
        start = 0
        for name, p in self._free().items():
            layer = _layer(name)
            groups[layer] = (*groups.get(layer, ()), slice(start, start + p.numel()))
            start += p.numel()
        return groups

    def __matmul__(self, v: Any) -> np.ndarray:
        """A vector `(p,)`, or many as columns `(p, m)`."""
        given = v.detach().cpu() if hasattr(v, "detach") else v
        array = np.asarray(given)
        if array.dtype == object:  # a tree, which is refused by its own name
            as_columns(v, self.shape, float)
        vectors = as_columns(array, self.shape, self.dtype)
        scale = 1 if self._scale is None else self._scale
        columns = vectors[:, None] if vectors.ndim == 1 else vectors
        rows = [scale * one for one in columns.T]
        total = [np.zeros(self.shape[0], np.float64) for _ in rows]
        for piece in self._pieces():
            total = [sum_ + piece.product(self.kind, one) for sum_, one in zip(total, rows, strict=True)]
        images = np.stack([scale * one for one in total], axis=1).astype(self.dtype)
        return images[:, 0] if vectors.ndim == 1 else images

    def prepared(self) -> "TorchCurvature":
        """The same matrix with its graph kept, where that fits into memory."""
        pieces = math.ceil(len(self._y) / self._fit())
        if pieces > 1:
            return self
        ready = self.of_kind(self.kind)
        ready._kept = list(self._pieces())
        return ready

    def block(self, name: str) -> "TorchCurvature":
        """The part of one layer, by the names that `groups` has."""
        part, places = self.of_kind(self.kind), self._places(name)
        part._only = name
        if self._scale is not None:
            part._scale = np.concatenate([self._scale[piece] for piece in places])
        return part

    def preconditioned(self, preconditioner: Any) -> "TorchCurvature":
        """`P^(-1/2) M P^(-1/2)`, which has the eigenvalues of `P^-1 M`, for a diagonal `P` or that of an optimizer."""
        other, own = self.of_kind(self.kind), preconditioner
        if hasattr(own, "param_groups"):
            own = divisors(own, list(self._free().values()))
        other._scale = (1 if self._scale is None else self._scale) / np.sqrt(self._diagonal(own))
        return other

    def gradient(self) -> np.ndarray:
        """The gradient of the mean loss, preconditioned like the matrix."""
        total = sum((piece.gradient() for piece in self._pieces()), np.zeros(self.shape[0]))
        return ((1 if self._scale is None else self._scale) * total).astype(self.dtype)

    def of_kind(self, kind: Kind) -> "TorchCurvature":
        other = TorchCurvature(kind, self.module, (self._x, self._y), self.loss, self.memory)
        other._scale, other._only = self._scale, self._only
        return other

    def _free(self) -> dict[str, Tensor]:
        return {name: p for name, p in self._parameters.items() if self._only in (None, _layer(name))}

    def _fit(self) -> int:
        """Rows whose graph may be held."""
        return max(1, self.memory // max(1, _GRAPHS * _activations(self.module, self._x)))

    def _pieces(self) -> "Iterator[Piece]":
        if self._kept is not None:
            yield from self._kept
            return
        size, n = self._fit(), len(self._y)
        for start in range(0, n, size):
            some = jax.tree.map(lambda a, start=start: a[start : start + size], self._x)
            yield Piece(self, some, self._y[start : start + size], len(self._y))


class Piece:
    """The graph of some rows."""

    def __init__(self, op: TorchCurvature, x: Any, y: np.ndarray, n: int):
        import torch

        self.parameters = list(op._free().values())
        with torch.enable_grad(), _twice_differentiable():
            self.out = outputs_of(op.module, x)
            dummy = torch.zeros_like(self.out, requires_grad=True)
            self.dummy, self.pulled = dummy, self._pull(dummy, create_graph=True)
        host = self.out.detach().cpu().numpy()
        slope, self.metric = _derivatives(op.loss, host, y, n)
        self.slopes, self.count = slope, n
        self._bent: tuple[Tensor, ...] | None = None

    def product(self, kind: Kind, vector: np.ndarray) -> np.ndarray:
        """With one vector."""
        parts = self._tensors(vector)
        total = np.zeros(len(vector))
        if kind is not Kind.RESIDUAL:
            pushed = self._push(parts)
            inner = self.metric(kind, pushed).astype(pushed.dtype)
            total += self._flat(self._pull(self._like(inner)))
        if kind in (Kind.HESSIAN, Kind.RESIDUAL):
            total += self._flat(self._bend(parts))
        return total

    def gradient(self) -> np.ndarray:
        """Of the loss of these rows."""
        return self._flat(self._pull(self._like(self.slopes)))

    def _pull(self, cotangents: Tensor, *, create_graph: bool = False) -> tuple[Tensor, ...]:
        import torch

        return torch.autograd.grad(
            self.out, self.parameters, cotangents, retain_graph=True, create_graph=create_graph, allow_unused=True
        )

    def _push(self, parts: list[Tensor]) -> np.ndarray:
        """`J v`: the derivative of `<J^T u, v>` by `u`."""
        import torch

        used = [(g, v) for g, v in zip(self.pulled, parts, strict=True) if g is not None and g.requires_grad]
        if not used:
            return np.zeros_like(self.slopes)
        grads, vectors = zip(*used, strict=True)
        (pushed,) = torch.autograd.grad(grads, self.dummy, vectors, retain_graph=True, allow_unused=True)
        return np.zeros_like(self.slopes) if pushed is None else pushed.detach().cpu().numpy()

    def _bend(self, parts: list[Tensor]) -> tuple[Tensor, ...]:
        """`sum_k slope_k Hess(f_k) v`."""
        import torch

        if self._bent is None:
            with torch.enable_grad():
                self._bent = self._pull(self._like(self.slopes), create_graph=True)
        used = [(g, v) for g, v in zip(self._bent, parts, strict=True) if g is not None and g.requires_grad]
        if not used:
            return tuple(torch.zeros_like(p) for p in self.parameters)
        grads, vectors = zip(*used, strict=True)
        return torch.autograd.grad(grads, self.parameters, vectors, retain_graph=True, allow_unused=True)

    def _tensors(self, vector: np.ndarray) -> list[Tensor]:
        import torch

        cuts = np.cumsum([p.numel() for p in self.parameters])[:-1]
        pieces = zip(np.split(vector, cuts), self.parameters, strict=True)
        return [torch.as_tensor(v.reshape(tuple(p.shape)), dtype=p.dtype, device=p.device) for v, p in pieces]

    def _like(self, array: np.ndarray) -> Tensor:
        import torch

        return torch.as_tensor(array, dtype=self.out.dtype, device=self.out.device)

    def _flat(self, tensors: Any) -> np.ndarray:
        pairs = zip(tensors, self.parameters, strict=True)
        parts = [np.zeros(p.numel()) if t is None else t.detach().cpu().numpy().ravel() for t, p in pairs]
        return np.concatenate(parts).astype(np.float64)


def torch_curvature(kind: Kind, model: Any, x: Any, y: Any, loss: AbstractLoss, memory: int | None) -> TorchCurvature:
    """Everything checked."""
    rows = _tensors(model.module, x)
    if not all(bool(a.isfinite().all()) for a in jax.tree.leaves(rows)):
        raise InputError("x holds NaN or infinity. Drop such rows, or fill them.")
    y = y.detach().cpu().numpy() if hasattr(y, "detach") else y
    targets, _ = loss.targets(y, torch_outputs(model, x))
    n = len(jax.tree.leaves(rows)[0])
    if len(targets) != n:
        raise InputError(f"y has {len(targets)} rows and x {n}: they must agree.")
    return TorchCurvature(kind, model.module, (rows, targets), loss, budget(memory))


def _refuse_rows(x: Any) -> None:
    """Examples that are no arrays of numbers, or none."""
    if not batch_size(x):
        raise InputError("x is empty, expected one row at least.")
    for leaf in jax.tree.leaves(x):
        kind = getattr(leaf, "dtype", None)
        if isinstance(kind, np.dtype) and kind.kind in "OUS":
            raise InputError(f"x holds {kind}, expected numbers. Encode text and categories first.")


def divisors(optimizer: Any, parameters: list[Tensor]) -> np.ndarray:
    """What an adaptive optimizer divides the gradients of some parameters by."""
    groups, parts = {id(p): group for group in optimizer.param_groups for p in group["params"]}, []
    for parameter in parameters:
        state, group = optimizer.state.get(parameter, {}), groups.get(id(parameter), {})
        square, divides = torch_second_moment(state), "betas" in group or "alpha" in group
        if divides and not state:
            raise InputError(
                f"{type(optimizer).__name__} has seen no gradient of parameter {len(parts)}, of shape "
                f"{tuple(parameter.shape)}, expected one of each. Make a step, or requires_grad_(False) what has none."
            )
        if square is None or not divides:
            raise InputError(
                f"{type(optimizer).__name__} holds no second moments (exp_avg_sq) that alone divide its steps: "
                "expected Adam, AdamW or RMSprop after a step, of the same parameters."
            )
        b2 = group["betas"][1] if "betas" in group else 0.0
        moment = square.detach().cpu().numpy() / (1 - b2 ** float(state["step"]))
        parts.append((np.sqrt(moment) + group["eps"]).ravel())
    return np.concatenate(parts)


def torch_outputs(model: Any, x: Any) -> int:
    """How many outputs there are."""
    import torch

    with torch.no_grad():
        return outputs_of(model.module, _tensors(model.module, jax.tree.map(lambda a: a[:1], x))).shape[1]


def _tensors(module: Any, x: Any) -> Any:
    """Where the module is, in its precision."""
    import torch

    _refuse_rows(x)
    first = next(p for p in module.parameters() if p.requires_grad)

    def tensor(value: Any) -> Tensor:
        one = value if torch.is_tensor(value) else torch.as_tensor(np.asarray(value))
        return one.to(first.device, first.dtype if one.is_floating_point() else one.dtype)

    return jax.tree.map(tensor, x)


def outputs_of(module: Any, x: Any) -> Tensor:
    """`(n, k)`."""
    out = module(x)
    if getattr(out, "ndim", 0) not in (1, 2):
        came = f"shape {tuple(out.shape)}" if hasattr(out, "shape") else type(out).__name__
        raise InputError(f"{type(module).__name__} returned {came} for a batch, expected (n,) or (n, outputs).")
    return out.reshape(len(out), -1)


def _derivatives(
    loss: AbstractLoss, outputs: np.ndarray, y: np.ndarray, n: int
) -> tuple[np.ndarray, Callable[[Kind, np.ndarray], np.ndarray]]:
    """Slopes of the mean loss by the outputs of some rows, and what stands between the Jacobians."""
    with jax.enable_x64(outputs.dtype == np.float64):
        out, targets = jnp.asarray(outputs), jnp.asarray(y, None if y.dtype.kind in "iu" else outputs.dtype)
        slopes = np.asarray(jax.vmap(jax.grad(loss))(out, targets))
        bent = np.asarray(jax.vmap(jax.hessian(loss))(out, targets))
    chance = np.exp(outputs - outputs.max(1, keepdims=True))
    chance = chance / chance.sum(1, keepdims=True)

    def metric(kind: Kind, tangents: np.ndarray) -> np.ndarray:
        if kind in (Kind.HESSIAN, Kind.GAUSS_NEWTON):
            return np.einsum("nkl,nl->nk", bent, tangents) / n
        weight = 1 if kind is Kind.EMPIRICAL else chance[np.arange(len(y)), y][:, None]
        return weight * slopes * np.sum(slopes * tangents, -1, keepdims=True) / n

    return slopes / n, metric


def _twice_differentiable() -> Any:
    """Attention in the way that has second derivatives: the fast ones have none."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)


def _activations(module: Any, x: Any) -> int:
    """Numbers that the layers give out for one row."""
    import torch

    sizes: list[int] = []

    def watch(_layer: Any, _inputs: Any, out: Any) -> None:
        sizes.append(out.numel() if torch.is_tensor(out) else 0)

    handles = [layer.register_forward_hook(watch) for layer in module.modules()]
    try:
        with torch.no_grad():
            module(jax.tree.map(lambda a: a[:1], x))
    finally:
        for handle in handles:
            handle.remove()
    return max(1, sum(sizes))


def _layer(name: str) -> str:
    return name.rpartition(".")[0] or name
