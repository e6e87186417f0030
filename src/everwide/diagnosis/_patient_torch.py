"""A PyTorch module under examination: the same numbers, by autograd. PyTorch is imported with the first module."""

import copy
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from .._checks import InputError
from .._losses import AbstractLoss, BinaryCrossEntropy, Hinge, Huber, Mse, Poisson, SoftmaxCrossEntropy
from ._optimizers import Optimizer, read_torch
from ._patient import FAR, PARTS, SEEN, Curve, Pulse, Readout, Step, chances, divisible, mixed, moving, ritz
from ._torch import _tensors, _twice_differentiable, outputs_of

Tensor = Any
# In names of derivatives, in small letters: PyTorch writes LeakyRelu, Prelu and Rrelu.
_KINKS = ("relu", "maxpool", "maximum", "minimum", "abs", "clamp", "hard", "threshold", "softshrink")
Leaves = list[Tensor]


class TorchPatient:
    """A module with its probe. The module that is trained is only read: a copy of it, in evaluation mode, is called."""

    def __init__(
        self,
        module: Any,
        loss: AbstractLoss,
        probe: tuple[Any, np.ndarray],
        units: tuple[int | None, ...],
        labelled: bool,
    ):
        import torch

        self._skeleton = copy.deepcopy(module).eval()
        self._names = [name for name, _ in module.named_parameters()]
        self._loss, self._units, self._buffers = _torch_loss(loss), units, {}
        self._x = _tensors(module, probe[0])
        first = next(iter(module.parameters()))
        y = torch.as_tensor(probe[1], device=first.device)
        self._y = y.to(first.dtype) if y.is_floating_point() else y.long()
        self.labelled = labelled
        self.parts = PARTS if len(y) >= 2 * PARTS else 1
        self._few = self._rows(slice(0, divisible(len(y), self.parts)))
        self._gradient: Leaves = []
        self._before: Leaves = []
        self._moved = np.ones(len(units), np.float32)
        self._leading: Tensor | None = None
        self.on_host = first.device.type == "cpu"
        self.mark = None

    def leaves(self, module: Any) -> Leaves:
        """The parameters, and with them the statistics, as they are now."""
        self._buffers = {name: buffer.detach() for name, buffer in module.named_buffers()}
        return [p.detach() for p in module.parameters()]

    def optimizer(self, optimizer: Any, module: Any) -> Optimizer:
        """What trains the module."""
        return Optimizer("gd") if optimizer is None else read_torch(optimizer, list(module.parameters()))

    def ready(self, leaves: Leaves) -> None:
        """PyTorch waits by itself where numbers are read."""

    @staticmethod
    def count(module: Any, x: Any) -> int:
        """How many outputs a module has for one row."""
        import torch

        quiet = copy.deepcopy(module).eval()
        with torch.no_grad():
            return outputs_of(quiet, _tensors(module, jax.tree.map(lambda a: a[:1], x))).shape[1]

    @staticmethod
    def is_smooth(module: Any, x: Any) -> bool:
        """Whether it has a second derivative everywhere, as far as what computes its slope shows."""
        import torch

        quiet = copy.deepcopy(module).eval()
        with torch.enable_grad():
            ahead = [outputs_of(quiet, _tensors(module, jax.tree.map(lambda a: a[:1], x))).grad_fn]
        seen: dict[Any, str] = {}
        while ahead:
            node = ahead.pop()
            if node is not None and node not in seen:
                seen[node] = node.name()
                ahead += [before for before, _ in node.next_functions]
        return not any(kink in name.lower() for name in seen.values() for kink in _KINKS)

    def pulse(self, leaves: Leaves) -> Pulse:
        """A look at the probe."""
        import torch

        self._before = [p.clone() for p in leaves]
        size = len(self._few[1]) // self.parts
        pieces = [self._slopes(leaves, slice(k * size, (k + 1) * size)) for k in range(self.parts)]
        self._gradient = [sum(gs) / self.parts for gs in zip(*pieces, strict=True)]
        with torch.no_grad():
            outputs = self._outputs(leaves, self._x)
            losses, above = self._loss(outputs, self._y), torch.zeros(len(outputs))
            if self.labelled:
                labels = self._y if self._y.ndim == 1 else self._y.argmax(1)
                above = (outputs > outputs.gather(1, labels[:, None])).sum(1)
            squares = [_squares(tree) for tree in (self._gradient, *pieces, leaves)]
            return Pulse(
                losses.double().cpu().numpy(),
                above.cpu().numpy(),
                float(outputs.square().mean().sqrt()),
                float(chances(outputs, torch)),
                squares[0],
                np.mean(squares[1:-1], 0),
                squares[-1],
                np.array([_dead(g, axis) for g, axis in zip(self._gradient, self._units, strict=True)]),
            )

    def step(self, leaves: Leaves, optimizer: Optimizer) -> Step:
        """What the optimizer did since the last pulse."""
        import torch

        with torch.no_grad():
            change = [a - b for a, b in zip(leaves, self._before, strict=True)]
            direction = self._gradient if optimizer.first is None else optimizer.first
            if optimizer.second is not None:
                scales = self._scales(optimizer)
                direction = [d * s for d, s in zip(direction, scales, strict=True)]
            far = [b + FAR * c for b, c in zip(self._before, change, strict=True)]
            values = [
                float(self._loss(self._outputs(at, self._few[0]), self._few[1]).mean())
                for at in (self._before, leaves, far)
            ]
            squares = _squares(change)
            self._moved = moving(squares)
            return Step(
                squares,
                _squares(direction),
                _dots(change, direction),
                np.sum(_dots(change, self._before)),
                np.sum(_dots(direction, self._before)),
                np.sum(_dots(change, self._gradient)),
                *values,
            )

    def curve(self, optimizer: Optimizer) -> Curve:
        """Curvature where the last pulse was, over what the last step moved: two steps of Lanczos."""
        import torch

        params = [p.clone().requires_grad_() for p in self._before]
        with torch.enable_grad(), _twice_differentiable():
            value = self._loss(self._outputs(params, self._few[0]), self._few[1]).mean()
            slopes = torch.autograd.grad(value, params, create_graph=True, allow_unused=True)
        used = [g for g in slopes if g is not None and g.requires_grad]
        sizes = [p.numel() for p in params]
        free = _flat([torch.full_like(p, float(m)) for p, m in zip(self._before, self._moved, strict=True)])
        root = free if optimizer.second is None else free * _flat(self._scales(optimizer)).sqrt()

        def product(v: Tensor) -> Tensor:
            parts = [one.reshape(p.shape) for one, p in zip((root * v).split(sizes), params, strict=True)]
            vectors = [v for v, g in zip(parts, slopes, strict=True) if g is not None and g.requires_grad]
            images = torch.autograd.grad(used, params, vectors, retain_graph=True, allow_unused=True)
            return root * _flat([torch.zeros_like(p) if i is None else i for i, p in zip(images, params, strict=True)])

        start = self._leading
        if start is None:
            noise = torch.randn(sum(sizes), generator=torch.Generator().manual_seed(0)).to(params[0])
            slope = _flat(self._gradient)
            start = slope / slope.norm().clamp_min(1e-30) + noise / (4 * noise.norm())
        largest, smallest, vector = ritz(product, mixed(free * start, root * _flat(self._gradient), torch), torch)
        self._leading = vector if bool(largest.isfinite()) else None
        shares = np.array([float(part.square().sum()) for part in vector.split(sizes)])
        here = float((root * vector).square().sum())
        return Curve(float(largest), float(smallest), float(largest) / here, shares)

    def kernel(self, leaves: Leaves) -> Float[np.ndarray, "n n"]:
        """Of the first rows, of a random combination of the outputs."""
        import torch

        params = [p.clone().requires_grad_() for p in leaves]
        few = self._rows(slice(0, SEEN))
        with torch.enable_grad():
            outputs = self._outputs(params, few[0])
            weights = np.random.default_rng(0).normal(size=outputs.shape[1]) / math.sqrt(outputs.shape[1])
            values = outputs @ torch.as_tensor(weights).to(outputs)
            rows = [
                _flat(torch.autograd.grad(v, params, retain_graph=True, allow_unused=True, materialize_grads=True))
                for v in values
            ]
        slopes = torch.stack(rows)
        return (slopes @ slopes.T).double().cpu().numpy()

    def targets(self) -> np.ndarray:
        """Of all rows."""
        return self._y.cpu().numpy()

    def readout(self, leaves: Leaves, leaf: int) -> Readout:
        """What a last layer reads, says, and is."""
        import torch

        read: list[Tensor] = []
        layer = self._skeleton.get_submodule(self._names[leaf].rpartition(".")[0])
        handle = layer.register_forward_pre_hook(lambda _, given: read.append(given[0]))
        with torch.no_grad():
            said = self._outputs(leaves, self._x)
        handle.remove()
        features, weights = read[-1].reshape(len(said), -1), leaves[leaf]
        return Readout(*(a.double().cpu().numpy() for a in (features, said, weights)))

    def _rows(self, rows: slice) -> tuple[Any, Tensor]:
        return jax.tree.map(lambda a: a[rows], self._x), self._y[rows]

    def _outputs(self, leaves: Leaves, x: Any) -> Tensor:
        from torch.func import functional_call

        state = dict(zip(self._names, leaves, strict=True)) | self._buffers
        out = functional_call(self._skeleton, state, (x,))
        return out.reshape(len(out), -1)

    def _slopes(self, leaves: Leaves, rows: slice) -> Leaves:
        import torch

        params = [p.clone().requires_grad_() for p in leaves]
        x, y = self._rows(rows)
        with torch.enable_grad():
            value = self._loss(self._outputs(params, x), y).mean()
            return list(torch.autograd.grad(value, params, allow_unused=True, materialize_grads=True))

    def _scales(self, optimizer: Optimizer) -> Leaves:
        """By what Adam multiplies its first moment."""
        (first, second), moments = optimizer.bias(), optimizer.second or []
        return [1 / (first * ((v / second).sqrt() + optimizer.eps)) for v in moments]


