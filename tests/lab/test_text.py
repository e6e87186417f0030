"""Text is read the same way every time, and its three parts share nothing."""

import numpy as np
import pytest

from everwide_lab.sernau2024._text import split_files, standard_library, text_file

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def corpus():
    return standard_library(400_000)


def test_the_standard_library_is_split_by_files(corpus):
    files = [set(part.files) for part in (corpus.train, corpus.validation, corpus.test)]
    assert all(files)
    assert sum(map(len, files)) == len(set.union(*files))
    sizes = np.asarray([len(part.symbols) for part in (corpus.train, corpus.validation, corpus.test)])
    assert sizes.sum() >= 400_000
    assert sizes[0] > 0.6 * sizes.sum()
    assert sizes[1:].min() >= 0.05 * 400_000


def test_the_standard_library_is_the_same_every_time(corpus):
    again = standard_library(400_000)
    assert again.fingerprint == corpus.fingerprint
    assert again.train.files == corpus.train.files
    assert standard_library(500_000).fingerprint != corpus.fingerprint


def test_symbols_are_the_bytes_of_the_training_text_and_one_for_the_rest():
    held_out = [("a", b"ab\xff"), ("b", b"ccc")]
    corpus = split_files([*held_out, ("c", b"cab" * 15)], "three files")
    assert corpus.vocabulary == 4
    np.testing.assert_array_equal(corpus.validation.symbols, [0, 1, 3])
    np.testing.assert_array_equal(corpus.test.symbols, [2, 2, 2])
    np.testing.assert_array_equal(corpus.train.symbols[:3], [2, 0, 1])


def test_a_file_larger_than_a_part_does_not_leave_the_next_part_empty():
    corpus = split_files([("huge", b"x" * 900), ("small", b"y"), ("rest", b"z" * 50), ("last", b"z")], "four files")
    assert (corpus.validation.files, corpus.test.files) == (("huge",), ("small", "rest"))
    assert corpus.train.files == ("last",)


def test_too_few_files_are_refused():
    with pytest.raises(ValueError, match="has 2 files: expected enough for three parts"):
        split_files([("a", b"abc"), ("b", b"abc")], "a folder")


def test_one_file_is_cut_between_lines(tmp_path):
    lines = [f"line {number}\n" for number in range(2000)]
    path = tmp_path / "text.txt"
    path.write_text("".join(lines))
    corpus = text_file(path)
    sizes = [len(part.symbols) for part in (corpus.train, corpus.validation, corpus.test)]
    assert sum(sizes) == path.stat().st_size
    newline = corpus.train.symbols[len(lines[0]) - 1]
    assert corpus.train.symbols[-1] == corpus.validation.symbols[-1] == newline
    assert sizes[0] == pytest.approx(0.9 * sum(sizes), abs=20)


def test_a_short_file_is_refused(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("short")
    with pytest.raises(ValueError, match="has 5 bytes: expected a text of 10 000 or more"):
        text_file(path)
