"""`everwide select`: which rows of a file to label next."""

import csv
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from .._checks import InputError
from .._words import listed, several
from ._show import (
    AsJson,
    Data,
    NetOption,
    Seed,
    Target,
    Task,
    bar,
    built,
    examples,
    in_a_sentence,
    misuse,
    network_for,
    note,
    print_json,
    print_table,
    say,
)

EPILOG = examples(
    "select pool.csv --target label --size 50 -o next.csv",
    "select pool.csv --target label --of network --groups patient",
    "select pool.npz --method margin --json",
)
_OF = ("kernel", "network")
_WIDTH, _HELD, _ENOUGH = 256, 0.2, 50  # of networks: the share of labelled rows that says when to stop, if enough
_SHOWN = 10


class _Learned(NamedTuple):
    """Rows, their labels with holes, and what has learned them, as `query` takes all three."""

    x: np.ndarray
    labels: np.ndarray
    model: Any


def select(
    data: Data,
    target: Target = None,
    size: Annotated[int, typer.Option("--size", min=1, help="How many rows to label next.")] = 10,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NEXT.csv", help="Where the rows go; folders are made.")
    ] = Path("next.csv"),
    method: Annotated[
        str | None, typer.Option(help="lcmd, badge, margin, mlmoc, ...; by default what suits the labels.")
    ] = None,
    of: Annotated[
        str, typer.Option(help="kernel: an infinitely wide network learns the labels. network: one that is trained.")
    ] = "kernel",
    net: NetOption = "auto",
    groups: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A batch takes from as many of these groups as it can.")
    ] = None,
    costs: Annotated[str | None, typer.Option(metavar="COLUMN", help="What a label of the row costs.")] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Say too whether as many labels of random rows would be worth it.")
    ] = False,
    task: Task = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Rows to label next, with a reason for each, from a file in which some rows have a label and others have none.

    NEXT.csv holds the number of each row in the file, counted from 1, the reason, and the row itself. Near-duplicates
    of labelled or chosen rows are passed over.
    """
    _check(data, output, of)
    with in_a_sentence():
        from ..tables import read_pool

        pool = read_pool(data, target=target, task=task, besides=[one for one in (groups, costs) if one is not None])
        network = network_for(net, pool.table, "auto")
        asked: dict[str, Any] = {"batch_size": size, "method": method, "task": pool.task, "seed": seed}
        asked |= _columns(pool, groups, costs)
        with bar("choosing rows") as tick:
            picked = _picked(_learned(pool, network, of, seed, tick), asked)
            verdict = str(picked.stop()) if stop else None
        known: dict[str, Any] = _known(pool, picked, size, verdict) | {"output": str(output)}
        note(*known["notes"])
        _write(pool, picked.indices, known["rows"], output)
        print_json(known) if as_json else _print(known)


def _check(data: Path, output: Path, of: str) -> None:
    if output.suffix.lower() != ".csv":
        raise misuse(f"{str(output)!r}: expected a name that ends in .csv.", "--output' / '-o")
    if output.resolve() == data.resolve():
        raise misuse(f"{str(output)!r} is the file that is read. Name another one.", "--output' / '-o")
    if of not in _OF:
        raise misuse(f"{of}: expected kernel or network.", "--of")


def _picked(learned: _Learned, asked: dict[str, Any]) -> Any:
    from ..selection import query

    picked = query(learned.x, learned.labels, learned.model, **asked)
    if not len(picked.indices):
        raise InputError("Every row without a label is a near-duplicate of a labelled one: there is nothing to learn.")
    return picked


def _columns(pool: Any, groups: str | None, costs: str | None) -> dict[str, np.ndarray]:
    """What the file says of rows that is no input."""
    asked = {} if groups is None else {"groups": np.array([str(value) for value in pool.column(groups).tolist()])}
    if costs is None:
        return asked
    try:
        return asked | {"costs": pool.column(costs).astype(np.float64)}
    except (TypeError, ValueError):
        raise misuse(f"{costs}: expected a column of numbers.", "--costs") from None


def _learned(pool: Any, network: Any, of: str, seed: int, tick: Any) -> _Learned:
    """What learns the labels that are there; None where `query` is to choose, as with fewer than two of them."""
    from .._problem import shape_for

    known = np.flatnonzero(np.array([value is not None and value == value for value in pool.labels.tolist()], bool))
    x = pool.table.x
    if len(set(pool.labels[known].tolist())) < 2 or (of == "kernel" and network == "auto"):
        return _Learned(x, pool.labels, None)
    network = "mlp" if network == "auto" else network
    shape = shape_for(network, pool.table)
    if of == "network":
        return _trained(pool, built(network, shape), x.reshape(-1, *shape), known, seed, tick)
    from ..estimators import WideClassifier, WideRegressor

    make = WideClassifier if pool.task == "classification" else WideRegressor
    folded = None if shape == tuple(x.shape[1:]) else shape
    model = make(network, input_shape=folded, random_state=seed)
    return _Learned(x, pool.labels, model.fit(x[known], pool.labels[known]))


def _trained(pool: Any, net: Any, x: np.ndarray, known: np.ndarray, seed: int, tick: Any) -> _Learned:
    """A network of finite width that was trained on scaled rows, and its parameters."""
    from .._losses import Mse, SoftmaxCrossEntropy
    from .._networks import train_networks
    from .._walk import with_outputs
    from ._gram import standardized

    (scaled,), labels, classes = standardized([x]), pool.labels, pool.task == "classification"
    if classes:
        names, codes = np.unique(labels[known].astype(str), return_inverse=True)
        net, targets = with_outputs(net, len(names)), np.zeros(len(x), np.int64)
        targets[known] = codes
    else:
        labels = (labels - labels[known].mean()) / labels[known].std()
        net, targets = with_outputs(net, 1), np.nan_to_num(labels)
    order = np.random.default_rng(seed).permutation(known)
    held = round(_HELD * len(order)) if len(order) >= _ENOUGH else 0
    train, stop = order[held:], order[:held] if held else order
    loss = SoftmaxCrossEntropy() if classes else Mse()
    made = train_networks(net, scaled, targets, [train], [stop], loss=loss, width=_WIDTH, seed=seed, progress=tick)
    if made.diverged[0]:
        raise InputError("The network diverged while it learned the labels. Use --of kernel, or another --net.")
    return _Learned(scaled.astype(np.float32), labels, (net, made.after[0]))


def _known(pool: Any, picked: Any, size: int, verdict: str | None) -> dict[str, Any]:
    """All that is said, in plain types; rows are counted from 1, as they stand in the file."""
    number = np.arange(1, pool.table.n + 1) if pool.table.rows is None else 1 + pool.table.rows
    rows = [
        {"row": int(number[place]), "why": why, "score": float(score)}
        for place, why, score in zip(picked.indices, picked.why, picked.scores, strict=True)
    ]
    twins = [f"{number[row]} (of {number[twin]})" for row, twin in picked.passed_over.items()]
    said = [f"Near-duplicates of labelled or chosen rows were passed over: {listed(twins)}."] if twins else []
    said += (
        [f"Only {several(len(rows), 'row')} of {size} could be chosen: all others are such."]
        if len(rows) < size
        else []
    )
    return {
        "data": pool.table.source,
        "n": pool.table.n,
        "labelled": pool.labelled,
        "target": pool.target,
        "task": pool.task,
        "method": picked.method,
        "kernel": picked.kernel,
        "rows": rows,
        "stop": verdict,
        "notes": [*pool.table.notes, *said],
    }


def _write(pool: Any, places: np.ndarray, rows: list[dict[str, Any]], output: Path) -> None:
    """Numbers and reasons first, then what the file has."""
    lines = [
        {"row": row["row"], "why": row["why"]} | {_free(name): value for name, value in written.items()}
        for row, written in zip(rows, pool.written(places), strict=True)
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def _free(name: str) -> str:
    """A name of a column that is not taken."""
    return f"{name} (of the file)" if name in ("row", "why") else name


def _print(known: dict[str, Any]) -> None:
    rows = known["rows"]
    title = (
        f"{several(len(rows), 'row')} of {known['data']} to label next, of {known['n'] - known['labelled']} without "
        f"{known['target']}; chosen by {known['method']}, kernel: {known['kernel']}."
    )
    print_table(("row", "why"), [(row["row"], row["why"]) for row in rows[:_SHOWN]], title=title)
    if known["stop"] is not None:
        say(known["stop"])
    say(f"{'All' if len(rows) <= _SHOWN else f'These and {len(rows) - _SHOWN} more'} are in {known['output']}")
