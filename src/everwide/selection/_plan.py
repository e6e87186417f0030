"""What is used: a method, a transform, and a model if they need one."""

from typing import Any, NamedTuple

from .._checks import Choice, InputError
from .._words import several
from ._learners import AbstractLearner, Estimator
from ._methods import Transform
from ._targets import Targets


class Method(Choice):
    """How rows are chosen."""

    RANDOM = "random"
    MARGIN = "margin"
    ENTROPY = "entropy"
    BALD = "bald"
    K_CENTRE = "k_centre"
    BADGE = "badge"
    BAIT = "bait"
    LCMD = "lcmd"
    DETERMINANTAL = "determinantal"
    TYPICLUST = "typiclust"
    MLMOC = "mlmoc"
    EMOC = "emoc"
    EXPECTED_ERROR = "expected_error"


_OF_CLASSES = (Method.MARGIN, Method.ENTROPY, Method.MLMOC)
_BY_PROBABILITIES = (Method.MARGIN, Method.ENTROPY)
_AHEAD = (Method.BALD, Method.MLMOC, Method.EMOC, Method.EXPECTED_ERROR)
_OF_OUTPUTS = (Transform.UNCERTAIN, Transform.FISHER)


class Plan(NamedTuple):
    """A method and a transform, and what is to be said of them."""

    method: Method
    transform: Transform
    notes: tuple[str, ...] = ()

    @property
    def uses_features(self) -> bool:
        """Whether it needs a kernel."""
        return self.method not in (Method.RANDOM, *_BY_PROBABILITIES)

    def needs_a_model(self, targets: Targets, kernel: Any) -> bool:
        """For probabilities, or for its kernel, where nobody gives one."""
        asks = self.method in _BY_PROBABILITIES or self.transform in _OF_OUTPUTS
        learns = self.uses_features and kernel is None and not _blind(targets, None)
        return asks or learns


def plan_of(method: str | None, transform: str | None, targets: Targets, model: AbstractLearner | None) -> Plan:
    """What was asked for, or what suits; what needs a model has to wait until there are labels of two kinds."""
    classes, blind = targets.names is not None, _blind(targets, model)
    if method is None:
        chosen = Method.TYPICLUST if blind else Method.MARGIN if classes else Method.LCMD
    else:
        chosen = Method(method)
    if not classes and chosen in _OF_CLASSES:
        raise InputError(
            f"method={method!r} is for classes, and y holds numbers. Use 'lcmd', or task='classification'."
        )
    shape, notes = _transform(transform, chosen, targets), ()
    if blind and (chosen in (*_BY_PROBABILITIES, *_AHEAD) or shape in _OF_OUTPUTS):
        seen = several(len(targets.classes), "class", "classes") if classes else several(len(targets.labelled), "label")
        notes = (f"y has {seen} so far, of which {chosen} can say nothing: typiclust chose instead.",)
        chosen, shape = Method.TYPICLUST, Transform.PLAIN
    return Plan(chosen, shape, notes)


def _blind(targets: Targets, model: AbstractLearner | None) -> bool:
    """Whether there is nothing to learn from yet."""
    if targets.names is None:
        return model is None and len(targets.labelled) < 2
    if model is None:
        return len(targets.classes) < 2
    return isinstance(model, Estimator) and len(model.classes(targets, None)) < 2


def _transform(transform: str | None, method: Method, targets: Targets) -> Transform:
    if transform is None:
        classes = targets.names is not None
        made_for = {Method.BADGE: Transform.UNCERTAIN, Method.BAIT: Transform.FISHER} if classes else {}
        return made_for.get(method, Transform.PLAIN)
    chosen = Transform(transform)
    if chosen in _OF_OUTPUTS and targets.names is None:
        raise InputError(f"transform={transform!r} is for classes, and y holds numbers. Use 'plain' or 'posterior'.")
    return chosen
