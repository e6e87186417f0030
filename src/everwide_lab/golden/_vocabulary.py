"""From the library-neutral vocabulary of the reference cases to networks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from everwide.layers import AbstractLayer, Concat, Dropout, Identity, Product, Scale, Serial, Sum
from everwide.signal import ArchitectureError, Parametrization, Signal

from ._activations import ACTIVATIONS, NUMERICAL
from ._sites import SITE_WORDS
from ._weights import DECAYS, MECHANISMS, WEIGHT_WORDS, Plan
from ._words import Word, words_of

Spec = Any  # an object of a JSON file that nobody has checked


@dataclass(frozen=True)
class Built:
    """A network of a reference case, and the parametrization in which the case means it."""

    net: Serial
    parametrization: Parametrization


def build_network(layers: Sequence[Spec], input_shape: Sequence[int]) -> Built:
    """The network that a list of layers in the vocabulary describes, for inputs of shape `(*sites, channels)`.

    Raises `ArchitectureError` at a word or an option that the vocabulary does not have.

    >>> from everwide_lab.golden import build_network
    >>> layers = [{"type": "dense", "width": 1, "W_std": 1.4}, {"type": "relu"}, {"type": "dense", "width": 1}]
    >>> net = build_network(layers, (7,)).net
    """
    plan = _plan(layers)
    signal = Signal(tuple(input_shape), parametrization=plan.parametrization)
    net, _ = _chain(layers, plan, signal)
    return Built(net, plan.parametrization)


def words() -> dict[str, tuple[str, ...]]:
    """The layers that the vocabulary has, and the names of position decays, by what they are.

    >>> from everwide_lab.golden import words
    >>> words()["decays"]
    ('exp', 'exp_half', 'inv1', 'none')
    """
    groups = {
        "weights": WEIGHT_WORDS,
        "activations": ACTIVATIONS,
        "numerical activations": NUMERICAL,
        "sites": SITE_WORDS,
        "others": _OTHERS,
        "mechanisms": MECHANISMS,
        "decays": DECAYS,
    }
    return {group: tuple(sorted(known)) for group, known in groups.items()}


def _plan(layers: Sequence[Spec]) -> Plan:
    """A case of one parametrization takes that of the network; widths are fixed only where the limit knows them."""
    specs = list(_all(layers))
    weights = [s for s in specs if s.get("type") in WEIGHT_WORDS]
    laws = {str(s.get("parameterization", "ntk")).lower() for s in weights}
    scaled = any(list(s.get("s", [1, 1])) != [1, 1] for s in weights)
    beside = any(str(s.get("pos_emb")).upper() == "CONCAT" for s in specs)
    concat = any(s.get("merge") == "concat" for s in specs)
    mixed = len(laws) > 1 or (scaled and "standard" in laws)
    one = Parametrization.STANDARD if laws == {"standard"} and not mixed else Parametrization.NTK
    return Plan(open_widths=laws <= {"ntk"} and not beside and not concat, parametrization=one, mixed=mixed)


def _all(layers: Sequence[Spec]) -> Iterator[Spec]:
    for spec in layers:
        if isinstance(spec, Mapping):
            yield spec
            for branch in spec.get("branches", ()):
                yield from _all(branch)


def _chain(layers: Sequence[Spec], plan: Plan, signal: Signal) -> tuple[Serial, Signal]:
    made = []
    for i, spec in enumerate(layers):
        word = Word(spec)
        layer = _layer(word, plan, signal)
        word.finish()
        signal = replace(layer.describe(signal.at(i)), path=signal.path)
        made.append(layer)
    return Serial(*made), signal


def _layer(w: Word, plan: Plan, signal: Signal) -> AbstractLayer:
    if w.type in WEIGHT_WORDS:
        return WEIGHT_WORDS[w.type](w, plan, signal)
    if w.type in ACTIVATIONS:
        return ACTIVATIONS[w.type](w)
    if w.type in SITE_WORDS:
        return SITE_WORDS[w.type](w, signal)
    if w.type in _OTHERS:
        return _OTHERS[w.type](w, plan, signal)
    known = words_of([*WEIGHT_WORDS, *ACTIVATIONS, *SITE_WORDS, *_OTHERS])
    raise ArchitectureError(f"Unknown layer type {w.type!r}, expected one of {known}.")


def _dropout(w: Word, plan: Plan, signal: Signal) -> AbstractLayer:
    keep, training = w.number("rate"), w.choice("mode", {"train": True, "test": False}, "train")
    return Dropout(1 - keep) if training else Identity()  # the vocabulary's rate is the probability to keep


def _branches(w: Word, plan: Plan, signal: Signal) -> AbstractLayer:
    merge = w.choice("merge", {"sum": Sum, "concat": Concat, "prod": Product})
    made = [_chain(b, plan, signal.at(i))[0] if b else Identity() for i, b in enumerate(w.take("branches"))]
    return merge(*made)


_OTHERS = {
    "dropout": _dropout,
    "branches": _branches,
    "scale": lambda w, plan, signal: Scale(w.number("c")),
}
