"""The networks that have a name on the command line, and what a network reads."""

from ..._presets import preset, shape_read
from ...layers import AbstractLayer
from ...tables import Table


def asked_network(net: AbstractLayer | str | None, table: Table) -> tuple[AbstractLayer | str, tuple[int, ...] | None]:
    """What estimators are given as `architecture`, and the shape into which they fold a row, if they do."""
    if net is None:
        return "auto", None
    flat = tuple(table.x.shape[1:])
    if isinstance(net, AbstractLayer):
        shape = shape_read(net, flat, table.shape)
        return net, None if shape == flat else shape
    shape = flat if net == "mlp" else tuple(table.shape)
    return preset(net, shape), None if shape == flat else shape
