"""The networks that have a name on the command line, and what a network reads."""

from ...estimators import preset
from ...layers import AbstractLayer
from ...signal import ArchitectureError, Signal
from ...tables import Table


def asked_network(net: AbstractLayer | str | None, table: Table) -> tuple[AbstractLayer | str, tuple[int, ...] | None]:
    """What estimators are given as `architecture`, and the shape into which they fold a row, if they do."""
    if net is None:
        return "auto", None
    if isinstance(net, AbstractLayer):
        return net, _shape_read(net, table)
    shape = tuple(table.shape if net != "mlp" else table.x.shape[1:])
    return preset(net, shape), None if shape == table.x.shape[1:] else shape


def _shape_read(net: AbstractLayer, table: Table) -> tuple[int, ...] | None:
    """Rows as they are, if the network takes them; as images, if it takes those. The message is that of the first."""
    shape = tuple(table.x.shape[1:])
    try:
        net.describe(Signal(shape))
    except ArchitectureError:
        if table.sites is None or table.x.ndim > 2:
            raise
        net.describe(Signal(table.sites))
        return table.sites
    return None
