"""Kernel matrices beyond one process: a store on disk that loses nothing; all devices of a machine; a cluster.

`zarr` (extra `store`) and `dask` (extra `dask`) are imported when a store or a cluster is used, not before.
"""

from ._backends import AbstractBackend as AbstractBackend
from ._backends import Devices as Devices
from ._dask import Dask as Dask
from ._product import product as product
from ._store import Store as Store
