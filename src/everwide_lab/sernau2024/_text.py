"""Text for a small language model: bytes, in three parts that share nothing."""

import hashlib
import sysconfig
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from everwide import InputError

_HELD_OUT = 0.05  # the share of the validation text, and that of the test text
# Tests and tools; and tables of data, which are no prose: they would be most of a held-out text.
_SKIPPED = {
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "turtledemo",
    "ensurepip",
    "encodings",
    "pydoc_data",
}


class Part(NamedTuple):
    """A part of a text: its symbols, and the files that it comes from."""

    symbols: UInt8[np.ndarray, " length"]
    files: tuple[str, ...]


class Corpus(NamedTuple):
    """Symbols are the bytes that the training text has, by rank, and one more for all others."""

    train: Part
    validation: Part
    test: Part
    vocabulary: int
    name: str

    @property
    def fingerprint(self) -> str:
        """Changes with any byte."""
        digest = hashlib.sha256()
        for part in self[:3]:
            digest.update(len(part.symbols).to_bytes(8, "big") + part.symbols.tobytes())
        return digest.hexdigest()[:16]


def standard_library(size: int) -> Corpus:
    """Sources of the running interpreter's standard library, about `size` bytes: whole files, always the same."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (path for path in root.rglob("*.py") if not _SKIPPED & set(path.relative_to(root).parts))
    named = sorted((_rank(name), name) for name in (path.relative_to(root).as_posix() for path in files))
    chosen, taken = [], 0
    for _, name in named:
        if taken >= size:
            break
        content = (root / name).read_bytes()
        chosen.append((name, content))
        taken += len(content)
    return split_files(chosen, "the Python standard library")


def text_file(path: Path) -> Corpus:
    """One file: nine tenths for training, then a piece for validation and one for the test, cut between lines."""
    content = path.read_bytes()
    if len(content) < 10_000:
        raise InputError(f"{path} has {len(content)} bytes: expected a text of 10 000 or more.")
    edges = [_line_end(content, round(len(content) * share)) for share in (1 - 2 * _HELD_OUT, 1 - _HELD_OUT)]
    pieces = content[: edges[0]], content[edges[0] : edges[1]], content[edges[1] :]
    return _corpus(*(((path.name, piece),) for piece in pieces), name=path.name)


def split_files(files: list[tuple[str, bytes]], name: str) -> Corpus:
    """Whole files, in this order: first those for validation, then those for the test, then those for training."""
    wanted = _HELD_OUT * sum(len(content) for _, content in files)
    parts, filling, taken = ([], [], []), 0, 0
    for file in files:
        if filling < 2 and taken >= wanted:
            filling, taken = filling + 1, 0
        parts[filling].append(file)
        taken += len(file[1])
    if not all(parts):
        raise InputError(f"{name} has {len(files)} files: expected enough for three parts that share none.")
    validation, test, train = (tuple(part) for part in parts)
    return _corpus(train, validation, test, name=name)


def _corpus(*parts: tuple[tuple[str, bytes], ...], name: str) -> Corpus:
    joined = [np.frombuffer(b"\n".join(content for _, content in part), np.uint8) for part in parts]
    known = np.unique(joined[0])
    symbols = np.full(256, min(len(known), 255), np.uint8)
    symbols[known] = np.arange(len(known), dtype=np.uint8)
    train, validation, test = (
        Part(symbols[content], tuple(file for file, _ in part)) for content, part in zip(joined, parts, strict=True)
    )
    return Corpus(train, validation, test, min(len(known) + 1, 256), name)


def _rank(name: str) -> str:
    """An order that has nothing to do with the alphabet, and is the same everywhere."""
    return hashlib.sha256(name.encode()).hexdigest()


def _line_end(content: bytes, near: int) -> int:
    return content.find(b"\n", near) + 1 or near
