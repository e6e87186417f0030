"""One JSON object a line, over pipes: how `run.py` talks to a process of either environment.

Standard library only: both environments import it. What a library prints goes to standard error, never between answers.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
UNSET = ("JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR", "JAX_NUMPY_DTYPE_PROMOTION", "XLA_FLAGS")


class WorkerError(RuntimeError):
    """A worker could not do what it was asked to do."""


def clean_environment() -> dict[str, str]:
    """The caller's variables without those that would favour one side."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return kept | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


class Worker:
    """A process that stays alive and answers one question at a time: nothing else runs while it works."""

    def __init__(self, python: str, script: str):
        self._process = subprocess.Popen(
            [python, str(HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=clean_environment(),
        )

    def ask(self, question: dict) -> dict:
        """Send one question and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerError("The worker has ended.") from error
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"The worker ended with status {self._process.wait()} on {question} (out of memory?).")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def close(self) -> None:
        """Let the process end."""
        with contextlib.suppress(OSError):
            self._process.communicate(timeout=60)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def serve(answers: dict[str, Callable[[dict], dict]]) -> None:
    """The worker's side: answer questions until standard input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = answers[question["do"]](question)
        except Exception:  # the asker decides what a failure means
            answer = {"error": traceback.format_exc()}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def peak_bytes() -> int:
    """The largest resident size that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def versions(names: tuple[str, ...]) -> dict[str, str]:
    """What is installed here."""
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):  # a source tree, an extra that is not there
            found[name] = version(name)
    return found


def timed(fn: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def seconds_to_first_line(command: list[str]) -> float:
    """From the start of a new process until it prints a line; it finds nothing that was compiled before."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with tempfile.TemporaryDirectory() as empty:
        environment = clean_environment() | {"NUMBA_CACHE_DIR": empty}
        start = time.perf_counter()
        with subprocess.Popen(command, env=environment, **options) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            seconds = time.perf_counter() - start
    if not line:
        raise WorkerError(f"{command} printed nothing and ended with status {process.returncode}.")
    return seconds
