"""A network with the variances at which it keeps its signals."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx

from ... import layers
from ..._walk import Visit, visit
from ...activations import AbstractActivation
from ...layers import AbstractLayer, LayerNorm, Repeat, Serial
from ...signal import ArchitectureError
from ._critical_init import CriticalPoint, Kind, critical_init
from ._phase import continuous

_KEEP_VARIANCES = layers.Identity, layers.Flatten, layers.Index, layers.Mirror
_POOL = layers.AvgPool, layers.SumPool, layers.GlobalAvgPool, layers.GlobalSumPool
_CHANGE_VARIANCES = *_POOL, layers.Aggregate, layers.SiteMap, layers.Resize
_FACTOR = "a factor is a part of the weights. Leave it out, or put it at the end of a branch of a sum"
_DROPOUT = "dropout adds noise of its own to every input, so that no critical point is left (Schoenholz et al. 2017)"
_ATTENTION = "only softmax passes on averages; what other scores pass on grows with a power of the variance"
_PRODUCT = "the variance of a product is the product of the variances: only the variance 1 would be kept"
_MADE = "made critical"


class _Reading(NamedTuple):
    """What the next layer reads: the output of an activation, or (`last=None`) data, or a linear function of these."""

    last: AbstractActivation | None = None
    fresh: bool = True  # no weights so far: data, of unit variance
    held: bool = False  # the activation read a normalized signal
    norm: type[AbstractLayer] | None = None  # the normalization since the last activation or weights
    astray: str = ""  # the layer before the activation that has changed variances by an unknown amount, if any
    moved: str = ""  # the same, up to here
    share: float = 1.0  # squared factors since the last weights


def critical(net: AbstractLayer) -> AbstractLayer:
    """The same architecture with critical variances: signals neither vanish nor explode with depth.

    - Weights that read an activation get its `C_w` and `C_b` (see `critical_init`); weights that read other weights
      `C_w = 1`, `C_b = 0`. The first weights, and those that read a normalized signal, bring unit variance to `K_star`,
      if the network has a half-stable activation, and otherwise keep it.
    - Branches of a sum are tuned one by one, as networks of their own. If the squares of the factors at their ends
      (`Scale`) add up to 1, each keeps the variance, and so does the sum. In a plain `x + branch(x)` every block adds
      as much again: variances of scale-invariant activations double, others grow like the depth; `propagate` tells.
    - Normalization imposes the variance 1, whatever the weights. Where an activation reads or feeds `LayerNorm` or
      `RmsNorm`, what is left to choose is the share of the biases, and it makes the slope of the correlation map 1.
    - Softmax attention averages: its values and outputs are given `C_w = 1`, keys and queries stay as they are.
    - A first repetition of `Repeat` that differs from the others is written out.

    Zero padding takes variance from the border of an image; `"CIRCULAR"` padding does not. Also a method:
    `net.critical()`.

    Args:
        net: layers of ours, and containers of yours that say what their parts are (`AbstractLayer.parts`).

    Returns:
        A network of the same layers. `ArchitectureError` names the layer about which nothing is known.

    >>> import everwide as ew
    >>> from everwide.theory.criticality import critical, propagate
    >>> net = ew.Serial(ew.Repeat(ew.Serial(ew.Dense(), ew.Gelu()), 20), ew.Dense(1))
    >>> tuned = critical(net)
    >>> before_each_activation = propagate(tuned).variance[1::2]
    >>> before_each_activation.min().round(6), before_each_activation.max().round(6)
    (np.float64(3.561553), np.float64(3.561553))

    Yang, Schoenholz, "Mean field residual networks: on the edge of chaos" (2017); Roberts, Yaida, Hanin, "The
    principles of deep learning theory" (2022), appendix B, for sums.
    """
    look = _Tuner(None, {})
    look.tuned(net)
    return _Tuner(_target(list(look.points.values())), look.points).tuned(net)


def _target(points: list[CriticalPoint]) -> CriticalPoint | None:
    """The half-stable point that all activations must live at, if there is one."""
    tuned = [point for point in points if point.kind is Kind.HALF_STABLE]
    rivals = [p for p in points if p.kind is not Kind.SCALE_INVARIANT and tuned and not _close(p, tuned[0])]
    if rivals:
        raise ArchitectureError(
            f"{tuned[0].name} keeps the variance {tuned[0].K_star:.6g} only, but {rivals[0].name} keeps "
            f"{rivals[0].K_star:.6g}: they cannot share a critical network. Use one of them, or scale-invariant "
            "activations (Relu, LeakyRelu, Abs) beside it."
        )
    return tuned[0] if tuned else None


def _close(a: CriticalPoint, b: CriticalPoint) -> bool:
    return a.kind is b.kind and math.isclose(a.K_star, b.K_star, rel_tol=1e-9)


@dataclass
class _Tuner:
    """One pass over a network. The first looks for the activations that no normalization holds, the second tunes."""

    target: CriticalPoint | None
    points: dict[int, CriticalPoint]  # of activations, by their identity

    def tuned(self, net: AbstractLayer) -> AbstractLayer:
        """The whole network."""
        layer, end = self.through(visit(net), _Reading())
        if end.share != 1:
            raise visit(net).refusal(_MADE, _FACTOR)
        if end.last is not None and not (end.held or end.norm):
            self._point(end.last, end)
        return layer

    def through(self, at: Visit, reads: _Reading) -> tuple[AbstractLayer, _Reading]:
        """The tuned layer, and what comes after it."""
        layer, join = at.layer, at.parts.join
        rules = {"chain": self._chain, "repeat": self._repeated, "sum": self._branches, "concat": self._branches}
        if join in rules:
            return rules[join](at, reads)
        if join or isinstance(layer, layers.Dropout):
            raise at.refusal(_MADE, {"product": _PRODUCT}.get(join, "") if join else _DROPOUT)
        if isinstance(layer, layers.Scale):
            return layer, reads._replace(share=reads.share * float(layer.factor) ** 2)
        if isinstance(layer, _KEEP_VARIANCES):
            return layer, reads
        if reads.share != 1:
            raise at.refusal(f"{_MADE} after a Scale", _FACTOR)
        return self._leaf(at, reads)

    def _chain(self, at: Visit, reads: _Reading) -> tuple[AbstractLayer, _Reading]:
        inside = []
        for part in at.inside():
            tuned, reads = self.through(part, reads)
            inside.append(tuned)
        return at.layer.with_parts(inside), reads

    def _repeated(self, at: Visit, reads: _Reading) -> tuple[AbstractLayer, _Reading]:
        (part,) = at.inside()
        first, after = self.through(part, reads)
        if at.parts.times == 1:
            return at.layer.with_parts([first]), after
        again, settled = self.through(part, after)
        if first == again:
            return at.layer.with_parts([again]), settled
        return Serial(first, Repeat(again, at.parts.times - 1)), settled

    def _branches(self, at: Visit, reads: _Reading) -> tuple[AbstractLayer, _Reading]:
        inside, ends = zip(*(self.through(part, reads) for part in at.inside()), strict=True)
        total = sum(end.share / reads.share for end in ends)
        same = [end._replace(fresh=False, moved="", share=1.0) for end in ends]
        if any(end != same[0] for end in same) or (at.parts.join == "concat" and any(end.share != 1 for end in ends)):
            raise at.refusal(
                _MADE,
                "the weights after it would read branches that end in different ways. End all of them with the same "
                "activation, or all with weights",
            )
        kept = at.parts.join == "concat" or math.isclose(total, 1.0, rel_tol=1e-9)
        moved = next((end.moved for end in ends if end.moved), "" if kept else at.place)
        return at.layer.with_parts(inside), same[0]._replace(moved=moved, share=reads.share)

    def _leaf(self, at: Visit, reads: _Reading) -> tuple[AbstractLayer, _Reading]:
        layer = at.layer
        if isinstance(layer, AbstractActivation):
            if reads.last is not None:
                raise ArchitectureError(
                    f"{layer!r} follows {reads.last!r} with no weights in between: it reads signals that are not "
                    "Gaussian, and no variance is known to be kept. Put a Dense or Conv layer between them."
                )
            return layer, reads._replace(last=layer, held=reads.norm is not None, norm=None, astray=reads.moved)
        if isinstance(layer, LayerNorm | layers.RmsNorm):
            return layer, reads._replace(norm=type(layer), moved="")
        if isinstance(layer, _CHANGE_VARIANCES):
            return layer, reads._replace(moved=at.place)
        if isinstance(layer, layers.SelfAttention):
            return self._attention(at, layer, reads)
        if len(layer.weights()) != 1:
            raise at.refusal(_MADE)
        weight, bias = self._variances(at, reads)
        (old,) = layer.weights().values()
        new = replace(old, w_std=math.sqrt(weight), b_std=_bias_std(bias, old.b_std))
        tuned = eqx.tree_at(lambda one: next(iter(one.weights().values())), layer, new)
        return tuned, _Reading(fresh=False, moved=reads.moved)

    def _attention(self, at: Visit, layer: layers.SelfAttention, reads: _Reading) -> tuple[AbstractLayer, _Reading]:
        if layer.mechanism != "softmax":
            raise at.refusal(_MADE, _ATTENTION)
        weight, bias = self._variances(at, reads)
        stds = math.sqrt(weight), 1.0, _bias_std(bias, layer.b_std)

        def where(one):
            return (one.w_value_std, one.w_out_std, one.b_std)

        tuned = eqx.tree_at(where, layer, stds, is_leaf=lambda leaf: leaf is None)
        return tuned, _Reading(fresh=False, moved=at.place)

    def _variances(self, at: Visit, reads: _Reading) -> tuple[float, float]:
        """`C_w` and `C_b` of weights that read this."""
        if reads.last is not None and (reads.held or reads.norm):
            return self._under_norm(at, reads.last, reads)
        if reads.last is not None:
            point = self._point(reads.last, reads)
            return point.C_w, point.C_b
        if (reads.fresh or reads.norm) and self.target is not None:  # C_w + C_b is what comes of unit variance
            return self.target.K_star - self.target.C_b, self.target.C_b
        return 1.0, 0.0

    def _point(self, activation: AbstractActivation, reads: _Reading) -> CriticalPoint:
        """Of an activation that no normalization holds."""
        if id(activation) not in self.points:
            self.points[id(activation)] = critical_init(activation)
        point = self.points[id(activation)]
        if point.kind is Kind.NONE:
            raise ArchitectureError(f"{point.name} has no critical point: {point.reason}")
        if self.target is not None and reads.astray:
            raise ArchitectureError(
                f"{reads.astray} changes variances by an amount that is not known, but {self.target.name} keeps "
                f"{self.target.K_star:.6g} only. Take it out, put LayerNorm behind it, or use a scale-invariant "
                "activation such as Relu."
            )
        return point

    def _under_norm(self, at: Visit, activation: AbstractActivation, reads: _Reading) -> tuple[float, float]:
        """The variance is imposed: the share of the biases makes the slope of the correlation map 1."""
        kept = 1.0 if self.target is None else self.target.K_star
        read = 1.0 if reads.held else kept
        moments = continuous(activation, read)
        one, rule = moments.at_one(read), moments.rule(math.sqrt(read))
        if reads.norm is None:
            weight = kept / one.slope
            bias = kept - weight * one.second
        else:
            size = one.second - (float(rule.mass @ rule.values) ** 2 if reads.norm is LayerNorm else 0.0)
            weight = kept * size / (read * one.slope)
            bias = kept - weight
        if bias < -1e-9 * kept:
            raise at.refusal(
                _MADE,
                f"{moments.name} under normalization makes inputs alike, whatever the biases: its second moment "
                f"{one.second:.4g} exceeds {read * one.slope:.4g}, that of its slope. Put LayerNorm behind it",
            )
        return weight, bias if bias > 1e-9 * kept else 0.0  # what is smaller is rounding


def _bias_std(bias: float, old: object) -> float | None:
    return None if bias == 0 and old is None else math.sqrt(bias)
