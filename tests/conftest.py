"""How the whole suite runs: annotations are checked at run time, and no dtype is widened in silence.

Float32 or float64 is chosen from outside, by JAX_ENABLE_X64: `make test` runs both.
"""

import gc
import os

import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook("everwide", "typechecker.checked")
jax.config.update("jax_numpy_dtype_promotion", "strict")

import everwide  # noqa: E402, F401 - after the hook, and before pytest imports its modules one by one for doctests

gc.freeze()  # what is imported stays; and traces leave so many objects that looking through them often takes long
gc.set_threshold(50_000, 20, 50)


def pytest_collection_modifyitems(items):
    """An example shows how to call something; the tests beside it look at the numbers, in both precisions."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker(pytest.mark.once)


# Most of the time is compilation, of code that runs once: it goes without most optimizations. These modules look at the
# numbers of code as users run it; `make test-all`, which sets the variable, runs everything so.
AS_USERS_RUN_IT = ("test_golden", "test_gram", "test_compiled", "test_ntk", "test_train")


@pytest.fixture(scope="module", autouse=True)
def compilation(request):
    if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
        quick = request.module is None or request.module.__name__.rpartition(".")[2] not in AS_USERS_RUN_IT
        jax.config.update("jax_disable_most_optimizations", quick)
