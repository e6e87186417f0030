"""What large learning rates do: where training becomes unstable, and how it comes back."""

from ._catapult import catapult as catapult
from ._central_flow import central_flow as central_flow
from ._edge import edge as edge
from ._self_stabilization import self_stabilization as self_stabilization
