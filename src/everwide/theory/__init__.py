"""What a network will do, from its architecture, before it is trained: one room a theory."""

from . import criticality as criticality
from . import deep_linear as deep_linear
from . import eigenlearning as eigenlearning
from . import finite_width as finite_width
from . import implicit_bias as implicit_bias
from . import rates as rates
from . import regions as regions
from . import sgd_noise as sgd_noise
from . import stability as stability
