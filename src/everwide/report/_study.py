"""All sections, one after the other; one that fails says why, and the others go on."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from .._checks import InputError
from .._engine import MemoryBudgetError, Progress
from .._problem import Problem, prepare
from .._words import plain
from ..layers import AbstractLayer
from ..tables import Table
from ._page import Answer, Fact, Section, page_of, write_page
from ._sections import (
    accuracy,
    ahead,
    architecture,
    calibration,
    columns,
    data,
    forecast,
    labels,
    modes,
    phase,
    rows,
    training,
    width,
)

_FIRST = (data, accuracy, calibration, columns, forecast, rows, labels)
_ORDER = (*_FIRST, architecture, modes, training, phase, width, ahead)
SECTIONS: tuple[Section[Any, Any], ...] = tuple(room.SECTION for room in _ORDER)
# What data can do to a section: values that do not fit, singular matrices, numbers that overflow, too little room.
_FAULTS = (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryBudgetError, MemoryError, NotImplementedError)


@dataclass(frozen=True, eq=False)
class Study:
    """Every number of a report. Made by `study`; `html` makes it a page, `write` writes it.

    - `source`, `target`, `task`, `n`: of the table; `n_drawn` of its rows, at random, are looked at. `network`: the
      one that was chosen, in words. `cautions`: what to know before any number.
    - `sections`: everything, by the key of the section, in the order of the page.
    """

    source: str
    target: str
    task: str
    n: int
    n_drawn: int
    network: str
    quick: bool
    seed: int
    sections: Mapping[str, Answer]

    @property
    def cautions(self) -> tuple[str, ...]:
        """What would make the main numbers misleading, if it is overlooked."""
        return tuple(one for answer in self.sections.values() for one in answer.text.cautions)

    @property
    def tiles(self) -> tuple[Fact, ...]:
        """What most people look for first, of the sections that could be computed."""
        return tuple(tile for answer in self.sections.values() if (tile := answer.tile) is not None)

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types, for JSON; what is not finite is `None`."""
        names = ("source", "target", "task", "n", "n_drawn", "network", "quick", "seed", "cautions")
        known = {name: plain(getattr(self, name)) for name in names}
        sections = {key: answer.to_dict() for key, answer in self.sections.items()}
        return {**known, "tiles": [tile._asdict() for tile in self.tiles], "sections": sections}

    def html(self) -> str:
        """The report as one page, which needs no other file and no JavaScript. Needs jinja2 and matplotlib.

        Returns:
            The text of an HTML file. Everything that came from the data is escaped.

        >>> from everwide.report import study
        >>> from everwide.tables import Table
        >>> page = study(Table.digits(), quick=True).html()  # doctest: +SKIP

        """
        return page_of(self, "study.html")

    def write(self, path: str | Path) -> tuple[Path, Path]:
        """Write the page, and every number beside it as JSON.

        Args:
            path: of the page, such as "report.html"; folders are made.

        Returns:
            The paths of both files.

        >>> from everwide.report import study
        >>> from everwide.tables import Table
        >>> page, numbers = study(Table.digits(), quick=True).write("report.html")  # doctest: +SKIP

        """
        return write_page(path, self.html(), self.to_dict())


def study(
    table: Table,
    *,
    net: AbstractLayer | str = "auto",
    quick: bool = False,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Study:
    """What a network will make of a table, before it is trained: every number of the report.

    A section that cannot be computed for this table says why in one sentence, and the others go on.

    Args:
        table: of `everwide.tables`.
        net: a network, "mlp", "cnn" or "resnet"; "auto" chooses one from the rows.
        quick: fewer rows and folds.
        seed: of the rows that are drawn.
        progress: called between the sections.

    Returns:
        `source`, `target`, `task`, `n` of the table, `n_drawn` (rows that were looked at), the `network` in words,
        `cautions` (what to know before any number), `tiles` (the main numbers), `sections` by section, with `result`,
        `text` and `missing`; `to_dict()` for JSON, `html()` and `write(path)` for the page.

    >>> from everwide.report import study
    >>> from everwide.tables import Table
    >>> numbers = study(Table.digits(), quick=True).to_dict()  # doctest: +SKIP
    >>> study(Table.digits().take([0]))
    Traceback (most recent call last):
        ...
    everwide._checks.InputError: digits of scikit-learn has 1 rows: a report needs at least two, and better a hundred.

    """
    if table.n < 2:
        raise InputError(f"{table.source} has {table.n} rows: a report needs at least two, and better a hundred.")
    sections = [one for one in SECTIONS if not (quick and one.takes_long)]
    start, total, answers = time.perf_counter(), 1 + len(sections), {}
    problem = prepare(table, net, quick=quick, seed=seed)
    # Some compile for long, on one core: beside the others. Small matrices gain nothing from two.
    with threadpool_limits(1 if quick else None), ThreadPoolExecutor(1) as pool:
        started = {one.key: pool.submit(answered, one, problem) for one in sections if one.beside}
        for done, section in enumerate(sections, start=1):
            if progress is not None:
                progress(Progress(done, total, time.perf_counter() - start))
            beside = started.get(section.key)
            answers[section.key] = answered(section, problem) if beside is None else beside.result()
    if progress is not None:
        progress(Progress(total, total, time.perf_counter() - start))
    return Study(
        source=table.source,
        target=table.target,
        task=table.task,
        n=table.n,
        n_drawn=min(table.n, max(problem.limits.n_kernel, problem.limits.n_validation)),
        network=problem.network,
        quick=quick,
        seed=seed,
        sections={key: answer for key, answer in answers.items() if answer.missing or answer.result is not None},
    )


def answered(section: Section[Any, Any], problem: Problem) -> Answer:
    """What was found, or a sentence that says why it was not; neither, where the question is about other tables."""
    try:
        result = section.measure(problem)
        return Answer(section) if result is None else Answer(section, result, section.describe(problem, result))
    except _FAULTS as error:
        text = str(error).strip() or type(error).__name__
        end = "" if text.endswith((".", "!", "?")) else "."
        return Answer(section, missing=f"This part is missing: {text}{end}")
