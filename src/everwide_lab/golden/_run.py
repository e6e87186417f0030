"""Reference kernels in a library-neutral vocabulary: build every case, compute it twice, compare."""

import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from everwide import gram
from everwide.kernel import Inputs
from everwide.signal import ArchitectureError

from ._vocabulary import build_network
from ._words import words_of

Case = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]

_THREADS = 4
_DTYPES = (np.float64, np.float32)
_FLOAT32 = 1e-4  # a float32 kernel of a deep network against its float64 reference: a thousand roundings
_KINDS = ("kernel", "empirical...", "predict_...", "max_learning_rate")
_TRAINED = ("predict", "max_learning_rate")
_KNOWN = {"id", "kind", "input_shape", "n1", "n2", "layers", "rtol", "mask_constant", "out_shape", "quadrature_error"}
_WORDS_ONLY = {"note", "notes", "comment", "description", "title", "source", "reference", "tags", "arrays"}


@dataclass(frozen=True)
class Outcome:
    """What became of one case: `passed` or `failed`, and why."""

    case: str
    status: str
    detail: str


def run_golden(cases: str | Path, arrays: str | Path, *, out: Any = None) -> list[Outcome]:
    """Compare every reference case with this library, in float64 and in float32; one line a case, then the counts.

    `out` is a text stream; `None` is the standard output.

    >>> import pathlib, tempfile, numpy as np
    >>> from everwide_lab.golden import run_golden
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "cases.json").write_text('{"cases": [{"id": "new", "kind": "unheard of"}]}')
    >>> np.savez(folder / "arrays.npz")
    >>> outcomes = run_golden(folder / "cases.json", folder / "arrays.npz")
    failed  new: unknown kind 'unheard of', expected one of ...
    0 passed, 1 failed
    """
    stream = sys.stdout if out is None else out
    described = json.loads(Path(cases).read_text())
    with np.load(arrays) as archive:
        stored = dict(archive)
    outcomes = []
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:  # most of the time is compilation
        for outcome in pool.map(lambda case: run_case(case, stored), described["cases"]):
            _say(stream, f"{outcome.status:7} {outcome.case}: {outcome.detail}")
            outcomes.append(outcome)
    passed = sum(outcome.status == "passed" for outcome in outcomes)
    _say(stream, f"{passed} passed, {len(outcomes) - passed} failed")
    return outcomes


def _say(out: Any, line: str) -> None:
    out.write(f"{line}\n")
    out.flush()


def run_case(case: Any, arrays: Arrays, *, dtypes: Sequence[type] = _DTYPES) -> Outcome:
    """One reference case, in each of `dtypes`; whatever goes wrong in it is its own failure.

    >>> from everwide_lab.golden import run_case
    >>> run_case({"id": "new", "kind": "unheard of"}, {}).status
    'failed'
    """
    name = str(case.get("id", "?")) if isinstance(case, Mapping) else "?"
    try:
        kind = str(case["kind"])
        if kind.startswith(_TRAINED):
            return _run_trained(name, case, arrays)
        if kind.startswith("empirical"):
            return _run_empirical(name, case, arrays, dtypes)
        if kind != "kernel":
            return Outcome(name, "failed", f"unknown kind {kind!r}, expected one of {', '.join(_KINDS)}")
        return _run_kernel(name, case, arrays, dtypes)
    except Exception as fault:  # a case must never end the run
        where = traceback.extract_tb(fault.__traceback__)[-1]
        place = "" if isinstance(fault, ArchitectureError) else f" ({Path(where.filename).name}:{where.lineno})"
        return Outcome(name, "failed", f"{type(fault).__name__}: {' '.join(str(fault).split())}{place}")


def _run_kernel(name: str, case: Case, arrays: Arrays, dtypes: Sequence[type]) -> Outcome:
    unknown = set(case) - _KNOWN - _WORDS_ONLY
    if unknown:
        raise ArchitectureError(f"Unknown options of the case: {words_of(unknown)}. It knows: {words_of(_KNOWN)}.")
    stored = {key: np.asarray(arrays[f"{name}/{key}"]) for key in _stored_names(name, arrays)}
    built = build_network(case["layers"], case["input_shape"])
    notes, passed = [], True
    for dtype in dtypes:
        with jax.enable_x64(dtype is np.float64):
            first, second = _inputs(case, stored, dtype)
            computed = gram(built.net, first, second, parametrization=built.parametrization)
        for kernel, got in zip(("nngp", "ntk"), computed, strict=True):
            apart, allowed = _compare(case, stored, kernel, _interleaved(got), dtype)
            passed &= apart <= allowed
            notes.append(f"{kernel}{np.dtype(dtype).itemsize * 8} {apart:.1e}/{allowed:.0e}")
    return Outcome(name, "passed" if passed else "failed", ", ".join(notes))


