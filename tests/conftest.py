"""How the whole suite runs: annotations are checked at run time, and no dtype is widened in silence.

Float32 or float64 is chosen from outside, by JAX_ENABLE_X64: `make test` runs both.
"""

import gc
import os
import re
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook(["everwide", "everwide_lab"], "typechecker.checked")
jax.config.update("jax_numpy_dtype_promotion", "strict")

import everwide  # noqa: E402, F401 - after the hook, and before pytest imports its modules one by one for doctests

gc.freeze()  # what is imported stays; and traces leave so many objects that looking through them often takes long
gc.set_threshold(50_000, 20, 50)

TESTS = Path(__file__).parent
# Most of the time is compilation, of code that runs once: it goes without most optimizations. These modules look at the
# numbers of code as users run it; `make test-all`, which sets the variable, runs everything so.
NAMES = ("test_golden", "engine/test_gram", "kernels/test_compiled", "empirical/test_ntk", "training/test_train")
AS_USERS_RUN_IT = [TESTS / f"{name}.py" for name in NAMES]


@pytest.fixture(scope="module", autouse=True)
def compilation(request):
    if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
        jax.config.update("jax_disable_most_optimizations", request.path not in AS_USERS_RUN_IT)


def pytest_configure(config):
    if gone := [path.name for path in AS_USERS_RUN_IT if not path.exists()]:
        raise pytest.UsageError(f"tests/conftest.py names {gone}, which it does not find: put the new names there.")
    config.addinivalue_line("markers", "as_users: compiled with all optimizations; the modules that conftest.py lists")


def pytest_collection_modifyitems(items):
    """An example shows how to call something; the tests beside it look at the numbers, in both precisions."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker(pytest.mark.once)
        if item.path in AS_USERS_RUN_IT:
            item.add_marker(pytest.mark.as_users)


def marks_of_all_tests_in(path: Path) -> set[str]:
    """Read, not imported."""
    lines = re.findall(r"^pytestmark = .*", path.read_text(), re.MULTILINE)
    marks = {mark for line in lines for mark in re.findall(r"pytest\.mark\.(\w+)", line)}
    if not path.name.startswith("test_"):
        marks.add("once")  # examples at most
    return marks | ({"as_users"} if path in AS_USERS_RUN_IT else set())


def pytest_ignore_collect(collection_path, config):
    """What `-m` leaves out as a whole is not even imported: some modules compute much when they are."""
    asked = config.option.markexpr
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    if collection_path.suffix != ".py" or " or " in asked or collection_path in named:
        return None
    marks, terms = marks_of_all_tests_in(collection_path), asked.split(" and ")
    refused = {term.removeprefix("not ") for term in terms if term.startswith("not ")}
    return True if refused & marks or ("as_users" in terms and "as_users" not in marks) else None
