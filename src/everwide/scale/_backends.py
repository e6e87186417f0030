"""Where tiles are computed: an interface, and all devices that JAX has here."""

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .._checks import InputError
from .._engine import Field, Progress, Rows, Size, fill
from ..kernel import AbstractKernelFunction
from ._work import AbstractTask


class AbstractBackend(abc.ABC):
    """Where tiles of a kernel matrix are computed.

    >>> import everwide as ew
    >>> issubclass(ew.scale.Devices, ew.scale.AbstractBackend)
    True
    """

    @abc.abstractmethod
    def fill(
        self,
        kernel: AbstractKernelFunction,
        x1: Rows,
        x2: Rows | None,
        out: dict[Field, np.ndarray],
        *,
        size: Size,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        """Matrices in memory."""

    @abc.abstractmethod
    def run(self, task: AbstractTask, items: Sequence[Any]) -> Iterator[Any]:
        """Pieces of work on a store, in any order, each given out when it is done."""


@dataclass(frozen=True)
class Devices(AbstractBackend):
    """All devices that JAX has on this machine take turns with the tiles; so do several GPUs.

    Convolutional kernels in compiled loops (extra `cpu`) run on the processor, whose cores they all use, whatever
    devices there are.

    Args:
        devices: Some of `jax.local_devices()`; by default all.

    >>> import everwide as ew, numpy as np
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> ew.ntk(net, np.eye(3), backend=ew.scale.Devices()).shape
    (3, 3)
    """

    devices: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if self.devices is not None and not all(isinstance(device, jax.Device) for device in self.devices):
            raise InputError(f"devices={self.devices!r}: expected some of jax.local_devices(), such as [0:2] of them.")

    def chosen(self) -> Sequence[Any]:
        """The devices that take turns."""
        return jax.local_devices() if self.devices is None else self.devices

    def fill(
        self,
        kernel: AbstractKernelFunction,
        x1: Rows,
        x2: Rows | None,
        out: dict[Field, np.ndarray],
        *,
        size: Size,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        fill(kernel, x1, x2, out, size=size, progress=progress, devices=self.chosen())

    def run(self, task: AbstractTask, items: Sequence[Any]) -> Iterator[Any]:
        return task.here(items, self.chosen())


HERE = Devices(())  # where JAX puts things
