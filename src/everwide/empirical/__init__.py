"""Kernels and derivatives of networks that people already have."""

from ._finite import Finite as Finite
from ._forms import Outputs as Outputs
from ._gradients import Projection as Projection
from ._gradients import per_example_gradients as per_example_gradients
from ._gradients import project_gradients as project_gradients
from ._models import Model as Model
from ._models import TorchModel as TorchModel
from ._models import as_model as as_model
from ._models import from_equinox as from_equinox
from ._models import from_network as from_network
from ._models import from_nnx as from_nnx
from ._models import from_torch as from_torch
from ._ntk import empirical_ntk as empirical_ntk
from ._ntk import empirical_ntk_blocks as empirical_ntk_blocks
from ._ntk import ntk_block as ntk_block
from ._operators import JacobianOperator as JacobianOperator
from ._operators import NtkOperator as NtkOperator
from ._operators import jacobian_operator as jacobian_operator
from ._operators import ntk_operator as ntk_operator
from ._refusals import BatchDependenceError as BatchDependenceError
from ._sample_kernel import SampledKernel as SampledKernel
from ._sample_kernel import sample_kernel as sample_kernel
from ._sampled import Sampled as Sampled
