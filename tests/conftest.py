"""How the whole suite runs: annotations are checked at run time, and no dtype is widened in silence.

Float32 or float64 is chosen from outside, by JAX_ENABLE_X64: `make test` runs both.
"""

import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook("everwide", "typechecker.checked")
jax.config.update("jax_numpy_dtype_promotion", "strict")

import everwide  # noqa: E402, F401 - after the hook, and before pytest imports its modules one by one for doctests


def pytest_collection_modifyitems(items):
    """An example shows how to call something; the tests beside it look at the numbers, in both precisions."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker(pytest.mark.once)
