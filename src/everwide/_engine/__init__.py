"""Kernel matrices, tile by tile: rows that are checked, memory that is counted. Shared by all rooms, public to none."""

from ._inputs import Rows as Rows
from ._inputs import as_rows as as_rows
from ._inputs import matching as matching
from ._inputs import paired as paired
from ._jobs import Field as Field
from ._jobs import Job as Job
from ._matrix import Gram as Gram
from ._matrix import diagonal as diagonal
from ._matrix import fill as fill
from ._matrix import plan_memory as plan_memory
from ._memory import MemoryBudgetError as MemoryBudgetError
from ._memory import budget as budget
from ._memory import human as human
from ._memory import require as require
from ._tiles import Progress as Progress
from ._tiles import Size as Size
from ._tiles import Tile as Tile
from ._tiles import Values as Values
from ._tiles import collect as collect
from ._tiles import finished as finished
from ._tiles import fitted as fitted
from ._tiles import tiles as tiles
from ._tiles import write as write
