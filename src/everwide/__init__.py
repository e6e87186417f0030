"""Neural networks of any width, infinity included: know what a network will learn before you train it."""

import importlib as _importlib
from types import ModuleType as _ModuleType

from ._checks import InputError as InputError
from ._engine import MemoryBudgetError as MemoryBudgetError
from ._engine import Progress as Progress
from ._gram import diagonal as diagonal
from ._gram import gram as gram
from ._gram import nngp as nngp
from ._gram import ntk as ntk
from ._kernels import Infinite as Infinite
from ._operator import operator as operator
from ._plan import plan as plan
from ._walk import explain as explain
from .activations import Elementwise as Elementwise
from .activations import Erf as Erf
from .activations import Gelu as Gelu
from .activations import LeakyRelu as LeakyRelu
from .activations import Relu as Relu
from .activations import Sigmoid as Sigmoid
from .activations import Silu as Silu
from .activations import Sin as Sin
from .activations import Tanh as Tanh
from .comparison import compare as compare
from .empirical import empirical_ntk as empirical_ntk
from .kernel import Edges as Edges
from .kernel import Inputs as Inputs
from .layers import Aggregate as Aggregate
from .layers import AvgPool as AvgPool
from .layers import Concat as Concat
from .layers import Conv as Conv
from .layers import Dense as Dense
from .layers import Dropout as Dropout
from .layers import Flatten as Flatten
from .layers import GlobalAvgPool as GlobalAvgPool
from .layers import Identity as Identity
from .layers import LayerNorm as LayerNorm
from .layers import Product as Product
from .layers import Repeat as Repeat
from .layers import Residual as Residual
from .layers import SelfAttention as SelfAttention
from .layers import Serial as Serial
from .layers import Sum as Sum
from .linearization import linearize as linearize
from .signal import ArchitectureError as ArchitectureError
from .signal import Parametrization as Parametrization
from .translation import from_module as from_module

# Rooms that a first program may not need: there as attributes, imported when they are asked for.
_ROOMS = (
    "activations",
    "architectures",
    "attribution",
    "comparison",
    "diagnosis",
    "empirical",
    "estimators",
    "forecasting",
    "kernel",
    "layers",
    "linearization",
    "optim",
    "report",
    "scale",
    "selection",
    "signal",
    "spectral",
    "tables",
    "tasks",
    "testing",
    "theory",
    "training",
    "translation",
)


def __getattr__(name: str) -> _ModuleType:
    if name in _ROOMS:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
