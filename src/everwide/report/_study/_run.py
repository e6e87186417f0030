"""All parts, one after the other; a part that fails says why, and the others go on."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ..._checks import InputError
from ..._engine import MemoryBudgetError
from ...layers import AbstractLayer
from ...tables import Table
from . import _accuracy, _agreement, _architecture, _calibration, _data, _modes, _needs, _phase, _rows, _training
from ._problem import FULL, QUICK, Problem, prepared
from ._section import Fact, Section, plain
from ._tiles import tiles
from ._validation import cross_validated

Progress = Callable[[int, int, str], None]
# What data can do to a part: values that do not fit, singular matrices, numbers that overflow, too little room.
_FAULTS = (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryBudgetError, MemoryError, NotImplementedError)


@dataclass(frozen=True, eq=False)
class Study:
    """Every number of a report. Made by `study`; `render` makes it a page.

    - `source`, `target`, `task`, `rows`: of the table. `network`: the one that was chosen, in words.
    - `tiles`: what most people look for first. `sections`: everything, by key, in the order of the page.

    >>> from everwide.report import Study
    >>> Study("a.csv", "y", "regression", 3, "none", False, 0, (), {}).to_dict()["rows"]
    3
    """

    source: str
    target: str
    task: str
    rows: int
    network: str
    quick: bool
    seed: int
    tiles: tuple[Fact, ...]
    sections: Mapping[str, Section]

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types, for JSON; what is not finite is `None`."""
        names = ("source", "target", "task", "rows", "network", "quick", "seed")
        known = {name: plain(getattr(self, name)) for name in names}
        found = {key: section.to_dict() for key, section in self.sections.items()}
        return {**known, "tiles": [tile._asdict() for tile in self.tiles], "sections": found}


def study(
    table: Table,
    *,
    net: AbstractLayer | str | None = None,
    quick: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Study:
    """What a network will make of a table, before it is trained: every number of the report.

    - `table`: of `everwide.tables`. `net`: a network, "mlp", "cnn" or "resnet"; by default chosen from the rows.
    - `quick`: fewer rows and folds. `seed`: of the rows that are drawn. `progress(done, total, what)`: called between
      the parts.

    A part that cannot be computed for this table says why in one sentence, and the others go on.

    >>> from everwide.report import study
    >>> from everwide.tables import digits_table
    >>> found = study(digits_table(), quick=True)  # doctest: +SKIP
    >>> study(digits_table().take([0]))
    Traceback (most recent call last):
        ...
    everwide._checks.InputError: digits of scikit-learn has 1 rows: a report needs at least two...
    """
    if table.rows < 2:
        raise InputError(f"{table.source} has {table.rows} rows: a report needs at least two, and better a hundred.")
    limits, tell = QUICK if quick else FULL, progress or (lambda done, total, what: None)
    total, found = 3 + len(_PARTS), {}
    tell(0, total, "choosing a network")
    problem = prepared(table, net, limits, seed)
    tell(1, total, "cross-validation")
    # A finite network compiles for long, on one core: beside the others. Small matrices gain nothing from two.
    with threadpool_limits(1 if quick else None), ThreadPoolExecutor(1) as pool:
        agreement = pool.submit(_part, _agreement, _agreement.agreement, problem)
        validation, fault = _attempt(cross_validated, problem)
        for done, (module, make) in enumerate(_PARTS, start=2):
            tell(done, total, module.TITLE)
            lost = fault if module in _VALIDATED else ""
            found[module.KEY] = _part(module, partial(make, validation=validation), problem, lost)
        tell(total - 1, total, _agreement.TITLE)
        found[_agreement.KEY] = agreement.result()
    tell(total, total, "done")
    return Study(
        source=table.source,
        target=table.target,
        task=table.task,
        rows=table.rows,
        network=str(problem.estimator.choice_).splitlines()[0],
        quick=quick,
        seed=seed,
        tiles=tiles(found),
        sections=found,
    )


_VALIDATED = (_accuracy, _calibration)
_PARTS = (
    (_data, lambda problem, validation: _data.data(problem.table)),
    (_accuracy, lambda problem, validation: _accuracy.accuracy(problem, validation)),
    (_calibration, lambda problem, validation: _calibration.calibration(problem, validation)),
    (_needs, lambda problem, validation: _needs.needs(problem)),
    (_rows, lambda problem, validation: _rows.rows(problem)),
    (_architecture, lambda problem, validation: _architecture.architecture(problem)),
    (_modes, lambda problem, validation: _modes.modes(problem)),
    (_training, lambda problem, validation: _training.training(problem)),
    (_phase, lambda problem, validation: _phase.phase(problem)),
)


def _part(module: Any, make: Callable[[Problem], Section], problem: Problem, lost: str = "") -> Section:
    """What was found, or a sentence that says why it was not."""
    section, missing = (None, lost) if lost else _attempt(make, problem)
    return section or Section(module.KEY, module.TITLE, module.QUESTION, missing=f"This part is missing: {missing}")


def _attempt(make: Callable[[Problem], Any], problem: Problem) -> tuple[Any, str]:
    """What was found, or why it was not."""
    try:
        return make(problem), ""
    except _FAULTS as error:
        text = str(error).strip() or type(error).__name__
        return None, text if text.endswith((".", "!", "?")) else f"{text}."
