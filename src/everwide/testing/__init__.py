"""The conformance suite: is a layer one thing at every width? Public, for layers and activations of your own."""

from ._check_activation import check_activation as check_activation
from ._check_layer import check_layer as check_layer
from ._draws import ConformanceError as ConformanceError
