"""Whole networks by name, finite and infinite, each with the paper that it comes from."""

from ._convolutional import cnn as cnn
from ._convolutional import myrtle as myrtle
from ._convolutional import resnet as resnet
from ._convolutional import wide_resnet as wide_resnet
from ._dense import graph_network as graph_network
from ._dense import mlp as mlp
from ._dense import recurrent_network as recurrent_network
from ._tokens import gpt as gpt
from ._tokens import mlp_mixer as mlp_mixer
from ._tokens import vit as vit
