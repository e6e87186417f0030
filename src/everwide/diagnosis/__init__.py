"""Curvature of training losses, and a doctor for training runs."""

from ._collapse import neural_collapse as neural_collapse
from ._curvature import fisher as fisher
from ._curvature import gauss_newton as gauss_newton
from ._curvature import hessian as hessian
from ._curvature import preconditioner as preconditioner
from ._doctor import Doctor as Doctor
from ._levels import activation_levels as activation_levels
from ._levels import backprop_levels as backprop_levels
from ._levels import gradient_levels as gradient_levels
from ._verdict import read_run as read_run
from ._writers import send as send
