"""Kernel matrices, tile by tile: rows that are checked, memory that is counted. Shared by all rooms, public to none."""

from ._gram import Gram as Gram
from ._gram import Progress as Progress
from ._gram import diagonal as diagonal
from ._gram import fill as fill
from ._gram import fitted as fitted
from ._gram import plan_memory as plan_memory
from ._gram import write as write
from ._inputs import Rows as Rows
from ._inputs import as_rows as as_rows
from ._inputs import matching as matching
from ._memory import MemoryBudgetError as MemoryBudgetError
from ._memory import available_memory as available_memory
from ._memory import human as human
from ._memory import require as require
from ._tiles import AbstractBackend as AbstractBackend
from ._tiles import Field as Field
from ._tiles import InProcess as InProcess
from ._tiles import Job as Job
from ._tiles import Size as Size
from ._tiles import Tile as Tile
from ._tiles import tiles as tiles
