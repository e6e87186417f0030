"""`everwide gram`."""

import enum
import os
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .._engine import human
from ..layers import AbstractLayer
from ..tables import read_inputs
from ._faults import in_a_sentence
from ._networks import complete_networks, network_and_rows
from ._options import NET_HELP, AsJson, Data, Standardize, examples
from ._problem import standardized
from ._show import bar, note, number, print_json, say

EPILOG = examples(
    "gram train.npz mlp -o K.npy",
    "gram train.csv model.py:net --target price --standardize -o K.npz --kernel both",
    "gram train.npz cnn --other test.npz -o cross.npy",
)


class KernelName(enum.StrEnum):
    """Which kernels are written."""

    NTK = "ntk"
    NNGP = "nngp"
    BOTH = "both"


def gram(
    data: Data,
    net: Annotated[str, typer.Argument(metavar="NETWORK", help=NET_HELP, autocompletion=complete_networks)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="K.npy|K.npz", help="Where the kernel goes.")],
    kernel: Annotated[KernelName, typer.Option(help="Of the trained network, of the random one, or both.")] = (
        KernelName.NTK
    ),
    other: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Rows of DATA against rows of this file.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A column that is no input; by default all are.")
    ] = None,
    standardize: Standardize = False,
    float32: Annotated[bool, typer.Option("--float32", help="Half the memory, and faster.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the kernel matrix of the rows of a file: exact, tile by tile.

    Memory is counted first. Nothing is left behind when it is interrupted.
    """
    _check_output(output, kernel)
    with in_a_sentence():
        files = (data,) if other is None else (data, other)
        tables = read_inputs(*files, target=target)
        ready = [network_and_rows(net, table) for table in tables]
        parts = standardized(*(x for _, x in ready)) if standardize else [x for _, x in ready]
        batches = [x.astype(np.float32) if float32 else x for x in parts]
        for text in tables[0].notes:
            note(text)
        start = time.perf_counter()
        matrices = _computed(ready[0][0], batches, kernel)
        _write(matrices, output)
        found = _facts(matrices, output, time.perf_counter() - start)
        print_json(found | {"notes": list(tables[0].notes)}) if as_json else _print(found)


def _check_output(output: Path, kernel: KernelName) -> None:
    hint = "'--output' / '-o'"
    if output.suffix not in (".npy", ".npz"):
        raise typer.BadParameter(f"{str(output)!r}: expected a name that ends in .npy or .npz.", param_hint=hint)
    if kernel is KernelName.BOTH and output.suffix == ".npy":
        raise typer.BadParameter("both kernels need a file that ends in .npz: .npy holds one array.", param_hint=hint)
    if not output.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {str(output.parent)!r}.", param_hint=hint)


def _computed(net: AbstractLayer, batches: list[np.ndarray], kernel: KernelName) -> dict[str, np.ndarray]:
    import everwide as ew

    rows, columns, size = len(batches[0]), len(batches[-1]), batches[0].itemsize
    count = 2 if kernel is KernelName.BOTH else 1
    note(f"{rows} x {columns} examples, {human(rows * columns * size * count)} for the result.")
    with bar("kernel") as tick:
        watch: Any = lambda p: tick(p.done, p.total, f"kernel, tile {p.done} of {p.total}")
        if kernel is KernelName.BOTH:
            return ew.gram(net, *batches, progress=watch)._asdict()
        one = ew.ntk if kernel is KernelName.NTK else ew.nngp
        return {kernel.value: one(net, *batches, progress=watch)}


def _write(matrices: dict[str, np.ndarray], output: Path) -> None:
    """Whole or not at all."""
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


def _print(found: dict[str, Any]) -> None:
    shape = " x ".join(map(str, found["shape"]))
    means = ", ".join(f"{name} (mean {number(mean)})" for name, mean in found["means"].items())
    say(f"{means}: {shape} in {found['dtype']}, {found['seconds']:.1f} s, written to {found['output']}")
