"""`everwide gram`."""

import enum
import os
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .._engine import human
from .._words import number
from ..layers import AbstractLayer
from ..tables import Table, read_inputs
from ._show import (
    AsJson,
    Data,
    NetArgument,
    bar,
    built,
    examples,
    in_a_sentence,
    misuse,
    network_for,
    note,
    print_json,
    say,
)

EPILOG = examples(
    "gram train.npz mlp -o K.npy",
    "gram train.csv model.py:net --target price --standardize -o K.npz --which both",
    "gram train.npz cnn --other test.npz -o cross.npy",
)


class Which(enum.StrEnum):
    """Which kernels are written."""

    NTK = "ntk"
    NNGP = "nngp"
    BOTH = "both"


def gram(
    data: Data,
    net: NetArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="K.npy|K.npz", help="Where the kernel goes; folders are made.")
    ],
    which: Annotated[Which, typer.Option(help="Of the trained network, of the random one, or both.")] = Which.NTK,
    other: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Rows of DATA against rows of this file.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A column that is no input; by default all are.")
    ] = None,
    standardize: Annotated[
        bool, typer.Option("--standardize/--raw", help="Bring columns to mean 0 and variance 1, or leave them.")
    ] = False,
    memory: Annotated[
        int | None, typer.Option(min=1, help="Bytes to be used; by default half of what is free.")
    ] = None,
    float32: Annotated[bool, typer.Option("--float32", help="Half the memory, and faster.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the kernel matrix of the rows of a file: exact, tile by tile.

    Memory is counted first. Nothing is left behind when it is interrupted.
    """
    _check_output(output, which)
    with in_a_sentence():
        files = (data,) if other is None else (data, other)
        tables = read_inputs(*files, target=target)
        network, parts = _shaped(net, tables)
        batches = [x.astype(np.float32) if float32 else x for x in (standardized(parts) if standardize else parts)]
        note(*tables[0].notes)
        start = time.perf_counter()
        matrices = _computed(network, batches, which, memory)
        _write(matrices, output)
        facts = _facts(matrices, output, time.perf_counter() - start)
        print_json(facts | {"notes": list(tables[0].notes)}) if as_json else _print(facts)


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


def _check_output(output: Path, which: Which) -> None:
    option = "--output' / '-o"
    if output.suffix not in (".npy", ".npz"):
        raise misuse(f"{str(output)!r}: expected a name that ends in .npy or .npz.", option)
    if which is Which.BOTH and output.suffix == ".npy":
        raise misuse("both kernels need a file that ends in .npz: .npy holds one array.", option)


def _computed(net: AbstractLayer, batches: list[np.ndarray], which: Which, memory: int | None) -> dict[str, np.ndarray]:
    import everwide as ew

    rows, columns, size = len(batches[0]), len(batches[-1]), batches[0].itemsize
    count = 2 if which is Which.BOTH else 1
    note(f"{rows} x {columns} examples, {human(rows * columns * size * count)} for the result.")
    with bar("kernel") as tick:
        if which is Which.BOTH:
            return ew.gram(net, *batches, memory=memory, progress=tick)._asdict()
        one = ew.ntk if which is Which.NTK else ew.nngp
        return {which.value: one(net, *batches, memory=memory, progress=tick)}


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


def _facts(matrices: dict[str, np.ndarray], output: Path, seconds: float) -> dict[str, Any]:
    first = next(iter(matrices.values()))
    return {
        "output": str(output),
        "kernels": list(matrices),
        "shape": list(first.shape),
        "dtype": str(first.dtype),
        "means": {name: float(matrix.mean()) for name, matrix in matrices.items()},
        "seconds": seconds,
    }


def _print(facts: dict[str, Any]) -> None:
    shape = " x ".join(map(str, facts["shape"]))
    means = ", ".join(f"{name} (mean {number(mean, 4)})" for name, mean in facts["means"].items())
    say(f"{means}: {shape} in {facts['dtype']}, {facts['seconds']:.1f} s, written to {facts['output']}")
