"""A plugin of pytest (`-p tests.rare_garbage`): what thousands of traces leave behind is looked after rarely, but is.

Going through the objects of traces often takes long. Compiled programs are files in memory, and a process may have so
many of them: past Linux's limit (65 530) the next compilation ends it without a word.
"""

import gc
from pathlib import Path

import jax

MAPS, MOST, EVERY = Path("/proc/self/maps"), 40_000, 25
_tests = 0


def pytest_collection_finish():
    gc.freeze()  # what is imported stays
    gc.set_threshold(50_000, 20, 50)


def pytest_runtest_teardown():
    global _tests
    _tests += 1
    if _tests % EVERY == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST:
        jax.clear_caches()
        gc.collect()
