"""What a finite width does to gradients and kernels, and what can be proved about training in spite of it."""

from ._bounds import LambdaMaxBounds as LambdaMaxBounds
from ._bounds import kernel_concentration_bound as kernel_concentration_bound
from ._bounds import lambda_max_bounds as lambda_max_bounds
from ._bounds import lambda_max_tail as lambda_max_tail
from ._bounds import ntk_trace_tail as ntk_trace_tail
from ._certificates import Certificate as Certificate
from ._certificates import LeeCertificate as LeeCertificate
from ._certificates import certificate as certificate
from ._certificates import lee_certificate as lee_certificate
from ._convergence import ConvergenceRate as ConvergenceRate
from ._convergence import convergence_rate as convergence_rate
from ._convergence import gronwall_bound as gronwall_bound
from ._expected_ntk import expected_ntk as expected_ntk
from ._fluctuations import KernelFluctuation as KernelFluctuation
from ._fluctuations import NtkFluctuation as NtkFluctuation
from ._fluctuations import kernel_fluctuation as kernel_fluctuation
from ._fluctuations import ntk_fluctuation as ntk_fluctuation
from ._gradients import GradientMoments as GradientMoments
from ._gradients import LogNormalLaw as LogNormalLaw
from ._gradients import gradient_moments as gradient_moments
from ._gradients import lognormal_law as lognormal_law
from ._gradients import sample_gradient_norm as sample_gradient_norm
from ._lipschitz import JacobianLipschitz as JacobianLipschitz
from ._lipschitz import estimate_jacobian_lipschitz as estimate_jacobian_lipschitz
from ._residual import InitialResidual as InitialResidual
from ._residual import initial_residual_quantile as initial_residual_quantile
