"""Tiles on the workers of Dask, which write them into the store. Only this file knows Dask."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import InputError, warn, whole
from .._engine import Field, Progress, Rows, Size
from ..kernel import AbstractKernelFunction
from ._backends import AbstractBackend
from ._work import AbstractTask

_PATIENCE = 10  # seconds for a scheduler to answer, and for a first worker
_LOOK, _TOLD, _GIVEN_UP = 5, 30, 600  # seconds: looks at workers; without any, a sentence comes, and the end
_AHEAD = 3  # tiles for each thread that workers have, so that none waits for the next
# A while after a worker died, 15 s by default, Dask gives its place up for good unless one is there at that moment.
_KEPT = {"distributed.deploy.lost-worker-timeout": "1 day"}
# A worker has one core: its libraries must not start threads for all.
_ONE_CORE = {"NPROC": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Dask(AbstractBackend):
    """Workers of Dask compute tiles and write them into the store: nothing large is sent or gathered.

    All workers must see the folder of the store under the same path. One that dies costs the tile that it was at.

    Args:
        client: A `dask.distributed.Client`, or the address of a scheduler (`"tcp://..."`). By default workers are
            started on this machine, one for each core, and stopped at the end.
        workers: How many, where they are started here.
        files: Python files that a client's workers need, of a network with layers of somebody's own.

    >>> import everwide as ew
    >>> backend = ew.scale.Dask("tcp://127.0.0.1:8786")  # nothing is asked of it until it is used
    >>> backend.client
    'tcp://127.0.0.1:8786'
    """

    client: Any = None
    workers: int | None = None
    files: Sequence[str | Path] = ()

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole(self.workers, "workers")
        if self.workers is not None and self.client is not None:
            raise InputError("workers= is for those that are started here; a client has its own. Give one of them.")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Dask":
        """The same: a connection is not copied, and scikit-learn copies the arguments of estimators."""
        return self

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
        raise InputError(
            "backend=Dask needs a store that its workers write into: pass out=everwide.scale.Store(path), a folder "
            "that all of them see."
        )

    def run(self, task: AbstractTask, items: Sequence[Any]) -> Iterator[Any]:
        """A few pieces for each worker are under way; workers that join later get some, too."""
        distributed = _distributed()
        with self._connected() as client, task.elsewhere() as sent:
            for file in self.files:
                client.upload_file(str(file))
            waiting, under_way = iter(items), set[Any]()
            try:
                while True:
                    for _ in range(max(1, _AHEAD * sum(client.nthreads().values()) - len(under_way))):
                        if (item := next(waiting, None)) is not None:
                            under_way.add(client.submit(_done, sent, item, pure=False))
                    if not under_way:
                        return
                    for future in _finished(client, under_way):
                        under_way.discard(future)
                        yield future.result()
            except distributed.KilledWorker as fault:
                raise RuntimeError(
                    f"Workers died several times at the same tile ({fault}). Was it too large for their memory? The "
                    "others are kept; run the same again with more memory for each worker, or fewer workers."
                ) from None
            except (distributed.CancelledError, distributed.comm.CommClosedError) as fault:
                raise RuntimeError(
                    f"The scheduler of Dask is gone ({type(fault).__name__}). Start it and its workers, and run the "
                    "same again: a store keeps the tiles that are done."
                ) from None
            finally:
                client.cancel(list(under_way))

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A client with a worker at least; what is started here is stopped."""
        if self.client is None:
            with _local(self.workers) as client:
                yield client
        elif isinstance(self.client, str):
            with _client_of(self.client) as client:
                yield _staffed(client, self.client)
        elif callable(getattr(self.client, "submit", None)) and callable(getattr(self.client, "nthreads", None)):
            yield _staffed(self.client, str(getattr(self.client, "scheduler", self.client)))
        else:
            raise InputError(
                f"Dask({self.client!r}): expected a dask.distributed.Client, the address of a scheduler "
                "('tcp://host:8786'), or nothing."
            )


def _done(task: AbstractTask, item: Any) -> Any:
    """What a worker does."""
    return task(item)


def _finished(client: Any, under_way: set[Any]) -> set[Any]:
    """Some that are done. Where no worker is left, which would be waited for without a word, it is said."""
    distributed, staffed, told = _distributed(), time.monotonic(), False
    while True:
        try:
            with client.as_current():  # `wait` asks the one that is
                return distributed.wait(list(under_way), timeout=_LOOK, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            now = time.monotonic()
            staffed = now if client.nthreads() else staffed
        if now - staffed > _GIVEN_UP:
            raise RuntimeError(
                f"The scheduler has had no workers for {_GIVEN_UP} s. Start some (`dask worker`), and run the same "
                "again: a store keeps the tiles that are done."
            )
        if now - staffed > _TOLD and not told:
            told = True
            more = f"{_GIVEN_UP - _TOLD} s more"
            warn(f"All workers are gone for {_TOLD} s. Start some (`dask worker`); it waits {more}.", UserWarning)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as fault:
        raise ImportError("Workers need Dask: pip install 'everwide[dask]'.", name="distributed") from fault
    return distributed


def _client_of(address: str) -> Any:
    try:
        return _distributed().Client(address, timeout=_PATIENCE)
    except (OSError, ValueError, TimeoutError) as fault:
        raise InputError(
            f"No scheduler of Dask answers at {address!r} ({fault}). Start one with `dask scheduler`, and workers with "
            f"`dask worker {address}`; or name none, and workers start on this machine."
        ) from None


def _staffed(client: Any, name: str) -> Any:
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        raise InputError(f"The scheduler {name} has no workers. Start some: `dask worker {name}`.") from None
    return client


@contextmanager
def _local(workers: int | None) -> Iterator[Any]:
    """Workers that are started again however often they die, and however long that takes on a busy machine."""
    distributed = _distributed()
    import dask.config

    many = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cluster = distributed.LocalCluster(
        n_workers=many if workers is None else workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # 8787 may be taken, and Dask warns of that
        silence_logs=logging.CRITICAL,
        env=_ONE_CORE,
    )
    with dask.config.set(_KEPT), cluster, distributed.Client(cluster) as client:
        yield client
