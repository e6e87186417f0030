"""From a module of PyTorch, Flax or Equinox to a network of any width."""

from ._translation import from_module as from_module
