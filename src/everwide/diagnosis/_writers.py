"""Figures of a run for TensorBoard and Weights & Biases. Neither is imported: whoever has one passes its writer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._checks import InputError
from ._log import Record

_PREFIX = "everwide"


def send(run: Any, writer: Any, *, start: int = 0) -> int:
    """Send what was recorded of a run, and its verdict, to TensorBoard or to Weights & Biases.

    Args:
        run: of `read_run(path)`, or the `run` of a `Doctor`.
        writer: a `SummaryWriter` of `torch.utils.tensorboard` or tensorboardX, or a run of Weights & Biases
            (`wandb.init(...)`).
        start: how many records, in the order of the log, were sent before and are left out.

    Returns:
        How many records the log has now: the `start` of the next call, while training goes on.

    >>> from everwide.diagnosis import read_run, send
    >>> from torch.utils.tensorboard import SummaryWriter  # doctest: +SKIP
    >>> send(read_run("run.jsonl"), SummaryWriter("runs/1"))  # doctest: +SKIP

    """
    if not hasattr(run, "records"):
        raise InputError(f"run is a {type(run).__name__}, expected what read_run(path) returns.")
    deliver(run.records[start:], writer)
    verdict = run.verdict()
    if hasattr(writer, "add_text"):
        writer.add_text(f"{_PREFIX}/verdict", str(verdict), verdict.steps)
    elif hasattr(writer, "summary"):
        writer.summary[f"{_PREFIX}/verdict"] = str(verdict)
    if hasattr(writer, "flush"):
        writer.flush()
    return len(run.records)


def deliver(records: Sequence[Record], writer: Any, *, commit: bool = True) -> None:
    """Numbers of records, under names such as `everwide/curvature/ratio`.

    Weights & Biases takes no past steps, so the step is a number beside the others, by which charts are drawn; with
    `commit=False` they go with what the training loop logs next, and do not count as a step of its own.
    """
    if hasattr(writer, "add_scalar"):
        for record in records:
            for name, value in scalars(record):
                writer.add_scalar(name, value, record["step"])
    elif hasattr(writer, "log"):
        _log(records, writer, commit)
    else:
        raise InputError(
            f"writer is a {type(writer).__name__}, expected a SummaryWriter (of torch.utils.tensorboard or "
            "tensorboardX) or a run of Weights & Biases (wandb.init())."
        )


def _log(records: Sequence[Record], writer: Any, commit: bool) -> None:
    """One call for each step."""
    counted = f"{_PREFIX}/step"
    if hasattr(writer, "define_metric"):
        writer.define_metric(f"{_PREFIX}/*", step_metric=counted)
    steps: dict[int, dict[str, float]] = {}
    for record in records:
        steps.setdefault(record["step"], {}).update(scalars(record))
    for step, numbers in steps.items():
        if numbers:
            writer.log({counted: step, **numbers}, commit=commit)


def scalars(record: Record) -> Iterator[tuple[str, float]]:
    """Names and numbers of a record: those inside mappings too, lists and what was not measured left out."""
    kind = record["record"]
    if kind == "event":
        yield f"{_PREFIX}/event/{record['name']}", 1.0
        kind, record = f"event/{record['name']}", record.get("figures") or {}
    yield from _numbers(record, f"{_PREFIX}/{kind}")


def _numbers(values: Mapping[str, Any], path: str) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{path}/{name}")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            yield f"{path}/{name}", float(value)