def _run_empirical(name: str, case: Case, arrays: Arrays, dtypes: Sequence[type]) -> Outcome:
    from ._empirical import empirical_quantities  # most cases do without the modules behind it

    stored = {key: np.asarray(arrays[f"{name}/{key}"]) for key in _stored_names(name, arrays)}
    notes, passed = [], True
    for dtype in dtypes:
        with jax.enable_x64(dtype is np.float64):
            for quantity, got in empirical_quantities(case, stored, dtype):
                apart = deviation(got, stored[quantity])
                passed &= apart <= _allowed(float(case.get("rtol", 1e-8)), dtype)
                notes.append(f"{quantity}{np.dtype(dtype).itemsize * 8} {apart:.1e}")
    return Outcome(name, "passed" if passed else "failed", ", ".join(notes))


def _run_trained(name: str, case: Case, arrays: Arrays) -> Outcome:
    from ._trained import predicted_quantities

    stored = {key: np.asarray(arrays[f"{name}/{key}"]) for key in _stored_names(name, arrays)}
    notes, passed = [], True
    for quantity, got in predicted_quantities(case, stored):
        apart = deviation(got, stored[quantity])
        passed &= apart <= float(case.get("rtol", 1e-7))
        notes.append(f"{quantity} {apart:.1e}")
    return Outcome(name, "passed" if passed else "failed", ", ".join(notes))


def _stored_names(name: str, arrays: Arrays) -> Iterator[str]:
    prefix = f"{name}/"
    return (key.removeprefix(prefix) for key in arrays if key.startswith(prefix))


def _compare(case: Case, stored: Arrays, kernel: str, got: np.ndarray, dtype: type) -> tuple[float, float]:
    """The deviation, and what is allowed."""
    rtol = float(case.get("rtol", 1e-8))
    truth = stored.get(f"{kernel}_converged")
    if truth is None:  # a reference by quadrature without its limit is only as good as it says
        truth, rtol = stored[kernel], max(rtol, float(case.get("quadrature_error", {}).get(kernel, 0.0)))
    return deviation(got, truth), _allowed(rtol, dtype)


def deviation(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference in units of the largest entry; infinite where shapes differ or something is not finite."""
    a, b = (np.asarray(v, np.float64) for v in (got, expected))
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), np.finfo(np.float64).tiny))


def _allowed(rtol: float, dtype: type) -> float:
    return max(rtol, _FLOAT32) if dtype is np.float32 else rtol


def _inputs(case: Case, stored: Arrays, dtype: type) -> tuple[Inputs, Inputs | None]:
    first = _batch(case, stored["x1"], stored.get("pattern1"), dtype)
    x2 = stored.get("x2")
    if x2 is None or _same(stored["x1"], x2):  # two equal batches mean one, as in the vocabulary
        return first, None
    return first, _batch(case, x2, stored.get("pattern2", stored.get("pattern1")), dtype)


def _same(x1: np.ndarray, x2: np.ndarray) -> bool:
    return x1.shape == x2.shape and bool(np.abs(x1 - x2).max(initial=0.0) <= 1e-12)


def _batch(case: Case, x: np.ndarray, pattern: np.ndarray | None, dtype: type) -> Inputs:
    graph = None if pattern is None else jnp.asarray(pattern, dtype)
    constant = case.get("mask_constant")
    if constant is None:
        return Inputs(jnp.asarray(x, dtype), graph=graph)
    absent = np.isnan(x) if np.isnan(constant) else x == constant
    mask = jnp.asarray(~absent.all(-1)) if x.ndim > 2 else None
    return Inputs(jnp.asarray(np.where(absent, 0, x), dtype), mask=mask, graph=graph)


def _interleaved(kernel: np.ndarray) -> np.ndarray:
    """`(n1, n2, *sites, *sites) -> (n1, n2, p1, p1', p2, p2', ...)`."""
    rank = (kernel.ndim - 2) // 2
    order = [axis for site in range(rank) for axis in (2 + site, 2 + rank + site)]
    return np.transpose(kernel, (0, 1, *order))
