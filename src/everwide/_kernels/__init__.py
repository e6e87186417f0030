"""From a network to its kernel function."""

from ._compiled import compiled as compiled
from ._compiled import seconds as seconds
from ._infinite import Infinite as Infinite
from ._infinite import Tower as Tower
