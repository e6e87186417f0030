"""Which of scikit-learn's checks wait for the slow tests."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    """Training on memory-mapped rows is what training on rows is, once more."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "_train(readonly_memmap" in item.name:
            item.add_marker(pytest.mark.slow)
