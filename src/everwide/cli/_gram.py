"""`everwide gram`."""

import enum
import os
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .._engine import human, most_rows
from .._words import number
from ..layers import AbstractLayer
from ..tables import Table, read_inputs
from ._show import (
    AsJson,
    Data,
    NetAgain,
    NetArgument,
    bar,
    built,
    examples,
    in_a_sentence,
    misuse,
    named_once,
    network_for,
    note,
    print_json,
    say,
)

EPILOG = examples(
    "gram train.npz mlp -o K.npy",
    "gram train.npz cnn --store run --resume",
    "gram train.csv --net model.py:net --target price --standardize -o K.npz --which both",
    "gram train.npz cnn --other test.npz -o cross.npy",
)


Stored = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        file_okay=False,
        help="Instead of -o: keep tiles in a zarr store, with checksums. A run that was stopped can go on.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="With --store: go on with one that is there.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="With --store: of Dask, such as tcp://host:8786; its workers write into the store."
    ),
]


Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="K.npy|K.npz", help="Where the kernel goes; folders are made."),
]
Standardize = Annotated[
    bool, typer.Option("--standardize/--raw", help="Bring columns to mean 0 and variance 1, or leave them.")
]
Memory = Annotated[int | None, typer.Option(min=1, help="Bytes to be used; by default half of what is free.")]
_WHEN_STOPPED = "nothing was written."


class Which(enum.StrEnum):
    """Which kernels are written."""

    NTK = "ntk"
    NNGP = "nngp"
    BOTH = "both"


def gram(
    data: Data,
    net: NetArgument = None,
    again: NetAgain = None,
    output: Output = None,
    which: Annotated[Which, typer.Option(help="Of the trained network, of the random one, or both.")] = Which.NTK,
    store: Stored = None,
    resume: Resume = False,
    scheduler: Scheduler = None,
    other: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Rows of DATA against rows of this file.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A column that is no input; by default all are.")
    ] = None,
    standardize: Standardize = False,
    memory: Memory = None,
    float32: Annotated[bool, typer.Option("--float32", help="Half the memory, and faster.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the kernel matrix of the rows of a file: exact, tile by tile.

    Memory is counted first. Nothing is left behind when it is interrupted; a store keeps what was computed.
    """
    name = named_once(net, again)
    _check_output(output, which, store, resume, scheduler)
    with in_a_sentence(_WHEN_STOPPED if store is None else f"finished tiles are kept in {store}; --resume goes on."):
        files, size = (data,) if other is None else (data, other), 4 if float32 else 8
        most = most_rows(memory, size * (1 + (which is Which.BOTH))) if store is None and other is None else None
        tables = read_inputs(*files, target=target, most_rows=most)
        network, parts = _shaped(name, tables)
        batches = [x.astype(np.float32) if float32 else x for x in (standardized(parts) if standardize else parts)]
        note(*tables[0].notes)
        start = time.perf_counter()
        options = {} if store is None else _stored(store, resume, scheduler, name)
        matrices = _computed(network, batches, which, memory, options)
        if output is not None:
            _write(matrices, output)
        facts = _facts(matrices, output or store, time.perf_counter() - start)
        print_json(facts | {"notes": list(tables[0].notes)}) if as_json else _print(facts)


def _stored(store: Path, resume: bool, scheduler: str | None, net: str) -> dict[str, Any]:
    """A store, and the workers that fill it; these need the file of the network."""
    from ..scale import Dask, Store

    file = net.rpartition(":")[0]
    backend = None if scheduler is None else Dask(scheduler, files=(file,) if file else ())
    return {"out": Store(store, resume=resume, notice=note), "backend": backend}


def _shaped(net: str, tables: tuple[Table, ...]) -> tuple[AbstractLayer, list[np.ndarray]]:
    """The network, and the examples of all tables in the shape that it reads."""
    from .._problem import shape_for

    network = network_for(net, tables[0])
    shape = shape_for(network, tables[0])
    return built(network, shape), [table.x.reshape(table.n, *shape) for table in tables]


def standardized(batches: list[np.ndarray]) -> list[np.ndarray]:
    """Mean 0 and variance 1 in each column (channel, for images) of the first; the others are moved along."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(batches[0].reshape(-1, batches[0].shape[-1]))
    return [np.asarray(scaler.transform(x.reshape(-1, x.shape[-1]))).reshape(x.shape) for x in batches]


def _check_output(output: Path | None, which: Which, store: Path | None, resume: bool, scheduler: str | None) -> None:
    option = "--output' / '-o"
    if output is None and store is None:
        raise misuse("missing: name a file that ends in .npy or .npz, or a folder with --store.", option)
    if output is not None and store is not None:
        raise misuse("a kernel goes into a file or into a store (--store), not both.", option)
    if store is None and (resume or scheduler is not None):
        what = "--resume" if resume else "--scheduler"
        raise misuse("there is no store: name its folder with --store.", what)
    if output is not None and output.suffix not in (".npy", ".npz"):
        raise misuse(f"{str(output)!r}: expected a name that ends in .npy or .npz.", option)
    if output is not None and which is Which.BOTH and output.suffix == ".npy":
        raise misuse("both kernels need a file that ends in .npz: .npy holds one array.", option)


def _computed(
    net: AbstractLayer, batches: list[np.ndarray], which: Which, memory: int | None, options: dict[str, Any]
) -> dict[str, Any]:
    import everwide as ew

    rows, columns, size = len(batches[0]), len(batches[-1]), batches[0].itemsize
    count = 2 if which is Which.BOTH else 1
    note(f"{rows} x {columns} examples, {human(rows * columns * size * count)} for the result.")
    with bar("kernel") as tick:
        given = {"memory": memory, "progress": tick, **options}
        if which is Which.BOTH:
            both = ew.gram(net, *batches, **given)
            return {"nngp": both.nngp, "ntk": both.ntk}
        one = ew.ntk if which is Which.NTK else ew.nngp
        return {which.value: one(net, *batches, **given)}


def _write(matrices: dict[str, np.ndarray], output: Path) -> None:
    """Whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.{os.getpid()}{output.suffix}")
    try:
        if output.suffix == ".npz":
            np.savez(unfinished, allow_pickle=False, **matrices)
        else:
            np.save(unfinished, next(iter(matrices.values())), allow_pickle=False)
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)


def _facts(matrices: dict[str, Any], place: Path | None, seconds: float) -> dict[str, Any]:
    first = next(iter(matrices.values()))
    means = {name: float(matrix.mean()) for name, matrix in matrices.items() if isinstance(matrix, np.ndarray)}
    return {
        "output": str(place),
        "kernels": list(matrices),
        "shape": list(first.shape),
        "dtype": str(first.dtype),
        "means": means,  # a store is not read again for them
        "seconds": seconds,
    }


def _print(facts: dict[str, Any]) -> None:
    shape, means = " x ".join(map(str, facts["shape"])), facts["means"]
    names = ", ".join(f"{name} (mean {number(means[name], 4)})" if name in means else name for name in facts["kernels"])
    say(f"{names}: {shape} in {facts['dtype']}, {facts['seconds']:.1f} s, written to {facts['output']}")