def _squares(leaves: Leaves) -> Float[np.ndarray, " leaves"]:
    return np.array([float(leaf.square().sum()) for leaf in leaves])


def _dots(a: Leaves, b: Leaves) -> Float[np.ndarray, " leaves"]:
    return np.array([float((u * v).sum()) for u, v in zip(a, b, strict=True)])


def _flat(leaves: Any) -> Tensor:
    import torch

    return torch.cat([leaf.reshape(-1) for leaf in leaves])


def _dead(gradient: Tensor, axis: int | None) -> float:
    if axis is None:
        return 0.0
    return float((gradient.movedim(axis, 0).flatten(1) == 0).all(1).double().mean())


def _torch_loss(loss: AbstractLoss) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of each row, in PyTorch."""
    from torch.nn import functional as F  # noqa: N812 - as everybody calls it

    if isinstance(loss, SoftmaxCrossEntropy):
        return lambda out, y: F.cross_entropy(out, y, reduction="none")
    if isinstance(loss, Mse):
        return lambda out, y: (out - y).square().sum(1) / 2
    if isinstance(loss, BinaryCrossEntropy):
        return lambda out, y: F.binary_cross_entropy_with_logits(out, y, reduction="none").sum(1)
    if isinstance(loss, Huber):
        return lambda out, y: F.huber_loss(out, y, reduction="none", delta=loss.delta).sum(1)
    if isinstance(loss, Poisson):
        return lambda out, y: (out.exp() - y * out).sum(1)
    if isinstance(loss, Hinge):
        return lambda out, y: (1 - y * out).clamp_min(0).sum(1)
    raise InputError(
        f"loss={type(loss).__name__}: for a PyTorch module expected a loss of everwide.training, such as "
        "SoftmaxCrossEntropy() or Mse(): a JAX function cannot differentiate it."
    )
