"""Phase diagrams, depth scales and critical points beside random networks of finite width."""

from ._run import Criticality as Criticality
from ._run import reproduce as reproduce
