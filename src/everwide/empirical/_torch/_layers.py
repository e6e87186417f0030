"""PyTorch layers whose Jacobian is known: what came in and the cotangent of what came out are its factors."""

import enum
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Tensor = Any  # torch.Tensor; PyTorch is not imported before somebody brings a module


class Role(enum.Enum):
    """How the Jacobian of a parameter is held."""

    WEIGHT = "weight"  # outer products
    TURNED = "turned weight"  # the same, and the parameter has its inputs first
    BIAS = "bias"  # sums over tokens
    TABLE = "table"  # rows that are looked up
    PLAIN = "plain"  # as it is


_OUTER = {Role.WEIGHT: "goi", Role.TURNED: "gio"}  # in which order the parameter has its axes


class Form(NamedTuple):
    """The part a parameter plays: it must not change from one batch to the next."""

    role: Role
    groups: int
    shape: tuple[int, ...]


def plain(shape: tuple[int, ...]) -> Form:
    """No form at all."""
    return Form(Role.PLAIN, 1, shape)


class Leaf(NamedTuple):
    """The Jacobian of one parameter for `n` examples and `k` cotangents.

    `left` is `(n, groups, tokens, inputs)`, or indices `(n, tokens)` of a table; `right` is
    `(n, k, groups, tokens, outputs)`, or the plain Jacobian `(n, k, *shape)`, with no `left`, as a bias has none.
    `calls` says where they come from.
    """

    form: Form
    left: Any
    right: Tensor
    calls: tuple[int, ...] = ()

    def dense(self) -> Tensor:
        """The Jacobian `(n, k, *shape)`."""
        import torch

        n, k = self.right.shape[:2]
        if self.form.role is Role.PLAIN:
            return self.right
        if self.form.role in _OUTER:
            return torch.einsum(f"ngti,nkgto->nk{_OUTER[self.form.role]}", self.left, self.right).reshape(
                n, k, *self.form.shape
            )
        if self.form.role is Role.BIAS:
            return self.right.sum(3).reshape(n, k, *self.form.shape)
        return torch.stack(
            [_scattered(rows, right[:, 0], self.form.shape) for rows, right in zip(*self[1:3], strict=True)]
        )

    def combined(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The sum over examples and cotangents with `weights` `(n, k)`, and a bound of its terms."""
        import torch

        n = len(weights)
        right = torch.einsum("nk,nkx->nx", weights, self.right.flatten(2)).reshape(n, *self.right.shape[2:])
        count = math.sqrt(right[..., 0].numel())
        if self.form.role is Role.PLAIN:
            return right.sum(0), weights.norm() * self.right.norm()
        if self.form.role in _OUTER:
            total = torch.einsum(f"ngti,ngto->{_OUTER[self.form.role]}", self.left, right).reshape(self.form.shape)
            return total, self.left.norm() * right.norm()
        if self.form.role is Role.BIAS:
            return right.sum((0, 2)).reshape(self.form.shape), count * right.norm()
        table = _scattered(self.left.reshape(-1), right.reshape(1, -1, right.shape[-1]), self.form.shape)[0]
        return table, count * right.norm()


def _scattered(rows: Tensor, right: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`(k, tokens, outputs)` added into the rows of `k` tables; negative rows are nowhere."""
    kept = rows >= 0
    return right.new_zeros(len(right), *shape).index_add_(1, rows[kept].long(), right[:, kept])


def merged(leaves: list[Leaf]) -> Leaf:
    """One parameter that is used several times: more tokens, or the plain sum where it plays different parts."""
    import torch

    first = leaves[0]
    if len(leaves) == 1:
        return first
    calls = sum((leaf.calls for leaf in leaves), ())
    if first.form.role is not Role.PLAIN and all(leaf.form == first.form for leaf in leaves):
        token_axis = 1 if first.form.role is Role.TABLE else 2
        left = None if first.left is None else torch.cat([leaf.left for leaf in leaves], token_axis)
        return Leaf(first.form, left, torch.cat([leaf.right for leaf in leaves], 3), calls)
    return Leaf(plain(first.form.shape), None, sum(leaf.dense() for leaf in leaves), calls)


class Placement(NamedTuple):
    """Where the examples are among the leading axes of a call: along `axis`, `repeats` tokens each, or nowhere (-1)."""

    axis: int
    repeats: int

    def fits(self, call: "Call", n: int) -> bool:
        """Whether a call with `n` examples looks as expected."""
        return self.axis < 0 or (len(call.lead) > self.axis and call.lead[self.axis] == n * self.repeats)

    def examples_first(self, a: Tensor, lead: tuple[int, ...], n: int) -> Tensor:
        """`(*lead, *rest) -> (n, tokens, *rest)`; examples are the outer part of their axis."""
        return a.movedim(self.axis, 0).reshape(n, math.prod(lead) // n, *a.shape[len(lead) :])


def placed(calls2: list["Call"], calls3: list["Call"]) -> tuple[tuple[str, Placement], ...]:
    """Which axis grows when two examples become three; no plan where the calls differ."""
    if [c.name for c in calls2] != [c.name for c in calls3]:
        return ()

    def place(two: tuple[int, ...], three: tuple[int, ...]) -> Placement:
        grown = [i for i, (a, b) in enumerate(zip(two, three, strict=False)) if a != b]
        if len(two) != len(three) or len(grown) != 1 or 3 * two[grown[0]] != 2 * three[grown[0]]:
            return Placement(-1, 1)
        return Placement(grown[0], two[grown[0]] // 2)

    return tuple((c2.name, place(c2.lead, c3.lead)) for c2, c3 in zip(calls2, calls3, strict=True))


class Call(NamedTuple):
    """One call of a known layer: its input, and the place in the graph where the cotangent of its output arrives."""

    name: str
    layer: Any
    rule: "Rule"
    x: Tensor
    edge: Any  # None where the output has no derivative

    @property
    def lead(self) -> tuple[int, ...]:
        """The axes of the input that do not belong to one token."""
        return tuple(self.x.shape[: self.x.ndim - self.rule.token_axes(self.layer, self.x)])

    def parameters(self) -> list[Tensor]:
        """Those of the layer that are trained."""
        own = (getattr(self.layer, name, None) for name in ("weight", "bias"))
        return [p for p in own if p is not None and p.requires_grad]

    def leaves(self, right: Tensor, place: Placement, n: int, number: int) -> Iterator[tuple[Tensor, Leaf]]:
        """The factors of the parameters, for cotangents `(k, *output)`."""
        import torch

        if place.axis < 0:
            return
        k, lead, layer = len(right), self.lead, self.layer
        x = place.examples_first(self.x.detach(), lead, n)
        each = [place.examples_first(c, lead, n) for c in right]  # (n, repeats, *rest) of each cotangent
        left, cotangents = (
            self.rule.left(layer, x.flatten(0, 1)).unflatten(0, (n, -1)),
            torch.stack(each, 1).flatten(0, 2),
        )
        rights: dict[Any, Tensor] = {}
        for parameter in self.parameters():
            is_weight = parameter is layer.weight
            fn = self.rule.right if is_weight or self.rule.bias is None else self.rule.bias
            if fn not in rights:  # (n k repeats, groups, tokens, outputs)
                rights[fn] = fn(layer, cotangents).unflatten(0, (n, k, -1)).transpose(2, 3).flatten(3, 4)
            yield parameter, self.rule.leaf(parameter, is_weight, left, rights[fn], number)


class Rule(NamedTuple):
    """How a kind of layer acts on tokens.

    - `token_axes(layer, x)`: the number of trailing axes of the input that one token has.
    - `left(layer, x)`: what the weights multiply, for a batch of tokens in the first axis.
    - `right(layer, cotangent)`: `(N, *token) -> (N, groups, tokens, outputs)`: a convolution makes many tokens of one.
    - `leaf(parameter, is_weight, left, right, call)`: the Jacobian of a parameter from `left` `(n, repeats, ...)` and
      `right` `(n, k, groups, tokens, outputs)`.
    - `bias(layer, cotangent)`: `right` for the bias, where it is another one.
    """

    token_axes: Callable[[Any, Tensor], int]
    left: Callable[[Any, Tensor], Tensor]
    right: Callable[[Any, Tensor], Tensor]
    leaf: Callable[[Tensor, bool, Tensor, Tensor, int], Leaf]
    bias: Callable[[Any, Tensor], Tensor] | None = None


def _affine(parameter: Tensor, is_weight: bool, left: Tensor, right: Tensor, call: int) -> Leaf:
    form = Form(Role.WEIGHT if is_weight else Role.BIAS, right.shape[2], tuple(parameter.shape))
    return Leaf(form, left.transpose(1, 2).flatten(2, 3) if is_weight else None, right, (call,))


def _transposed(parameter: Tensor, is_weight: bool, left: Tensor, right: Tensor, call: int) -> Leaf:
    """The weight and the bias have other cotangents: they share none."""
    leaf = _affine(parameter, is_weight, left, right, call)
    role = Role.TURNED if is_weight else Role.BIAS
    return leaf._replace(form=leaf.form._replace(role=role), calls=(call, int(is_weight)))


def _table(parameter: Tensor, is_weight: bool, left: Tensor, right: Tensor, call: int) -> Leaf:
    return Leaf(Form(Role.TABLE, 1, tuple(parameter.shape)), left, right, (call,))


def _elementwise(parameter: Tensor, is_weight: bool, left: Tensor, right: Tensor, call: int) -> Leaf:
    """The plain Jacobian of a scale or a shift is small."""
    scaled = right * left.transpose(1, 2).flatten(2, 3)[:, None] if is_weight else right
    shape = tuple(parameter.shape)
    return Leaf(plain(shape), None, scaled.sum((2, 3)).unflatten(2, shape), (call,))


def _one_token(layer: Any, x: Tensor) -> Tensor:
    return x.flatten(1)[:, None, None]


def _sites(layer: Any, x: Tensor) -> Tensor:
    return x.flatten(2).unflatten(1, (layer.groups, -1)).transpose(2, 3)


def _channels(layer: Any, x: Tensor) -> Tensor:
    return x[..., None].flatten(2).transpose(1, 2)[:, None]


def _trained_rows(layer: Any, x: Tensor) -> Tensor:
    """Indices; the row of the padding is not trained."""
    return x if layer.padding_idx is None else x.masked_fill(x == layer.padding_idx, -1)


LINEAR = Rule(lambda layer, x: 1, _one_token, _one_token, _affine)


def known_layer(layer: Any) -> Rule | None:
    """The rule of a layer; the types must be exactly these: a subclass may do something else."""
    from torch import nn

    if type(layer) is nn.Linear:
        return LINEAR
    if type(layer) in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
        return Rule(lambda layer, x: 1 + len(layer.kernel_size), patches, _sites, _affine)
    if type(layer) in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d):
        return Rule(lambda layer, x: 1 + len(layer.kernel_size), _sites, opened, _transposed, _sites)
    if type(layer) is nn.Embedding:
        return Rule(lambda layer, x: 0, _trained_rows, _one_token, _table)
    if type(layer) in (nn.LayerNorm, nn.RMSNorm):  # every number of a token has a scale and a shift of its own
        return Rule(
            lambda layer, x: len(layer.normalized_shape),
            lambda layer, x: _one_token(layer, normalized(layer, x)),
            _one_token,
            _elementwise,
        )
    if type(layer) in (nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):  # every channel has
        return Rule(
            lambda layer, x: x.ndim - 1,
            lambda layer, x: _channels(layer, normalized(layer, x)),
            _channels,
            _elementwise,
        )
    return None


def normalized(layer: Any, x: Tensor) -> Tensor:
    """What a normalization gives before scale and shift."""
    from torch import nn
    from torch.nn import functional

    if isinstance(layer, nn.LayerNorm):
        return functional.layer_norm(x, layer.normalized_shape, None, None, layer.eps)
    if isinstance(layer, nn.RMSNorm):
        return functional.rms_norm(x, layer.normalized_shape, None, layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return functional.group_norm(x, layer.num_groups, None, None, layer.eps)
    return functional.batch_norm(x, layer.running_mean, layer.running_var, None, None, False, 0.0, layer.eps)


def opened(layer: Any, cotangent: Tensor) -> Tensor:
    """What every site of the input of a transposed convolution has written: windows of the cotangent."""
    from torch.nn import functional

    padded = functional.pad(cotangent, _padding(layer))
    kept = [size - extra for size, extra in zip(padded.shape[2:], layer.output_padding, strict=True)]
    return _windows(layer, padded[(slice(None), slice(None), *map(slice, kept))])  # no site writes the rest


def patches(layer: Any, x: Tensor) -> Tensor:
    """What a convolution sees at every site: `(N, groups, sites, channels times window)`."""
    from torch.nn import functional

    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return _windows(layer, functional.pad(x, _padding(layer), mode=mode))


def _windows(layer: Any, x: Tensor) -> Tensor:
    for axis, (size, step, gap) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        x = x.unfold(axis, gap * (size - 1) + 1, step)[..., ::gap]  # sites stay, the window goes to the end
    space = len(layer.kernel_size)
    x = x.unflatten(1, (layer.groups, -1)).movedim(2, 2 + space)  # (N, groups, *sites, channels, *window)
    return x.flatten(2 + space).flatten(2, 1 + space)


def _padding(layer: Any) -> list[int]:
    """Both sides of every axis, the last axis first."""
    if layer.padding == "valid":
        return [0, 0] * len(layer.kernel_size)
    if layer.padding == "same":
        total = [gap * (size - 1) for size, gap in zip(layer.kernel_size, layer.dilation, strict=True)]
        return [side for t in reversed(total) for side in (t // 2, t - t // 2)]
    return [side for p in reversed(layer.padding) for side in (p, p)]
