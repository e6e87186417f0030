"""A plugin of pytest (`-p tests.rare_garbage`): traces leave many objects, and going through them often takes long."""

import gc


def pytest_collection_finish():
    gc.freeze()  # what is imported stays
    gc.set_threshold(50_000, 20, 50)
