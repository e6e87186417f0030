"""The conformance suite: is a layer one thing at every width? Public, for layers and activations of your own."""

from ._check_activation import ActivationReport as ActivationReport
from ._check_activation import check_activation as check_activation
from ._check_layer import LayerReport as LayerReport
from ._check_layer import check_layer as check_layer
from ._check_layer import example_inputs as example_inputs
from ._check_limit import Computed as Computed
from ._check_limit import Limit as Limit
from ._check_limit import check_limit as check_limit
from ._draws import Draws as Draws
from ._draws import sample_kernels as sample_kernels
from ._faults import ConformanceError as ConformanceError
from ._tolerances import CANCELLING32 as CANCELLING32
from ._tolerances import CANCELLING64 as CANCELLING64
from ._tolerances import DERIVATIVE32 as DERIVATIVE32
from ._tolerances import DERIVATIVE64 as DERIVATIVE64
from ._tolerances import EXACT32 as EXACT32
from ._tolerances import EXACT64 as EXACT64
from ._tolerances import GOLDEN32 as GOLDEN32
from ._tolerances import MEAN_SQUARE as MEAN_SQUARE
from ._tolerances import SAMPLED as SAMPLED
from ._tolerances import Exact as Exact
from ._tolerances import Sampled as Sampled
from ._tolerances import Slope as Slope
from ._tolerances import cancelling_for as cancelling_for
from ._tolerances import derivative_for as derivative_for
from ._tolerances import exact_for as exact_for
