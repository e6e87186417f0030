"""How much data a kernel, and so a wide network, needs."""

from ._curve import learning_curve as learning_curve
from ._eigensystem import eigensystem as eigensystem
from ._entropy import entropy_number as entropy_number
from ._hermite import definiteness as definiteness
from ._hermite import hermite_coefficients as hermite_coefficients
from ._transfer import learnability as learnability
from ._transfer import mercer as mercer
from ._transfer import rkhs_norm as rkhs_norm
from ._transfer import transfer_matrix as transfer_matrix
