"""The tangent kernel in PyTorch, twice: `torch.func`, and what a good programmer writes by hand with hooks.

Started by `empirical.py` with the project's Python.
"""

from collections.abc import Callable

import numpy as np
import torch
from empirical_work import HEADS, examples, parameters
from protocol import peak_bytes, serve, timed, versions
from torch import nn
from torch.nn import functional

PACKAGES = ("torch", "numpy")


class Attention(nn.Module):
    """Self-attention without biases."""

    def __init__(self, p: dict):
        super().__init__()
        self.q, self.k, self.v, self.o = (linear(p[name]) for name in "qkvo")

    def forward(self, z):
        n, t, d = z.shape
        q, k, v = (m(z).reshape(n, t, HEADS, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / (d // HEADS) ** 0.5
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d))


class Block(nn.Module):
    """A transformer block between an embedding and a head."""

    def __init__(self, p: dict):
        super().__init__()
        self.embed, self.attention = linear(p["embed"]), Attention(p)
        self.norm1, self.norm2, self.norm3 = (norm(p[f"norm{i}"]) for i in (1, 2, 3))
        self.up, self.down, self.head = linear(p["up"]), linear(p["down"]), linear(p["head"])

    def forward(self, x):
        h = self.embed(x)
        h = h + self.attention(self.norm1(h))
        h = h + self.down(functional.gelu(self.up(self.norm2(h)), approximate="tanh"))
        return self.head(self.norm3(h).mean(1))


def _filled(module: nn.Module, weight: np.ndarray, bias: np.ndarray | None) -> nn.Module:
    module.weight.data = torch.tensor(weight).contiguous()
    if bias is not None:
        module.bias.data = torch.tensor(bias)
    return module


def linear(p: dict) -> nn.Module:
    return _filled(nn.Linear(*p["w"].shape, bias="b" in p), p["w"].T, p.get("b"))


def norm(p: dict) -> nn.Module:
    return _filled(nn.LayerNorm(len(p["g"])), p["g"], p["b"])


def conv(p: dict) -> nn.Module:
    _, _, a, b = p["w"].shape
    return _filled(nn.Conv2d(a, b, 3, padding=1), p["w"].transpose(3, 2, 0, 1), p["b"])


def module_of(model: str) -> nn.Module:
    """The model of that name."""
    p = parameters(model)
    if model == "MLP":
        *hidden, last = map(linear, p["layers"])
        return nn.Sequential(*(m for layer in hidden for m in (layer, nn.ReLU())), last)
    if model == "CNN":
        layers = [m for layer in p["layers"] for m in (conv(layer), nn.ReLU())]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear(p["head"]))
    return Block(p)


def with_func(module: nn.Module, x: torch.Tensor, outputs: str) -> np.ndarray:
    """All Jacobians by `torch.func`, and their products."""
    params = {name: p.detach() for name, p in module.named_parameters()}
    one = lambda params, row: torch.func.functional_call(module, params, (row[None],))[0]
    jacobians = torch.func.vmap(torch.func.jacrev(one), (None, 0))(params, x)
    kernel = 0
    for j in jacobians.values():
        j = j.flatten(2)
        kernel = kernel + (_pairs(j, j) if outputs == "full" else _sums(j, j))
    return _finished(kernel, outputs, j.shape[1])


def with_hooks(module: nn.Module, x: torch.Tensor, outputs: str) -> np.ndarray:
    """What comes into every layer, the cotangents of what leaves it, and the cheaper product for each of them."""
    calls = []
    hook = lambda layer, args, out: calls.append((layer, args[0].detach(), out))
    layers = [m for m in module.modules() if isinstance(m, nn.Linear | nn.Conv2d | nn.LayerNorm)]
    hooks = [layer.register_forward_hook(hook) for layer in layers]
    y = module(x)
    for h in hooks:
        h.remove()
    k = y.shape[1]
    eye = torch.eye(k)[:, None].expand(k, *y.shape)
    cotangents = torch.autograd.grad(y, [out for _, _, out in calls], eye, is_grads_batched=True)
    kernel = 0
    for (layer, data, _), cotangent in zip(calls, cotangents, strict=True):
        kernel = kernel + _contribution(layer, data, cotangent.transpose(0, 1), outputs)
    return _finished(kernel, outputs, k)


def _contribution(layer: nn.Module, data: torch.Tensor, b: torch.Tensor, outputs: str) -> torch.Tensor:
    """The kernel of one layer; `b` is `(n, k, ...)`."""
    pairs = _pairs if outputs == "full" else _sums
    if isinstance(layer, nn.LayerNorm):
        normal = functional.layer_norm(data, layer.normalized_shape, eps=layer.eps)
        gain = (b * normal[:, None]).sum(2)
        return pairs(torch.cat([gain, b.sum(2)], -1), torch.cat([gain, b.sum(2)], -1))
    if isinstance(layer, nn.Conv2d):
        data, b = functional.unfold(data, 3, padding=1).transpose(1, 2), b.flatten(3).transpose(2, 3)
    if layer.bias is not None:
        data = torch.cat([data, torch.ones_like(data[..., :1])], -1)
    if data.dim() == 2:
        inner = data @ data.T
        return inner[:, None, :, None] * pairs(b, b) if outputs == "full" else inner * pairs(b, b)
    n, k, t, o = b.shape
    jacobian = b.permute(0, 1, 3, 2).reshape(n, k * o, t) @ data
    jacobian = jacobian.reshape(n, k, -1)
    return pairs(jacobian, jacobian)


def _pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`(n, k, m, k)`."""
    return (a.flatten(0, 1) @ b.flatten(0, 1).T).reshape(*a.shape[:2], *b.shape[:2])


def _sums(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`(n, m)`."""
    return a.flatten(1) @ b.flatten(1).T


def _finished(kernel, outputs: str, k: int) -> np.ndarray:
    return kernel.permute(0, 2, 1, 3).numpy() if outputs == "full" else (kernel / k).numpy()


class Session:
    """What the worker holds between two questions."""

    def __init__(self):
        self.run: Callable[[], np.ndarray] = lambda: np.zeros(0)

    def prepare(self, question: dict) -> dict:
        """Run once, untimed."""
        module, x = module_of(question["model"]), torch.tensor(examples(question["model"], question["n"]))
        x = x.permute(0, 3, 1, 2).contiguous() if question["model"] == "CNN" else x
        kernel = with_func if question["how"] == "func" else with_hooks
        self.run = lambda: kernel(module, x, question["outputs"])
        return {"sample": [float(v) for v in self.run()[0, 1].ravel()]}

    def time(self, _: dict) -> dict:
        """One repetition."""
        return {"seconds": timed(self.run), "peak": peak_bytes()}


if __name__ == "__main__":
    session = Session()
    serve({"prepare": session.prepare, "time": session.time, "facts": lambda _: versions(PACKAGES)})
