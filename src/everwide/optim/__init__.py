"""Learning rates that belong to a parametrization, for optax. Needs the extra `train`."""

from ._rates import Rule as Rule
from ._rates import learning_rates as learning_rates
from ._transform import scale_by_parametrization as scale_by_parametrization
