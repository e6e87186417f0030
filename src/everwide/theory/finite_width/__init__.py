"""What a finite width does to gradients and kernels, and what can be proved about training in spite of it."""

from ._bounds import kernel_concentration_bound as kernel_concentration_bound
from ._bounds import lambda_max_bounds as lambda_max_bounds
from ._bounds import lambda_max_tail as lambda_max_tail
from ._certificates import certificate as certificate
from ._certificates import convergence_rate as convergence_rate
from ._certificates import lee_certificate as lee_certificate
from ._fluctuations import expected_ntk as expected_ntk
from ._fluctuations import gradient_law as gradient_law
from ._fluctuations import kernel_fluctuation as kernel_fluctuation
from ._laziness import lazy_kappa as lazy_kappa
from ._laziness import linearization_bound as linearization_bound
from ._laziness import relu_linearization_sup as relu_linearization_sup
from ._residual import estimate_jacobian_lipschitz as estimate_jacobian_lipschitz
from ._residual import initial_residual_quantile as initial_residual_quantile
from ._residual import lipschitz_upper_bound as lipschitz_upper_bound
