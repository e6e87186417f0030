"""The package is imported with its annotations checked at run time; no dtype is widened in silence.

Everything else comes from outside: the precision from JAX_ENABLE_X64, quick compilation from
JAX_DISABLE_MOST_OPTIMIZATIONS, the choice of tests from markers. The Makefile sets them, and says why.
"""

from pathlib import Path
from typing import Any

import jax
from jaxtyping import install_import_hook

install_import_hook(["everwide", "everwide_lab"], "typechecker.checked")
jax.config.update("jax_numpy_dtype_promotion", "strict")

import everwide  # noqa: E402, F401 - after the hook, and before pytest imports its modules one by one for doctests


def pytest_ignore_collect(collection_path: Path, config: Any) -> bool | None:
    """Modules whose marks rule out all of their tests are not even imported: there are many, in every run."""
    chosen = config.option.markexpr
    if not chosen or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    of_all = next((line for line in text.splitlines() if line.startswith("pytestmark")), "")
    unasked = chosen.endswith("and as_users") and "as_users" not in text
    return True if unasked or ("not once" in chosen and "mark.once" in of_all) else None
