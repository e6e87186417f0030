"""A plugin of pytest (`-p tests.rare_garbage`): what thousands of traces leave behind is looked after rarely, but is.

Going through the objects of traces often takes long. Compiled programs are files in memory, and a process may have so
many of them: past Linux's limit (65 530) the next compilation ends it without a word. A test that compiles hundreds of
networks looks by itself.
"""

import gc
import time
from pathlib import Path

import jax

MAPS, MOST, SECONDS = Path("/proc/self/maps"), 40_000, 5.0
_looked = 0.0


def pytest_collection_finish():
    gc.freeze()  # what is imported stays
    gc.set_threshold(50_000, 20, 50)


def pytest_runtest_teardown():
    drop_programs()


def drop_programs():
    """Forget what is compiled, where that is much; looked at every few seconds."""
    global _looked
    if time.monotonic() - _looked < SECONDS:
        return
    _looked = time.monotonic()
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST:
        jax.clear_caches()
        gc.collect()
