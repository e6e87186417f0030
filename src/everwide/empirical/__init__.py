"""Kernels and derivatives of networks that people already have."""

from ._gradients import per_example_gradients as per_example_gradients
from ._gradients import project_gradients as project_gradients
from ._models import as_model as as_model
from ._ntk import Finite as Finite
from ._ntk import empirical_ntk as empirical_ntk
from ._ntk import empirical_ntk_blocks as empirical_ntk_blocks
from ._ntk import ntk_block as ntk_block
from ._operators import jacobian_operator as jacobian_operator
from ._operators import ntk_operator as ntk_operator
from ._refusals import BatchDependenceError as BatchDependenceError
from ._sampled import Sampled as Sampled
from ._sampled import sample_kernel as sample_kernel
from ._sketch import evaluate as evaluate
from ._sketch import tangent_features as tangent_features
from ._terms import ntk_blocks_of as ntk_blocks_of
from ._weighted import weighted_ntk as weighted_ntk
