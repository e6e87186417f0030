"""The package is imported with its annotations checked at run time; no dtype is widened in silence.

Everything else comes from outside: the precision from JAX_ENABLE_X64, quick compilation from
JAX_DISABLE_MOST_OPTIMIZATIONS, the choice of tests from markers. The Makefile sets them, and says why.
"""

import jax
from jaxtyping import install_import_hook

install_import_hook(["everwide", "everwide_lab"], "typechecker.checked")
jax.config.update("jax_numpy_dtype_promotion", "strict")

import everwide  # noqa: E402, F401 - after the hook, and before pytest imports its modules one by one for doctests
