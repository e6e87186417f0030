"""Optimizers for optax that know the width: ADAM*, and learning rates of a parametrization. Needs the extra `train`."""

from ._adam_star import adam_star as adam_star
from ._rates import learning_rates as learning_rates
from ._rates import scale_by_parametrization as scale_by_parametrization
