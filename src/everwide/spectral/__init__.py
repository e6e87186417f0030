"""Functions of a kernel matrix: what has been learned, mode by mode."""

from ._determinantal import diverse_rows as diverse_rows
from ._determinantal import diverse_sample as diverse_sample
from ._determinantal import inclusion_probabilities as inclusion_probabilities
from ._filters import AbstractFilter as AbstractFilter
from ._named import gradient_descent as gradient_descent
from ._named import gradient_flow as gradient_flow
from ._named import momentum as momentum
from ._named import ridge as ridge
from ._solve import Factor as Factor
from ._solve import factorize as factorize
from ._spectrum import KernelError as KernelError
from ._spectrum import Spectrum as Spectrum
from ._spectrum import checked_kernel as checked_kernel
