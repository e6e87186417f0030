"""One linear algebra: a walk over the sources that refuses a factorization outside `everwide.spectral`."""

import ast
from pathlib import Path

import pytest

import everwide

pytestmark = pytest.mark.once

SOURCES = Path(everwide.__file__).parent
FACTORIZING = {
    "cho_factor", "cho_solve", "cholesky", "cholesky_banded", "det", "eig", "eig_banded", "eigh", "eigh_tridiagonal",
    "eigs", "eigsh", "eigvals", "eigvalsh", "eigvalsh_tridiagonal", "get_lapack_funcs", "inv", "ldl", "lobpcg", "lstsq",
    "cond", "lu", "lu_factor", "lu_solve", "matrix_rank", "pinv", "pinvh", "polar", "qr", "schur", "slogdet", "solve",
    "solve_triangular", "splu", "sqrtm", "svd", "svds", "svdvals", "tensorinv", "tensorsolve", "cg", "gmres", "minres",
}  # fmt: skip
ROOTS = ("linalg", "lapack", "scipy.sparse.linalg", "jax.scipy.linalg")
# No kernels between rows, each in the file that it is needed in: why spectral does not do it.
ALLOWED = {
    ("activations/_mehler.py", "inv"): "derivatives at zero from values at a few nodes; below spectral",
    ("gaussian.py", "solve"): "a polynomial through its nodes; below spectral",
    ("layers/_attention.py", "cholesky"): "position embeddings of a finite network, traced; below spectral",
    ("layers/_sampled.py", "cholesky"): "signals are drawn from a law over sites, traced; below spectral",
    ("layers/_sampled.py", "eigh"): "the same, where a law that is estimated is none: the nearest one",
    ("layers/_sampled.py", "svd"): "directions whose products are a tangent kernel over sites, traced; below spectral",
    ("linearization/_movement.py", "norm"): "of a change of kernels, which is indefinite, and traced",
    ("theory/eigenlearning/_eigensystem.py", "qr"): "a random rotation",
    ("theory/deep_linear/_evidence.py", "qr"): "inputs as they are: their squares may leave the range of float64",
    ("theory/deep_linear/_evidence.py", "svdvals"): "the same",
    ("theory/deep_linear/_evidence.py", "solve_triangular"): "the same",
}  # fmt: skip


def decomposing_norm(node: ast.AST) -> bool:
    """`norm(matrix, 2)`, or of another order that takes singular values; with `axis` it is a norm of vectors."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", getattr(node.func, "id", "")) != "norm":
        return False
    options = {keyword.arg: keyword.value for keyword in node.keywords}
    order = options.get("ord", node.args[1] if len(node.args) > 1 else ast.Constant(None))
    vectors = "axis" in options or len(node.args) > 2
    return not vectors and ast.unparse(order) in ("2", "-2", "2.0", "-2.0", "'nuc'")


def factorizations(source: str) -> set[str]:
    """Names of functions of some linalg module that a source calls, imports, or hands on."""
    tree, names = ast.parse(source), set()
    modules = {"linalg", "lapack"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] in ("linalg", "lapack"):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.Import | ast.ImportFrom):
            some = (alias for alias in node.names if alias.name.rpartition(".")[2] in ("linalg", "lapack"))
            modules |= {alias.asname for alias in some if alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            names |= {node.attr} if owner in modules else set()
    decomposing = {"norm"} if any(decomposing_norm(node) for node in ast.walk(tree)) else set()
    return names & FACTORIZING | names & decomposing


def test_only_spectral_factorizes():
    files = [path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).parts[0] != "spectral"]
    assert len(files) > 100
    used = {(str(path.relative_to(SOURCES)), name) for path in files for name in factorizations(path.read_text())}
    assert used - set(ALLOWED) == set(), "use everwide.spectral (Spectrum, Factor, solve, lanczos)"
    assert set(ALLOWED) - used == set(), "no longer needed"


@pytest.mark.parametrize("source", [
    "import numpy as np\nnp.linalg.eigh(k)",
    "import scipy.linalg\nscipy.linalg.cho_factor(k)",
    "import scipy.linalg as sla\nsla.solve_triangular(k, y)",
    "from scipy import linalg\nlinalg.svd(k)",
    "from scipy import linalg as la\nla.svd(k)",
    "from numpy.linalg import inv\ninv(k)",
    "import jax.numpy as jnp\njax.vmap(jnp.linalg.cholesky)(k)",
    "from jax.scipy.linalg import cho_solve",
    "import scipy\nscipy.sparse.linalg.eigsh(k)",
    "import scipy.linalg\nscipy.linalg.get_lapack_funcs(('potrf',))",
    "from scipy.linalg import lapack\nlapack.get_lapack_funcs",
    "import numpy as np\nnp.linalg.norm(k, 2)",
    "import numpy as np\nnp.linalg.norm(k, ord='nuc')",
    "from numpy.linalg import norm\nnorm(k, -2)",
    "import jax.numpy as jnp\njnp.linalg.cond(k)",
])  # fmt: skip
def test_a_factorization_is_noticed(source):
    assert factorizations(source)


def test_norms_and_solvers_of_other_things_are_not():
    assert not factorizations("import jax.numpy as jnp\njnp.linalg.norm(k)\nspectral.solve(k, y)\nfactor.solve(b)")
    assert not factorizations("import numpy as np\nnp.linalg.norm(k, 2, axis=1)\nnp.linalg.norm(k, 1)")
    assert not factorizations("scale.norm(k, 2)")
    assert not factorizations("from scipy.sparse.linalg import LinearOperator")
