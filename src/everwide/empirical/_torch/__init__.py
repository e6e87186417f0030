"""The tangents of PyTorch modules. PyTorch is not imported before somebody brings a module."""

from ._tangents import PlanError as PlanError
from ._tangents import torch_tangents as torch_tangents
