"""Kernel matrices, tile by tile."""

from ._gram import Gram as Gram
from ._gram import Progress as Progress
from ._inputs import InputError as InputError
from ._memory import MemoryBudgetError as MemoryBudgetError
from ._tiles import AbstractBackend as AbstractBackend
from ._tiles import InProcess as InProcess
from ._tiles import Job as Job
from ._tiles import Tile as Tile
