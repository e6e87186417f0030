"""Modules of PyTorch, Flax and Equinox in people's files: translated when the shape of an example is known."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..layers import AbstractLayer
from ..signal import ArchitectureError
from ..tables import Table
from ..translation import from_module


@dataclass(frozen=True)
class OwnModule:
    """A module as a file has it, and how it was named."""

    module: Any
    name: str

    def translated(self, shape: tuple[int, ...]) -> Any:
        """For examples of that shape, in the order of the module's axes or in ours; the module's is tried first."""
        shapes = dict.fromkeys((shape, (shape[-1], *shape[:-1])))
        return self._first([(one, None) for one in shapes])

    def for_examples(self, *shapes: tuple[int, ...]) -> Any:
        """For examples that come in one of these shapes, channels last; images are given to it channels first."""
        tried = [((one[-1], *one[:-1]), one) for one in shapes] + [(one, one) for one in shapes]
        return self._first(list(dict.fromkeys(tried)))

    def _first(self, tried: list[tuple[tuple[int, ...], tuple[int, ...] | None]]) -> Any:
        faults = []
        for shape, wanted in tried:
            try:
                read = from_module(self.module, shape)
            except ArchitectureError as fault:
                faults.append(fault)
            else:
                if wanted in (None, read.input_shape):
                    return read
        raise faults[0] if faults else ArchitectureError(f"{self.name} reads examples of none of the shapes {tried}.")


def notes_of(translation: Any) -> list[str]:
    """What is said beside the answer: how exact the translation is, and where it is not."""
    changed = [row for row in translation.rows if str(row.outcome) != "exact"]
    return [translation.summary, *(f"{row.place} ({row.module}): {row.note}." for row in changed)]


def for_table(net: AbstractLayer | str | OwnModule, table: Table) -> tuple[AbstractLayer | str, list[str]]:
    """The network for the examples of a table, and what is to be said of it."""
    if not isinstance(net, OwnModule):
        return net, []
    flat, folded = tuple(table.x.shape[1:]), tuple(np.atleast_1d(table.shape).tolist())
    read = net.for_examples(*dict.fromkeys((flat, folded)))
    return read.net, notes_of(read)
