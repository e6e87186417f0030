"""Signal propagation in deep networks: susceptibilities, critical points, phase diagrams."""

from ._critical_init import critical_init as critical_init
from ._critical_net import critical as critical
from ._phase import phase_diagram as phase_diagram
from ._phase import susceptibilities as susceptibilities
from ._propagate import propagate as propagate
