"""Targets that networks learn from few rows and kernels cannot, with what a kernel must leave."""

from ._tasks import single_neuron as single_neuron
from ._tasks import sparse_parity as sparse_parity
