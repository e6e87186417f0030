"""Functions of a kernel matrix: the one place where matrices are decomposed, factorized and solved with."""

from .._engine import KernelError as KernelError
from ._auto import Auto as Auto
from ._conjugate import ConjugateGradients as ConjugateGradients
from ._decompositions import Factor as Factor
from ._decompositions import Spectrum as Spectrum
from ._determinantal import determinantal_map as determinantal_map
from ._determinantal import determinantal_sample as determinantal_sample
from ._determinantal import leverage_scores as leverage_scores
from ._determinantal import partial_cholesky as partial_cholesky
from ._evidence import evidence as evidence
from ._filters import AbstractFilter as AbstractFilter
from ._filters import gradient_descent as gradient_descent
from ._filters import gradient_flow as gradient_flow
from ._filters import momentum as momentum
from ._filters import ridge as ridge
from ._lanczos import lanczos as lanczos
from ._large import Interrupted as Interrupted
from ._leaves import Leaves as Leaves
from ._nystrom import Nystrom as Nystrom
from ._operators import density as density
from ._operators import leading as leading
from ._operators import trace as trace
from ._single import SingleCholesky as SingleCholesky
from ._smoother import kernel_smoother as kernel_smoother
from ._solve import solve as solve
